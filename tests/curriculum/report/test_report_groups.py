from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest
from report_ledgers import STEPS, answer, group, write_ledger

from tossup.curriculum.gate import fates
from tossup.curriculum.ledger import Ledger, scan_ledger, scan_texts
from tossup.curriculum.report import browser, folds, show
from tossup.records import Group, Problem, wrong


def cards_of(folder: Path, divide: bool = True, prompts=None):
    rows = scan_ledger(folder)
    chosen = browser.choose(folds.groups(rows), [])
    return browser.cards(chosen, rows, scan_texts(folder), prompts or {}, divide=divide)


def test_the_worked_example() -> None:
    assert browser.advantages([1.0, 0.0, 0.0, 1.0], divide=True) == (0.5, 0.5, [1.0, -1.0, -1.0, 1.0])


def test_five_right_of_eight_without_the_division() -> None:
    mean, _, pushes = browser.advantages([1.0] * 5 + [0.0] * 3, divide=False)
    assert (mean, pushes[0], pushes[7]) == (0.625, 0.375, -0.625)


@pytest.mark.parametrize("divide", [True, False])
def test_a_degenerate_group_pushes_nothing(divide: bool) -> None:
    assert browser.advantages([1.0, 1.0, 1.0], divide=divide) == (1.0, 0.0, [0.0, 0.0, 0.0])


def test_an_undecided_answer_leaves_the_group_before_the_mean() -> None:
    assert browser.advantages([1.0, None, 0.0], divide=True) == (0.5, 0.5, [1.0, None, -1.0])
    assert browser.advantages([None, 0.0], divide=True) == (0.0, None, [None, None])
    assert browser.advantages([None], divide=True) == (None, None, [None])


def test_a_card_says_all_of_its_group(tmp_path: Path) -> None:
    cards = cards_of(write_ledger(tmp_path, STEPS), prompts={"a": ("What is a?", "7")})
    assert [c["key"] for c in cards] == ["0-0", "0-1", "0-2", "1-3", "1-4", "1-5", "2-6", "2-7"]
    card = cards[0]
    assert (card["mean"], card["kind"], card["prompt"], card["reference"]) == (0.25, "mixed", "What is a?", "7")
    assert [a["advantage"] for a in card["answers"]] == pytest.approx([-0.577, -0.577, -0.577, 1.732], abs=1e-3)
    assert card["answers"][3] == {
        "text": "so 7",
        "found": "7",
        "ruling": "correct",
        "reason": "equals the reference",
        "advantage": pytest.approx(3**0.5),
        "tokens": 3,
        "cut": False,
        "fate": "trained",
    }
    assert cards[1]["prompt"] is None, "the pool does not know this problem"


def test_without_texts_the_groups_are_there_and_their_answers_are_not(tmp_path: Path) -> None:
    cards = cards_of(write_ledger(tmp_path, STEPS, text=False))
    assert len(cards) == 8
    assert {a["text"] for c in cards for a in c["answers"]} == {None}


def test_the_number_of_groups_is_bounded_and_the_linked_ones_are_there(tmp_path: Path) -> None:
    steps = [[group(10 * s + k, "a", r) for k, r in enumerate(("01", "11", "00", "1?") * 2)] for s in range(60)]
    table = folds.groups(scan_ledger(write_ledger(tmp_path, steps)))
    chosen = browser.choose(table, [(7, 70), (7, 71), (999, 9)])
    kinds = dict(chosen.group_by("kind").agg(pl.len()).iter_rows())
    assert all(most <= kinds[kind] <= most + 2 for kind, most in browser.SHARE_OF_KIND.items())
    assert {(7, 70), (7, 71)} <= set(chosen.select("step", "group").iter_rows())
    assert chosen["step"].is_sorted()
    assert (chosen["step"].min(), chosen["step"].max()) == (0, 59)


def test_huge_answers_are_cut_in_the_middle_and_say_so(tmp_path: Path) -> None:
    huge = "start" + "x" * 500_000 + "end"
    big = Group(0, Problem("a", "?", "7"), (answer(wrong("no", "1"), huge), answer(wrong("no", huge), "short")))
    Ledger(tmp_path, "r", keep_text=True).append(0, [(big, fates(big))])
    (card,) = cards_of(tmp_path)
    text = card["answers"][0]["text"]
    assert text.startswith("start")
    assert text.endswith("end")
    assert "498,008 characters left out" in text
    assert len(card["answers"][1]["found"]) < 300


def test_the_text_of_a_page_stays_within_its_budget(tmp_path: Path) -> None:
    texts = tuple(answer(wrong("no", "1"), "y" * 5000) for _ in range(64))
    steps = [[Group(s, Problem("a", "?", "7"), texts)] for s in range(40)]
    cards = cards_of(write_ledger(tmp_path, steps))
    assert sum(len(a["text"]) for c in cards for a in c["answers"]) < 1.1 * browser.TEXT_BUDGET


def test_control_characters_become_visible() -> None:
    assert show.legible("a\x00b\x1b[31m\n\tc\x7f") == "a␀b␛[31m\n\tc␡"


def test_marks_that_turn_or_cover_the_text_around_them_are_tamed() -> None:
    assert show.legible("a\u202eb") == "a⟨U+202E⟩b"
    assert show.legible("Z" + "\u0301" * 5000 + "e\u0301\u0323") == "Z\u0301\u0301\u0301e\u0301\u0323"
    assert show.legible("שלום") == "שלום"
