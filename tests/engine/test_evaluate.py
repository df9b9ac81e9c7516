"""`tossup eval`: pass@k against its definition, intervals that hold the value, runs and resumption."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from small import make_group

from tossup.curriculum.ledger import scan_ledger
from tossup.curriculum.pool import Pool
from tossup.engine import progress
from tossup.engine.config import TrainConfig, load, to_toml
from tossup.engine.evaluate import Accuracy, _scores, accuracy, evaluate
from tossup.engine.measure_config import EvaluateConfig
from tossup.engine.rollouts import Seconds
from tossup.engine.train import train
from tossup.records import Group, Problem, TossupError

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


@pytest.mark.parametrize(
    ("problems", "correct", "low", "high"), [(24, 0, 0.0, 0.117346), (5, 4, 0.54928, 1.0), (3, 2, 0.184202, 0.815798)]
)
def test_problems_that_are_all_alike_do_not_make_certain(problems: int, correct: int, low: float, high: float) -> None:
    mean = _scores(frame([4] * problems, [correct] * problems), [1])["mean"]
    assert (mean["value"], mean["low"], mean["high"]) == (correct / 4, low, high)


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


def group(marks: str, dataset: str) -> Group:
    made = make_group(marks)
    return replace(made, problem=replace(made.problem, dataset=dataset))


def held_out(groups: list[Group]) -> Accuracy:
    config = load(TrainConfig, None, {"eval.samples": 4})
    return accuracy(lambda *_, **__: (groups, Seconds(0.0, 0.0)), [], config, 0)


def test_during_training_each_dataset_and_pass_at_k_are_told_apart() -> None:
    result = held_out([group("1100", "a/b"), group("0000", "a/b"), group("11?1", "c"), group("????", "c")])
    assert result.mean == pytest.approx((0.5 + 0 + 1) / 3)
    assert result.undecided == 5
    assert result.parts == pytest.approx({"pass@4": 0.5, "accuracy/a/b": 0.25, "accuracy/c": 1.0})
    assert "pass@4" not in held_out([group("11?1", "c")]).parts
    assert held_out([group("1100", "c"), group("1111", "c")]).parts == {"pass@4": 1.0}


def test_several_held_out_pools_are_measured_each(tmp_path: Path) -> None:
    for name, sums in (("easy", [("a1+a1=", "a2"), ("a2+a1=", "a3")]), ("wrong", [("a1+a1=", "never this")] * 3)):
        Pool.of([Problem(f"p{i}", q, a, "exact", name) for i, (q, a) in enumerate(sums)]).write(
            tmp_path / f"{name}.jsonl"
        )
    pools = [str(tmp_path / "easy.jsonl"), str(tmp_path / "wrong.jsonl")]
    small = {"steps": 2, "rollout.problems_per_step": 4, "rollout.group_size": 4, "threads": 1, "save_every": 1}
    settings = small | {"eval_pool": pools, "eval.every": 1, "eval.samples": 2, "out": str(tmp_path / "run")}
    summary = train(load(TrainConfig, None, settings), progress.Silent())
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert [e["step"] for e in summary["evaluations"]] == [0, 1, 2]
    for line, found in zip(lines, summary["evaluations"][1:], strict=True):
        assert line["eval/accuracy/wrong"] == found["accuracy/wrong"] == 0
        assert line["eval/accuracy/easy"] == found["accuracy/easy"]
        assert line["eval/accuracy"] == pytest.approx(found["accuracy/easy"] * 2 / 5)
        assert line["eval/pass@2"] == found["pass@2"]
    inputs = json.loads((tmp_path / "run" / "inputs.json").read_text())
    assert {f"eval_pool {pool}" for pool in pools} < inputs.keys()
    with pytest.raises(TossupError, match="other settings"):
        train(load(TrainConfig, None, settings | {"eval_pool": pools[:1]}), progress.Silent())


@pytest.mark.parametrize(("given", "pools"), [("", ()), ("a", ("a",)), (["a", "b"], ("a", "b")), ((), ())])
def test_one_name_of_a_held_out_pool_is_a_list_of_one(tmp_path: Path, given: Any, pools: tuple[str, ...]) -> None:
    config = load(TrainConfig, None, {"eval_pool": given})
    assert config.eval_pool == pools
    (tmp_path / "config.toml").write_text(to_toml(config))
    assert load(TrainConfig, tmp_path / "config.toml") == config


def test_a_step_says_how_long_its_answers_are(tmp_path: Path) -> None:
    small = {"steps": 2, "rollout.problems_per_step": 4, "rollout.group_size": 4, "threads": 1, "save_every": 1}
    train(load(TrainConfig, None, small | {"out": str(tmp_path / "run")}), progress.Silent())
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    lengths = scan_ledger(tmp_path / "run" / "ledger").select("step", "response_tokens").collect()
    for line in lines:
        of_step = lengths.filter(pl.col("step") == line["step"])["response_tokens"]
        found = [line[f"rollout/{name}_tokens"] for name in ("min", "mean", "max")]
        assert found == pytest.approx([of_step.min(), of_step.mean(), of_step.max()])
