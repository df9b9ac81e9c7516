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
import os
import textwrap
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tossup.records import Problem, Prompt, TossupError, Verdict
from tossup.verifiers import workers

Judge = Callable[[Problem, str], Verdict]
"""What a verifier does: a problem and a response in, a verdict out. Called from many threads at once."""


def _reference(problem: Problem) -> str | None:
    return problem.reference


@dataclass(frozen=True, slots=True)
class Verifier:
    """A named judge.

    `inline` says that `judge` takes microseconds, apart from the responses for which it asks `Workers`: many responses
    are then judged in the calling thread, and only those few several at a time. `gold` writes the response that
    a perfect model would give, or None where the problem holds none: the self-check judges it. `limit` says why a key,
    though equal to itself, can judge no other spelling; "" when it can. `close` ends the processes that the verifier
    keeps.
    """

    name: str
    judge: Judge
    inline: bool = False
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
        inline=True,
        gold=lambda problem: f"\\boxed{{{problem.reference}}}",
        limit=lambda problem: math.read_reference(problem.reference).trouble,
    )


def _exact() -> Verifier:
    from tossup.verifiers import exact

    return Verifier("exact", exact.judge, inline=True)


def _choice() -> Verifier:
    from tossup.verifiers import choice

    return Verifier("choice", choice.judge, inline=True, gold=choice.gold)


def _logic() -> Verifier:
    from tossup.verifiers import logic

    return Verifier("logic", logic.judge, inline=True, gold=logic.gold)


def _code() -> Verifier:
    from tossup.verifiers import code

    return Verifier("code", code.verify, gold=_solution, close=code.close)


def _solution(problem: Problem) -> str | None:
    """The canonical solution that a code problem brings in its meta, as a model would write it: in a code block."""
    solution = next((s for name in SOLUTIONS if (s := problem.meta.get(name))), None)
    if isinstance(solution, Sequence) and not isinstance(solution, str):
        solution = solution[0]
    if not isinstance(solution, str):
        return None
    return f"```python\n{_continuing(problem.prompt, solution)}\n```"


def _continuing(prompt: Prompt, solution: str) -> str:
    """A solution that is the rest of a function, indented like the head of it in the prompt; others as they are.

    Published sets mix the two: a stub with four spaces, its solution with two.
    """
    head = prompt.rstrip() if isinstance(prompt, str) else ""
    last = head.rpartition("\n")[2]
    indent = last[: len(last) - len(last.lstrip())]
    if not solution.startswith((" ", "\t")) or not indent:
        return solution
    return textwrap.indent(textwrap.dedent(solution), indent)


SOLUTIONS = ("canonical_solution", "solution", "code", "solutions", "completion")
"""Columns in which the common sets publish a right program."""

BUILT_IN: dict[str, Callable[[], Verifier]] = {
    "math": _math,
    "exact": _exact,
    "choice": _choice,
    "logic": _logic,
    "code": _code,
}

_made: dict[str, Verifier] = {}
_lock = threading.RLock()


def get(name: str) -> Verifier:
    """The verifier of this name, or of this `package.module:function`.

    Raises:
        TossupError: there is none; the message names what there is.
    """
    made = _made.get(name)
    if made is not None:
        return made
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


def _unlocked_in_forked_child() -> None:
    """A lock that another thread of the parent held while it forked would be held for ever in the child."""
    global _lock
    _lock = threading.RLock()


os.register_at_fork(after_in_child=_unlocked_in_forked_child)


def close() -> None:
    """End the processes of all verifiers. Asking for a verifier again starts anew."""
    with _lock:
        for verifier in _made.values():
            verifier.close()
        _made.clear()
    workers.rest_all()
