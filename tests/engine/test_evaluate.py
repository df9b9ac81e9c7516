"""`tossup eval`: pass@k against its definition, intervals that hold the value, runs and resumption."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tossup.engine.config import load
from tossup.engine.evaluate import _scores, evaluate
from tossup.engine.measure_config import EvaluateConfig
from tossup.records import TossupError

SMALL = {"samples": 4, "limit": 24, "sampling.max_new_tokens": 12, "threads": 1, "pool": "builtin:arithmetic/heldout"}


class Silent:
    """Looks on."""

    def __init__(self) -> None:
        self.problems = 0

    def note(self, text: str) -> None:
        pass

    def started(self, problems: int, done: int) -> None:
        pass

    def measured(self, problems: int, tokens: int) -> None:
        self.problems += problems


def config(out: Path, **changes: Any) -> EvaluateConfig:
    return load(EvaluateConfig, None, SMALL | {"out": str(out)} | changes)


def frame(decided: list[int], correct: list[int]) -> pl.DataFrame:
    zeros = [0] * len(decided)
    return pl.DataFrame({"decided": decided, "correct": correct, "undecided": zeros, "tokens": zeros})


@given(st.lists(st.integers(1, 6).flatmap(lambda n: st.tuples(st.just(n), st.integers(0, n))), min_size=1, max_size=5))
def test_pass_at_k_is_the_share_of_k_subsets_with_a_right_answer(problems: list[tuple[int, int]]) -> None:
    scores = _scores(frame([n for n, _ in problems], [c for _, c in problems]), [1, 2, 3])
    assert scores["mean"]["value"] == pytest.approx(sum(c / n for n, c in problems) / len(problems), abs=1e-6)
    for k in (1, 2, 3):
        shares = []
        for n, c in problems:
            if n >= k:
                subsets = list(combinations([1] * c + [0] * (n - c), k))
                shares.append(sum(any(s) for s in subsets) / len(subsets))
        score = scores[f"pass@{k}"]
        assert score["problems"] == len(shares)
        if shares:
            assert score["value"] == pytest.approx(sum(shares) / len(shares), abs=1e-6)
            assert score["low"] - 1e-6 <= score["value"] <= score["high"] + 1e-6
        else:
            assert score["value"] is None


def test_an_evaluation_is_measured_once(tmp_path: Path) -> None:
    first, again = Silent(), Silent()
    result = evaluate(config(tmp_path / "e", k="1,2,4"), first)
    assert first.problems == 24
    assert result["problems"] == result["judged"] == 24
    assert (
        0 < result["mean"]["value"] == result["pass@1"]["value"] < result["pass@2"]["value"] < result["pass@4"]["value"]
    )
    assert sum(part["problems"] for part in result["datasets"].values()) == 24
    repeated = evaluate(config(tmp_path / "e", k="1,2,4"), again)
    assert again.problems == 0
    assert {**repeated, "seconds": 0} == {**result, "seconds": 0}


@pytest.mark.parametrize("k", ["5", "0", "two", "1,,2"])
def test_a_k_that_cannot_be_is_an_error(tmp_path: Path, k: str) -> None:
    with pytest.raises(TossupError, match="k"):
        evaluate(config(tmp_path / "e", k=k), Silent())


def test_a_missing_model_is_named(tmp_path: Path) -> None:
    with pytest.raises(TossupError, match="nowhere"):
        evaluate(config(tmp_path / "e", model=str(tmp_path / "nowhere")), Silent())


def test_a_smaller_limit_reports_those_problems_only(tmp_path: Path) -> None:
    evaluate(config(tmp_path / "e"), Silent())
    again = Silent()
    result = evaluate(config(tmp_path / "e", limit=5), again)
    assert again.problems == 0
    assert result["problems"] == sum(part["problems"] for part in result["datasets"].values()) == 5
