"""Random numbers that belong to one answer: a function of its seed and the position of the token, of nothing else.

A batch may be cut, reordered, shared among processes or decoded again after a kill: every answer still draws the same
numbers. They come from SplitMix64 (Steele, Lea and Flood, OOPSLA 2014), whose n-th output is a hash of seed + n * GAMMA, so
a block of positions of many answers is a few array operations and no state is kept.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

GAMMA = np.uint64(0x9E3779B97F4A7C15)

Seeds = NDArray[np.uint64]
"""One seed an answer."""


def prompt_seeds(seed: int, first: int, count: int) -> list[int]:
    """The seeds of the prompts `first`, `first` + 1, … of a wave whose seed is `seed`, each in [0, 2^63)."""
    return [int(s >> np.uint64(1)) for s in _children(seed, first, count)]


def answer_seeds(seed: int, group_size: int) -> Seeds:
    """The seeds of the `group_size` answers to a prompt whose seed is `seed`."""
    return _children(seed, 0, group_size)


def _children(seed: int, first: int, count: int) -> Seeds:
    start = _mix(np.array([seed % (1 << 64)], dtype=np.uint64))
    return _mix(start + GAMMA * np.arange(first + 1, first + count + 1, dtype=np.uint64))


def uniforms(seeds: Seeds | Sequence[int], start: int, count: int) -> NDArray[np.float64]:
    """Numbers in [0, 1) for positions start, start + 1, …: an array [count, answers]."""
    positions = GAMMA * np.arange(start + 1, start + count + 1, dtype=np.uint64)
    bits = _mix(np.asarray(seeds, dtype=np.uint64)[None, :] + positions[:, None])
    return (bits >> np.uint64(11)).astype(np.float64) * 2.0**-53


def _mix(z: Seeds) -> Seeds:
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))
