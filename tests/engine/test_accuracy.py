"""What an evaluation says of its own uncertainty, and that two of them differ by the policy alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import polars as pl
import pytest
from small import make_group

from tossup.engine.config import TrainConfig, load
from tossup.engine.evaluate import _scores, accuracy
from tossup.engine.rollouts import Seconds
from tossup.records import Group


class Given:
    """Samples these groups, and remembers how it was asked."""

    def __init__(self, marks: Sequence[str]) -> None:
        self.groups = [replace(make_group(mark), id=i) for i, mark in enumerate(marks)]
        self.asked: list[dict[str, Any]] = []

    def __call__(self, problems: Any, sampling: Any, **asked: Any) -> tuple[list[Group], Seconds]:
        self.asked.append(asked)
        return self.groups, Seconds(0.0, 0.0)


CONFIG = load(TrainConfig, None, {"eval.samples": 4, "seed": 3})


def test_the_standard_error_is_over_problems() -> None:
    """Rates 1/2, 0, 1 and 1/2: deviation sqrt(1/6) of a sample, over the root of four."""
    result = accuracy(Given(["1100", "0000", "1111", "0011"]), [], CONFIG, 0)
    assert result.mean == 0.5
    assert result.stderr == pytest.approx((1 / 6) ** 0.5 / 2)
    assert result.figures["eval/stderr"] == result.stderr
    assert accuracy(Given(["1100"]), [], CONFIG, 0).stderr == 0


def test_every_evaluation_has_the_same_seeds_and_its_own_step() -> None:
    sampling = Given(["1100", "0011"])
    for step in (0, 7):
        accuracy(sampling, [], CONFIG, step)
    accuracy(sampling, [], CONFIG.model_copy(update={"seed": 4}), 7)
    first, second, other = sampling.asked
    assert (first["policy_step"], second["policy_step"]) == (0, 7)
    assert first["seed"] == second["seed"] != other["seed"]
    assert first["group_size"] == 4


@pytest.mark.parametrize(("right", "low", "high"), [(20, 15, 25), (8, 4, 12), (36, 33, 39)])
def test_an_interval_holds_nine_tenths_of_the_resamples(right: int, low: int, high: int) -> None:
    """Of forty problems with one answer each: the 5 % and 95 % quantiles of the binomial distribution."""
    n = 40
    correct = [1] * right + [0] * (n - right)
    frame = pl.DataFrame({"decided": [1] * n, "correct": correct, "undecided": [0] * n, "tokens": [1] * n})
    scores = _scores(frame, [1])
    for name in ("mean", "pass@1"):
        score = scores[name]
        assert (score["value"], score["low"], score["high"]) == pytest.approx((right / n, low / n, high / n), abs=0.026)
