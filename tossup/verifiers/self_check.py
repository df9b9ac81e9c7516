"""Do the answer keys pass their own verifiers? A key that its verifier refuses makes every group of its problem waste.

Each problem's verifier says how a perfect response would look (a boxed reference for `math`, the canonical solution for
`code`) and then judges it. CORRECT is as it should be; WRONG or UNDECIDED names a problem that cannot be trained on.
"""

from __future__ import annotations

from collections.abc import Sequence

from tossup.records import Problem, Verdict, undecided
from tossup.verifiers import get, verify_many

NO_GOLD = "the problem holds no solution to check with"


def check(problems: Sequence[Problem]) -> list[Verdict]:
    """One verdict for each problem on its own key, in order.

    Raises:
        TossupError: a problem names a verifier that does not exist.
    """
    golds = [get(problem.verifier).gold(problem) for problem in problems]
    verdicts = iter(verify_many([(p, gold) for p, gold in zip(problems, golds, strict=True) if gold is not None]))
    return [undecided(NO_GOLD) if gold is None else next(verdicts) for gold in golds]
