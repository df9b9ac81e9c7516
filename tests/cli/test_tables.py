"""Tables that a person reads: nothing is cut off in a narrow terminal, and the log of a batch job shows that it lives."""

from __future__ import annotations

from typing import Any

import pytest
from rich.cells import cell_len
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from tossup.cli import console, curate, measuring
from tossup.cli import eval as evaluating

LONG = "HuggingFaceH4/MATH-500-and-more/数学问题🙂集合"

MEASURE = {"value": 0.5, "low": 0.4, "high": 0.61}
SCORES: dict[str, Any] = {
    "problems": 1500,
    "undecided_answers": 3,
    "mean": MEASURE,
    "pass@1": MEASURE,
    "pass@16": MEASURE,
}
COUNTS = {"mean_rate": 0.5, "always_solved": 1, "toss_ups": 2, "never_solved": 3, "undecided_answers": 0, "problems": 6}
DROPPED = {
    "overlap with hf:HuggingFaceH4/MATH-500:test": {"problems": 10, "examples": [LONG], "remedy": "look at some keys"}
}


def shown(monkeypatch: pytest.MonkeyPatch, width: int, make: Any, result: Any) -> tuple[list[str], str]:
    """The lines of a table in a terminal of this width, and all its letters without the breaks."""
    terminal = Console(width=width, highlight=False)
    for module in (console, curate, evaluating):
        monkeypatch.setattr(module, "out", terminal)
    with terminal.capture() as captured:
        table: Table = make(result)
        terminal.print(table)
    text = captured.get()
    return text.splitlines(), "".join(text.split())


@pytest.mark.parametrize("width", [60, 80, 120])
def test_a_narrow_terminal_cuts_nothing_off(monkeypatch: pytest.MonkeyPatch, width: int) -> None:
    measured = SCORES | {"samples": 16, "datasets": {LONG: SCORES, "b": SCORES}}
    counted = COUNTS | {"samples": 8, "samples_most": 8, "datasets": {LONG: COUNTS, "b": COUNTS}}
    for make, result, words in (
        (
            evaluating._table,
            measured,
            ["problems", "mean@16", "pass@1", "pass@16", "undecided", "1,500", "0.500", "±0.110"],
        ),
        (curate._table, counted, ["problems", "toss-ups", "undecided", "0.500"]),
        (curate._dropped, {"dropped": DROPPED}, ["problems", "example", "look", "keys"]),
    ):
        lines, letters = shown(monkeypatch, width, make, result)
        assert max(map(cell_len, lines)) <= width
        assert "…" not in letters
        for word in words:
            assert word in letters
        for letter in LONG:
            assert letter in letters


def test_the_interval_stands_beside_its_value_where_there_is_room(monkeypatch: pytest.MonkeyPatch) -> None:
    one = SCORES | {"problems": 1, "pass@1": {"value": 0.25, "low": 0.25, "high": 0.25}}
    measured = one | {"samples": 16, "datasets": {"b": one}}
    wide, narrow = (shown(monkeypatch, width, evaluating._table, measured)[0] for width in (120, 80))
    assert wide[-1].split() == ["b", "1", "0.500", "±", "0.110", "0.250", "0.500", "±", "0.110", "3"]
    assert narrow[-1].split() == ["±", "0.110", "±", "0.110"]


def test_without_a_terminal_a_measuring_job_says_now_and_then_how_far_it_is(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(measuring.Look, "LINE_EVERY_S", 0.0)
    look = measuring.Look(Progress(disable=True))
    look.started(3, 1)
    look.measured(1, 100)
    assert "already measured: 1 of 3 problems" in (said := capsys.readouterr().err)
    assert "measured: 2 of 3 problems, " in said
    monkeypatch.setattr(measuring.Look, "LINE_EVERY_S", 60.0)
    look.measured(1, 100)
    assert capsys.readouterr().err == ""


def test_without_a_terminal_a_progress_bar_leaves_no_trace(capsys: pytest.CaptureFixture[str]) -> None:
    with console.progress_bar() as progress:
        progress.advance(progress.add_task("measuring", total=1))
    assert capsys.readouterr() == ("", "")
