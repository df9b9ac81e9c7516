"""Running a pytest file in the tests process, without pytest.

The jail has no pytest, and loading it would cost more than a run. This is the part of it that test files for small programs
use: test functions and classes, parametrize, fixtures by argument name, raises, approx, skip, and unittest's TestCase. What a
file needs beyond that makes it `UnsupportedError`: no verdict, rather than a wrong one. A skipped test is not a passed one.

Left out on purpose: plugins, conftest, scopes (every fixture is made afresh for each test), and all built-in fixtures.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import itertools
import re
import sys
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from tossup.verifiers.code.wire import UnsupportedError


class SkippedError(Exception):
    """A test said that it does not apply."""


class Approx:
    """Equal to numbers within a tolerance, and to sequences and mappings of such numbers."""

    __array_ufunc__ = None
    __hash__ = None  # type: ignore[assignment]  # approximate equality has no hash

    def __init__(self, expected: Any, rel: float | None = None, abs: float | None = None) -> None:  # noqa: A002
        self.expected = expected
        self._absolute = 1e-12 if abs is None else abs
        self._relative = rel if rel is not None else (1e-6 if abs is None else 0.0)

    def __repr__(self) -> str:
        return f"approx({self.expected!r})"

    def __eq__(self, got: object) -> bool:
        return self._same(self.expected, got)

    def _same(self, expected: Any, got: Any) -> bool:
        if isinstance(expected, Mapping):
            return (
                isinstance(got, Mapping)
                and got.keys() == expected.keys()
                and all(self._same(v, got[k]) for k, v in expected.items())
            )
        if isinstance(expected, Sequence) and not isinstance(expected, str | bytes):
            items = list(got)  # one look: an object of model code may answer differently in the next
            return len(items) == len(expected) and all(map(self._same, expected, items))
        number = isinstance(expected, int | float | complex) and not isinstance(expected, bool)
        if not number or abs(expected) == float("inf"):  # a tolerance relative to infinity takes every number
            return bool(got == expected)
        return bool(got == expected) or abs(got - expected) <= max(self._absolute, self._relative * abs(expected))


class Raises:
    """The context of `pytest.raises`."""

    def __init__(self, kinds: Any, match: str | None = None) -> None:
        self._kinds, self._match = kinds, match
        self.value: Any = None
        self.type: Any = None

    def __enter__(self) -> Raises:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> bool:
        if error is None:
            raise AssertionError(f"did not raise {self._kinds}")
        if not isinstance(error, self._kinds):
            return False
        self.type, self.value = kind, error
        if self._match is not None and not re.search(self._match, str(error)):
            raise AssertionError(f"{str(error)!r} does not match {self._match!r}")
        return True


class Marks:
    """`pytest.mark`: parametrize and skips are kept on the function, other marks do nothing."""

    def __getattr__(self, name: str) -> Callable[..., Any]:
        def mark(*args: Any, **kwargs: Any) -> Any:
            if len(args) == 1 and inspect.isfunction(args[0]) and not kwargs:
                return _marked(args[0], name, (), {})
            return lambda target: _marked(target, name, args, kwargs)

        return mark


def _marked(target: Any, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    target.tossup_marks = [*getattr(target, "tossup_marks", []), (name, args, kwargs)]
    return target


def raises(kinds: Any, *call: Any, match: str | None = None, **kwargs: Any) -> Raises:
    """`pytest.raises`, as a context or with a function to call."""
    context = Raises(kinds, match)
    if call:
        with context:
            call[0](*call[1:], **kwargs)
    return context


def fixture(function: Any = None, **options: Any) -> Any:
    """`pytest.fixture`: marks a function whose value tests ask for by its name."""
    if function is None:
        return functools.partial(fixture, **options)
    function.tossup_fixture = options.get("name") or function.__name__
    return function


def skip(reason: str = "", **_: Any) -> None:
    """`pytest.skip`."""
    raise SkippedError(reason)


def fail(reason: str = "", **_: Any) -> None:
    """`pytest.fail`."""
    raise AssertionError(reason)


def _missing(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)
    raise UnsupportedError(f"the tests use pytest.{name}, which is not here")


def module() -> types.ModuleType:
    """What `import pytest` gives."""
    pytest = types.ModuleType("pytest")
    names = {"raises": raises, "approx": Approx, "mark": Marks(), "fixture": fixture, "skip": skip, "fail": fail}
    vars(pytest).update(names, param=lambda *values, **_: values if len(values) != 1 else values[0])
    vars(pytest)["__getattr__"] = _missing
    return pytest


def run(tests: types.ModuleType) -> None:
    """Run all tests of a module.

    Raises:
        UnsupportedError: there are none, all are skipped, or one needs what is not here.
        BaseException: whatever the first failing test raises.
    """
    values = list(vars(tests).items())
    fixtures = {v.tossup_fixture: v for _, v in values if "tossup_fixture" in _fields(v)}
    case = getattr(sys.modules.get("unittest"), "TestCase", ())  # a file without it has no TestCase
    passed = 0
    for name, value in values:
        if inspect.isfunction(value) and name.startswith("test"):
            passed += _run_function(value, fixtures, [])
        elif isinstance(value, type) and value.__module__ == tests.__name__:
            if issubclass(value, case):
                passed += _run_case(value)
            elif name.startswith("Test"):
                passed += _run_class(value, fixtures)
    if not passed:
        raise UnsupportedError("the test file has no test that runs")


def _fields(value: Any) -> Mapping[str, Any]:
    return vars(value) if inspect.isfunction(value) else {}


def _run_class(kind: type, fixtures: Mapping[str, Any]) -> int:
    passed = 0
    own = {f.tossup_fixture: f for f in vars(kind).values() if "tossup_fixture" in _fields(f)}
    for name, function in list(vars(kind).items()):
        if not (name.startswith("test") and inspect.isfunction(function)):
            continue
        instance = kind()
        for setup in ("setup_class", "setup_method", "setup"):
            getattr(instance, setup, lambda *_: None)(*([function] if _wants_argument(instance, setup) else []))
        marks = getattr(kind, "tossup_marks", [])
        bound = {n: functools.partial(f, instance) for n, f in own.items()}
        passed += _run_function(function.__get__(instance), {**fixtures, **bound}, marks)
        getattr(instance, "teardown_method", lambda *_: None)(
            *([function] if _wants_argument(instance, "teardown_method") else [])
        )
    return passed


def _wants_argument(instance: Any, name: str) -> bool:
    method = getattr(instance, name, None)
    return method is not None and len(inspect.signature(method).parameters) > 0


def _run_case(kind: type[Any]) -> int:
    import unittest  # here, because every run pays for what a zygote holds

    result = unittest.TestResult()
    unittest.defaultTestLoader.loadTestsFromTestCase(kind).run(result)
    for test, trace in [*result.errors, *result.failures]:
        raise AssertionError(f"{test}: {trace.strip().rpartition(chr(10))[2]}")
    if result.unexpectedSuccesses:
        raise AssertionError(f"{result.unexpectedSuccesses[0]}: unexpected success")
    return result.testsRun - len(result.skipped) - len(result.expectedFailures)


def _run_function(function: Any, fixtures: Mapping[str, Any], marks: Sequence[Any]) -> int:
    """Run a test once for each set of its parameters; how many of these ran to the end."""
    axes = []
    for name, args, kwargs in [*marks, *getattr(function, "tossup_marks", [])]:
        if name in {"skip", "xfail"} or (name == "skipif" and args and args[0]):
            return 0
        if name == "parametrize":
            axes.append(_axis(*args, **{k: v for k, v in kwargs.items() if k in {"argnames", "argvalues"}}))
    passed = 0
    for choice in itertools.product(*axes):
        given = {k: v for part in choice for k, v in part.items()}
        with contextlib.ExitStack() as stack:
            try:
                function(**_arguments(function, given, fixtures, stack))
            except SkippedError:
                continue
        passed += 1
    return passed


def _axis(argnames: str | Sequence[str], argvalues: Sequence[Any]) -> list[dict[str, Any]]:
    names = [n.strip() for n in argnames.split(",")] if isinstance(argnames, str) else list(argnames)
    if len(names) == 1:
        return [{names[0]: value} for value in argvalues]
    return [dict(zip(names, values, strict=True)) for values in argvalues]


def _arguments(
    function: Any, given: Mapping[str, Any], fixtures: Mapping[str, Any], stack: contextlib.ExitStack
) -> dict[str, Any]:
    """A value for each parameter: given by parametrize, or made by a fixture, whose own parameters come the same way."""
    arguments = {}
    for name, parameter in inspect.signature(function).parameters.items():
        if name in given:
            arguments[name] = given[name]
        elif name in fixtures:
            maker = fixtures[name]
            made = maker(**_arguments(maker, given, fixtures, stack))
            arguments[name] = stack.enter_context(_closing(made)) if inspect.isgenerator(made) else made
        elif parameter.default is parameter.empty:
            raise UnsupportedError(f"the test {function.__name__} wants a fixture {name}, which is not here")
    return arguments


@contextlib.contextmanager
def _closing(generator: Iterator[Any]) -> Iterator[Any]:
    """The value of a fixture that yields; the rest of it runs afterwards."""
    yield next(generator)
    next(generator, None)
