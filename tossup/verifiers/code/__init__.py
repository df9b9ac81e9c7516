"""Judging programs: whether the code in a response passes the tests of its problem.

    verify(problem, response)          problem.reference is JSON text: {"format": "mbpp", "test_list": [...], ...}
    judge(fields, solution, format)    the same for a program that is at hand, with the fields as a dict

The formats and their fields are in `formats.FORMATS`; a `limits` field (`cpu_seconds`, `wall_seconds`, `memory_mb`,
`output_mb`) sets the limits of one problem. Programs run in `tossup.sandbox`, on the strongest backend that the machine
offers, or the one that the environment variable TOSSUP_SANDBOX names.
"""

from __future__ import annotations

import json
import os
import time
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import replace
from threading import Lock
from typing import Any

from tossup.records import Problem, Verdict, undecided, wrong
from tossup.verifiers.code import remote
from tossup.verifiers.code.extract import program_in
from tossup.verifiers.code.formats import FORMATS, FormatError, read
from tossup.verifiers.code.judging import Judge
from tossup.verifiers.code.task import Bounds, Language, Reading

__all__ = ["FORMATS", "Bounds", "Judge", "close", "judge", "verify"]

_default = Judge(os.environ.get("TOSSUP_SANDBOX", "auto"))


def verify(problem: Problem, response: str) -> Verdict:
    """Whether the program in a response passes the tests of its problem.

    A reference that cannot be read is UNDECIDED, as is a failure of the sandbox.
    """
    started = time.perf_counter()
    verdict = _verify(problem.reference, response)
    return replace(verdict, seconds=time.perf_counter() - started)


def judge(problem: Mapping[str, Any], solution: str, format: str) -> Verdict:  # noqa: A002  (the field's own word)
    """Whether a whole program passes the tests of a problem, given by its fields and the name of its format."""
    started = time.perf_counter()
    try:
        reading = _readings.get(json.dumps({**problem, "format": format}))
        verdict = _judge(reading, problem, solution)
    except (FormatError, TypeError) as e:
        verdict = undecided(str(e))
    return replace(verdict, seconds=time.perf_counter() - started)


def close() -> None:
    """End the worker processes. They start again when they are needed."""
    _default.close()


def _verify(reference: str, response: str) -> Verdict:
    try:
        reading = _readings.get(reference)
    except FormatError as e:
        return undecided(str(e))
    program = program_in(response, reading)
    if program is None:
        return wrong("no program in the response")
    verdict = _judge(reading, json.loads(reference), program)
    return replace(
        verdict, answer=program.encode(errors="replace").decode()
    )  # half characters cannot be written to a file


def _judge(reading: Reading, fields: Mapping[str, Any], program: str) -> Verdict:
    if reading.language not in {Language.PYTHON, "python3", "py"}:
        return remote.judge(fields, program, reading.language)
    return _default.judge(reading.task, program, reading.bounds)


class _Readings:
    """References as read, kept for the rollouts of the same problem. The newest stay, up to a number of characters."""

    def __init__(self, characters: int) -> None:
        self._room = characters
        self._kept: OrderedDict[str, Reading] = OrderedDict()
        self._lock = Lock()

    def get(self, reference: str) -> Reading:
        """The reading of a reference.

        Raises:
            FormatError: it cannot be read.
        """
        with self._lock:
            if (reading := self._kept.get(reference)) is not None:
                self._kept.move_to_end(reference)
                return reading
        reading = _read(reference)
        with self._lock:
            if reference not in self._kept:
                self._kept[reference] = reading
                self._room -= len(reference)
            while self._room < 0 and self._kept:
                self._room += len(self._kept.popitem(last=False)[0])
        return reading


def _read(reference: str) -> Reading:
    try:
        fields = json.loads(reference)
        name = fields["format"]
    except (ValueError, TypeError, KeyError):
        raise FormatError("the reference of a code problem is JSON text of an object with a format") from None
    return read(fields, str(name))


_readings = _Readings(characters=64 << 20)
