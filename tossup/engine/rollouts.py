"""From problems to judged groups: sample, decode, verify.

A group is judged while the groups after it are still being generated. A verdict depends on the problem and the answer
alone, so this changes no result.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import NamedTuple

import numpy as np

from tossup import verifiers
from tossup.engine.config import SamplingConfig
from tossup.engine.generate import Generator, Sample, TransformersGenerator
from tossup.engine.generate.draws import prompt_seeds
from tossup.engine.policy import Policy
from tossup.engine.prompts import encode_prompt
from tossup.records import Group, Problem, Rollout, Stop, Verdict, undecided, wrong

Progress = Callable[[int], None]
"""Called with the number of answers that have just been finished."""


def stream(*path: int) -> int:
    """A seed for one purpose, from the run's seed and whatever names the purpose (a step, a wave).

    Randomness that is a function of its place in the run needs no state to be saved: a resumed run draws the same.
    """
    return int(np.random.SeedSequence(path).generate_state(1, np.uint64)[0] >> np.uint64(1))


class Seconds(NamedTuple):
    """Where the wall time of a wave went."""

    generate: float
    verify: float
    """What was left to judge when the last answer was there; the rest went by beside generation."""


def sample_groups(
    policy: Policy,
    problems: Sequence[Problem],
    config: SamplingConfig,
    *,
    group_size: int,
    seed: int,
    policy_step: int = 0,
    first_id: int = 0,
    drawn_by: Sequence[str] | None = None,
    progress: Progress | None = None,
    generator: Generator | None = None,
) -> tuple[list[Group], Seconds]:
    """Sample `group_size` answers to each problem and judge them; groups come back in the order of the problems.

    Group ids count up from `first_id`. `drawn_by` says for each problem which rule chose it. Without a `generator` the
    policy itself samples. `seed` and the group's id give the seeds of its answers.

    Raises:
        ValueError: the generator's weights are not those of `policy_step`: a push was forgotten.
    """
    start = time.perf_counter()
    generator = generator or TransformersGenerator(policy, policy_step)
    if generator.version != policy_step:
        raise ValueError(f"the generator holds the weights of step {generator.version}, not of step {policy_step}")
    prompts = [encode_prompt(policy, problem, config.instruction, config.template) for problem in problems]
    with Judging(problems, config) as judging:

        def on_group(i: int, answers: Sequence[Sample]) -> None:
            judging.take(i, [_rollout(policy, prompts[i], sample, policy_step) for sample in answers])
            if progress is not None:
                progress(len(answers))

        generator.generate(prompts, group_size, prompt_seeds(seed, first_id, len(prompts)), config, on_group)
        generated = time.perf_counter()
        judged = judging.finish()
    groups = [
        Group(first_id + i, problem, judged[i], drawn_by[i] if drawn_by is not None else "uniform")
        for i, problem in enumerate(problems)
    ]
    return groups, Seconds(generated - start, time.perf_counter() - generated)


class Judging:
    """Judges rollouts as they come, under the one policy for truncated answers (see `_without_verifier`).

    What needs no waiting is judged in a thread of its own, one rollout after the other; the rest goes to the verifiers'
    workers, several at a time, so that an answer that hangs delays its own group and no other.
    """

    def __init__(self, problems: Sequence[Problem], config: SamplingConfig) -> None:
        self.problems, self.config = problems, config
        self._stream = verifiers.Stream()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="tossup-judging")
        self._begun: dict[int, Future[list[Rollout | Awaited]]] = {}

    def __enter__(self) -> Judging:
        return self

    def __exit__(self, *_: object) -> None:
        self._thread.shutdown(cancel_futures=True)  # after an error, what has not begun is not wanted any more
        self._stream.close()

    def take(self, i: int, rollouts: Sequence[Rollout]) -> None:
        """Judge these rollouts of problem `i` soon."""
        self._begun[i] = self._thread.submit(self._begin, self.problems[i], rollouts)

    def finish(self) -> dict[int, tuple[Rollout, ...]]:
        """The judged rollouts by problem, when all are there.

        Raises:
            TossupError: as in `verifiers.verify`.
        """
        return {i: tuple(_judged(one) for one in begun.result()) for i, begun in self._begun.items()}

    def _begin(self, problem: Problem, rollouts: Sequence[Rollout]) -> list[Rollout | Awaited]:
        """The rollouts, judged or with what will hold their verdict."""
        begun: list[Rollout | Awaited] = []
        for rollout in rollouts:
            verdict = _without_verifier(rollout, self.config.truncated)
            answer = self._stream.take(problem, rollout.text) if verdict is None else verdict
            begun.append(rollout.judged(answer) if isinstance(answer, Verdict) else Awaited(rollout, answer))
        return begun


class Awaited(NamedTuple):
    """A rollout that is being judged."""

    rollout: Rollout
    verdict: Future[Verdict]


def _judged(one: Rollout | Awaited) -> Rollout:
    return one if isinstance(one, Rollout) else one.rollout.judged(one.verdict.result())


def _rollout(policy: Policy, prompt: tuple[int, ...], sample: Sample, policy_step: int) -> Rollout:
    return Rollout(
        prompt_ids=prompt,
        response_ids=sample.ids,
        response_logps=sample.logps,
        text=policy.decode(sample.ids),
        stop=sample.stop,
        policy_step=policy_step,
        generate_seconds=sample.seconds,
    )


def _without_verifier(rollout: Rollout, truncated: str) -> Verdict | None:
    """The verdict that needs no verifier, if there is one.

    `judge` lets the verifier say; `wrong` rules truncated answers wrong; `exclude` leaves them undecided, so that they leave
    their group before its mean is taken. A prompt that left no room for an answer is undecided under every policy.
    """
    if not rollout.response_ids:
        return undecided(f"the prompt of {len(rollout.prompt_ids)} tokens leaves no room in the model's context")
    if rollout.stop is Stop.LENGTH and truncated == "exclude":
        return undecided("truncated")
    if rollout.stop is Stop.LENGTH and truncated == "wrong":
        return wrong("truncated")
    return None
