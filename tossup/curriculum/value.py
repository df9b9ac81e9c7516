"""What a group of G answers to a problem is worth before it is generated.

A problem's success rate p is not known; the belief holds it as Beta(a, b). A group of G then shows c successes with the
beta-binomial probability BB(c; G, a, b), and its rewards have the standard deviation sqrt(c (G - c)) / G, which is what
GRPO's gradient is made of (zero when all are right or all are wrong). Two aims:

    half       E[std]            = sum over c of BB(c; G, a, b) sqrt(c (G - c)) / G; greatest at p = 1/2
    headroom   E[std (1 - p)]    = b / (a + b) x sum over c of BB(c; G, a, b + 1) sqrt(c (G - c)) / G; greatest near 0.3

The second is exact because weighing a Beta(a, b) density by (1 - p) gives b / (a + b) times a Beta(a, b + 1) density.
All functions take arrays of a and b of one shape, and none over- or underflows at G = 1024.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Floats: TypeAlias = NDArray[np.float64]
"""A float64 array of any shape."""


class Aim(StrEnum):
    """Which success rate counts as the best toss-up."""

    HEADROOM = "headroom"
    """The signal times the room to improve: about p = 0.3."""
    HALF = "half"
    """The signal alone: p = 0.5."""


def group_std(group_size: int) -> Floats:
    """The population standard deviation of 0/1 rewards for c = 0..G successes: shape (G + 1,)."""
    c = np.arange(group_size + 1, dtype=np.float64)
    std: Floats = np.sqrt(c * (group_size - c)) / group_size
    return std


def beta_binomial(a: Floats, b: Floats, group_size: int) -> Floats:
    """The posterior-predictive probabilities of c = 0..G successes: the shape of `a` and a last axis of G + 1.

    From the ratio of neighbours, P(c + 1) / P(c) = (G - c) / (c + 1) x (a + c) / (b + G - c - 1), which needs no gamma
    function and no scipy.

    Raises:
        ValueError: a or b is not positive, or the group size is below 1.
    """
    a, b = np.asarray(a, np.float64)[..., None], np.asarray(b, np.float64)[..., None]
    if group_size < 1:
        raise ValueError(f"group_size must be at least 1, got {group_size}")
    if np.any(a <= 0) or np.any(b <= 0):
        raise ValueError("the parameters of a Beta belief must be positive")
    c = np.arange(group_size, dtype=np.float64)
    ratios = np.log((group_size - c) / (c + 1)) + np.log(a + c) - np.log(b + (group_size - c - 1))
    logs = np.concatenate([np.zeros_like(a * b), np.cumsum(ratios, axis=-1)], axis=-1)
    weights = np.exp(logs - logs.max(axis=-1, keepdims=True))
    probabilities: Floats = weights / weights.sum(axis=-1, keepdims=True)
    return probabilities


def log_likelihood(a: Floats, b: Floats, correct: Floats, decided: Floats) -> Floats:
    """The log probability of one particular order of `correct` successes in `decided` tries under Beta(a, b).

    It is the beta-binomial log probability less log C(n, c), which does not depend on a and b: enough to compare
    beliefs. Broadcasts its arguments against each other.
    """
    n = int(np.max(decided, initial=0))
    i = np.arange(n, dtype=np.float64)
    a, b, c, d = (np.asarray(x, np.float64)[..., None] for x in (a, b, correct, decided))
    rises = np.where(i < c, np.log(a + i), 0.0) + np.where(i < d - c, np.log(b + i), 0.0)
    total: Floats = (rises - np.where(i < d, np.log(a + b + i), 0.0)).sum(axis=-1)
    return total


def expected_std(a: Floats, b: Floats, group_size: int) -> Floats:
    """E[std] of a group of G under Beta(a, b): between 0 and 1/2, symmetric in a and b.

    The sum over `beta_binomial` without its array: a sampler values thousands of problems a step, and this is the part
    that grows with G. Weights grow from 1 at c = 0 and are scaled down before they overflow.
    """
    std = group_std(group_size)
    weight, total = np.ones_like(a), np.ones_like(a)
    signal = np.zeros_like(a)
    for c in range(group_size):
        weight *= (group_size - c) / (c + 1)
        weight *= a + c
        weight /= b + (group_size - c - 1)
        total += weight
        signal += std[c + 1] * weight
        if total.max(initial=0.0) > 1e200:
            scale = np.where(total > 1e200, 1e-200, 1.0)
            weight, total, signal = weight * scale, total * scale, signal * scale
    expected: Floats = signal / total
    return expected


def expected_signal(a: Floats, b: Floats, group_size: int, aim: Aim = Aim.HEADROOM) -> Floats:
    """E[std (1 - p)] for the aim `headroom`, E[std] for the aim `half`."""
    if aim is Aim.HALF:
        return expected_std(a, b, group_size)
    signal: Floats = b / (a + b) * expected_std(a, b + 1.0, group_size)
    return signal


def signal_at(p: Floats, aim: Aim = Aim.HEADROOM) -> Floats:
    """The signal of a large group at a known success rate: what a Thompson draw of p is worth."""
    std: Floats = np.sqrt(p * (1.0 - p))
    return std if aim is Aim.HALF else std * (1.0 - p)


def informative_chance(a: Floats, b: Floats, group_size: int) -> Floats:
    """The probability that a group of G is informative, not all right and not all wrong, under Beta(a, b)."""
    probabilities = beta_binomial(a, b, group_size)
    chance: Floats = 1.0 - probabilities[..., 0] - probabilities[..., -1]
    return chance
