from __future__ import annotations

import json
from pathlib import Path

import pytest
from report_ledgers import STEPS, group, write_ledger, write_run

from tossup.curriculum import report
from tossup.curriculum.pool import Pool, read_pool
from tossup.curriculum.report.source import locate
from tossup.records import Problem, TossupError


def test_a_run_folder_has_its_parts(tmp_path: Path) -> None:
    source = locate(write_run(tmp_path / "r", STEPS))
    assert (source.kind, source.name, source.ledger) == ("train", "r", tmp_path / "r" / "ledger")
    assert source.prompts(["a", "zz"]) == {"a": ("What is a?", "7")}
    assert source.notes == ()


def test_the_ledger_inside_a_run_is_that_run(tmp_path: Path) -> None:
    write_run(tmp_path / "r", STEPS)
    assert locate(tmp_path / "r" / "ledger").root == tmp_path / "r"


def test_a_ledger_alone_is_enough(tmp_path: Path) -> None:
    source = locate(write_ledger(tmp_path / "parts", STEPS))
    assert (source.kind, source.pool, source.prompts(["a"])) == ("ledger", None, {})
    assert report.default_page(tmp_path / "parts") == tmp_path / "parts.report.html"


def test_a_curate_job_finds_its_pool_beside_it_and_what_was_known_before(tmp_path: Path) -> None:
    problems = [Problem("a", "What is a?", "7"), Problem("left", "What is left?", "3")]
    before = Pool.of(problems).with_counts(attempts=[10, 0], correct=[9, 0])
    before.write(tmp_path / "source.jsonl")
    job = tmp_path / "kept.curate"
    write_ledger(job / "ledger", [[group(0, "a", "0001")]])
    (job / "config.toml").write_text(
        f"pool = {json.dumps(str(tmp_path / 'source.jsonl'))}\nsamples = 4\n", encoding="utf-8"
    )
    before.take([0]).with_counts(attempts=[4], correct=[1]).write(tmp_path / "kept.parquet")
    source = locate(job)
    assert source.kind == "curate"
    assert source.pool is not None
    assert source.pool.select("id", "attempts").rows() == [("a", 4), ("left", 0)], "the newest counts first"
    assert source.before is not None
    assert source.before["correct"].to_list() == [9, 0]
    assert report.default_page(job) == job / "report.html"


def test_a_chat_is_shown_turn_by_turn(tmp_path: Path) -> None:
    chat = ({"role": "system", "content": "Be brief."}, {"role": "user", "content": "2 + 2?"})
    Pool.of([Problem("a", chat, "4")]).write(tmp_path / "p.parquet")
    source = locate(write_ledger(tmp_path / "l", [[group(0, "a", "01")]]), tmp_path / "p.parquet")
    assert source.prompts(["a"]) == {"a": ("system: Be brief.\n\nuser: 2 + 2?", "4")}


def test_a_pool_that_cannot_be_read_is_a_note_unless_it_was_named_by_hand(tmp_path: Path) -> None:
    run = write_run(tmp_path / "r", STEPS)
    (run / "pool.parquet").write_bytes(b"torn")
    (note,) = locate(run).notes
    assert "pool.parquet" in note
    with pytest.raises(TossupError, match=r"pool\.parquet"):
        locate(run, run / "pool.parquet")


def test_a_pool_file_leads_to_its_ledger(tmp_path: Path) -> None:
    write_ledger(tmp_path / "p.curate" / "ledger", STEPS)
    Pool.of([Problem("a", "?", "7")]).write(tmp_path / "p.parquet")
    assert len(read_pool(tmp_path / "p.parquet")) == 1
    with pytest.raises(TossupError, match=r"p\.curate"):
        locate(tmp_path / "p.parquet")


@pytest.mark.parametrize("name", ["nothing", "empty"])
def test_what_is_no_run_is_named(tmp_path: Path, name: str) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(TossupError, match=name):
        locate(tmp_path / name)


@pytest.mark.parametrize(("name", "text"), [("config.toml", "= 3"), ("summary.json", "{")])
def test_a_broken_file_is_named(tmp_path: Path, name: str, text: str) -> None:
    run = write_run(tmp_path / "r", STEPS)
    (run / name).write_text(text, encoding="utf-8")
    with pytest.raises(TossupError, match=name):
        locate(run)


def test_whether_advantages_are_divided_is_read_from_the_run(tmp_path: Path) -> None:
    assert locate(write_run(tmp_path / "a", STEPS)).divides_by_std
    assert not locate(write_run(tmp_path / "b", STEPS, config="[update]\nstd_norm = false\n")).divides_by_std
    assert locate(write_ledger(tmp_path / "c", STEPS)).divides_by_std
