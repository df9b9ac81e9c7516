"""Verifiers by name, one at a time and many at once; a verifier that fails decides nothing."""

import datetime
import subprocess
import sys
import textwrap
from dataclasses import replace
from types import MappingProxyType

import pytest

from tossup import verifiers
from tossup.records import Problem, Ruling, TossupError, Verdict, correct
from tossup.verifiers import averify, get, verify, verify_many
from tossup.verifiers._user import as_verdict


def problem(reference="7", verifier="exact", **rest):
    return Problem("p", "3 + 4 =", reference, verifier, **rest)


@pytest.mark.parametrize(
    ("response", "ruling", "reason"),
    [
        ("7", Ruling.CORRECT, "equals the reference"),
        (" 7\n", Ruling.CORRECT, "equals the reference"),
        ("7.0", Ruling.WRONG, "'7.0' is not the reference '7'"),
        ("The answer is 7", Ruling.WRONG, "'The answer is 7' is not the reference '7'"),
        ("  ", Ruling.WRONG, "empty response"),
    ],
)
def test_exact(response, ruling, reason):
    verdict = verify(problem(), response)
    assert (verdict.ruling, verdict.reason) == (ruling, reason)


def test_exact_without_a_reference_decides_nothing():
    assert verify(problem("  "), "").ruling is Ruling.UNDECIDED


def test_a_name_is_made_once():
    assert get("exact") is get("exact")


def test_an_unknown_name_is_an_error_that_helps():
    with pytest.raises(TossupError, match=r"no verifier is called 'exct'.*did you mean 'exact'"):
        verify(problem(verifier="exct"), "7")


@pytest.mark.parametrize("name", ["no_such_module_of_mine:f", "math:no_such_function"])
def test_a_function_of_one_s_own_that_does_not_load_is_an_error(name):
    with pytest.raises(TossupError, match=name):
        verify(problem(verifier=name), "7")


OWN = """
import os, time
from tossup.records import Verdict, Ruling, Problem

def same(problem: Problem, response: str):
    return problem.reference == response

def whole(problem, response):
    assert isinstance(problem.prompt, tuple) and problem.prompt[0]["role"] == "user", problem.prompt
    return Verdict(Ruling.WRONG, "made on " + problem.meta["made"], response)

def graded(problem, response):
    return 0.5

def silent(problem, response):
    return None

def broken(problem, response):
    raise ValueError("first line\\nsecond line")

def crash(problem, response):
    os.abort()
"""


@pytest.fixture
def own(tmp_path, monkeypatch):
    """A module of the user's, importable by the name that is returned."""
    (tmp_path / "own_verifiers.py").write_text(OWN)
    monkeypatch.syspath_prepend(tmp_path)
    yield "own_verifiers"
    verifiers.close()


def test_a_function_of_one_s_own(own):
    assert verify(problem(verifier=f"{own}:same"), "7").ruling is Ruling.CORRECT
    assert verify(problem(verifier=f"{own}:same"), "8").ruling is Ruling.WRONG


def test_a_function_of_one_s_own_sees_the_whole_problem(own):
    chat = Problem(
        "p", ({"role": "user", "content": "3 + 4"},), "7", f"{own}:whole", "d", {"made": datetime.date(2026, 1, 2)}
    )
    chat = replace(chat, prompt=tuple(MappingProxyType(m) for m in chat.prompt), meta=MappingProxyType(chat.meta))
    verdict = verify(chat, "8")
    assert (verdict.ruling, verdict.reason, verdict.answer) == (Ruling.WRONG, "made on 2026-01-02", "8")


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        ("graded", "own_verifiers:graded returned 0.5: expected True, False, None or a Verdict"),
        ("silent", "own_verifiers:silent returned None"),
        ("broken", "own_verifiers:broken: ValueError: first line second line"),
        ("crash", "own_verifiers:crash: worker killed by SIGABRT"),
    ],
)
def test_a_function_that_fails_decides_nothing(own, function, reason):
    verdict = verify(problem(verifier=f"{own}:{function}"), "7")
    assert (verdict.ruling, verdict.reason) == (Ruling.UNDECIDED, reason)


@pytest.mark.parametrize(
    ("value", "ruling"), [(True, "correct"), (1.0, "correct"), (0, "wrong"), (-1, "undecided"), ("yes", "undecided")]
)
def test_what_a_function_may_return(value, ruling):
    assert as_verdict("f", value).ruling == ruling


def test_many_keep_their_order_and_report_as_they_go(own):
    pairs = [
        (problem(str(i), verifier="exact" if i % 3 else f"{own}:same"), str(i if i % 5 else -1)) for i in range(60)
    ]
    seen = []
    verdicts = verify_many(pairs, on_verdict=seen.append)
    assert [v.ruling for v in verdicts] == [Ruling.CORRECT if i % 5 else Ruling.WRONG for i in range(60)]
    assert sorted(seen) == list(range(60))
    assert [(v.ruling, v.reason) for v in verdicts] == [(v.ruling, v.reason) for v in (verify(p, r) for p, r in pairs)]


def test_none_is_many_too():
    assert verify_many([]) == []


def test_an_error_among_many_ends_them(own):
    with pytest.raises(TossupError, match="nobody:here"):
        verify_many([(problem(verifier=f"{own}:same"), "7")] * 3 + [(problem(verifier="nobody:here"), "7")])


async def _ask():
    return await averify(problem(), "7")


def test_asyncio():
    import asyncio

    assert asyncio.run(_ask()).ruling is Ruling.CORRECT


def test_every_verdict_has_its_time_and_keeps_what_the_judge_says():
    assert verify(problem(), "7").seconds > 0
    timed = Verdict(Ruling.CORRECT, "x", seconds=5.0)
    assert verifiers._guarded(lambda p, r: timed, problem(), "7").seconds == 5.0
    assert verifiers._guarded(lambda p, r: correct("x"), problem(), "7").seconds > 0


def test_what_answers_do_not_need_is_not_imported():
    code = """
        import sys
        from tossup.records import Problem
        from tossup.verifiers import verify
        asked = [("math", "1/2", "so 0.5"), ("math", "(x+1)^2", "x^2+2x+1"), ("choice", "A", "A"), ("logic", "yes", "yes")]
        for verifier, key, said in asked:
            assert verify(Problem("p", "", key, verifier), said).ruling == "correct", said
        print(sorted({"sympy", "numpy", "polars", "torch", "pydantic"} & sys.modules.keys()))
    """
    run = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], stdout=subprocess.PIPE, text=True, check=True)
    assert run.stdout.strip() == "[]"
