"""Honest intervals where a model of the pool is needed: profile likelihood of a functional of the mixing distribution.

The success rates of a pool have some distribution F on [0, 1]. For a functional of F, such as the mean of p^G, the interval
holds every value that some F reaches whose log-likelihood is within 1.35 of the best (half the 90 % quantile of
chi-square with one degree of freedom; Wilks 1938, for empirical and mixture likelihoods Owen 2001). It widens by itself
to all that the data leave open where n answers a problem cannot tell distributions apart, which resampling does not.

The ends are found without a constraint. Maximising the likelihood with a price t on the functional h is maximising the
plain mixture likelihood whose columns are divided by 1 - t h, so each t gives one point of the frontier of attainable
(functional, log-likelihood) pairs; t is searched until the log-likelihood has dropped by the allowance.

Each maximisation is a convex programme in K weights, solved by a primal-dual interior point method for all t at once.

Shapes: J cells with a positive weight, K grid points, R rows: one pair of functional and price each.
"""

from __future__ import annotations

import numpy as np

from tossup.curriculum.estimate import Floats

PRICES = 14
"""Prices tried for each end, twice: over all magnitudes, then within the bracket found."""

MAX_STEPS = 100
GAP = 1e-10
"""An interior point solution is taken when its gap per problem in log-likelihood is below this."""


def interval(likelihood: Floats, weights_J: Floats, functionals_FK: Floats, allowance: float) -> tuple[Floats, Floats]:
    """Lowest and highest value of each functional (rows, values at the grid points) within the allowance of the best fit.

    `weights_J` counts the problems in each cell, `likelihood` is (J, K), and `allowance` is a drop in log-likelihood.
    """
    some = weights_J > 0
    like, weights = likelihood[some], weights_J[some]
    shares = weights / weights.sum()
    best = maximise(like[None], shares)
    top = float(_log_likelihood(best, like, shares)[0])
    # The low end of h is the high end of -h; a constant makes it positive, as a price needs.
    highest = functionals_FK.max(axis=1, keepdims=True)
    upwards = np.vstack([functionals_FK, highest - functionals_FK])
    reached = _high_ends(like, shares, upwards, top, allowance / float(weights.sum()))
    reached = np.maximum(reached, upwards @ best[0])
    count = len(functionals_FK)
    return highest[:, 0] - reached[count:], reached[:count]


def maximise(columns_RJK: Floats, shares_J: Floats) -> Floats:
    """Mixing weights (R, K), each row summing to 1, that maximise sum_j shares_j log(sum_k columns_jk w_k).

    Newton's method on the optimality conditions g - z = 0, w z = mu with w, z > 0, where g_k = 1 - sum_j shares_j
    columns_jk / (columns w)_j; mu goes to zero with the gap w.z, which bounds what is left to gain.
    """
    rows, _, size = columns_RJK.shape
    # The cells' scale is free: with the largest entry of each at 1, weights and slacks start at the right size.
    columns_RJK = columns_RJK / columns_RJK.max(axis=2, keepdims=True)
    found_RK = np.full((rows, size), 1.0 / size)
    at = np.arange(rows)
    w, z = found_RK.copy(), np.ones((rows, size))
    for _ in range(MAX_STEPS):
        fitted_RJ = np.einsum("rjk,rk->rj", columns_RJK, w)
        gradient = 1.0 - np.einsum("rjk,rj->rk", columns_RJK, shares_J / fitted_RJ)
        gap = (w * z).sum(axis=1)
        going = (gap > GAP) | (np.abs(gradient - z).max(axis=1) > 1e-6)
        found_RK[at] = w
        if not going.any():
            break
        # A solved row leaves: its vanishing slacks would only make the next systems singular.
        at, w, z, columns_RJK = at[going], w[going], z[going], columns_RJK[going]
        mu = 0.1 * gap[going, None] / size
        dw = _newton(columns_RJK, fitted_RJ[going] ** 2 / shares_J, z / w, mu / w - gradient[going])
        dz = (mu - z * dw) / w - z
        w = w + _step(w, dw) * dw
        z = z + _step(z, dz) * dz
    found_RK /= found_RK.sum(axis=1, keepdims=True)
    return found_RK


def _newton(columns_RJK: Floats, flatness_RJ: Floats, diagonal_RK: Floats, right_RK: Floats) -> Floats:
    """Solve (C' F^-1 C + D) x = b for each row, F and D diagonal, in the smaller of the two dimensions."""
    cells, size = columns_RJK.shape[1:]
    if cells >= size:
        full = (columns_RJK / flatness_RJ[:, :, None]).transpose(0, 2, 1) @ columns_RJK
        full[:, np.arange(size), np.arange(size)] += diagonal_RK
        return np.asarray(np.linalg.solve(full, right_RK[:, :, None])[:, :, 0], dtype=np.float64)
    scaled_RJK = columns_RJK / diagonal_RK[:, None, :]
    small = scaled_RJK @ columns_RJK.transpose(0, 2, 1)
    small[:, np.arange(cells), np.arange(cells)] += flatness_RJ
    start = right_RK / diagonal_RK
    inner = np.linalg.solve(small, np.einsum("rjk,rk->rj", columns_RJK, start)[:, :, None])[:, :, 0]
    solution: Floats = start - np.einsum("rjk,rj->rk", scaled_RJK, inner)
    return solution


def _step(values: Floats, change: Floats) -> Floats:
    """The longest step up to 1 that keeps every value positive, shape (R, 1)."""
    with np.errstate(divide="ignore"):
        longest = np.where(change < 0, -values / np.minimum(change, -1e-300), np.inf).min(axis=1)
    step: Floats = np.minimum(1.0, 0.99 * longest)[:, None]
    return step


def _log_likelihood(mix_RK: Floats, like: Floats, shares_J: Floats) -> Floats:
    value: Floats = np.log(mix_RK @ like.T) @ shares_J
    return value


def _high_ends(like: Floats, shares_J: Floats, upwards_FK: Floats, top: float, allowed: float) -> Floats:
    """The value of each functional where the log-likelihood per problem has dropped by `allowed`."""
    count = len(upwards_FK)
    low, high = np.full(count, np.log(1e-5)), np.full(count, np.log(10.0))
    root = np.sqrt(allowed)
    for _ in range(2):
        log_rate = np.linspace(low, high, PRICES, axis=1)
        value, drop = _frontier(like, shares_J, upwards_FK, log_rate, top)
        beyond = drop >= root
        after = np.where(beyond.any(axis=1), beyond.argmax(axis=1), PRICES - 1)
        before = np.maximum(after - 1, 0)
        rows = np.arange(count)
        low, high = log_rate[rows, before], log_rate[rows, after]
    d0, d1 = drop[rows, before], drop[rows, after]
    share = np.clip((root - d0) / np.maximum(d1 - d0, 1e-300), 0.0, 1.0)
    reached: Floats = value[rows, before] * (1.0 - share) + value[rows, after] * share
    return reached


def _frontier(
    like: Floats, shares_J: Floats, upwards_FK: Floats, log_rate_FP: Floats, top: float
) -> tuple[Floats, Floats]:
    """Value and root of the drop in log-likelihood, both (F, P), at prices t = (1 - exp(-rate)) / max h."""
    count, prices = log_rate_FP.shape
    priced = -np.expm1(-np.exp(log_rate_FP))
    relative = upwards_FK / np.maximum(upwards_FK.max(axis=1, keepdims=True), 1e-300)
    cost_RK = (1.0 - priced[:, :, None] * relative[:, None, :]).reshape(count * prices, -1)
    tilted = maximise(like[None] / cost_RK[:, None, :], shares_J) / cost_RK
    mix_RK = tilted / tilted.sum(axis=1, keepdims=True)
    value = (mix_RK * np.repeat(upwards_FK, prices, axis=0)).sum(axis=1).reshape(count, prices)
    drop = np.sqrt(np.maximum(top - _log_likelihood(mix_RK, like, shares_J), 0.0)).reshape(count, prices)
    return value, drop
