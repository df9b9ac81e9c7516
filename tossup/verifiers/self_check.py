"""Do the answer keys pass their own verifiers? A key that its verifier refuses makes every group of its problem waste.

Each problem's verifier says how a perfect response would look (a boxed reference for `math`, the canonical solution for
`code`) and then judges it. CORRECT is as it should be; WRONG or UNDECIDED names a problem that should not be trained on.
A key that equals itself as text but cannot be read, so that no other spelling of the same answer would be accepted, is
UNDECIDED too.
"""

from __future__ import annotations

from collections.abc import Sequence

from tossup.records import Problem, Ruling, Verdict, undecided
from tossup.verifiers import get, verify_many

NO_GOLD = "the problem holds no solution to check with"


def check(problems: Sequence[Problem]) -> list[Verdict]:
    """One verdict for each problem on its own key, in order.

    Raises:
        TossupError: a problem names a verifier that does not exist.
    """
    golds = [get(problem.verifier).gold(problem) for problem in problems]
    verdicts = iter(verify_many([(p, gold) for p, gold in zip(problems, golds, strict=True) if gold is not None]))
    return [
        undecided(NO_GOLD) if gold is None else _limited(problem, next(verdicts))
        for problem, gold in zip(problems, golds, strict=True)
    ]


def _limited(problem: Problem, verdict: Verdict) -> Verdict:
    """The verdict on a key, undecided where only the key's own spelling would be accepted."""
    limit = get(problem.verifier).limit(problem) if verdict.ruling is Ruling.CORRECT else ""
    return undecided(f"only this very text would be accepted: {limit}", verdict.answer) if limit else verdict
