"""Every case in `cases/*.jsonl`: a reference, an answer (boxed for the test) or a whole response, and the ruling.

A new case needs a line there and no code. `policy` ties a case to a row of the table in `tossup.verifiers.math`.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import tossup.verifiers.math as verifier
from tossup.records import Problem
from tossup.verifiers.math import judge, verify

CASES = Path(__file__).parent / "cases"


def read_cases() -> list[Any]:
    found = []
    for path in sorted(CASES.glob("*.jsonl")):
        for number, line in enumerate(path.read_text(encoding="utf-8").split("\n"), 1):
            if line:
                found.append(pytest.param(json.loads(line), id=f"{path.stem}-{number}"))
    return found


def response_of(case: dict[str, str]) -> str:
    return case["response"] if "response" in case else f"The final answer is $\\boxed{{{case['answer']}}}$."


@pytest.mark.parametrize("case", read_cases())
def test_case(case: dict[str, str]) -> None:
    verdict = judge(response_of(case), case["reference"])
    assert verdict.ruling == case["ruling"], verdict.reason
    assert verdict.reason


def test_every_policy_has_cases_on_both_sides() -> None:
    rulings: dict[str, set[str]] = {}
    for line in (CASES / "policy.jsonl").read_text(encoding="utf-8").splitlines():
        case = json.loads(line)
        rulings.setdefault(case["policy"], set()).add(case["ruling"])
    table = (verifier.__doc__ or "").split("======\n")[1]
    rows = {line.split("  ", 1)[0] for line in table.split("\n") if line and not line.startswith("=")}
    assert set(rulings) == rows
    assert {policy for policy, seen in rulings.items() if len(seen) < 2} <= {"program text"}


def test_verify_judges_against_the_reference_of_the_problem() -> None:
    problem = Problem(id="p", prompt="What is 6 * 7?", reference="42")
    right, wrong = verify(problem, "The answer is 42."), verify(problem, "The answer is 41.")
    assert (right.ruling, right.answer) == ("correct", "42")
    assert (wrong.ruling, wrong.answer) == ("wrong", "41")
    assert right.seconds > 0
