"""How much of its expected signal a group really shows, by what the problem's last group was.

A belief is a Beta distribution about a problem's own mean and its tag's. That is too hopeful in the same places again and
again: for a problem that was all wrong once (a wrong key stays all wrong, however easy its tag) and for those among the
unseen that come first because of the tag. So signal expected and signal shown are added up apart for the unseen and for
those whose last group was all wrong, mixed or all right, and each value is multiplied by the ratio of its kind.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tossup.curriculum.prior import State
from tossup.curriculum.value import Floats

KEEP = 0.99
"""The share of the old sums that a wave leaves."""
START = 4.0
"""Both sums at the start: so much signal counts as seen and as expected."""


class Calibration:
    """Expected and shown signal, for each of the kinds of a last group in `watch`."""

    def __init__(self, kinds: int) -> None:
        self.sums = np.full((2, kinds), START)  # row 0: shown, row 1: expected

    def ratio(self, kind: NDArray[np.int8]) -> Floats:
        """Shown over expected for each of these kinds."""
        ratio: Floats = (self.sums[0] / self.sums[1])[kind]
        return ratio

    def see(self, kind: NDArray[np.int8], expected: Floats, shown: Floats) -> None:
        """Take in a wave: each group's kind before it, the signal that was expected of it and the signal it showed."""
        kinds = self.sums.shape[1]
        self.sums *= KEEP
        self.sums += np.stack([np.bincount(kind, shown, kinds), np.bincount(kind, expected, kinds)])

    def state(self) -> State:
        """The sums."""
        return {"sums": self.sums.copy()}

    def restore(self, state: State) -> None:
        """Continue from `state`."""
        self.sums[:] = state["sums"]
