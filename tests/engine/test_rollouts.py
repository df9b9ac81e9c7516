"""Judging under the named policies for truncated answers, and seeds that are functions of their place."""

from __future__ import annotations

import dataclasses

import pytest

from tossup.engine.config import SamplingConfig
from tossup.engine.rollouts import judge, stream
from tossup.records import Problem, Rollout, Ruling, Stop, TossupError

PROBLEM = Problem("p", "1+1", "2", verifier="exact")


def rollout(text: str, stop: Stop = Stop.END, tokens: int = 2) -> Rollout:
    return Rollout((5, 6), (7,) * tokens, (-1.0,) * tokens, text, stop, 0)


def rulings(policy: str) -> list[tuple[Ruling, str]]:
    answers = [rollout("2"), rollout("3"), rollout("2", Stop.LENGTH), rollout("3", Stop.LENGTH), rollout("", tokens=0)]
    config = SamplingConfig(truncated=policy)  # type: ignore[arg-type]
    return [(v.ruling, v.reason) for v in judge([(PROBLEM, a) for a in answers], config)]


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
        judge([(problem, rollout("2"))], SamplingConfig())


def test_streams_differ_by_every_part_of_their_path() -> None:
    paths = [(seed, kind, step) for seed in range(3) for kind in range(3) for step in range(50)]
    seeds = {stream(*path) for path in paths}
    assert len(seeds) == len(paths)
    assert stream(1, 2, 3) == stream(1, 2, 3)
    assert all(0 <= seed < 1 << 63 for seed in seeds)
