"""Programs that try to be paid without solving the problem: none may be ruled correct, whichever way the tests are run.

Each attempt is wrong code for `add(a, b)`. It is judged against plain asserts (compared in the judge), a loop (compared in the
tests process), a tolerance, containment, membership and a pytest file.
"""

import json
from pathlib import Path

import pytest

from tossup.records import Ruling
from tossup.verifiers.code import close, judge


@pytest.fixture(scope="module", autouse=True)
def _workers():
    yield
    close()


def humaneval(body):
    return "humaneval", {"entry_point": "add", "test": f"def check(candidate):\n{body}"}


TESTS = {
    "asserts": humaneval(
        "    assert candidate(2, 3) == 5\n    assert candidate(10, -4) == 6\n    assert candidate(1, 1) == 2\n"
    ),
    "loop": humaneval("    for a, b in ((2, 3), (10, -4), (1, 1)):\n        assert candidate(a, b) == a + b\n"),
    "reversed": humaneval("    for a, b in ((2, 3), (10, -4), (1, 1)):\n        assert a + b == candidate(a, b)\n"),
    "tolerance": humaneval(
        "    for a, b in ((2, 3), (10, -4)):\n        assert abs(candidate(a, b) - (a + b)) < 1e-6\n"
    ),
    "unequal": humaneval("    for a, b in ((2, 3), (10, -4)):\n        assert not candidate(a, b) != a + b\n"),
    "order": humaneval(
        "    for a, b in ((2, 3), (10, -4)):\n        assert a + b - 0.5 < candidate(a, b) < a + b + 0.5\n"
    ),
    "all": humaneval(
        "    assert all(candidate(a, b) == a + b for a, b in ((2, 3), (10, -4)))\n"
        "    assert list(map(candidate, [2], [3])) == [5]\n"
    ),
    "member": humaneval("    for a, b in ((2, 3), (10, -4)):\n        assert candidate(a, b) in {a + b}\n"),
    "close": humaneval(
        "    import math\n    for a, b in ((2, 3), (10, -4)):\n        assert math.isclose(candidate(a, b), a + b)\n"
    ),
    "numpy": humaneval(
        "    import numpy as np\n    for a, b in ((2, 3), (10, -4)):\n        assert np.allclose(candidate(a, b), a + b)\n"
    ),
    "pytest": (
        "pytest",
        {
            "test": "import pytest\nfrom solution import add\n\n"
            "@pytest.mark.parametrize('a, b', [(2, 3), (10, -4)])\n"
            "def test_add(a, b):\n    assert add(a, b) == pytest.approx(a + b)\n"
        },
    ),
    "unittest": (
        "pytest",
        {
            "test": "import unittest\nfrom solution import add\n\nclass T(unittest.TestCase):\n"
            "    def test_add(self):\n        self.assertEqual(add(2, 3), 5)\n        self.assertAlmostEqual(add(10, -4), 6)\n"
        },
    ),
}

ATTEMPTS = {
    row["name"]: row["program"]
    for row in map(json.loads, Path(__file__).with_name("forging.jsonl").read_text().splitlines())
}


@pytest.mark.parametrize("attempt", ATTEMPTS)
def test_no_attempt_is_paid(attempt):
    limits = {"cpu_seconds": 2.0, "wall_seconds": 8.0, "memory_mb": 512}
    for how, (name, problem) in TESTS.items():
        verdict = judge({**problem, "limits": limits}, ATTEMPTS[attempt], name)
        assert verdict.ruling is Ruling.WRONG, (how, verdict)


@pytest.mark.parametrize("how", TESTS)
def test_honest_code_passes_the_same_tests(how):
    name, problem = TESTS[how]
    for program in (
        "def add(a, b): return a + b",
        "def add(a, b): return float(a + b)",
        "class add:\n    def __new__(cls, a, b): return a + b",
    ):
        verdict = judge(problem, program, name)
        assert verdict.ruling is Ruling.CORRECT, (program, verdict)


def test_an_exception_can_only_end_a_test_that_asks_for_it():
    name, problem = humaneval(
        "    try:\n        candidate(1, 2)\n    except ValueError:\n        return\n    assert False\n"
    )
    assert judge(problem, "def add(a, b): raise ValueError", name).ruling is Ruling.CORRECT
    assert judge(problem, "class V(ValueError): pass\ndef add(a, b): raise V", name).ruling is Ruling.CORRECT
    assert (
        judge(problem, "class ValueError(Exception): pass\ndef add(a, b): raise TypeError", name).ruling is Ruling.WRONG
    )


def test_no_state_is_left_for_the_next_run():
    name, problem = TESTS["asserts"]
    for program in (
        "import builtins\nbuiltins.abs = None\nadd = None",
        "import sys\nsys.modules['json'] = None\nadd = None",
    ):
        assert judge(problem, program, name).ruling is Ruling.WRONG
        assert judge(problem, "import json\ndef add(a, b): return abs(a + b)", name).ruling is Ruling.CORRECT


def test_a_star_import_puts_nothing_over_what_the_tests_use():
    test = (
        "import pytest\nfrom solution import *\n\ndef test_f():\n    with pytest.raises(ValueError):\n        f(0)\n"
        "    assert sorted([f(3), f(2)]) == [2, 3]\n"
    )
    honest = "def f(x):\n    if not x:\n        raise ValueError\n    return x\n"
    swallows = (
        "class Swallow:\n    def raises(self, *kinds):\n        return self\n    def __enter__(self):\n        return self\n"
        "    def __exit__(self, *error):\n        return True\npytest = Swallow()\ndef sorted(x):\n    return [2, 3]\n"
        "def f(x):\n    return 0\n"
    )
    assert judge({"test": test}, honest, "pytest").ruling is Ruling.CORRECT
    assert judge({"test": test}, swallows, "pytest").ruling is Ruling.WRONG


@pytest.mark.parametrize("result", ["[[]] * 400_000", "'x' * 20_000_000", "{i: i for i in range(2_000_000)}"])
def test_a_result_that_would_fill_the_judges_memory_is_refused_unread(result):
    name, problem = TESTS["asserts"]
    limits = {"cpu_seconds": 5.0, "memory_mb": 1024, "output_mb": 8}
    assert judge({**problem, "limits": limits}, f"def add(a, b): return {result}", name).ruling is Ruling.WRONG
