"""Verifiers of the user's own: `package.module:function`, called in worker processes.

The function takes `(problem: Problem, response: str)` and returns True or 1 (correct), False or 0 (wrong), None
(undecided) or a Verdict. It may hang, raise or crash: that is UNDECIDED, and says nothing of the answer.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from dataclasses import fields
from functools import cache
from typing import Any

from tossup.records import Problem, Ruling, TossupError, Verdict, correct, undecided, wrong
from tossup.verifiers._worker import load
from tossup.verifiers.registry import Verifier
from tossup.verifiers.workers import Outcome, Workers

SECONDS_VARIABLE = "TOSSUP_FUNCTION_SECONDS"
CPU_S, MEMORY_MB = 10.0, 4096
"""Limits of one call, the first unless the variable says otherwise. Ten times as much wall time leaves room for a judge
on the network."""


def cpu_seconds() -> float:
    """The CPU seconds that one call of a user's function may take.

    Raises:
        TossupError: the variable holds no positive number.
    """
    text = os.environ.get(SECONDS_VARIABLE, "")
    try:
        seconds = float(text) if text else CPU_S
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < float("inf"):
        raise TossupError(f"{SECONDS_VARIABLE} is {text!r}: set it to a number of seconds above 0, or unset it")
    return seconds


def verifier(name: str) -> Verifier:
    """The verifier for a user's function. The function is loaded by the first worker, not here."""
    warm_up = [[name, None, ""]]
    workers = Workers(f"{__name__}:run", timeout_s=cpu_seconds(), memory_mb=MEMORY_MB, warm_up=warm_up, label=name)

    def judge(problem: Problem, response: str) -> Verdict:
        reply = workers.call(name, plain(problem), response)
        if reply.outcome is not Outcome.DONE:
            return undecided(f"{name}: {' '.join(reply.reason.split())}")
        return Verdict(Ruling(reply.result["ruling"]), reply.result["reason"], reply.result["answer"])

    return Verifier(name, judge, close=workers.close)


def plain(problem: Problem) -> dict[str, Any]:
    """A problem as JSON data. Meta can hold what JSON cannot (dates of a Parquet file): such values become text."""
    prompt = problem.prompt if isinstance(problem.prompt, str) else [dict(message) for message in problem.prompt]
    values = {field.name: getattr(problem, field.name) for field in fields(problem)}
    data: dict[str, Any] = json.loads(json.dumps({**values, "prompt": prompt, "meta": dict(problem.meta)}, default=str))
    return data


@cache
def loaded(name: str) -> Callable[[Problem, str], Any]:
    """The user's function, in the worker.

    It may lie in the folder that the command was started in, where `python` would find it and an installed command does not.
    That folder comes last: nothing in it can stand for a package.
    """
    if (here := os.getcwd()) not in sys.path:
        sys.path.append(here)
    return load(name)


def run(name: str, problem: dict[str, Any] | None, response: str) -> dict[str, Any] | None:
    """One call of the user's function, in the worker; the verdict as plain data. Without a problem, only load it."""
    if problem is None:
        loaded(name)
        return None
    prompt = problem["prompt"]
    problem["prompt"] = prompt if isinstance(prompt, str) else tuple(prompt)
    verdict = as_verdict(name, loaded(name)(Problem(**problem), response))
    return {"ruling": verdict.ruling, "reason": verdict.reason, "answer": verdict.answer}


def as_verdict(name: str, value: Any) -> Verdict:
    """What the function returned, as a verdict. A number between 0 and 1 is no ruling: UNDECIDED, with that reason."""
    if isinstance(value, Verdict):
        return value
    if value is None:
        return undecided(f"{name} returned None")
    if value in (0, 1):
        return correct(f"{name} accepts it") if value else wrong(f"{name} refuses it")
    return undecided(f"{name} returned {value!r:.60}: expected True, False, None or a Verdict")
