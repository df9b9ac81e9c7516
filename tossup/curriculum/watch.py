"""Which problems look as if they teach nothing: parked, stuck and unjudged ones.

    parked     three uniform groups in a row, all right (easy) or all wrong (hard): left to the uniform floor and the
               Thompson draws until a mixed group brings the problem back. Nothing is retired for good
    stuck      informative again and again while its rate does not move, as a coin flip or a noisy key is
    unjudged   three groups in a row in which the verifier decided fewer than two answers: parked as well

How many informative groups without a move are too many depends on the run: on a small model rates move within a few,
in a long run on a large one within dozens. So the yardstick is the pool's own. `still` counts a problem's informative
groups since its rate last moved or was uniform twice in a row; moving means that the rate, averaged over about eight
visits, is 0.25 away from where it was when the count began. `needed` is the greater of this count and the last finished
one, and the yardstick is one and a half times its median over the problems that have one, plus two. A problem is stuck
by how far its count exceeds that. The median is over problems, not visits, so that coin flips visited at every step do
not become the yardstick; and where all problems in the middle are visited alike, few are stuck. A
problem's value is divided by the square root of (1 + stuck).

The lists are for people: a parked-hard problem of an easy tag is a suspected wrong key, a stuck one a suspected noisy
key.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from tossup.curriculum.prior import Indices, State
from tossup.curriculum.value import Floats

Bools: TypeAlias = NDArray[np.bool_]

UNSEEN, ALL_WRONG, MIXED, ALL_RIGHT = range(KINDS := 4)
"""What a problem's last group was."""
PATIENCE = 3
"""This many uniform (or unjudged) groups in a row park a problem."""
SETTLED, MEMORY, MOVED = 3, 8, 0.25
"""Visits until a rate is settled enough to be an anchor, visits that the slow rate averages, and how far is a move."""
MOST = 1000
"""Counts stop here."""
SUSPECT = 1.0
"""From this much `stuck` on a problem is listed: twice the yardstick."""


class Watch:
    """Per problem: how often it was seen, how its last groups looked, how long it has not moved. 19 bytes a problem."""

    def __init__(self, n_problems: int) -> None:
        self.visits = np.zeros(n_problems, np.int32)
        self.run = np.zeros(n_problems, np.int8)  # n > 0: n all-right groups in a row; n < 0: all-wrong ones
        self.blank = np.zeros(n_problems, np.int8)  # groups in a row that could not be judged
        self.last = np.full(n_problems, UNSEEN, np.int8)
        self.rate = np.zeros(n_problems, np.float32)  # the slow mean
        self.anchor = np.zeros(n_problems, np.float32)  # the slow mean when the count began
        self.still = np.zeros(n_problems, np.int16)  # informative groups since
        self.needed = np.zeros(n_problems, np.int16)  # the last finished count, or this one where it is greater
        self.needs = np.zeros(MOST + 1, np.int64)  # how many problems have needed so many

    def see(self, index: Indices, correct: Floats, decided: Floats) -> None:
        """Take in groups of at least two decided answers, no problem twice."""
        easy, hard = correct == decided, correct == 0
        mixed = ~(easy | hard)
        self.visits[index] += 1
        run = self.run[index].astype(np.int16)
        run = np.where(easy, np.maximum(run, 0) + 1, np.where(hard, np.minimum(run, 0) - 1, 0))
        self.run[index] = np.minimum(np.maximum(run, -100), 100)
        self.blank[index] = 0
        self.last[index] = np.where(mixed, MIXED, np.where(easy, ALL_RIGHT, ALL_WRONG))
        self._see_movement(index, correct / decided, mixed)

    def stuck(self, index: Indices) -> Floats:
        """By how much the counts of these problems exceed the yardstick: 0 up to it, 1 at twice the yardstick."""
        stuck: Floats = np.maximum(self.still[index] / self.yardstick - 1.0, 0.0)
        return stuck

    @property
    def yardstick(self) -> float:
        """One and a half times the median of what problems have needed, plus two."""
        at_most = np.cumsum(self.needs[1:])
        return 1.5 * (1.0 + float(np.searchsorted(at_most, at_most[-1] / 2))) + 2.0

    def _see_movement(self, index: Indices, rate: Floats, mixed: Bools) -> None:
        visits, before = self.visits[index], self.still[index]
        slow = self.rate[index] + (rate - self.rate[index]) / np.minimum(visits, MEMORY)
        moved = (visits > SETTLED) & (np.abs(slow - self.anchor[index]) >= MOVED)
        over = moved | (np.abs(self.run[index]) >= 2)
        after = np.where(over, 0, np.minimum(before + mixed, MOST))
        needed = np.where(over & (before > 0), before, np.maximum(after, self.needed[index]))
        np.subtract.at(self.needs, self.needed[index], 1)
        np.add.at(self.needs, needed, 1)
        self.rate[index], self.still[index], self.needed[index] = slow, after, needed
        self.anchor[index] = np.where(moved | (visits <= SETTLED), slow, self.anchor[index])

    def see_unjudged(self, index: Indices) -> None:
        """Take in groups of which fewer than two answers were decided."""
        self.visits[index] += 1
        self.blank[index] = np.minimum(self.blank[index].astype(np.int16) + 1, 100)

    def parked(self, index: Indices) -> Bools:
        """Which of these problems are parked."""
        return (np.abs(self.run[index]) >= PATIENCE) | (self.blank[index] >= PATIENCE)

    def lists(self) -> dict[str, Indices]:
        """The indices of the problems parked as easy, as hard, as unjudged, and of those stuck, worst first."""
        stuck = self.stuck(np.arange(len(self.still)))
        suspects = np.flatnonzero(stuck >= SUSPECT)
        return {
            "parked_easy": np.flatnonzero(self.run >= PATIENCE),
            "parked_hard": np.flatnonzero(self.run <= -PATIENCE),
            "unjudged": np.flatnonzero(self.blank >= PATIENCE),
            "stuck": suspects[np.argsort(-stuck[suspects], kind="stable")],
        }

    def state(self) -> State:
        """All of it, as arrays."""
        return {k: v.copy() for k, v in vars(self).items()}

    def restore(self, state: State) -> None:
        """Continue from `state`."""
        for name, array in vars(self).items():
            array[:] = state[name]
