"""What n answers say of a problem's success rate, given what the rest of its pool looks like. Pure functions of counts.

The rates of a pool have a distribution, fitted to all its counts by empirical Bayes on the audit's grid (see `estimate`),
so that certain and hopeless problems, which a Beta prior has no room for, are points of their own at its ends. A tag
(a data set, a level) has its own fit, drawn toward that of the pool, and the pool's is drawn toward an even spread
(arcsine, or Jeffreys), each with the weight of a few problems: a pool of three cannot talk itself into being sure.

A problem's posterior is the fit of its tag times its likelihood p^c (1-p)^(n-c). Answers that were asked for because earlier
ones left the question open change nothing in it: the likelihood does not know why sampling stopped. (The observed rate c/n
does suffer: after four right answers nobody asks for a fifth.)

Shapes: N problems; J distinct cells of counts and what is asked of them; K grid points; T tags; M = 0..m further answers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from tossup.curriculum import estimate
from tossup.curriculum.estimate import Floats, Ints

POOL_PULL, TAG_PULL = 10.0, 20.0
"""The weight, in problems, of the even spread in the pool's fit, and of the pool's fit in a tag's."""

CHUNK = 4096
"""Cells that are worked on at once: 7 MB a matrix."""

DIGITS = 9
"""Probabilities are rounded to this, so that the order in which a library adds up decides nothing."""


class Posterior:
    """The posteriors of all problems of a pool: `attempts` judged answers each, `correct` of them right, one tag each."""

    def __init__(self, attempts: Ints, correct: Ints, tags: Sequence[str]) -> None:
        self.n = np.asarray(attempts, np.int64)
        self.c = np.asarray(correct, np.int64)
        self.points = estimate.grid()
        names, self.tag = np.unique(np.asarray(tags, dtype=np.str_), return_inverse=True)
        even = np.full(len(self.points), 1.0 / len(self.points))
        pool = self._fitted(np.arange(len(self.n)), even, POOL_PULL)
        members = np.split(np.argsort(self.tag, kind="stable"), np.cumsum(np.bincount(self.tag))[:-1])
        alone = len(names) < 2
        self.mix_TK = np.stack([pool if alone else self._fitted(rows, pool, TAG_PULL) for rows in members])

    def _fitted(self, rows: npt.NDArray[np.intp], base_K: Floats, pull: float) -> Floats:
        """EM from the base, in which the base counts as `pull` further problems; stopped early, as the audit's fit is."""
        rows = rows[self.n[rows] > 0]
        if len(rows) == 0:
            return base_K
        pairs, weights = np.unique(np.stack([self.n[rows], self.c[rows]]), axis=1, return_counts=True)
        likelihood = estimate.likelihood_JK(pairs[0], pairs[1], self.points)
        mix_K = base_K
        for _ in range(estimate.em_steps(len(rows))):
            shares_K = mix_K * ((weights / (likelihood @ mix_K)) @ likelihood)
            mix_K = (shares_K + pull * base_K) / (len(rows) + pull)
        return mix_K

    def inside(self, low: Floats, high: Floats) -> Floats:
        """The probability that each problem's rate lies from its `low` to its `high`, both included; shape (N,).

        0 where low is above high. A single rate strictly between 0 and 1 has no probability.
        """
        return self._by_cell(self._inside, self.n, self.c, low, high)

    def _inside(self, tag: Ints, n: Ints, c: Ints, low: Floats, high: Floats) -> Floats:
        total: Floats = (self._at(tag, n, c) * membership(low, high, self.points)).sum(axis=1)
        return np.round(total, DIGITS)

    def mean(self, values_K: Floats) -> Floats:
        """The posterior mean of a function of the rate, given at the grid points; shape (N,)."""
        return self._by_cell(lambda tag, n, c: self._at(tag, n, c) @ values_K, self.n, self.c)

    def mended(self, rows: npt.NDArray[np.intp], low: Floats, high: Floats, room: Ints, step: int) -> Floats:
        """What one further answer to each problem of `rows` is expected to mend, if up to `room` of them are asked for.

        Told to say whether a rate is inside, one errs with the smaller of the two probabilities. More answers lower that
        on average. The result is the expected drop per answer at the best of the numbers step, 2 step, 4 step ... room;
        looking one step ahead is not enough, since four answers often cannot change a call that eight can. Shape (rows,).
        """
        at = (self.n[rows], self.c[rows], low[rows], high[rows], room[rows])
        return self._by_cell(lambda *cell: self._mended(*cell, step=step), *at, tag=self.tag[rows])

    def _mended(self, tag: Ints, n: Ints, c: Ints, low: Floats, high: Floats, room: Floats, *, step: int) -> Floats:
        inside, post_JK = self._inside(tag, n, c, low, high), self._at(tag, n, c)
        now = np.minimum(inside, 1.0 - inside)
        best = np.zeros(len(n))
        steps = {step << k for k in range(int(room.max()).bit_length())} | {int(m) for m in np.unique(room)}
        for m in sorted(m for m in steps if 0 < m <= room.max()):
            at = np.flatnonzero(room >= m)
            chance_JM = post_JK[at] @ binomial(m, self.points).T
            then = np.zeros(len(at))
            for right in range(m + 1):
                inside = self._inside(tag[at], n[at] + m, c[at] + right, low[at], high[at])
                then += chance_JM[:, right] * np.minimum(inside, 1.0 - inside)
            best[at] = np.maximum(best[at], (now[at] - then) / m)
        return np.round(best, DIGITS)

    def _at(self, tag: Ints, n: Ints, c: Ints) -> Floats:
        """The posteriors (J, K) of these cells."""
        weight = self.mix_TK[tag] * estimate.likelihood_JK(n, c, self.points)
        post: Floats = weight / weight.sum(axis=1, keepdims=True)
        return post

    def _by_cell(
        self, work: Callable[..., Floats], *columns: npt.NDArray[np.generic], tag: Ints | None = None
    ) -> Floats:
        """Do the work once for each distinct row of tag, n, c and whatever else there is, and give each problem its result."""
        table = np.stack([self.tag if tag is None else tag, *columns]).astype(np.float64)
        cells, which = np.unique(table, axis=1, return_inverse=True)
        found = np.empty(cells.shape[1])
        for start in range(0, len(found), CHUNK):
            counts, rest = np.split(cells[:, start : start + CHUNK], [3])
            found[start : start + CHUNK] = work(*counts.astype(np.int64), *rest)
        result: Floats = found[which.reshape(-1)]
        return result


def membership(low: Floats, high: Floats, points: Floats) -> Floats:
    """How much of each grid point's stretch of rates lies from low to high, shape (J, K): a share from 0 to 1.

    Stretches meet halfway between neighbours; the ends stand for exactly 0 and exactly 1.
    """
    middles = (points[1:] + points[:-1]) / 2.0
    left, right = middles[:-1], middles[1:]
    share = (np.minimum(high[:, None], right) - np.maximum(low[:, None], left)) / (right - left)
    ends = [(low <= end) & (end <= high) for end in (0.0, 1.0)]
    return np.concatenate([ends[0][:, None], np.clip(share, 0.0, 1.0), ends[1][:, None]], axis=1).astype(np.float64)


def binomial(m: int, points: Floats) -> Floats:
    """The chance of 0..m right answers of m at each grid point, shape (M, K)."""
    chance_MK = np.ones((1, len(points)))
    for _ in range(m):
        one_more = np.zeros((len(chance_MK) + 1, len(points)))
        one_more[:-1] += chance_MK * (1.0 - points)
        one_more[1:] += chance_MK * points
        chance_MK = one_more
    return chance_MK
