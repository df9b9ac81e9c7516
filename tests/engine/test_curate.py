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

from tossup.cli import main
from tossup.curriculum.ledger import scan_ledger
from tossup.curriculum.pool import Pool, read_pool
from tossup.engine import arithmetic
from tossup.engine.cleaning import clean
from tossup.engine.config import load
from tossup.engine.curate import _in_words, curate
from tossup.engine.measure_config import CurateConfig
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
    """Of many problems, so that it is still at work when it is stopped; the first of them are then asked for."""
    out = tmp_path / "pool.parquet"
    options = [f"--{k.rpartition('.')[2].replace('_', '-')}={v}" for k, v in (SMALL | {"limit": 20_000}).items()]
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
    first = rows(whole[0])["problem"].unique()
    finished = rows(out)["problem"].unique().is_in(first.implode()).sum()
    assert finished > 0
    after = Counting()
    report = curate(config(out), after)
    assert after.done_before == finished
    assert after.problems == 48 - finished
    assert rows(out).filter(pl.col("problem").is_in(first.implode())).equals(rows(whole[0]))
    assert report["toss_ups"] == whole[1]["toss_ups"]


ADAPTIVE = {"samples_max": 12, "keep": "0.1..0.9", "confidence": 0.9}
WAVES = ["--samples-max=12", "--keep=0.1..0.9", "--confidence=0.9"]


def test_an_adaptive_job_killed_between_waves_ends_the_same(tmp_path: Path) -> None:
    whole, out = tmp_path / "whole.parquet", tmp_path / "killed.parquet"
    report = curate(config(whole, **ADAPTIVE), Counting())
    options = [f"--{k.rpartition('.')[2].replace('_', '-')}={v}" for k, v in SMALL.items()]
    code = "import sys; from tossup.cli import main; main(sys.argv[1:])"
    command = [sys.executable, "-c", code, "curate", POOL, f"--out={out}", "--json", *options, *WAVES]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
    while not (tmp_path / "killed.curate" / "wave.json").exists():
        assert process.poll() is None
        time.sleep(0.001)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    again = curate(config(out, **ADAPTIVE), Counting())
    assert rows(out).equals(rows(whole))
    assert (again["kept"], again["dropped"]) == (report["kept"], report["dropped"])


def test_the_command_shows_what_was_left_out_and_writes_the_page(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    problems = [*arithmetic.pool()[:30], *(Problem(f"h{i}", f"Of {i}?", "24", "math", "[hard]") for i in range(8))]
    source, out = tmp_path / "pool.jsonl", tmp_path / "kept.jsonl"
    Pool.of([*problems, Problem("copy", problems[0].prompt, problems[0].reference, "exact", "x")]).write(source)
    command = ["curate", str(source), "--out", str(out), "--samples", "4", "--max-new-tokens", "12", "--threads", "1"]
    with pytest.raises(SystemExit) as exit_:
        main([*command, *WAVES, "--dedupe"])
    assert exit_.value.code == 0
    printed = capsys.readouterr().out
    for text in ("left out", "duplicate", "too hard", "kept.dropped.jsonl", "report.html", "undecided"):
        assert text in printed
    left_out = {row["id"]: row for row in map(json.loads, (tmp_path / "kept.dropped.jsonl").read_text().splitlines())}
    assert left_out["copy"]["other"] == problems[0].id
    assert left_out["h3"]["reason"] == "too hard"
    page = (tmp_path / "kept.curate" / "report.html").read_text()
    assert "What was left out, and why" in page
    assert "which stays" in page


def test_references_that_the_verifier_calls_equal_are_copies_not_rivals(tmp_path: Path) -> None:
    problems = [Problem("a", "Half of one?", "1/2"), Problem("b", "half of  one?", "0.5"), Problem("c", "One?", "1")]
    problems += [Problem("d", "Two?", "2"), Problem("e", "two?", "3")]
    Pool.of(problems).write(tmp_path / "pool.jsonl")
    cleaned = clean(config(tmp_path / "out.jsonl", str(tmp_path / "pool.jsonl"), dedupe=True))
    reasons = {row["id"]: row["reason"] for row in cleaned.dropped.values()}
    assert reasons == {"b": "duplicate", "d": "conflicting references", "e": "conflicting references"}
    assert cleaned.rest.ids == ["a", "c"]


def test_what_overlaps_an_evaluation_set_is_never_sampled(tmp_path: Path) -> None:
    problems = arithmetic.pool()[:12]
    Pool.of(problems).write(tmp_path / "pool.jsonl")
    Pool.of(problems[3:5]).write(tmp_path / "held_out.jsonl")
    out = tmp_path / "out.parquet"
    curate(config(out, str(tmp_path / "pool.jsonl"), against=(str(tmp_path / "held_out.jsonl"),)), Counting())
    overlap = {problem.id for problem in problems[3:5]}
    assert set(rows(out)["problem"]) == {problem.id for problem in problems} - overlap
    assert set(read_pool(out).ids) == {problem.id for problem in problems} - overlap
    with pytest.raises(TossupError, match="against"):
        curate(config(out, str(tmp_path / "pool.jsonl")), Counting())


def test_a_pool_beyond_the_model_is_said_plainly(tmp_path: Path) -> None:
    problems = [Problem(f"p{i}", "What is the airspeed of a swallow?", "24", "math", "monty") for i in range(5)]
    Pool.of(problems).write(tmp_path / "hard.jsonl")
    report = curate(config(tmp_path / "out.jsonl", str(tmp_path / "hard.jsonl")), Counting())
    assert "solved none of 5 problems" in report["verdict"]
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
