"""The strictest verifier: the response is the reference, spaces around it aside.

For tasks whose whole response is the answer, such as the built-in arithmetic recipe. Nothing is searched for in the
response and nothing is converted: `5.0` is not `5`, and `The answer is 5` is not `5`.
"""

from __future__ import annotations

from tossup.records import Problem, Verdict, correct, undecided, wrong

SHOWN = 60
"""Characters of a response that a reason quotes."""


def shorten(text: str, length: int = SHOWN) -> str:
    """One line of at most `length` characters, for a reason."""
    line = " ".join(text.split())
    return line if len(line) <= length else line[: length - 1] + "…"


def judge(problem: Problem, response: str) -> Verdict:
    """Compare the stripped texts. A problem without a reference is UNDECIDED."""
    answer, reference = response.strip(), problem.reference.strip()
    if not reference:
        return undecided("the problem has no reference")
    if answer == reference:
        return correct("equals the reference", answer)
    if not answer:
        return wrong("empty response")
    return wrong(f"{shorten(answer)!r} is not the reference {shorten(reference)!r}", answer)
