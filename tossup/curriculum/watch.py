"""Which problems look as if they teach nothing: parked, stuck and unjudged ones.

    parked     three uniform groups in a row, all right (easy) or all wrong (hard): left to the uniform floor and the
               Thompson draws until a mixed group brings the problem back. Nothing is retired for good
    stuck      mixed again and again while its mean does not move, as a coin flip or a noisy key is: from the fifth
               visit each such group adds 0.25 to what divides the problem's value; a uniform group clears it
    unjudged   three groups in a row in which the verifier decided fewer than two answers: parked as well

The lists are for people: a parked-hard problem of an easy tag is a suspected wrong key, a stuck one a
suspected noisy key.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from tossup.curriculum.prior import Indices, State
from tossup.curriculum.value import Floats

Bools: TypeAlias = NDArray[np.bool_]

PATIENCE = 3
"""This many uniform (or unjudged) groups in a row park a problem."""
STUCK_FROM, STUCK_BY, MOVED = 5, 0.25, 0.3
"""From which visit a mixed group counts, by how much, and from what change of its rate on the problem has moved."""
SUSPECT = 1.0
"""From this much `stuck` on a problem is listed."""


class Watch:
    """Per problem: how often it was seen, how its last groups looked, and how stuck it is. 11 bytes a problem."""

    def __init__(self, n_problems: int) -> None:
        self.visits = np.zeros(n_problems, np.int32)
        self.run = np.zeros(n_problems, np.int8)  # n > 0: n all-right groups in a row; n < 0: all-wrong ones
        self.blank = np.zeros(n_problems, np.int8)  # groups in a row that could not be judged
        self.stuck = np.zeros(n_problems, np.float32)
        self.last = np.zeros(n_problems, np.int8)  # 0 unseen, 1 all wrong, 2 mixed, 3 all right

    def see(self, index: Indices, correct: Floats, decided: Floats, own_mean: Floats) -> None:
        """Take in groups of at least two decided answers.

        `own_mean` is each problem's own mean before them, NaN where there was none.
        """
        easy, hard = correct == decided, correct == 0
        mixed = ~(easy | hard)
        still = mixed & (np.abs(correct / decided - own_mean) < MOVED)  # False where the mean is NaN
        self.visits[index] += 1
        stuck = self.stuck[index] + STUCK_BY * (still & (self.visits[index] >= STUCK_FROM))
        self.stuck[index] = np.where(mixed, stuck, 0.0)
        run = self.run[index].astype(np.int16)
        run = np.where(easy, np.maximum(run, 0) + 1, np.where(hard, np.minimum(run, 0) - 1, 0))
        self.run[index] = np.clip(run, -100, 100)
        self.blank[index] = 0
        self.last[index] = np.where(mixed, 2, np.where(easy, 3, 1))

    def see_unjudged(self, index: Indices) -> None:
        """Take in groups of which fewer than two answers were decided."""
        self.visits[index] += 1
        self.blank[index] = np.minimum(self.blank[index].astype(np.int16) + 1, 100)

    def parked(self, index: Indices) -> Bools:
        """Which of these problems are parked."""
        return (np.abs(self.run[index]) >= PATIENCE) | (self.blank[index] >= PATIENCE)

    def lists(self) -> dict[str, Indices]:
        """The indices of the problems parked as easy, as hard, as unjudged, and of those stuck, worst first."""
        stuck = np.flatnonzero(self.stuck >= SUSPECT)
        return {
            "parked_easy": np.flatnonzero(self.run >= PATIENCE),
            "parked_hard": np.flatnonzero(self.run <= -PATIENCE),
            "unjudged": np.flatnonzero(self.blank >= PATIENCE),
            "stuck": stuck[np.argsort(-self.stuck[stuck], kind="stable")],
        }

    def state(self) -> State:
        """All of it, as arrays."""
        return {k: v.copy() for k, v in vars(self).items()}

    def restore(self, state: State) -> None:
        """Continue from `state`."""
        for name, array in vars(self).items():
            array[:] = state[name]
