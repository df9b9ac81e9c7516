"""`tossup report` as people and scripts use it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tossup import cli
from tossup.curriculum.gate import fates
from tossup.curriculum.ledger import Ledger
from tossup.curriculum.pool import Pool
from tossup.records import Group, Problem, Rollout, Stop, correct, wrong


@pytest.fixture
def run_folder(tmp_path: Path) -> Path:
    problem = Problem("p", "2 + 5?", "7")
    answers = tuple(
        Rollout((1,), (2, 3), (-1.0, -1.0), "so 7", Stop.END, 0, v) for v in (correct("it is", "7"), wrong("no", "8"))
    )
    group = Group(0, problem, answers)
    Ledger(tmp_path / "run" / "ledger", "run", keep_text=True).append(0, [(group, fates(group))])
    return tmp_path / "run"


def tossup(capsys: pytest.CaptureFixture[str], *args: object) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as end:
        cli.main(["report", *map(str, args)])
    output = capsys.readouterr()
    return int(end.value.code or 0), output.out, output.err


def test_the_page_goes_into_the_folder_of_the_run(run_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = tossup(capsys, run_folder)
    assert code == 0
    assert out.startswith(f"wrote {run_folder / 'report.html'} (")
    assert (run_folder / "report.html").read_text(encoding="utf-8").startswith("<!doctype html>")


def test_scripts_get_json(run_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = run_folder / "pages" / "one.html"
    code, out, _ = tossup(capsys, run_folder, "--out", page, "--json")
    assert code == 0
    assert json.loads(out) == {"run": str(run_folder), "page": str(page), "bytes": page.stat().st_size}


def test_a_pool_named_by_hand_brings_the_prompts(run_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Pool.of([Problem("p", "2 + 5?", "7")]).write(run_folder.parent / "own.jsonl")
    tossup(capsys, run_folder)
    assert "2 + 5?" not in (run_folder / "report.html").read_text(encoding="utf-8")
    tossup(capsys, run_folder, "--pool", run_folder.parent / "own.jsonl")
    assert "2 + 5?" in (run_folder / "report.html").read_text(encoding="utf-8")


def test_what_is_no_run_is_an_error_without_a_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = tossup(capsys, tmp_path / "nowhere", "--out", tmp_path / "page.html")
    assert (code, out) == (1, "")
    assert "nowhere: no such folder" in err
    assert not (tmp_path / "page.html").exists()


def test_a_page_that_cannot_be_written_is_an_error_and_no_half_page(
    run_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (run_folder / "taken.html").mkdir()
    code, _, err = tossup(capsys, run_folder, "--out", run_folder / "taken.html")
    assert code == 1
    assert "taken.html could not be written" in err
    assert list(run_folder.glob(".part-*")) == []
