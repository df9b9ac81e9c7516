"""What is believed of a problem before it has been seen: a success rate pooled over the problems that are like it.

Two ways to say what "like it" means, behind one small interface:

    TagPrior       one tag a problem (its dataset, its level): the tag's recent success rate, drawn toward the pool's
    FeaturePrior   numbers a problem (an embedding, its length, one-hot tags): an online logistic regression

Both forget about 2 % a step, because the policy moves, and both follow it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from tossup.curriculum.value import Floats

Indices = NDArray[np.intp]
State = dict[str, NDArray[np.generic]]
"""Named arrays that hold everything needed to continue bit for bit."""

KEEP = 0.98
"""The share of old evidence that a step leaves."""


def number_tags(tags: Sequence[str] | None, n_problems: int) -> NDArray[np.int32]:
    """The problems' tags as numbers from 0, in the order of their first problem; without tags all have one."""
    if tags is None:
        return np.zeros(n_problems, np.int32)
    names: dict[str, int] = {}
    return np.fromiter((names.setdefault(tag, len(names)) for tag in tags), np.int32, n_problems)


class Prior(Protocol):
    """A pooled success rate for every problem."""

    def mean(self, index: Indices) -> Floats:
        """The pooled success rates of these problems, strictly between 0 and 1."""

    def learn(self, index: Indices, correct: Floats, decided: Floats, step: int) -> None:
        """Take in what the groups of one wave showed."""

    def state(self) -> State:
        """Everything that changes, as arrays."""

    def restore(self, state: State) -> None:
        """Continue from a state."""


class TagPrior:
    """The recent success rate of each tag, drawn toward the whole pool's with the weight of `pull` answers."""

    def __init__(self, tags: Sequence[str] | None, n_problems: int, pull: float = 8.0) -> None:
        self.tag_of = number_tags(tags, n_problems)
        self.pull = pull
        # Row 0: right answers; row 1: all answers. The last column is the whole pool.
        self.counts = np.zeros((2, int(self.tag_of.max(initial=0)) + 2))
        self.step = 0

    def mean(self, index: Indices) -> Floats:
        """The tag's rate; a tag without evidence has the pool's, a pool without evidence has 1/2."""
        right, all_ = self.counts
        pool = (right[-1] + 1.0) / (all_[-1] + 2.0)
        rates = (right[:-1] + self.pull * pool) / (all_[:-1] + self.pull)
        mean: Floats = rates[self.tag_of[index]]
        return mean

    def learn(self, index: Indices, correct: Floats, decided: Floats, step: int) -> None:
        """Add the counts to the tags and to the pool, after forgetting for the steps that have passed."""
        if step > self.step:
            self.counts *= KEEP ** (step - self.step)
            self.step = step
        for row, amount in zip(self.counts, (correct, decided), strict=True):
            row[:-1] += np.bincount(self.tag_of[index], amount, len(row) - 1)
            row[-1] += amount.sum()

    def state(self) -> State:
        """The counts and the step to which they are forgotten."""
        return {"counts": self.counts.copy(), "step": np.array(self.step)}

    def restore(self, state: State) -> None:
        """Continue from `state`."""
        self.counts[:] = state["counts"]
        self.step = int(state["step"])


class FeaturePrior:
    """Logistic regression on what is known of a problem, by online Newton steps with forgetting.

    `features` has shape (n_problems, n_features); columns are standardised here and an intercept is added. An answer
    weighs less than a full trial (a group counts as at most three), since the answers of one group share more than the
    features say.
    """

    def __init__(self, features: NDArray[np.floating]) -> None:
        centred = features - features.mean(axis=0)
        scale = centred.std(axis=0)
        columns = centred / np.where(scale > 1e-9, scale, 1.0)
        self.x = np.concatenate([columns, np.ones((len(columns), 1))], axis=1).astype(np.float32)
        width = self.x.shape[1]
        self.weights = np.zeros(width)
        self.information = 4.0 * np.eye(width)
        self.step = 0

    def mean(self, index: Indices) -> Floats:
        """The predicted rates, kept within the logistic of -6 and 6."""
        mean: Floats = 1.0 / (1.0 + np.exp(-np.clip(self.x[index] @ self.weights, -6.0, 6.0)))
        return mean

    def learn(self, index: Indices, correct: Floats, decided: Floats, step: int) -> None:
        """One Newton step on the wave's groups; old information fades toward the ridge that it started from."""
        x, p = self.x[index].astype(np.float64), self.mean(index)
        weight = np.minimum(decided, 3.0)
        rate = correct / np.maximum(decided, 1.0)
        if step > self.step:
            keep = KEEP ** (step - self.step)
            self.information = keep * self.information + (1.0 - keep) * 3.0 * np.eye(len(self.weights))
            self.step = step
        self.information = self.information + (x * (weight * p * (1.0 - p) + 0.02)[:, None]).T @ x
        self.weights = self.weights + np.linalg.solve(self.information, x.T @ (weight * (rate - p)))

    def state(self) -> State:
        """The weights, their information and the step to which it is forgotten."""
        return {"weights": self.weights.copy(), "information": self.information.copy(), "step": np.array(self.step)}

    def restore(self, state: State) -> None:
        """Continue from `state`."""
        self.weights = np.array(state["weights"])
        self.information = np.array(state["information"])
        self.step = int(state["step"])
