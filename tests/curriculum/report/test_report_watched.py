"""The lists of problems that the curriculum set aside."""

from __future__ import annotations

import json
from pathlib import Path

from report_ledgers import STEPS, group, write_ledger, write_run

from tossup.curriculum import report
from tossup.curriculum.ledger import scan_ledger
from tossup.curriculum.report import folds
from tossup.curriculum.report.watched import lists


def test_suspects_come_first_and_rows_tell_what_became_of_the_visits(tmp_path: Path) -> None:
    steps = [
        [group(0, "hard", "0000", dataset="unsolved"), group(1, "other", "0000", dataset="unsolved")],
        [
            group(2, "keyed", "0000"),
            group(3, "fine", "1110"),
            group(4, "keyed", "00?0"),
            group(5, "alone", "00", dataset="x"),
        ],
    ]
    table = folds.groups(scan_ledger(write_ledger(tmp_path, steps)))
    watched = {"parked_easy": [], "parked_hard": ["alone", "hard", "keyed"], "stuck": ["never drawn", "fine"]}
    hard, stuck = lists(watched, table, 2)
    assert (hard.title, hard.problems, [row["problem"] for row in hard.rows]) == (
        "Parked as too hard",
        3,
        ["keyed", "hard"],
    )
    keyed = hard.rows[0]
    assert (keyed["n"], keyed["c"], keyed["right"], keyed["size"], keyed["step"], keyed["group"]) == (
        7,
        0,
        [0, 0],
        [4, 3],
        1,
        4,
    )
    assert keyed["rest"] == 0.75
    assert hard.rows[1]["rest"] == 0
    assert (stuck.problems, [row["problem"] for row in stuck.rows]) == (2, ["fine"])
    assert lists(watched, table, 3)[0].rows[2]["rest"] is None
    assert lists({}, table, 2) == []


def section(page: Path) -> str:
    return page.read_text(encoding="utf-8").partition('<section id="set-aside">')[2].partition("</section>")[0]


def test_a_run_that_goes_on_says_when_the_lists_come(tmp_path: Path) -> None:
    run = write_run(tmp_path / "r", STEPS)
    report.write(run, tmp_path / "page.html")
    assert "written when the run ends" in section(tmp_path / "page.html")
    (run / "watched.json").write_text("{}", encoding="utf-8")
    report.write(run, tmp_path / "page.html")
    assert "None was: it takes" in section(tmp_path / "page.html")
    (run / "watched.json").write_text(json.dumps({"unjudged": ["e"]}), encoding="utf-8")
    report.write(run, tmp_path / "page.html")
    assert "Parked as unjudged: 1" in section(tmp_path / "page.html")
    assert "What is e?" in section(tmp_path / "page.html")


def test_other_ledgers_have_no_such_lists(tmp_path: Path) -> None:
    ledger = write_ledger(tmp_path / "ledger", STEPS)
    report.write(ledger, tmp_path / "page.html")
    assert "set-aside" not in (tmp_path / "page.html").read_text(encoding="utf-8")
