"""The tests' side: runs in a jail of its own, executes trusted test code, and alone can give the verdict.

The names under test are proxies (`proxy.py`). The verdict goes to a pipe that only this process holds, with a nonce that came
in on this process's stdin: `{"nonce", "ruling": "pass" | "fail" | "unsupported", "reason", "calls"}`. It says pass only after
the last line of the test code has run, with at least one call made.
"""

from __future__ import annotations

import builtins
import json
import os
import reprlib
import sys
import types
from collections.abc import Iterator
from typing import Any

from tossup.verifiers.code.minipytest import module as pytest_module
from tossup.verifiers.code.minipytest import run as run_pytest
from tossup.verifiers.code.proxy import SHOWN, Handle, Link, Missing
from tossup.verifiers.code.wire import VERDICT_FD, Channel, UnsupportedError, quiet_stdout, read_all, write_all


class CandidateModule(types.ModuleType):
    """What `import solution` gives in test code: each attribute is asked of the program."""

    def __init__(self, name: str, link: Link) -> None:
        super().__init__(name)
        self._link = link

    def __getattr__(self, name: str) -> Any:
        if (
            name == "__all__"
        ):  # a star brings what is new, and puts nothing over what the tests or Python call by that name
            taken = {*vars(builtins), *vars(sys.modules["tests"])}
            return [n for n in self._link.ask("names", self._link.module()) if n not in taken]
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self._link.module(), name)


def run() -> None:
    """Run the test code of the payload against the candidate and write the verdict."""
    payload = json.loads(read_all(0))
    quiet_stdout()
    _strict_numpy()
    link = Link(Channel.inherited())
    ruling, reason = _judge(link, payload)
    verdict = {"nonce": payload["nonce"], "ruling": ruling, "reason": reason[:600], "calls": link.calls}
    write_all(VERDICT_FD, json.dumps(verdict).encode() + b"\n")
    os._exit(0)


def _judge(link: Link, payload: dict[str, Any]) -> tuple[str, str]:
    try:
        link.wait_until_loaded()
    except BaseException as e:  # noqa: BLE001  (the program's own exception)
        return "fail", f"the program does not load: {_shown(e)}"
    try:
        tests = _tests_module(link, payload)
    except BaseException as e:  # noqa: BLE001  (trusted code that does not run is nobody's wrong answer)
        return "unsupported", f"the tests' own definitions do not run: {_shown(e)}"
    try:
        _bind_names(link, payload, tests)
        exec(compile(payload["code"], "<tests>", "exec", dont_inherit=True), vars(tests))
        if payload["mode"] == "pytest":
            run_pytest(tests)
    except UnsupportedError as e:
        return "unsupported", str(e)
    except BaseException as e:  # noqa: BLE001  (any exception is a failed test)
        if isinstance(e, ImportError) and not hasattr(e, "crossed"):
            return "unsupported", f"the tests import what is not here: {_shown(e)}"
        return "fail", _failed_line(e, payload["code"], link.last)
    if link.calls == 0:
        return "unsupported", "the tests never called the program"
    return "pass", f"all tests passed ({link.calls} calls)"


def _strict_numpy() -> None:
    """Let no empty array be close to a value: NumPy broadcasts it, compares nothing, and calls the result true.

    EvalPlus's own check pays a function that returns [] so, wherever it has a tolerance.
    """
    np: Any = sys.modules.get("numpy")
    if np is None:
        return

    def strict(original: Any) -> Any:
        def compare(a: Any, b: Any, *args: Any, **kwargs: Any) -> Any:
            return original(a, b, *args, **kwargs) if (np.size(a) == 0) == (np.size(b) == 0) else False

        return compare

    np.allclose, np.isclose = strict(np.allclose), strict(np.isclose)


def _tests_module(link: Link, payload: dict[str, Any]) -> types.ModuleType:
    """The module that the test code runs in, with the trusted definitions: those that both ends share, then its own."""
    tests = types.ModuleType("tests")
    sys.modules["tests"] = tests
    sys.modules["pytest"] = pytest_module()
    for source in payload["prelude"]:
        exec(compile(source, "<prelude>", "exec", dont_inherit=True), vars(tests))
    link.classes = {v: n for n, v in vars(tests).items() if isinstance(v, type) and v.__module__ == "tests"}
    for source in payload["helpers"]:
        exec(compile(source, "<helpers>", "exec", dont_inherit=True), vars(tests))
    return tests


def _bind_names(link: Link, payload: dict[str, Any], tests: types.ModuleType) -> None:
    """Put the proxies over whatever the trusted definitions called by those names."""
    for name in payload["names"]:
        value = _named(link, name)
        link.calls += isinstance(
            value, type
        )  # a built-in type is the same here: its calls are made without the program
        setattr(tests, name, value)
    if alias := payload["alias"]:
        module = CandidateModule(alias, link)
        setattr(tests, alias, module)
        sys.modules[alias] = module


def _named(link: Link, name: str) -> Any:
    try:
        return getattr(link.module(), name)
    except AttributeError:
        return Missing(name)


def _shown(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"[:SHOWN]


def _failed_line(error: BaseException, code: str, last: Any) -> str:
    lines = code.split("\n")
    numbers = [frame.tb_lineno for frame in _frames(error) if frame.tb_frame.f_code.co_filename == "<tests>"]
    where = " / ".join(lines[n - 1].strip()[:SHOWN] for n in numbers[-1:] if 0 < n <= len(lines))
    what = "failed" if type(error) is AssertionError and not str(error) else _shown(error)
    gave = "" if last is None or type(last) is Handle else f"the last call gave {_cut(last)}"
    return ": ".join(p for p in (where or "the tests", what, gave) if p)


def _cut(value: Any) -> str:
    try:
        return reprlib.repr(value)
    except Exception as e:  # noqa: BLE001  (a value that cannot be shown; the verdict stands)
        return f"a value that cannot be shown ({type(e).__name__})"


def _frames(error: BaseException) -> Iterator[types.TracebackType]:
    traceback = error.__traceback__
    while traceback is not None:
        yield traceback
        traceback = traceback.tb_next
