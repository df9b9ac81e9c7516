"""Readers of the formats whose tests are Python code: HumanEval(+), MBPP(+), LeetCode-style asserts, pytest files.

Each tries the cheapest form first: plain asserts are read as calls, and only what is more than that stays test code.
"""

from __future__ import annotations

import ast
import builtins
import re
from collections.abc import Mapping
from typing import Any

from tossup.verifiers.code.asserts import NotPlainError, calls_in
from tossup.verifiers.code.evalplus import template_calls
from tossup.verifiers.code.names import Names, free_names, names_of
from tossup.verifiers.code.task import Call, CallsTask, ChecksTask, Method, Task

Fields = Mapping[str, Any]
Parts = tuple[Task, str, str]
"""The task, the code that the model was asked to continue, and the name that its answer defines ("" where unknown)."""


def humaneval(problem: Fields) -> Parts:
    """prompt, entry_point, test (defines `check(candidate)`): HumanEval, HumanEval+."""
    prompt, entry, test = str(problem.get("prompt", "")), str(problem["entry_point"]), str(problem["test"])
    for read in (template_calls, _calls_of_check):
        try:
            return CallsTask(entry, read(test, entry)), prompt, entry
        except NotPlainError:
            continue
    helpers = _texts(_runnable(prompt), names_of(test).helpers)
    return (
        ChecksTask(f"{test}\ncheck({entry})\n", (entry,), helpers=helpers, values_only=_is_evalplus(test)),
        prompt,
        entry,
    )


def mbpp(problem: Fields) -> Parts:
    """test_list (asserts), test_setup_code, test_imports: MBPP, whole or sanitized."""
    setup = "\n".join([str(problem.get("test_setup_code") or ""), *(problem.get("test_imports") or [])]).strip()
    asserts = "\n".join(problem["test_list"])
    needed = free_names(setup) - set(dir(builtins))
    if needed:  # the set-up makes objects of the program's own classes: it runs after the program, as test code
        names, code, setup = names_of(f"{setup}\n{asserts}", asserts), f"{setup}\n{asserts}", ""
    else:
        names, code = names_of(asserts), asserts
    own = tuple(n for n in names.under_test if n not in _defined(setup))
    return _script(code, Names(own, names.helpers), setup), "", own[0] if len(own) == 1 else ""


def mbppplus(problem: Fields) -> Parts:
    """test (a script), test_list (a sample of it as asserts): MBPP+."""
    test = str(problem["test"])
    sample = "\n".join(problem.get("test_list") or [])
    names = names_of(test, sample)
    entry = names.under_test[0] if len(names.under_test) == 1 else ""
    if entry:
        try:
            return CallsTask(entry, template_calls(test, entry)), "", entry
        except NotPlainError:
            pass
    return ChecksTask(test, names.under_test, helpers=_texts(names.helpers), values_only=_is_evalplus(test)), "", entry


def leetcode(problem: Fields) -> Parts:
    """tests or test (`check(candidate)`), entry or entry_point, imports or prompt (run before both): LeetCode style."""
    entry = str(problem.get("entry") or problem["entry_point"]).split(".")[-1]
    tests = str(problem.get("tests") or problem["test"])
    prelude = _texts(str(problem.get("imports") or problem.get("prompt") or ""))
    try:
        return CallsTask(entry, _calls_of_check(tests, entry), prelude, Method.ALWAYS), "", entry
    except NotPlainError:
        called = any(map(_is_call_of_check, ast.parse(tests).body))
        code = tests if called else f"{tests}\ncheck(Solution().{entry})\n"
        return ChecksTask(code, ("Solution",), prelude, _texts(names_of(code).helpers)), "", entry


def pytest_file(problem: Fields) -> Parts:
    """test or tests (a pytest file), module (under which it imports the program; "solution" by default)."""
    test = str(problem.get("tests") or problem["test"])
    ast.parse(test)
    alias = str(problem.get("module", "solution")).removesuffix(".py")
    imported = re.search(rf"^\s*(?:from|import)\s+{re.escape(alias)}\b", test, re.MULTILINE) is not None
    names = () if imported else names_of(test).under_test
    return ChecksTask(test, names, alias=alias, pytest=True), "", ""


def _script(code: str, names: Names, setup: str) -> Task:
    """Asserts at the top level, as calls where they are plain and of one function only."""
    if len(names.under_test) == 1:
        entry = names.under_test[0]
        try:
            return CallsTask(entry, calls_in(ast.parse(code).body, frozenset({entry})), _texts(setup))
        except NotPlainError:
            pass
    return ChecksTask(code, names.under_test, _texts(setup), _texts(names.helpers))


def _calls_of_check(test: str, entry: str) -> tuple[Call, ...]:
    """The calls of a file that is nothing but `def check(candidate)` over plain asserts.

    Raises:
        NotPlainError: it is more.
    """
    rest: list[ast.stmt] = []
    calls: tuple[Call, ...] | None = None
    for statement in ast.parse(test).body:
        if isinstance(statement, ast.FunctionDef) and statement.name == "check" and calls is None:
            calls = calls_in(statement.body, frozenset(a.arg for a in statement.args.args))
        elif not _is_call_of_check(statement):
            rest.append(statement)
    if calls is None or calls_in(rest, frozenset()):
        raise NotPlainError("more than one function")
    return calls


def _is_call_of_check(statement: ast.stmt) -> bool:
    match statement:
        case ast.Expr(value=ast.Call(func=ast.Name(id="check"))):
            return True
    return False


def _is_evalplus(test: str) -> bool:
    """Whether a test file is EvalPlus's, by its helper: some compare with a reference that gets the same arguments next."""
    return "def assertion(" in test


def _runnable(prompt: str) -> str:
    """The prompt as code that runs: helpers and imports as they are, the function to write as a stub."""
    for ending in ("", "\n    pass\n"):
        try:
            ast.parse(prompt + ending)
        except SyntaxError:
            continue
        return prompt + ending
    return ""


def _defined(code: str) -> set[str]:
    return {s.name for s in ast.parse(code).body if isinstance(s, ast.FunctionDef | ast.ClassDef)}


def _texts(*sources: str) -> tuple[str, ...]:
    return tuple(s for s in sources if s.strip())
