"""Measuring a pool: counts are folds over the ledger, and a killed job goes on without repeating finished work."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from tossup.curriculum.ledger import scan_ledger
from tossup.curriculum.pool import Pool, read_pool
from tossup.engine import arithmetic
from tossup.engine.config import CurateConfig, load
from tossup.engine.curate import _in_words, curate
from tossup.records import Problem, TossupError

POOL = "builtin:arithmetic/train"
SMALL = {"samples": 4, "limit": 48, "sampling.batch_size": 32, "sampling.max_new_tokens": 12, "threads": 1}


class Counting:
    """Looks on and counts the problems that were measured."""

    def __init__(self) -> None:
        self.problems = 0

    def note(self, text: str) -> None:
        pass

    def started(self, problems: int, done: int) -> None:
        self.done_before = done

    def measured(self, problems: int, tokens: int) -> None:
        self.problems += problems


def config(out: Path, pool: str = POOL, **changes: Any) -> CurateConfig:
    return load(CurateConfig, None, {"pool": pool, "out": str(out)} | SMALL | changes)


def rows(out: Path) -> pl.DataFrame:
    ledger = scan_ledger(out.with_name(f"{out.stem}.curate") / "ledger").collect()
    return ledger.drop("run", "generate_seconds", "verify_seconds").sort("group", "sample")


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    out = tmp_path_factory.mktemp("whole") / "pool.parquet"
    return out, curate(config(out), Counting())


def test_the_pool_holds_what_the_ledger_says(whole: tuple[Path, dict[str, Any]]) -> None:
    out, report = whole
    pool, ledger = read_pool(out), rows(out)
    assert len(pool) == 48
    assert (pool.attempts == 4).all()
    assert int(pool.correct.sum()) == ledger["reward"].sum() > 0
    assert report["tokens_generated"] == ledger["response_tokens"].sum()
    assert set(ledger["fate"].unique()) <= {"measured", "all_correct", "all_wrong"}
    assert report["always_solved"] + report["toss_ups"] + report["never_solved"] == report["judged"] == 48
    assert sum(part["toss_ups"] for part in report["datasets"].values()) == report["toss_ups"]
    assert pool.frame["policy"].unique().to_list() == ["builtin:arithmetic"]
    assert [pool[i].id for i in range(48)] == [p.id for p in arithmetic.pool()[:48]]


def test_the_same_command_repeats_nothing(whole: tuple[Path, dict[str, Any]]) -> None:
    out, report = whole
    again = Counting()
    second = curate(config(out), again)
    assert again.problems == 0
    assert again.done_before == 48
    assert {k: v for k, v in second.items() if k != "seconds"} == {k: v for k, v in report.items() if k != "seconds"}


def test_a_band_keeps_problems_of_that_success_rate(whole: tuple[Path, dict[str, Any]]) -> None:
    out, report = whole
    banded = curate(config(out, keep="0.25..0.75"), Counting())
    kept = read_pool(out)
    rate = kept.correct / kept.attempts
    assert ((rate >= 0.25) & (rate <= 0.75)).all()
    assert banded["kept"] == len(kept) <= report["toss_ups"]
    curate(config(out), Counting())  # the whole pool again, for the tests that follow


def test_another_model_or_pool_does_not_mix_in(whole: tuple[Path, dict[str, Any]]) -> None:
    with pytest.raises(TossupError, match="samples: 5 here, 4 there"):
        curate(config(whole[0], samples=5), Counting())


def test_a_larger_limit_goes_on_from_a_smaller_one(whole: tuple[Path, dict[str, Any]], tmp_path: Path) -> None:
    out = tmp_path / "pool.parquet"
    curate(config(out, limit=20), Counting())
    more = Counting()
    curate(config(out), more)
    assert more.done_before == 16  # whole batches of 8; the half batch is sampled again
    assert rows(out).equals(rows(whole[0]))


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_a_stopped_job_goes_on_and_ends_the_same(
    whole: tuple[Path, dict[str, Any]], tmp_path: Path, number: signal.Signals
) -> None:
    out = tmp_path / "pool.parquet"
    options = [f"--{k.rpartition('.')[2].replace('_', '-')}={v}" for k, v in SMALL.items()]
    code = "import sys; from tossup.cli import main; main(sys.argv[1:])"
    command = [sys.executable, "-c", code, "curate", POOL, f"--out={out}", "--json", *options]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True)
    while not list(tmp_path.glob("pool.curate/ledger/step-*.parquet")):
        assert process.poll() is None
        time.sleep(0.001)
    os.killpg(process.pid, number)
    _, errors = process.communicate()
    if number == signal.SIGINT:
        assert process.returncode == 130
        assert b"goes on from there" in errors
    finished = len(set(rows(out)["problem"]))
    assert 0 < finished < 48
    after = Counting()
    report = curate(config(out), after)
    assert after.done_before == finished
    assert after.problems == 48 - finished
    assert rows(out).equals(rows(whole[0]))
    assert report["toss_ups"] == whole[1]["toss_ups"]


def test_a_pool_beyond_the_model_is_said_plainly(tmp_path: Path) -> None:
    problems = [Problem(f"p{i}", "What is the airspeed of a swallow?", "24", "math", "monty") for i in range(5)]
    Pool.of(problems).write(tmp_path / "hard.jsonl")
    report = curate(config(tmp_path / "out.jsonl", str(tmp_path / "hard.jsonl")), Counting())
    assert "solved none of the 5 problems" in report["verdict"]
    assert report["never_solved"] == 5
    assert json.loads((tmp_path / "out.jsonl").read_text().split("\n")[0])["attempts"] == 4


@pytest.mark.parametrize(("toss_ups", "hardly"), [(3, True), (300, False)])
def test_a_few_lucky_guesses_do_not_make_a_pool_useful(toss_ups: int, hardly: bool) -> None:
    totals = {
        "problems": 2048,
        "judged": 2048,
        "toss_ups": toss_ups,
        "always_solved": 0,
        "never_solved": 2048 - toss_ups,
    }
    words = _in_words(totals)
    assert words.startswith("Hardly anything") == hardly
    assert f"{toss_ups} of 2,048" in words
