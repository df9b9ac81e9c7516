from __future__ import annotations

from pathlib import Path

import pytest
from report_ledgers import answer, group

from tossup.curriculum.gate import fates
from tossup.curriculum.ledger import Ledger, scan_ledger, scan_texts
from tossup.curriculum.report import folds, reasons
from tossup.records import Group, Problem, Verdict, correct, undecided, wrong


def of_verdicts(number: int, problem: str, dataset: str, *verdicts: Verdict) -> Group:
    return Group(number, Problem(problem, "?", "7", "math", dataset), tuple(answer(v, text="t") for v in verdicts))


def write(folder: Path, *groups: Group) -> Path:
    Ledger(folder, "r", keep_text=True).append(0, [(g, fates(g)) for g in groups])
    return folder


def suspects(folder: Path, limit: int = 10):
    rows = scan_ledger(folder)
    return reasons.suspects(rows, scan_texts(folder), folds.groups(rows), limit)


def never(number: int, problem: str, dataset: str, *answers: str) -> Group:
    return of_verdicts(number, problem, dataset, *(wrong(f"'{a}' is not it", a) for a in answers))


@pytest.mark.parametrize(
    ("reason", "kind"),
    [
        ("'a3' is not the reference 'a3b1'", "… is not the reference …"),
        (r"'it\'s' is not the reference \"7\"".replace(r"\"", '"'), "… is not the reference …"),
        ("boxed: 1081 equals the reference", "boxed: … equals the reference"),
        ("announced: 4, 5 is not the reference", "announced: … is not the reference"),
        ("boxed: x+2: not equal", "boxed: …: not equal"),
        ("boxed: equal", "boxed: equal"),
        ("timeout after 1.0 s", "timeout after … s"),
        ("test 3 of 11: the output differs", "test … of …: the output differs"),
        ("no program in the response", "no program in the response"),
    ],
)
def test_reasons_are_counted_without_the_particulars_of_an_answer(tmp_path: Path, reason: str, kind: str) -> None:
    write(tmp_path, of_verdicts(0, "a", "d", wrong(reason), wrong(reason)))
    assert reasons.reasons(scan_ledger(tmp_path)).rows() == [("wrong", kind, 2, reason)]


def test_the_same_words_under_two_rulings_are_two_rows_and_the_commonest_is_first(tmp_path: Path) -> None:
    write(tmp_path, of_verdicts(0, "a", "d", undecided("odd"), wrong("odd"), wrong("odd"), correct("fine")))
    found = reasons.reasons(scan_ledger(tmp_path)).select("ruling", "answers").rows()
    assert found == [("wrong", 2), ("correct", 1), ("undecided", 1)]


def test_answers_that_agree_against_the_key_are_suspect(tmp_path: Path) -> None:
    write(
        tmp_path,
        never(0, "agree", "easy", "12", " 1 2 ", "$12$", "12"),
        never(1, "scatter", "easy", "1", "2", "3", "4"),
        *(group(2 + k, f"s{k}", "1111", dataset="easy") for k in range(3)),
    )
    (found,) = suspects(tmp_path).to_dicts()
    assert (found["problem"], found["agree"], found["n"]) == ("agree", 4, 4)
    assert found["rate"] == pytest.approx(12 / 16), "of the other problems of the data set, so without its own four"
    assert found["score"] > 0


def test_agreement_counts_for_more_where_the_rest_is_solved(tmp_path: Path) -> None:
    write(
        tmp_path,
        never(0, "in hard", "hard", *"5555"),
        group(1, "h", "0001", dataset="hard"),
        never(2, "in easy", "easy", *"5556"),
        group(3, "e", "1111", dataset="easy"),
        never(4, "alone", "unsolved", *"5555"),
    )
    found = suspects(tmp_path)
    assert found["problem"].to_list() == ["in easy", "in hard", "alone"]
    assert found["score"][2] == 0.0


def test_all_visits_of_a_problem_count_together(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path, "r", keep_text=True)
    for step in range(3):
        parts = [never(2 * step, "p", "d", "5", "5"), group(2 * step + 1, "q", "11", dataset="d")]
        ledger.append(step, [(g, fates(g)) for g in parts])
    (found,) = suspects(tmp_path).to_dicts()
    assert (found["agree"], found["n"], found["step"], found["group"]) == (6, 6, 2, 4)


@pytest.mark.parametrize(
    "verdicts",
    [
        (wrong("no answer"),) * 4,
        (wrong("no answer", ""),) * 4,
        (undecided("timeout", "5"),) * 4,
        (wrong("x", "5"),) * 3,
        (wrong("x", "5"),) * 4 + (correct("y", "7"),),
    ],
    ids=["no answers found", "empty answers", "undecided", "too few", "solved once"],
)
def test_nothing_is_suspected_without_agreeing_wrong_answers(tmp_path: Path, verdicts: tuple[Verdict, ...]) -> None:
    write(tmp_path, of_verdicts(0, "p", "d", *verdicts), group(1, "q", "1111", dataset="d"))
    assert suspects(tmp_path).is_empty()


def test_ties_are_in_a_fixed_order(tmp_path: Path) -> None:
    groups = [never(k, f"p{k}", "d", *"5555") for k in (3, 1, 2)]
    write(tmp_path, *groups, group(9, "q", "1111", dataset="d"))
    assert suspects(tmp_path, 2)["problem"].to_list() == ["p1", "p2"]
