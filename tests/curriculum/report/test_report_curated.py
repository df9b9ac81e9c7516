"""The page of a curate job says what was left out; the page of an older one, or of one that runs, does without."""

from __future__ import annotations

import json
from pathlib import Path

import polars as pl
import pytest
from report_ledgers import group, write_ledger

from tossup.curriculum import report
from tossup.curriculum.dropped import table
from tossup.curriculum.report import folds
from tossup.curriculum.report.curated import left_out
from tossup.curriculum.report.source import locate
from tossup.records import TossupError

HOSTILE = "<script>alert(1)</script>"


def write_job(tmp_path: Path, ended: bool = True) -> Path:
    job = tmp_path / "kept.curate"
    write_ledger(job / "ledger", [[group(0, "a", "0001"), group(1, "b", "0000")], [group(2, "b", "0010")]])
    (job / "config.toml").write_text('pool = "source.jsonl"\nsamples = 4\n', encoding="utf-8")
    rows = [{"id": HOSTILE, "dataset": "d", "reason": "too hard", "why": f"solved 0 of 8 {HOSTILE}"}]
    rows += [{"id": f"copy-{i}", "dataset": "d", "reason": "duplicate", "why": "the same as a"} for i in range(40)]
    (tmp_path / "kept.dropped.jsonl").write_text(table(rows).write_ndjson(), encoding="utf-8")
    if ended:
        figures = {"dropped": {}, "kept": 1234, "kept_wrongly": 0.125, "dropped_wrongly": 0.0, "undecided_problems": 3}
        (job / "summary.json").write_text(json.dumps(figures), encoding="utf-8")
    return job


def test_the_page_counts_what_was_left_out_and_names_some_of_each_reason(tmp_path: Path) -> None:
    job = write_job(tmp_path)
    found = left_out(locate(job))
    assert found is not None
    assert {reason: row["problems"] for reason, row in found.reasons.items()} == {"duplicate": 40, "too hard": 1}
    assert len(found.rows) == 26
    report.write(job, tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    for text in ("What was left out, and why", "1,234", "12.5", "26 of 41", "kept.dropped.jsonl"):
        assert text in page
    assert HOSTILE not in page


def test_a_job_that_has_not_ended_has_a_page_without_it(tmp_path: Path) -> None:
    job = write_job(tmp_path, ended=False)
    assert left_out(locate(job)) is None
    report.write(job, tmp_path / "page.html")
    assert "What was left out" not in (tmp_path / "page.html").read_text(encoding="utf-8")


def test_a_damaged_list_says_how_to_mend_it(tmp_path: Path) -> None:
    job = write_job(tmp_path)
    (tmp_path / "kept.dropped.jsonl").write_text('{"id": "a"', encoding="utf-8")
    with pytest.raises(TossupError, match="written anew"):
        left_out(locate(job))


def test_asking_again_is_no_movement(tmp_path: Path) -> None:
    groups = folds.groups(pl.scan_parquet(write_job(tmp_path) / "ledger" / "step-*.parquet"))
    problems = folds.of_problems(groups)
    assert problems.select("problem", "n", "c").rows() == [("a", 4, 1), ("b", 8, 1)]
    assert problems["tokens"].sum() == groups["tokens"].sum()
    assert folds.moved(problems, 10).is_empty()
