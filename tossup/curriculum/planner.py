"""What a token budget buys: informative groups per million tokens, by group size and by the band of problems kept.

A group is informative if it is not uniform. Everything is read off the problem's posterior under the fitted distribution
of success rates, never off its own answers alone: keeping the problems that looked mixed and then counting how mixed they
looked would promise too much.

The plan holds the policy still. It says what the next groups are worth, not what training makes of them; `max_visits`
keeps it from recommending a band so narrow that its problems would be seen until they are learnt or worn out. More small
groups always beat fewer large ones by this count, so choose G for the precision of a group's mean and read the plan for
what that choice costs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tossup.curriculum import estimate
from tossup.curriculum.cells import CellTable
from tossup.curriculum.estimate import Floats
from tossup.records import TossupError

Band = tuple[float, float]

BANDS: tuple[Band, ...] = ((0.0, 1.0), (0.05, 0.95), (0.1, 0.9), (0.2, 0.8), (0.3, 0.7))
"""What `auto` tries: success rates, by posterior mean, both ends included."""

REPLICATES = 200
LEVEL = 0.9


@dataclass(frozen=True, slots=True)
class Option:
    """One group size with one band. Counts of groups are expected values under uniform draws from the kept problems.

    `per_million` is informative groups per million generated tokens, with its interval; `informative` and `visits` (of
    each kept problem) are for the whole budget. `gain` is `per_million` over that of the whole pool at the same size.
    """

    group_size: int
    band: Band
    problems: int
    per_million: float
    low: float
    high: float
    informative: float
    visits: float
    gain: float


@dataclass(frozen=True, slots=True)
class Plan:
    """All options, and the best of those whose problems are not visited too often; None if all are.

    `margin` is the best option's `per_million` over the next best at the same group size, and `confidence` the share of
    bootstrap samples in which it is the best there.
    """

    options: tuple[Option, ...]
    best: Option | None
    margin: float
    confidence: float


def plan(
    table: CellTable,
    group_sizes: Sequence[int],
    budget: float,
    *,
    bands: Sequence[Band] = BANDS,
    answer_tokens: float | None = None,
    max_visits: float = 8.0,
) -> Plan:
    """Compare group sizes and bands for a budget in generated tokens.

    Raises:
        TossupError: answer lengths are neither in the rollouts nor given, or no band holds a problem.
    """
    tokens_J = _tokens(table, answer_tokens)
    weights_RJ = np.vstack([table.weights, table.resampled(REPLICATES)])
    mix_RK = table.cells.fit(weights_RJ)
    points = estimate.grid()
    likelihood = estimate.likelihood_JK(table.cells.n, table.cells.c, points)
    total_RJ = mix_RK @ likelihood.T
    rate_J = (mix_RK[0] @ (likelihood * points).T) / total_RJ[0]
    options, rates = [], []
    for size in group_sizes:
        right, wrong = estimate.uniform_share(points, size)
        mixed_RJ = (mix_RK @ (likelihood * (1.0 - right - wrong)).T) / total_RJ
        whole = None
        for band in bands:
            kept = (rate_J >= band[0] - 1e-9) & (rate_J <= band[1] + 1e-9)
            problems = float(table.weights[kept].sum())
            if problems == 0:
                continue
            gained = (weights_RJ * mixed_RJ)[:, kept].sum(axis=1)
            spent = size * (weights_RJ * tokens_J)[:, kept].sum(axis=1)
            rate_R = 1e6 * gained / np.maximum(spent, 1e-300)
            whole = float(rate_R[0]) if whole is None else whole
            options.append(_option(size, band, problems, rate_R, budget, spent[0] / problems, whole))
            rates.append(rate_R)
    if not options:
        raise TossupError("no problem lies in the bands that --keep names")
    return _chosen(options, np.array(rates), max_visits)


def _tokens(table: CellTable, answer_tokens: float | None) -> Floats:
    """Mean tokens of an answer, per cell."""
    if answer_tokens is not None:
        return np.full(len(table.cells.n), float(answer_tokens))
    if not table.has_tokens or table.tokens_all.sum() == 0:
        raise TossupError("a plan needs the length of answers, which these rollouts do not hold: give --answer-tokens")
    mean: Floats = table.tokens_all / np.maximum(table.weights, 1.0)
    return mean


def _option(
    size: int, band: Band, problems: float, rate_R: Floats, budget: float, group_tokens: float, whole: float
) -> Option:
    tail = (1.0 - LEVEL) / 2.0
    value = float(rate_R[0])
    low, high = np.quantile(rate_R[1:], [tail, 1.0 - tail])
    return Option(
        group_size=size,
        band=band,
        problems=round(problems),
        per_million=value,
        low=min(value, float(low)),
        high=max(value, float(high)),
        informative=value * budget / 1e6,
        visits=budget / group_tokens / problems,
        gain=value / whole if whole > 0 else 1.0,
    )


def _chosen(options: list[Option], rates: Floats, max_visits: float) -> Plan:
    allowed = [at for at, one in enumerate(options) if one.visits <= max_visits]
    if not allowed:
        return Plan(tuple(options), None, 0.0, 0.0)
    best = max(allowed, key=lambda at: options[at].per_million)
    rivals = [at for at in allowed if options[at].group_size == options[best].group_size and at != best]
    if not rivals:
        return Plan(tuple(options), options[best], 1.0, 1.0)
    second = max(options[at].per_million for at in rivals)
    ahead = rates[best, 1:] >= rates[rivals, 1:].max(axis=0)
    margin = options[best].per_million / second if second > 0 else 1.0
    return Plan(tuple(options), options[best], margin, float(ahead.mean()))
