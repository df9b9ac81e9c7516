"""The one form that every format is read into.

    StdinTask    run the program once per case, compare what it prints
    CallsTask    call one function, compare what it returns; comparison happens in the judge
    ChecksTask   run trusted test code in a process of its own that holds a proxy for the program

All of it is trusted: it comes from the problem, never from the model.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from typing import Any

from tossup.verifiers.code.encode import Encoder


@dataclass(frozen=True, slots=True)
class Bounds:
    """What one program may use. Times are per run: per case for stdin programs, for all calls together otherwise.

    `wall_seconds` only ends programs that wait for ever; None means ten times the CPU seconds.
    """

    cpu_seconds: float = 10.0
    wall_seconds: float | None = None
    memory_mb: int = 1024
    output_mb: int = 16


class Language(StrEnum):
    """The languages that run here. Others need a remote judge (`tossup.verifiers.code.remote`)."""

    PYTHON = "python"


@dataclass(frozen=True, slots=True)
class StdinCase:
    """One run: what goes in, what has to come out."""

    given: str
    expected: str


@dataclass(frozen=True, slots=True)
class StdinTask:
    """A program that reads stdin and prints. `tolerance` is relative and absolute, for decimal tokens; None means exact."""

    cases: tuple[StdinCase, ...]
    tolerance: float | None = None


Check = Callable[[Any], bool]
"""Whether a decoded result is right. It may raise: that is a wrong result, as it would be in an assert."""


@dataclass(frozen=True, slots=True)
class Call:
    """One call of the function under test. `wanted` describes the right result to a person ("4", "something true")."""

    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    check: Check
    wanted: str


class Method(StrEnum):
    """Whether the function under test is a method of a new instance of class Solution."""

    NEVER = "never"
    IF_CLASS = "if there is one"
    ALWAYS = "always"


@dataclass(frozen=True)
class CallsTask:
    """A function (or method) and the calls to make. `prelude` runs before the program, in its module."""

    entry: str
    calls: tuple[Call, ...]
    prelude: tuple[str, ...] = ()
    method: Method = Method.NEVER

    @cached_property
    def arguments(self) -> tuple[str, ...]:
        """The arguments of each call as they cross, JSON: written once for all the programs that get them."""
        return tuple(json.dumps(Encoder().document([list(c.args), dict(c.kwargs)])) for c in self.calls)


@dataclass(frozen=True, slots=True)
class ChecksTask:
    """Test code to run against a proxy.

    `prelude` runs in both processes, before the program and before the tests; instances of the classes that it defines
    cross by value. `helpers` run in the tests process only. `names` are bound to proxies, and `alias` is the module name
    under which test code imports the program ("" for none). `values_only`: the tests look at results only, so that what the
    program does to its arguments stays with it; else a reference function that gets them next could be made to agree.
    """

    code: str
    names: tuple[str, ...]
    prelude: tuple[str, ...] = ()
    helpers: tuple[str, ...] = ()
    alias: str = ""
    pytest: bool = False
    values_only: bool = False


Task = StdinTask | CallsTask | ChecksTask


@dataclass(frozen=True, slots=True)
class Reading:
    """A problem as read: the task, its limits, and what `extract` needs to know to find the program in a response."""

    task: Task
    bounds: Bounds = field(default_factory=Bounds)
    prompt_code: str = ""
    """Code that the model was asked to continue ("" when it was asked for a whole program)."""
    entry: str = ""
    """The name that the continuation defines."""
    language: str = Language.PYTHON
