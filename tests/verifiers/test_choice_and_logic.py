"""Multiple choice and logic answers; the cases are in `choice_and_logic.jsonl`, one verdict with its reason a row."""

import json
from pathlib import Path

import pytest

from tossup.records import Problem, Ruling
from tossup.verifiers import get, verify
from tossup.verifiers.choice import options_of

CASES = [
    json.loads(line) for line in Path(__file__).with_name("choice_and_logic.jsonl").read_text().split("\n") if line
]


@pytest.mark.parametrize("case", CASES, ids=lambda c: f"{c['verifier']} {c['reference']!r} {c['response'][:30]!r}")
def test_case(case):
    problem = Problem("p", case.get("prompt", ""), case["reference"], case["verifier"], meta=case.get("meta", {}))
    verdict = verify(problem, case["response"])
    assert (verdict.ruling, verdict.reason) == (case["ruling"], case["reason"] or verdict.reason)


@pytest.mark.parametrize("case", [c for c in CASES if c["ruling"] == "correct"], ids=lambda c: c["reference"])
def test_every_key_passes_its_own_verifier(case):
    problem = Problem("p", case.get("prompt", ""), case["reference"], case["verifier"], meta=case.get("meta", {}))
    gold = get(case["verifier"]).gold(problem)
    assert verify(problem, gold).ruling is Ruling.CORRECT


def test_options_of_a_chat():
    chat = ({"role": "system", "content": "Choose."}, {"role": "user", "content": "Which?\nA) one\nB) two"})
    assert options_of(Problem("p", chat, "A")) == {"A": "one", "B": "two"}


@pytest.mark.parametrize("prompt", ["Let f(A) = 3.", "(B) is before (A)", "A. Miller wrote it.", ""])
def test_prose_is_no_list_of_options(prompt):
    assert options_of(Problem("p", prompt, "A")) == {}


def test_the_last_list_counts():
    prompt = "Example: (A) red (B) green\n\nNow: which? (A) one (B) two (C) three"
    assert options_of(Problem("p", prompt, "A")) == {"A": "one", "B": "two", "C": "three"}
