"""The tests' side: runs in a jail of its own, executes trusted test code, and alone can give the verdict.

The names under test are proxies (`proxy.py`). The verdict goes to a pipe that only this process holds, with a nonce that came
in on this process's stdin, one JSON object a line: `{"nonce", "ruling", "reason", "calls"}`. The ruling is "started" once the
tests' own definitions are loaded, before a word from the program: what ends this process later is what the program did.
Then one of "pass", "fail" and "unsupported" follows. It is pass only after the last line of the test code has run, with at
least one call made.
"""

from __future__ import annotations

import builtins
import importlib
import json
import os
import reprlib
import sys
import types
from collections.abc import Callable, Iterator
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
    _strict_numpy(payload)
    link = Link(Channel.inherited(), values_only=payload["values_only"])

    def say(ruling: str, reason: str) -> None:
        line = {"nonce": payload["nonce"], "ruling": ruling, "reason": reason[:600], "calls": link.calls}
        write_all(VERDICT_FD, json.dumps(line).encode() + b"\n")

    say(*_judge(link, payload, say))
    os._exit(0)


def _judge(link: Link, payload: dict[str, Any], say: Callable[[str, str], None]) -> tuple[str, str]:
    try:
        tests = _tests_module(link, payload)
    except BaseException as e:  # noqa: BLE001  (trusted code that does not run is nobody's wrong answer)
        return "unsupported", f"the tests' own definitions do not run: {_shown(e)}"
    say("started", "")
    try:
        link.wait_until_loaded()
    except BaseException as e:  # noqa: BLE001  (the program's own exception)
        return "fail", f"the program does not load: {_shown(e)}"
    try:
        _bind_names(link, payload, tests)
        exec(compile(payload["code"], "<tests>", "exec", dont_inherit=True), vars(tests))
        if payload["mode"] == "pytest":
            run_pytest(tests)
    except UnsupportedError as e:
        return "unsupported", str(e)
    except BaseException as e:  # noqa: BLE001  (any exception is a failed test)
        if isinstance(e, ImportError) and not hasattr(e, "crossed") and e.name != (payload["alias"] or None):
            return "unsupported", f"the tests import what is not here: {_shown(e)}"
        return "fail", _failed_line(e, payload["code"], link.last)
    if link.calls == 0:
        return "unsupported", "the tests never called the program"
    return "pass", f"all tests passed ({link.calls} calls)"


def _strict_numpy(payload: dict[str, Any]) -> None:
    """Let no empty array be close or equal to a value: NumPy broadcasts it, compares nothing, and calls the result true.

    EvalPlus's own check pays a function that returns [] so, wherever it has a tolerance. Both sides become arrays before
    they are compared, as an object of model code may have another length at the second look.
    """
    np: Any = sys.modules.get("numpy")
    if np is None:
        return

    def strict(original: Any) -> Any:
        def compare(a: Any, b: Any, *args: Any, **kwargs: Any) -> Any:
            a, b = np.asanyarray(a), np.asanyarray(b)
            return original(a, b, *args, **kwargs) if (a.size == 0) == (b.size == 0) else False

        return compare

    for name in ("allclose", "isclose", "array_equiv"):
        setattr(np, name, strict(getattr(np, name)))
    if any("testing" in source for source in (payload["code"], *payload["prelude"], *payload["helpers"])):
        _strict_numpy_testing(np)


def _strict_numpy_testing(np: Any) -> None:
    """The same for `numpy.testing`, whose comparisons of arrays all go through one function."""
    try:
        utils = importlib.import_module("numpy.testing._private.utils")
    except ImportError:  # a jail where nothing can be opened: the tests cannot import it either, and say so
        return
    original = utils.assert_array_compare

    def compare(comparison: Any, x: Any, y: Any, *args: Any, **kwargs: Any) -> None:
        x, y = np.asanyarray(x), np.asanyarray(y)
        if (x.size == 0) != (y.size == 0):
            raise AssertionError(f"shapes {x.shape} and {y.shape}: nothing to compare")
        original(comparison, x, y, *args, **kwargs)

    vars(utils)["assert_array_compare"] = compare


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
    try:
        return f"{type(error).__name__}: {error}"[:SHOWN]
    except BaseException as e:  # noqa: BLE001  (its text asks an object of model code; the verdict stands)
        return f"{type(error).__name__} with a text that cannot be read ({type(e).__name__})"


def _failed_line(error: BaseException, code: str, last: Any) -> str:
    """What a person needs of a failed test. Texts may come from objects of model code, which can do anything but undo it."""
    lines = code.split("\n")
    numbers = [frame.tb_lineno for frame in _frames(error) if frame.tb_frame.f_code.co_filename == "<tests>"]
    where = " / ".join(lines[n - 1].strip()[:SHOWN] for n in numbers[-1:] if 0 < n <= len(lines))
    what = "failed" if type(error) is AssertionError and not error.args else _shown(error)
    gave = "" if last is None or type(last) is Handle else f"the last call gave {_cut(last)}"
    return ": ".join(p for p in (where or "the tests", what, gave) if p)


def _cut(value: Any) -> str:
    try:
        return reprlib.repr(value)
    except BaseException as e:  # noqa: BLE001  (a value that cannot be shown; the verdict stands)
        return f"a value that cannot be shown ({type(e).__name__})"


def _frames(error: BaseException) -> Iterator[types.TracebackType]:
    traceback = error.__traceback__
    while traceback is not None:
        yield traceback
        traceback = traceback.tb_next
