"""Which groups train, and what becomes of the others: one fate for each rollout.

Read off the verdicts alone. Keeping or dropping a group by its outcomes leaves a problem's expected gradient parallel
to the gradient of its success rate and only changes its weight; a rule that looked at lengths would bias it.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

from tossup.records import Fate, Group, Rollout

TRUNCATED = "truncated"
"""The reason of an undecided verdict which says that the answer was cut off and, by policy, left out of its group."""


class Kind(StrEnum):
    """What a group shows."""

    MIXED = "mixed"
    """Some right, some wrong: the informative kind."""
    RIGHT = "right"
    """All decided answers are right."""
    WRONG = "wrong"
    """All decided answers are wrong."""
    UNJUDGED = "unjudged"
    """Fewer than two answers are decided, so there is nothing to compare."""


FATES = {
    Kind.MIXED: Fate.TRAINED,
    Kind.RIGHT: Fate.ALL_CORRECT,
    Kind.WRONG: Fate.ALL_WRONG,
    Kind.UNJUDGED: Fate.UNDECIDED,
}
"""What becomes of the decided rollouts of a group."""


def kind(group: Group) -> Kind:
    """What the group shows; every kind but MIXED is degenerate."""
    rewards = group.rewards
    if len(rewards) < 2:
        return Kind.UNJUDGED
    if max(rewards) != min(rewards):
        return Kind.MIXED
    return Kind.RIGHT if rewards[0] == 1.0 else Kind.WRONG


def fates(group: Group) -> tuple[Fate, ...]:
    """What becomes of each rollout of a group that has just been judged, in their order.

    Undecided rollouts are UNDECIDED, or TRUNCATED when that is their verdict's reason. The decided ones of a degenerate
    group are ALL_CORRECT or ALL_WRONG; a single decided one, which has nothing to be compared with, is UNDECIDED; all
    others are TRAINED.
    """
    decided = FATES[kind(group)]
    return tuple(decided if r.decided else _left_out(r) for r in group.rollouts)


def informative(groups: Sequence[Group]) -> tuple[Group, ...]:
    """The groups that give a gradient."""
    return tuple(g for g in groups if not g.degenerate)


def _left_out(rollout: Rollout) -> Fate:
    truncated = rollout.verdict is not None and rollout.verdict.reason == TRUNCATED
    return Fate.TRUNCATED if truncated else Fate.UNDECIDED
