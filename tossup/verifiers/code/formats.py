"""The formats of the field: the table from a format's name to its reader.

A reader takes the problem's own fields (its docstring names them) and gives one of the forms of `task.py`. A new format is
a new row here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any

from tossup.verifiers.code import read_cases, read_functions
from tossup.verifiers.code.task import Bounds, Reading, Task

Reader = Callable[[Mapping[str, Any]], tuple[Task, str, str]]

FORMATS: dict[str, Reader] = {
    "humaneval": read_functions.humaneval,
    "humanevalplus": read_functions.humaneval,
    "function": read_functions.humaneval,
    "mbpp": read_functions.mbpp,
    "mbppplus": read_functions.mbppplus,
    "leetcode": read_functions.leetcode,
    "leetcode_asserts": read_functions.leetcode,
    "pytest": read_functions.pytest_file,
    "apps": read_cases.input_output,
    "apps_call": read_cases.input_output,
    "apps_stdin": read_cases.input_output,
    "taco": read_cases.input_output,
    "codecontests": read_cases.code_contests,
    "codecontests_stdin": read_cases.code_contests,
    "livecodebench": read_cases.live_code_bench,
    "lcb": read_cases.live_code_bench,
    "lcb_stdin": read_cases.live_code_bench,
    "lcb_functional": read_cases.live_code_bench,
    "stdin": read_cases.stdin,
    "synthetic_stdin": read_cases.stdin,
}
"""Names are compared in lower case, and a `+` in a name counts as `plus`."""


class FormatError(ValueError):
    """A problem that cannot be read: its fields are not those of its format."""


def read(problem: Mapping[str, Any], name: str) -> Reading:
    """A problem of the named format, read.

    Raises:
        FormatError: the format is unknown, or the problem is not of it.
    """
    reader = FORMATS.get(name.lower().replace("+", "plus"))
    if reader is None:
        raise FormatError(f"unknown format {name!r}; expected one of {', '.join(sorted(FORMATS))}")
    try:
        task, prompt_code, entry = reader(problem)
        return Reading(task, bounds_of(problem), prompt_code, entry, str(problem.get("language", "python")).lower())
    except (KeyError, TypeError, ValueError, AttributeError, SyntaxError, RecursionError) as e:
        raise FormatError(f"not a problem of format {name}: {type(e).__name__}: {e}"[:300]) from e


def bounds_of(problem: Mapping[str, Any]) -> Bounds:
    """The limits of a problem: its `limits` object over the defaults.

    Raises:
        ValueError: it names a limit that does not exist.
    """
    limits = dict(problem.get("limits") or {})
    known = {f.name for f in fields(Bounds)}
    if limits.keys() - known:
        raise ValueError(f"unknown limits {sorted(limits.keys() - known)}; expected some of {sorted(known)}")
    return Bounds(**limits)
