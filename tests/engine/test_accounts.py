"""What a run counts is right, over waves, a budget, a resumption and a full disk: ids of groups, tokens and time."""

from __future__ import annotations

import json
import resource
import time
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import polars as pl
import pytest

from tossup.curriculum import ledger
from tossup.curriculum.ledger import scan_ledger
from tossup.engine import train as training
from tossup.engine.arithmetic import recipe_path
from tossup.engine.config import TrainConfig, load
from tossup.engine.evaluate import Accuracy, accuracy
from tossup.engine.progress import Silent
from tossup.engine.train import train
from tossup.records import TossupError

SMALL = {
    "eval_pool": "",
    "rollout.problems_per_step": 6,
    "rollout.group_size": 4,
    "curriculum.sampler": "uniform",
    "threads": 1,
    "save_every": 1,
}


def config(out: Path, **changes: Any) -> TrainConfig:
    changes = {name.replace("__", "."): value for name, value in changes.items()}
    return load(TrainConfig, recipe_path(), SMALL | {"out": str(out)} | changes)


def lines(run: Path) -> list[dict[str, float]]:
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


@pytest.mark.parametrize("full_waves", [False, True])
def test_groups_of_all_waves_have_numbers_of_their_own(tmp_path: Path, full_waves: bool) -> None:
    refill = {"curriculum__refill": True, "curriculum__full_waves": full_waves, "curriculum__max_waves": 3}
    train(config(tmp_path, steps=2, **refill), Silent())
    table = scan_ledger(tmp_path / "ledger").collect()
    assert max(line["rollout/groups"] for line in lines(tmp_path)) > 6, "no step took a second wave"
    assert table.select("group", "sample").is_unique().all()
    groups = table.select(pl.col("group").unique().sort())["group"].to_list()
    assert groups == list(range(len(groups)))


def test_a_run_ends_with_the_step_that_spends_its_budget(tmp_path: Path) -> None:
    summary = train(config(tmp_path, steps=50, token_budget=100), Silent())
    assert summary["ended_by"] == "token_budget"
    totals = [line["tokens/total"] for line in lines(tmp_path)]
    assert totals[-1] == summary["tokens_generated"] >= 100
    assert all(total < 100 for total in totals[:-1])


def test_a_checkpoint_counts_no_step_whose_part_of_the_ledger_is_not_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each part takes its time; when a step is said to be done, it is on the disk."""
    write = ledger._write

    def slowly(frames: Mapping[Path, pl.DataFrame]) -> None:
        time.sleep(0.5)
        write(frames)

    there: list[bool] = []

    class Looking(Silent):
        def step(self, step: int, metrics: Mapping[str, float]) -> None:
            assert (tmp_path / "checkpoints" / f"step-{step:08d}").is_dir()
            there.append((tmp_path / "ledger" / f"step-{step - 1:08d}.parquet").exists())

    monkeypatch.setattr(ledger, "_write", slowly)
    train(config(tmp_path, steps=2), Looking())
    assert there == [True, True]


def test_evaluations_cost_tokens_of_their_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cost: list[int] = []

    def counted(*args: Any) -> Accuracy:
        result = accuracy(*args)
        cost.append(result.tokens)
        return result

    monkeypatch.setattr(training, "accuracy", counted)
    measured = {"eval_pool": ["builtin:arithmetic/heldout"], "eval.problems": 4, "eval.samples": 2, "eval.every": 1}
    summary = train(config(tmp_path, steps=2, **measured), Silent())
    assert len(cost) == 3
    assert summary["tokens_eval"] == sum(cost) > max(cost)
    table = scan_ledger(tmp_path / "ledger").collect()
    assert summary["tokens_generated"] == table["response_tokens"].sum()


def test_the_time_of_a_run_is_that_of_all_its_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A step takes 100 s by this clock, which begins anew with every process."""
    now = [0.0]
    monkeypatch.setattr(training, "time", SimpleNamespace(perf_counter=lambda: now[0]))

    class Hours(Silent):
        def generated(self, answers: int) -> None:
            now[0] += 100 / 6

    assert train(config(tmp_path, steps=2), Hours())["seconds"] == pytest.approx(200)
    now[0] = -5000.0
    assert train(config(tmp_path, steps=3), Hours())["seconds"] == pytest.approx(300)
    assert [line["seconds"] for line in lines(tmp_path)] == pytest.approx([100, 200, 300])


def test_judging_has_a_time_of_its_own(tmp_path: Path) -> None:
    summary = train(config(tmp_path, steps=2), Silent())
    verify = [line["time/verify"] for line in lines(tmp_path)]
    assert min(verify) > 0
    assert summary["seconds_verify"] == pytest.approx(sum(verify), abs=1e-3)
    for line in lines(tmp_path):
        parts = {name: s for name, s in line.items() if name.startswith("time/")}
        total = parts.pop("time/step")
        del parts["time/outside_share"]
        assert sum(parts.values()) == pytest.approx(total)


def test_a_checkpoint_that_finds_no_room_stops_the_run_resumably(tmp_path: Path) -> None:
    """No file may grow beyond 200 kB, which is room for a part of the ledger and not for the weights."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)

    class Filling(Silent):
        def step(self, step: int, metrics: Mapping[str, float]) -> None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, hard))

    run = tmp_path / "run"
    try:
        with pytest.raises(TossupError, match=r"step-00000002 could not be written.*same command"):
            train(config(run, steps=3), Filling())
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert [path.name for path in (run / "checkpoints").iterdir()] == ["step-00000001"]
    train(config(run, steps=3), Silent())
    train(config(tmp_path / "whole", steps=3), Silent())
    a, b = (
        scan_ledger(out / "ledger").drop("run", "generate_seconds", "verify_seconds").collect()
        for out in (run, tmp_path / "whole")
    )
    assert a.equals(b)
    said = [
        [{k: v for k, v in line.items() if k.startswith("update/")} for line in lines(out)]
        for out in (run, tmp_path / "whole")
    ]
    assert said[0] == said[1]
