"""How many groups of G answers would be uniform, from n answers a problem. Pure functions of counts.

A problem that is solved with probability p gives a group whose answers are all right with probability p^G and all wrong
with (1-p)^G. What is known of p is c right of n. Two cases, told apart per problem:

G <= n   C(c,G) / C(n,G) and C(n-c,G) / C(n,G): the share of the size-G subsets of the n answers that are uniform. It is
         unbiased for any p (a U-statistic; Hoeffding 1948), so its mean over problems needs no model of the pool.
G > n    no unbiased estimate exists: the problem's posterior expectation under a distribution of p fitted to the whole
         pool, nonparametric maximum likelihood on a grid (Kiefer and Wolfowitz 1956) by EM that stops early. The
         full maximum likelihood fit is a handful of spikes; stopping keeps it smooth and lowers the error.

Intervals: problems are resampled where every estimate is unbiased, and profile likelihood beyond (see `profile`), which
widens to what n answers cannot tell. The formulas with their assumptions are in docs/statistics.md.

Shapes: J cells, which are the distinct (n, c) pairs; K grid points of p; R rows of weights, one a bootstrap replicate.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

GRID_SIZE = 201


def grid(size: int = GRID_SIZE) -> Floats:
    """Success rates from 0 to 1, both included, dense at the ends where p^G changes fastest: even in arcsin(sqrt(p))."""
    return (1.0 - np.cos(np.linspace(0.0, np.pi, size))) / 2.0


def subset_shares(n: Ints, c: Ints, group_size: int) -> tuple[Floats, Floats]:
    """All-right and all-wrong share of the subsets of `group_size` among n answers with c right; NaN where n is smaller.

    The products C(c,G)/C(n,G) = prod (c-j)/(n-j) are taken factor by factor, exact zeros included.
    """
    right = np.ones(len(n))
    wrong = np.ones(len(n))
    for j in range(group_size):
        left = np.where(n > j, n - j, np.nan)
        right *= np.maximum(c - j, 0) / left
        wrong *= np.maximum(n - c - j, 0) / left
    return right, wrong


def uniform_share(p: Floats, group_size: int) -> tuple[Floats, Floats]:
    """p^G and (1-p)^G: the probabilities that all answers are right, and that all are wrong."""
    return p**group_size, (1.0 - p) ** group_size


def likelihood_JK(n: Ints, c: Ints, points: Floats) -> Floats:
    """p^c (1-p)^(n-c) for each cell and grid point, each cell scaled so that its largest value is 1."""
    with np.errstate(divide="ignore", invalid="ignore"):
        hits = np.where(c[:, None] > 0, c[:, None] * np.log(points), 0.0)
        misses = np.where((n - c)[:, None] > 0, (n - c)[:, None] * np.log1p(-points), 0.0)
    log = hits + misses
    scaled: Floats = np.exp(log - log.max(axis=1, keepdims=True))
    return scaled


def em_steps(problems: float) -> int:
    """How many EM steps a pool of this many problems bears: more data, less smoothing.

    200 at 1,000 problems had the least error over simulated pools and sizes (benchmarks/audit.py); the growth with the
    square root keeps the smoothing bias below the sampling error.
    """
    return int(np.clip(200.0 * np.sqrt(problems / 1000.0), 50, 3000))


def fit(weights_RJ: Floats, likelihood: Floats, steps: int) -> Floats:
    """The mixing distributions (R, K) after so many EM steps from an even start, one a row of cell weights."""
    size = likelihood.shape[1]
    mix_RK = np.full((len(weights_RJ), size), 1.0 / size)
    shares_RJ = weights_RJ / weights_RJ.sum(axis=1, keepdims=True)
    for _ in range(steps):
        mix_RK *= (shares_RJ / (mix_RK @ likelihood.T)) @ likelihood
    mix_RK /= mix_RK.sum(axis=1, keepdims=True)
    return mix_RK


@dataclass(frozen=True, slots=True)
class Cells:
    """The distinct (n, c) pairs of a set of problems: `n` decided answers of which `c` are right. n is at least 1."""

    n: Ints
    c: Ints

    def values(self, group_size: int, mix_RK: Floats | None) -> tuple[Floats, Floats]:
        """All-right and all-wrong probability of a group at each cell, shapes (1, J), or (R, J) where the fit is needed.

        Raises:
            ValueError: a cell has fewer answers than `group_size` and there is no fit.
        """
        right, wrong = (x[None, :] for x in subset_shares(self.n, self.c, group_size))
        small = self.n < group_size
        if not small.any():
            return right, wrong
        if mix_RK is None:
            raise ValueError(
                f"some problems have fewer than {group_size} answers: a fitted mixing distribution is needed"
            )
        points = grid(mix_RK.shape[1])
        like = likelihood_JK(self.n[small], self.c[small], points)
        total = mix_RK @ like.T
        out = []
        for known, chance in zip((right, wrong), uniform_share(points, group_size), strict=True):
            value = np.repeat(known, len(mix_RK), axis=0)
            value[:, small] = (mix_RK @ (like * chance).T) / total
            out.append(value)
        return out[0], out[1]

    def fit(self, weights_RJ: Floats) -> Floats:
        """The smoothed nonparametric fit for each row of weights."""
        few, share_JI = self.thinned()
        weights_RI = weights_RJ @ share_JI
        return fit(weights_RI, likelihood_JK(few.n, few.c, grid()), em_steps(float(weights_RJ[0].sum())))

    def thinned(self) -> tuple[Cells, Floats]:
        """At most about MAX_CELLS cells that say nearly the same, and the share (J, I) of each cell that goes to each.

        Cells with more than m answers are replaced by all ways of keeping m of them, each with its hypergeometric
        probability: m of n answers have exactly the law of m answers, so that a fit stays right and only loses what
        the further answers would have added. m is the largest of THINNED_TO with few enough cells.
        """
        size = len(self.n)
        if size <= MAX_CELLS:
            return self, np.eye(size)
        for keep in THINNED_TO:
            kept_n = np.minimum(self.n, keep)
            small = [(n, c) for n, c in zip(self.n, self.c, strict=True) if n < keep]
            pairs = sorted({*small, *((keep, c) for c in range(keep + 1))})
            if len(pairs) <= MAX_CELLS:
                break
        few = Cells(np.array([n for n, _ in pairs]), np.array([c for _, c in pairs]))
        share = np.zeros((size, len(pairs)))
        for at, (n, c) in enumerate(pairs):
            same_n = kept_n == n
            share[same_n, at] = _hypergeometric(self.n[same_n], self.c[same_n], int(n), int(c))
        return few, share


MAX_CELLS = 200
THINNED_TO = (96, 64, 48, 32, 24, 18)
"""With 18 answers at most there are 189 cells, so that the last always does."""


def _hypergeometric(n: Ints, c: Ints, keep: int, right: int) -> Floats:
    """The probability that `keep` of n answers, of which c are right, hold `right` right ones."""
    factorial = np.concatenate([[0.0], np.cumsum(np.log(np.arange(1, int(n.max()) + 1)))])

    def log_choose(top: Ints, k: int) -> Floats:
        possible = top >= k
        top = np.where(possible, top, k)
        value: Floats = np.where(possible, factorial[top] - factorial[k] - factorial[top - k], -np.inf)
        return value

    chance: Floats = np.exp(log_choose(c, right) + log_choose(n - c, keep - right) - log_choose(n, keep))
    return chance
