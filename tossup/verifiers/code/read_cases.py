"""Readers of the formats whose tests are data: APPS, TACO, CodeContests, LiveCodeBench, and plain lists of cases."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from tossup.verifiers.code import livecode
from tossup.verifiers.code.codec import Opaque
from tossup.verifiers.code.compare import equal_json, equal_json_or_wrapped, shown
from tossup.verifiers.code.task import Call, CallsTask, Method, StdinCase, StdinTask, Task

DEFAULT_IMPORTS = """
from typing import *
import bisect, collections, functools, heapq, itertools, math, operator, random, re, string, sys
from bisect import *
from collections import *
from functools import *
from heapq import *
from itertools import *
from math import *
from builtins import *
inf = float("inf")
"""
"""What a problem with a function to write starts from where it brings no `imports`: these sets take typing and the usual
modules as given, in their starter code and in the harnesses that they were published with. The built-ins come last: `pow`
takes a modulus, and that of math does not."""

Fields = Mapping[str, Any]
Parts = tuple[Task, str, str]


def input_output(problem: Fields) -> Parts:
    """input_output {inputs, outputs, fn_name?}, as an object or as JSON text; imports: APPS, TACO, CodeContests as repacked.

    With fn_name, inputs hold the arguments as JSON values and an output may be wrapped in a list of one; without it,
    inputs and outputs are texts (or lists of lines).
    """
    cases = problem["input_output"]
    if isinstance(cases, str):
        cases = json.loads(cases)
    if cases.get("fn_name"):
        pairs = zip(cases["inputs"], cases["outputs"], strict=True)
        calls = tuple(_json_call(args, expected, equal_json_or_wrapped) for args, expected in pairs)
        return _function(problem, str(cases["fn_name"]), calls)
    return _program(problem, zip(cases["inputs"], cases["outputs"], strict=True))


def functional(problem: Fields) -> Parts:
    """input_output {fn_name, inputs, outputs} with each argument and each output as one JSON value in text: LiveCodeBench."""
    cases = problem["input_output"]
    if isinstance(cases, str):
        cases = json.loads(cases)
    pairs = list(zip(cases["inputs"], cases["outputs"], strict=True))
    return _functional(problem, str(cases["fn_name"]), pairs)


def live_code_bench(problem: Fields) -> Parts:
    """public_test_cases, private_test_cases (see `livecode`), metadata {func_name}, starter_code: the data set's own rows.

    Rows that were repacked into input_output are read by that.
    """
    if "input_output" in problem:
        cases = problem["input_output"]
        fields = json.loads(cases) if isinstance(cases, str) else cases
        return functional(problem) if fields.get("fn_name") else input_output(problem)
    cases = [c for key in ("public_test_cases", "private_test_cases") for c in livecode.test_cases(problem.get(key))]
    pairs = [(c["input"], c["output"]) for c in cases]
    if any(c.get("testtype") == "functional" for c in cases):
        metadata = problem["metadata"]
        name = (json.loads(metadata) if isinstance(metadata, str) else metadata)["func_name"]
        return _functional(problem, str(name), pairs)
    return _program(problem, pairs)


def code_contests(problem: Fields) -> Parts:
    """public_tests, private_tests, generated_tests, each {input: [...], output: [...]}: CodeContests; or input_output."""
    if "input_output" in problem:
        return input_output(problem)
    pairs: list[tuple[str, str]] = []
    for key in ("public_tests", "private_tests", "generated_tests"):
        tests = problem.get(key) or {"input": [], "output": []}
        pairs += zip(tests["input"], tests["output"], strict=True)
    return _program(problem, pairs)


def stdin(problem: Fields) -> Parts:
    """inputs and outputs; or input_output; or tests [{input, output}, ...]: any list of runs of a program."""
    if "input_output" in problem:
        return input_output(problem)
    if "tests" in problem:
        return _program(problem, [(t["input"], t["output"]) for t in problem["tests"]])
    return _program(problem, zip(problem["inputs"], problem["outputs"], strict=True))


def _program(problem: Fields, pairs: Iterable[tuple[Any, Any]]) -> Parts:
    tolerance = problem.get("tolerance")
    cases = tuple(StdinCase(_text(given), _text(expected)) for given, expected in pairs)
    return StdinTask(cases, None if tolerance is None else float(tolerance)), "", ""


def _text(value: Any) -> str:
    """The text of one stream; some rows hold a list of lines."""
    if isinstance(value, list):
        return "\n".join(map(_text, value)) + "\n"
    if not isinstance(value, str):
        raise TypeError(f"expected text, got {type(value).__name__}")
    return value


def _functional(problem: Fields, name: str, pairs: Iterable[tuple[str, str]]) -> Parts:
    calls = []
    for given, expected in pairs:
        args = [json.loads(line) for line in given.split("\n") if line.strip()]
        calls.append(_json_call(args, json.loads(expected), equal_json))
    return _function(problem, name, tuple(calls))


def _json_call(args: Any, expected: Any, same: Callable[[Any, Any], bool]) -> Call:
    if not isinstance(args, list):
        raise TypeError(f"expected a list of arguments, got {type(args).__name__}")
    return Call(tuple(args), {}, lambda got: not isinstance(got, Opaque) and same(expected, got), shown(expected))


def _function(problem: Fields, name: str, calls: tuple[Call, ...]) -> Parts:
    imports = str(problem.get("imports") or "").strip() or DEFAULT_IMPORTS
    return CallsTask(name, calls, (imports,), Method.IF_CLASS), "", name
