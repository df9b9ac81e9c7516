"""Attacks by somebody who did not write the judge: each program is wrong, and must be ruled so on every backend.

UNDECIDED counts as let through: a policy would learn to dodge a penalty. The rows are in attacks.jsonl, by kind:
    looks      objects that answer differently at the second look, tolerances that take everything
    empty      arrays with nothing in them to compare
    arguments  changes to an argument that a reference function gets next
    dodge      wrong answers that try to look like a failure of ours or of the tests
    frames     malformed, early, late and foreign messages on the pipes
    later      threads, exit handlers, signals, traces, audit hooks and call backs
    inside     the judge's own modules, and the interpreter, changed in the program's process
    values     results that are not what they say
    exceptions what is raised instead of a result
    stdin      programs that print
    ends       ways to die
    work       results that are work to read
"""

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.sandbox.conftest import skip_unless_offered
from tossup.records import Ruling
from tossup.sandbox import backends
from tossup.verifiers.code.formats import read
from tossup.verifiers.code.judging import Judge

LIMITS = {"cpu_seconds": 1.0, "wall_seconds": 5.0, "memory_mb": 512}
ATTACKS = [json.loads(line) for line in Path(__file__).with_name("attacks.jsonl").read_text().splitlines()]
AT_ONCE = 4


@pytest.fixture(scope="module", params=backends.ORDER)
def judge_on(request):
    skip_unless_offered(request.param)
    judge = Judge(request.param, workers=AT_ONCE)
    yield request.param, judge
    judge.close()


@pytest.mark.parametrize("kind", sorted({row["kind"] for row in ATTACKS}))
def test_every_attack_is_ruled_wrong(judge_on, kind):
    backend, judge = judge_on
    rows = [row for row in ATTACKS if row["kind"] == kind]

    def ruled(row):
        reading = read({**row["problem"], "format": row["format"], "limits": LIMITS}, row["format"])
        return judge.judge(reading.task, row["program"], reading.bounds)

    with ThreadPoolExecutor(AT_ONCE) as threads:
        verdicts = dict(zip((row["name"] for row in rows), threads.map(ruled, rows), strict=True))
    if backend == "chroot":  # nothing but what is loaded before can be imported there
        verdicts = {name: v for name, v in verdicts.items() if "numpy.testing" not in v.reason}
    assert {name: v for name, v in verdicts.items() if v.ruling is not Ruling.WRONG} == {}
    unprintable = {name: v.reason for name, v in verdicts.items() if not v.reason.isprintable()}
    assert unprintable == {}, "a reason is one line that any terminal and file can take"


HONEST = {
    "a list close to numbers, on the left": (
        "pytest",
        {
            "test": "import pytest\nfrom solution import f\n\ndef test_f():\n    assert pytest.approx([1.0, 2.0]) == f()\n"
        },
        "def f(): return [1.0, 2.0 + 1e-9]",
    ),
    "infinity": (
        "pytest",
        {
            "test": "import pytest\nfrom solution import f\n\ndef test_f():\n    assert f() == pytest.approx(float('inf'))\n"
        },
        "def f(): return float('inf')",
    ),
    "two empty arrays": (
        "humaneval",
        {
            "entry_point": "f",
            "test": "def check(f):\n    import numpy as np\n    np.testing.assert_allclose(f(), [])\n",
        },
        "import numpy as np\ndef f(): return np.array([])",
    ),
    "arrays by numpy.testing": (
        "humaneval",
        {
            "entry_point": "f",
            "test": "def check(f):\n    import numpy as np\n    np.testing.assert_array_equal(f(), [1, 2])\n"
            "    np.testing.assert_allclose(f()[0], 1.0)\n    assert np.array_equiv(f(), [1, 2])\n",
        },
        "import numpy as np\ndef f(): return np.array([1, 2])",
    ),
    "a result that is an argument": (
        "humaneval",
        {
            "entry_point": "f",
            "test": "def check(candidate):\n    for xs in ([2, 1], [3, 3, 1]):\n        assert candidate(xs) == sorted(xs)\n",
        },
        "def f(xs):\n    xs.sort()\n    return xs",
    ),
    "an argument changed in place, where the tests look at it": (
        "pytest",
        {"test": "from solution import f\n\ndef test_f():\n    xs = [2, 1]\n    f(xs)\n    assert xs == [1, 2]\n"},
        "def f(xs): xs.sort()",
    ),
    "items passed back": (
        "humaneval",
        {
            "entry_point": "f",
            "test": "def check(candidate):\n    for d in ({1: 2}, {}):\n        assert dict(candidate(candidate(d))) == d\n",
        },
        "def f(d): return dict(d).items()",
    ),
    "a missing name that the tests ask for": (
        "pytest",
        {
            "test": "import solution\n\ndef test_f():\n    assert not hasattr(solution, 'g')\n    assert solution.f() == 1\n"
        },
        "def f(): return 1",
    ),
}


@pytest.mark.parametrize("name", HONEST)
def test_honest_programs_pass_beside_them(judge_on, name):
    backend, judge = judge_on
    form, problem, program = HONEST[name]
    reading = read({**problem, "format": form}, form)
    verdict = judge.judge(reading.task, program, reading.bounds)
    if backend == "chroot" and "numpy.testing" in verdict.reason:
        pytest.skip("nothing but what is loaded before can be imported there")
    assert verdict.ruling is Ruling.CORRECT, verdict


def test_a_module_that_the_tests_lack_is_nobodys_wrong_answer(judge_on):
    _, judge = judge_on
    problem = {"test": "import no_such_module\nfrom solution import f\n\ndef test_f():\n    assert f() == 1\n"}
    reading = read(problem, "pytest")
    assert judge.judge(reading.task, "def f(): return 1", reading.bounds).ruling is Ruling.UNDECIDED
