"""Judging under the named policies for truncated answers, and seeds that are functions of their place."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Sequence
from concurrent.futures import Future
from pathlib import Path

import pytest

from tossup import verifiers
from tossup.engine.config import SamplingConfig
from tossup.engine.generate import Generator, Sample, TransformersGenerator
from tossup.engine.generate.words import OnGroup
from tossup.engine.policy import Policy, load
from tossup.engine.rollouts import Judging, sample_groups, stream
from tossup.records import Problem, Rollout, Ruling, Stop, TossupError, Verdict

PROBLEM = Problem("p", "1+1", "2", verifier="exact")


def rollout(text: str, stop: Stop = Stop.END, tokens: int = 2) -> Rollout:
    return Rollout((5, 6), (7,) * tokens, (-1.0,) * tokens, text, stop, 0)


def judged(problem: Problem, answers: Sequence[Rollout], config: SamplingConfig) -> list[Verdict]:
    with Judging([problem], config) as judging:
        judging.take(0, answers)
        return [r.verdict for r in judging.finish()[0] if r.verdict is not None]


def rulings(policy: str) -> list[tuple[Ruling, str]]:
    answers = [rollout("2"), rollout("3"), rollout("2", Stop.LENGTH), rollout("3", Stop.LENGTH), rollout("", tokens=0)]
    config = SamplingConfig(truncated=policy)  # type: ignore[arg-type]
    return [(v.ruling, v.reason) for v in judged(PROBLEM, answers, config)]


def test_truncated_answers_follow_the_named_policy() -> None:
    c, w, u = Ruling.CORRECT, Ruling.WRONG, Ruling.UNDECIDED
    assert [r for r, _ in rulings("judge")] == [c, w, c, w, u]
    assert [r for r, _ in rulings("wrong")] == [c, w, w, w, u]
    assert [r for r, _ in rulings("exclude")] == [c, w, u, u, u]
    assert rulings("exclude")[2][1] == "truncated"
    assert "no room" in rulings("judge")[4][1]


def test_a_verifier_that_is_not_there_is_the_user_s_to_fix() -> None:
    problem = dataclasses.replace(PROBLEM, verifier="os.path:not_there")
    with pytest.raises(TossupError, match="not_there"):
        judged(problem, [rollout("2")], SamplingConfig())


def test_streams_differ_by_every_part_of_their_path() -> None:
    paths = [(seed, kind, step) for seed in range(3) for kind in range(3) for step in range(50)]
    seeds = {stream(*path) for path in paths}
    assert len(seeds) == len(paths)
    assert stream(1, 2, 3) == stream(1, 2, 3)
    assert all(0 <= seed < 1 << 63 for seed in seeds)


class Slow(Generator):
    """Answers "2" to every prompt, the second one only when the first one's answers have been judged."""

    version = 0

    def __init__(self, policy: Policy, first_is_judged: threading.Event) -> None:
        self.ids = tuple(policy.tokenizer("2")["input_ids"])
        self.first_is_judged = first_is_judged

    def generate(
        self,
        prompts: Sequence[tuple[int, ...]],
        group_size: int,
        seeds: Sequence[int],
        sampling: SamplingConfig,
        on_group: OnGroup | None = None,
    ) -> list[list[Sample]]:
        answers = [Sample(self.ids, (-1.0,) * len(self.ids), Stop.END, 0.0)] * group_size
        assert on_group is not None
        on_group(1, answers)
        assert self.first_is_judged.wait(60), "nothing is judged while others are generated"
        on_group(0, answers)
        return [answers] * len(prompts)


def test_answers_are_judged_while_others_are_generated(monkeypatch: pytest.MonkeyPatch) -> None:
    policy = load("builtin:arithmetic", "cpu")
    seen = threading.Event()

    class Seen(verifiers.Stream):
        def take(self, problem: Problem, response: str) -> Verdict | Future[Verdict]:
            answer = super().take(problem, response)
            seen.set()
            return answer

    monkeypatch.setattr(verifiers, "Stream", Seen)
    problems = [dataclasses.replace(PROBLEM, id=str(n), reference=str(n)) for n in (1, 2)]
    groups, _ = sample_groups(
        policy, problems, SamplingConfig(), group_size=2, seed=0, first_id=5, generator=Slow(policy, seen)
    )
    assert [(g.id, g.problem.id, g.rewards) for g in groups] == [(5, "1", (0.0, 0.0)), (6, "2", (1.0, 1.0))]


WAITING = """
import time
from pathlib import Path

def waits(problem, response):
    there = Path(problem.reference)
    while problem.id == "first" and not there.exists():
        time.sleep(0.01)
    there.touch()
    return True
"""


def test_an_answer_that_hangs_holds_up_no_later_group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first group's answer is right once one of the second group has been judged."""
    (tmp_path / "waiting_verifier.py").write_text(WAITING)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("TOSSUP_WORKERS", "2")
    problems = [Problem(name, "", str(tmp_path / "there"), "waiting_verifier:waits") for name in ("first", "second")]
    with Judging(problems, SamplingConfig()) as judging:
        judging.take(0, [rollout("2")])
        judging.take(1, [rollout("2")] * 3)
        found = judging.finish()
    verifiers.get("waiting_verifier:waits").close()
    rulings = {i: [r.verdict.ruling for r in group if r.verdict is not None] for i, group in found.items()}
    assert rulings == {0: [Ruling.CORRECT], 1: [Ruling.CORRECT] * 3}


def test_what_the_verifier_cannot_do_ends_the_sampling() -> None:
    policy = load("builtin:arithmetic", "cpu")
    problem = dataclasses.replace(PROBLEM, verifier="os.path:not_there")
    with pytest.raises(TossupError, match="not_there"):
        sample_groups(policy, [problem], SamplingConfig(max_new_tokens=2), group_size=2, seed=0)


def test_a_generator_with_the_weights_of_another_step_is_not_sampled_from() -> None:
    policy = load("builtin:arithmetic", "cpu")
    generator = TransformersGenerator(policy, 3)
    with pytest.raises(ValueError, match="the weights of step 3, not of step 4"):
        sample_groups(policy, [PROBLEM], SamplingConfig(), group_size=2, seed=0, policy_step=4, generator=generator)
