"""Which verifier judges which problem, by name, each imported when it is first asked for.

    math    final answers in mathematics
    exact   the response is the reference, letter for letter
    choice  the letter or the text of an option
    logic   truth values, assignments and sequences
    code    programs, run in the sandbox
    package.module:function   your own, run in worker processes

A problem that cannot be judged is a value (UNDECIDED, with the reason); a verifier that does not exist is an error.
"""

from __future__ import annotations

import difflib
import threading
from collections.abc import Callable
from dataclasses import dataclass

from tossup.records import Problem, TossupError, Verdict

Judge = Callable[[Problem, str], Verdict]
"""What a verifier does: a problem and a response in, a verdict out. Called from many threads at once."""


def _reference(problem: Problem) -> str | None:
    return problem.reference


@dataclass(frozen=True, slots=True)
class Verifier:
    """A named judge.

    `quick` judges within microseconds in the calling thread, or returns None to say that it takes `judge`; without it
    every response is given to `judge`, several at a time. `gold` writes the response that a perfect model would give,
    or None where the problem holds none: the self-check judges it. `limit` says why a key, though equal to itself, can
    judge no other spelling; "" when it can. `close` ends the processes that the verifier keeps.
    """

    name: str
    judge: Judge
    quick: Callable[[Problem, str], Verdict | None] | None = None
    gold: Callable[[Problem], str | None] = _reference
    limit: Callable[[Problem], str] = lambda problem: ""
    close: Callable[[], None] = lambda: None


def _math() -> Verifier:
    from tossup.verifiers import math

    def judge(problem: Problem, response: str) -> Verdict:
        return math.judge(response, problem.reference)

    return Verifier(
        "math",
        judge,
        quick=judge,
        gold=lambda problem: f"\\boxed{{{problem.reference}}}",
        limit=lambda problem: math.read_reference(problem.reference).trouble,
    )


def _exact() -> Verifier:
    from tossup.verifiers import exact

    return Verifier("exact", exact.judge, quick=exact.judge)


def _choice() -> Verifier:
    from tossup.verifiers import choice

    return Verifier("choice", choice.judge, quick=choice.quick, gold=choice.gold)


def _logic() -> Verifier:
    from tossup.verifiers import logic

    return Verifier("logic", logic.judge, quick=logic.judge, gold=logic.gold)


BUILT_IN: dict[str, Callable[[], Verifier]] = {"math": _math, "exact": _exact, "choice": _choice, "logic": _logic}

_made: dict[str, Verifier] = {}
_lock = threading.RLock()


def get(name: str) -> Verifier:
    """The verifier of this name, or of this `package.module:function`.

    Raises:
        TossupError: there is none; the message names what there is.
    """
    with _lock:
        if name not in _made:
            _made[name] = _make(name)
        return _made[name]


def _make(name: str) -> Verifier:
    if name in BUILT_IN:
        return BUILT_IN[name]()
    module, _, function = name.partition(":")
    if module and function:
        from tossup.verifiers import _user

        return _user.verifier(name)
    near = difflib.get_close_matches(name, BUILT_IN, n=1)
    meant = f"; did you mean {near[0]!r}?" if near else ""
    raise TossupError(
        f"no verifier is called {name!r}: use one of {', '.join(BUILT_IN)} or package.module:function{meant}"
    )


def close() -> None:
    """End the processes of all verifiers. Asking for a verifier again starts anew."""
    with _lock:
        for verifier in _made.values():
            verifier.close()
        _made.clear()
