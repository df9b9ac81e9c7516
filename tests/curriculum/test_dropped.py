"""Why a problem is not in the pool: one reason each, that says what was found and what can be done."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tossup.curriculum.checks import Finding, Kind, check
from tossup.curriculum.dropped import COLUMNS, REMEDIES, SLUGS, TOGETHER, summary, table, unclean, unwanted
from tossup.curriculum.pool import Pool, read_pool
from tossup.curriculum.rule import Band, Counts, Rule, Signal
from tossup.records import Problem

PAIRS = [
    ("Find $x+1$.", "2"),
    ("Find \\(x \\, + 1\\).", "2"),
    ("How many?", "9996"),
    ("how  many?", "9960"),
    ("What is it? Answer: 7.", "7"),
    ("See https://example.org", "1"),
    ("fine", "3"),
    ("no key", ""),
]


@pytest.fixture
def pool(tmp_path: Path) -> Pool:
    path = tmp_path / "p.jsonl"
    rows = [{"id": f"p{i}", "prompt": p, "reference": r} for i, (p, r) in enumerate(PAIRS)]
    path.write_text("\n".join(map(json.dumps, rows)))
    return read_pool(path)


def reasons(pool: Pool, *kinds: Kind) -> dict[str, tuple[str, str | None]]:
    found = unclean(pool, check(pool, {"EVAL": pool.take([6])}), kinds)
    return {row["id"]: (row["reason"], row["other"]) for row in found.values()}


def test_of_copies_the_first_stays_and_of_rivals_none(pool: Pool) -> None:
    assert reasons(pool, *TOGETHER) == {
        "p1": ("duplicate", "p0"),
        "p2": ("conflicting references", "p3"),
        "p3": ("conflicting references", "p2"),
    }


def test_only_what_was_asked_for_is_left_out(pool: Pool) -> None:
    assert reasons(pool) == {}
    assert reasons(pool, *SLUGS["leak"]) == {"p4": ("leaked answer", None)}
    assert reasons(pool, *SLUGS["link"], *SLUGS["empty"]) == {"p5": ("link", None), "p7": ("empty reference", None)}
    assert reasons(pool, Kind.OVERLAP) == {"p6": ("overlap with an evaluation set", None)}


def test_a_problem_has_one_reason_even_with_several_findings(pool: Pool) -> None:
    findings = [Finding(Kind.LINK, (5,)), Finding(Kind.LEAK, (5,)), Finding(Kind.DUPLICATE, (0, 5))]
    found = unclean(pool, findings, {Kind.LINK, Kind.LEAK, Kind.DUPLICATE})
    assert [row["reason"] for row in found.values()] == ["link"]


def test_every_kind_of_finding_can_be_explained_and_mended(pool: Pool) -> None:
    for kind in Kind:
        (row,) = unclean(pool, [Finding(kind, (0, 1) if kind is Kind.DUPLICATE else (1,), "NOTE")], {kind}).values()
        assert row["why"]
        assert REMEDIES[row["reason"]]


def judged(rule: Rule, *problems: tuple[int, int, int, float]) -> list[dict[str, Any]]:
    """The rows of a pool of problems with (answers, attempts, correct, mean tokens) each."""
    answers, attempts, correct, tokens = (np.array(x) for x in zip(*problems, strict=True))
    counts = Counts(answers, attempts, correct, tokens.astype(float), [""] * len(problems))
    pool = Pool.of([Problem(f"p{i}", "?", "1") for i in range(len(problems))])
    return unwanted(pool, rule, counts, rule.judge(counts), {"p3": "the key cannot be read"})


def test_reasons_by_the_observed_rate() -> None:
    rows = judged(Rule(Band(0.2, 0.8)), (8, 8, 8, 9), (8, 8, 1, 9), (8, 8, 4, 9), (8, 0, 0, 9), (0, 0, 0, 0))
    assert [(row["id"], row["reason"], row["why"]) for row in rows] == [
        ("p0", "too easy", "solved 8 of 8: a rate of 1.00 is above 0.8"),
        ("p1", "too hard", "solved 1 of 8: a rate of 0.12 is below 0.2"),
        ("p3", "not judged", "none of its 8 answers could be judged: the key cannot be read"),
        ("p4", "not measured", "the token budget was spent before its turn"),
    ]
    assert rows[0]["correct"] == 8
    assert rows[2]["inside"] is None


def test_reasons_by_probability() -> None:
    rule = Rule(Band(0.2, 0.8), confidence=0.9, undecided="drop")
    rows = judged(rule, (40, 40, 40, 9), (40, 40, 0, 9), (2, 2, 0, 9), (40, 40, 20, 9))
    assert [row["reason"] for row in rows] == ["too easy", "too hard", "undecided"]
    assert "above 0.8 with probability 0.99" in rows[0]["why"] or "probability 1.00" in rows[0]["why"]
    assert all(row["inside"] < 0.9 for row in rows)


def test_long_answers_that_teach_little_for_their_tokens() -> None:
    for rule in (Rule(signal=Signal(0.2)), Rule(Band(0.1, 0.9), Signal(0.2), confidence=0.9)):
        short, long = (80, 80, 40, 100.0), (80, 80, 40, 3000.0)
        (row,) = judged(rule, short, long)
        assert (row["id"], row["reason"]) == ("p1", "too little signal")
        assert "answers of 3,000 tokens" in row["why"]


def test_with_band_and_signal_the_band_is_named_where_it_is_the_cause() -> None:
    (row,) = judged(Rule(Band(0.1, 0.9), Signal(0.2), confidence=0.9), (80, 80, 80, 100.0), (80, 80, 40, 100.0))
    assert row["reason"] == "too easy"


def test_the_table_has_its_columns_even_when_empty_and_the_summary_counts() -> None:
    assert table([]).columns == list(COLUMNS)
    rows = judged(Rule(Band(0.4, 0.6)), *[(4, 4, 4, 9)] * 5, (4, 4, 0, 9), (4, 4, 2, 9))
    found = summary(table(rows))
    assert {reason: (row["problems"], row["examples"]) for reason, row in found.items()} == {
        "too easy": (5, ["p0", "p1", "p2"]),
        "too hard": (1, ["p5"]),
    }
    assert list(found) == ["too easy", "too hard"]
