"""What a problem's answers cost beside those of its kind.

A value is divided by the length of the problem's answers, relative to what is usual for its tag: of two problems of one
kind, the one with the shorter answers teaches as much for less. Kinds are not compared with each other. Where one kind
needs longer answers than another there is as a rule more in them to learn, and a price by the plain length, or even its
root, leaves the long kinds for last: on the built-in recipe that cost a quarter more tokens.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tossup.curriculum.prior import Indices, State
from tossup.curriculum.value import Floats

KEEP = 0.95
"""The share of a tag's old lengths that a wave with groups of that tag leaves."""


class Lengths:
    """The recent mean length of each problem's answers and of each tag's, in tokens; `tag_of` numbers the tags."""

    def __init__(self, tag_of: NDArray[np.int32]) -> None:
        self.tag_of = tag_of
        self.own = np.zeros(len(tag_of), np.float32)
        self.tags = np.zeros((2, int(tag_of.max(initial=0)) + 1))  # row 0: summed lengths of groups, row 1: groups

    def relative(self, index: Indices) -> Floats:
        """The lengths of these problems over what is usual for their tag: 1 where nothing was seen yet."""
        total, groups = self.tags[:, self.tag_of[index]]
        own = self.own[index].astype(np.float64)
        relative: Floats = np.divide(own * groups, total, out=np.ones(len(own)), where=(own > 0) & (total > 0))
        return relative

    def see(self, index: Indices, tokens: Floats) -> None:
        """Take in the mean lengths of a wave's groups, no problem twice."""
        tag_of, n = self.tag_of[index], self.tags.shape[1]
        groups = np.bincount(tag_of, minlength=n)
        self.tags[:, groups > 0] *= KEEP
        self.tags += np.stack([np.bincount(tag_of, tokens, n), groups])
        own = self.own[index]
        self.own[index] = np.where(own > 0, 0.5 * own + 0.5 * tokens, tokens)

    def state(self) -> State:
        """The lengths."""
        return {"own": self.own.copy(), "tags": self.tags.copy()}

    def restore(self, state: State) -> None:
        """Continue from `state`."""
        self.own[:], self.tags[:] = state["own"], state["tags"]
