"""Asserts read as calls, names under test, EvalPlus's template, LiveCodeBench's packing."""

import ast
import base64
import json
import pickle
import zlib

import pytest

from tossup.verifiers.code import livecode
from tossup.verifiers.code.asserts import NotPlainError, calls_in, literal
from tossup.verifiers.code.codec import Opaque
from tossup.verifiers.code.evalplus import template_calls
from tossup.verifiers.code.formats import FORMATS, FormatError, read
from tossup.verifiers.code.names import free_names, names_of
from tossup.verifiers.code.task import Bounds, CallsTask, ChecksTask, Method, StdinTask


def calls(code, name="f"):
    return calls_in(ast.parse(code).body, frozenset({name}))


@pytest.mark.parametrize(
    ("code", "right", "wrong"),
    [
        ("assert f(1, [2], k={'a': (3,)}) == 4", 4, 5),
        ("assert 4 == f(1)", 4, 5),
        ("assert f() == -2.5, 'message'", -2.5, 2.5),
        ("assert f() == {1, 2}", {2, 1}, [1, 2]),
        ("assert f() == set()", set(), {0}),
        ("assert f() is True", True, 1),
        ("assert f() is None", None, 0),
        ("assert not f()", [], [0]),
        ("assert f()", "x", ""),
        ("assert f() != 3", 4, 3),
        ("assert f() == [0] * 3", [0, 0, 0], [0]),
        ("assert f() == 2 ** 64 - 1", (1 << 64) - 1, 1 << 64),
        ("assert f() == float('inf')", float("inf"), 1),
        ("assert f() == 1 + 2j", 1 + 2j, 1),
    ],
)
def test_plain_asserts(code, right, wrong):
    (call,) = calls(code)
    assert call.check(right)
    assert not call.check(wrong)
    assert not call.check(Opaque("T"))


def test_arguments_are_read_in_full():
    (call,) = calls("assert f(1, *[2, 3], k=-4, s='x') == 0")
    assert call.args == (1, 2, 3)
    assert call.kwargs == {"k": -4, "s": "x"}
    assert call.wanted == "0"


@pytest.mark.parametrize(
    "code",
    [
        "assert g(1) == 2",
        "assert f(g(1)) == 2",
        "assert f(x) == 2",
        "assert f(1) == f(2)",
        "assert abs(f(1) - 2) < 1e-6",
        "assert f(**{'a': 1}) == 2",
        "assert f(1) == 2 == 2",
        "assert f(1) is 5",
        "assert f(1) == 9 ** 9 ** 9",
        "assert f(1) == [0] * 10 ** 9",
        "assert f(1) == {[]: 1}",
        "x = 1",
        "for i in range(3):\n    assert f(i) == i",
        "assert False",
        "assert f(1) == 1 and f(2) == 2",
    ],
)
def test_everything_else_is_left_to_the_tests_process(code):
    with pytest.raises(NotPlainError):
        calls(code)


def test_trivial_statements_are_no_calls():
    assert calls("'doc'\nMETADATA = {'a': g()}\nassert True\npass") == ()


def test_literal_refuses_names_and_calls():
    for text in ("x", "f()", "open('x')", "[i for i in ()]", "a.b", "f'{x}'", "1 if x else 2"):
        with pytest.raises(NotPlainError):
            literal(ast.parse(text, mode="eval").body)


@pytest.mark.parametrize(
    ("code", "sample", "under_test", "helpers"),
    [
        ("assert dbl(2) == 4", "", ("dbl",), ""),
        ("assert math.isclose(area(2), 4)", "", ("area",), "import math"),
        ("assert isclose(area(2), 4)", "", ("area",), "from math import isclose"),
        ("assert isclose(1, 2)", "", ("isclose",), ""),
        ("assert set(f([1])) == set([1])", "", ("f",), ""),
        ("assert sum(10, 15) == 6\nassert sum(4, 6) == 3", "", ("sum",), ""),
        ("assert sorted(sum(3)) == [1]", "", ("sum",), ""),
        ("inputs = [[1]]\nfor i in inputs:\n    assert len(i) == sum(*i)", "assert sum(1) == 1", ("sum",), ""),
        ("assert copy(1) == 1", "", ("copy",), ""),
        ("assert chain([Pair(5, 24)]) == 1", "", ("Pair", "chain"), ""),
        ("import math\nassert f(math.pi) == 3", "", ("f",), ""),
        ("assert g(f(1)) == 2", "", ("f", "g"), ""),
        ("def h(x):\n    return k(x)\nassert f(1) == h(1)", "", ("f", "k"), ""),
        ("assert f(np.array([1])) == 2", "", ("f",), "import numpy as np"),
    ],
)
def test_names_under_test(code, sample, under_test, helpers):
    names = names_of(code, sample)
    assert names.under_test == under_test
    assert names.helpers == helpers


def test_free_names_respect_scopes():
    code = (
        "a = 1\ndef f(x):\n    y = x + b\n    return [c for c in y]\nclass K:\n    d = e\nimport os.path as p\np.g(a)"
    )
    assert free_names(code) == {"b", "e"}


TEMPLATE = """
import numpy as np
from math import inf

def is_floats(x) -> bool:
    # check if it is float; List[float]; Tuple[float]
    if isinstance(x, float):
        return True
    if isinstance(x, (list, tuple)):
        return all(isinstance(i, float) for i in x)
    if isinstance(x, np.ndarray):
        return x.dtype == np.float64 or x.dtype == np.float32
    return False


def assertion(out, exp, atol):
    if atol == 0 and is_floats(exp):
        atol = 1e-6
    if out != exp and atol != 0:
        assert np.allclose(out, exp, rtol=1e-07, atol=atol)
    else:
        assert out == exp, f"out: {out}, exp: {exp}"


inputs = [[1], [2.5], [[3, inf]]]
results = [2, 5.0, [6, inf]]
for i, (inp, exp) in enumerate(zip(inputs, results)):
    assertion(dbl(*inp), exp, 0)
"""


def test_the_evalplus_template_is_read_as_calls():
    first, second, third = template_calls(TEMPLATE, "dbl")
    assert first.args == (1,)
    assert first.check(2)
    assert not first.check(2.0000001)
    assert second.check(5.0000001)
    assert third.check([6, float("inf")])
    assert not third.check(Opaque("T"))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("assert out == exp,", "assert out >= exp,"),
        ("dbl(*inp), exp, 0", "dbl(*inp), exp, tol"),
        ("dbl(*inp), exp", "dbl(*inp[::-1]), exp"),
        ("results = [2, 5.0, [6, inf]]", "results = [2, x, [6, inf]]"),
        ("inputs = [[1]", "inputs = [[make(1)]"),
        ("return False\n", "return True\n"),
        ("import numpy as np\n", "import numpy as np\nprint(1)\n"),
    ],
)
def test_a_departure_from_the_template_is_not_read_as_calls(old, new):
    changed = TEMPLATE.replace(old, new)
    assert changed != TEMPLATE
    with pytest.raises(NotPlainError):
        template_calls(changed, "dbl")


def packed(value):
    return base64.b64encode(zlib.compress(pickle.dumps(value))).decode()


CASES = [{"input": "1 2\n", "output": "3\n", "testtype": "stdin"}]


def test_live_code_bench_packing():
    assert livecode.test_cases(json.dumps(CASES)) == CASES
    assert livecode.test_cases(packed(json.dumps(CASES))) == CASES
    assert livecode.test_cases(None) == []
    with pytest.raises(ValueError, match="only text"):
        livecode.unpacked(packed(print))
    with pytest.raises(ValueError, match="got a dict"):
        livecode.unpacked(packed({"a": 1}))
    for broken in ("!", "aGVsbG8=", base64.b64encode(zlib.compress(b"no pickle")).decode()):
        with pytest.raises(ValueError, match=r"."):
            livecode.test_cases(broken)


def test_live_code_bench_rows_of_both_kinds():
    stdin = read(
        {"public_test_cases": json.dumps(CASES), "private_test_cases": packed(json.dumps(CASES))}, "livecodebench"
    )
    assert isinstance(stdin.task, StdinTask)
    assert len(stdin.task.cases) == 2
    functional = [{"input": '"a"\n[1, 2]', "output": '"a12"', "testtype": "functional"}]
    row = {"public_test_cases": json.dumps(functional), "private_test_cases": "", "metadata": '{"func_name": "join"}'}
    task = read(row, "LiveCodeBench").task
    assert isinstance(task, CallsTask)
    assert task.entry == "join"
    assert task.method is Method.IF_CLASS
    assert task.calls[0].args == ("a", [1, 2])


def test_a_function_to_write_starts_from_the_usual_imports_unless_it_brings_its_own():
    cases = {"fn_name": "f", "inputs": [[1]], "outputs": [1]}
    (usual,) = read({"input_output": cases}, "apps").task.prelude
    assert "from typing import *" in usual
    assert read({"input_output": cases, "imports": "import re\n"}, "apps").task.prelude == ("import re",)


def test_forms_are_the_cheapest_that_hold_the_tests():
    plain = {"prompt": "", "entry_point": "f", "test": "def check(candidate):\n    assert candidate(1) == 2\n"}
    loop = {**plain, "test": "def check(candidate):\n    for i in (1, 2):\n        assert candidate(i) == i + 1\n"}
    assert isinstance(read(plain, "humaneval").task, CallsTask)
    assert isinstance(read(loop, "HumanEval+").task, ChecksTask)


def test_limits_and_language_of_a_problem():
    reading = read({"inputs": ["1"], "outputs": ["1"], "limits": {"cpu_seconds": 2.5}, "language": "CPP"}, "stdin")
    assert reading.bounds == Bounds(cpu_seconds=2.5)
    assert reading.language == "cpp"


@pytest.mark.parametrize(
    ("problem", "name", "message"),
    [
        ({}, "leetcode-ish", "unknown format"),
        ({}, "humaneval", "entry_point"),
        ({"entry_point": "f", "test": "def check("}, "humaneval", "SyntaxError"),
        ({"test_list": ["assert f("]}, "mbpp", "SyntaxError"),
        ({"input_output": "{"}, "apps", "JSONDecodeError"),
        ({"input_output": {"inputs": ["1"], "outputs": []}}, "taco", "ValueError"),
        ({"input_output": {"inputs": [5], "outputs": ["5"]}}, "apps", "expected text"),
        ({"input_output": {"fn_name": "f", "inputs": [5], "outputs": [5]}}, "apps", "list of arguments"),
        ({"inputs": [], "outputs": [], "limits": {"seconds": 1}}, "stdin", "unknown limits"),
        ({"public_test_cases": "[1]"}, "livecodebench", "expected a list"),
    ],
)
def test_a_problem_that_cannot_be_read_says_why(problem, name, message):
    with pytest.raises(FormatError, match=message):
        read(problem, name)


def test_every_reader_names_its_fields():
    assert all(reader.__doc__ for reader in FORMATS.values())
