"""The audit: what share of groups would teach nothing, for each set of problems and each group size, with intervals.

Everything here works on the small table of cells (see `cells`), so that a hundred million rollouts cost one pass.
Intervals resample problems where every problem has enough answers, and come from the profile likelihood where a model
is needed (see `profile`). Both speak of problems like these, not only of these.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import NormalDist

import numpy as np
import polars as pl

from tossup.curriculum import estimate, profile
from tossup.curriculum.cells import CellTable, cell_table, fold
from tossup.curriculum.estimate import Floats
from tossup.curriculum.rollouts import Rollouts
from tossup.records import TossupError

LEVEL = 0.9
REPLICATES = 400
"""Bootstrap samples behind an interval."""

ALLOWANCE = 1.3528
"""Half the 90 % quantile of chi-square with one degree of freedom: the drop in log-likelihood that an interval allows."""

PROFILE_GRID = 101

KINDS = ("wasted", "all_correct", "all_wrong")


@dataclass(frozen=True, slots=True)
class Share:
    """An estimated share of groups with its interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Expected:
    """What groups of `group_size` would be. `method`: unbiased (every n >= G), fitted (no n >= G) or mixed.

    `wasted_tokens` is the share of generated tokens in uniform groups, None where lengths are not known.
    """

    group_size: int
    method: str
    wasted: Share
    all_correct: Share
    all_wrong: Share
    wasted_tokens: float | None = None


@dataclass(frozen=True, slots=True)
class Observed:
    """What the groups were, as shares of all `groups`; `too_few` had fewer than two decided answers and is wasted too.

    `group_size` is the largest number of decided answers in a group. `tokens` are None where lengths are not known.
    """

    groups: int
    group_size: int
    wasted: float
    all_correct: float
    all_wrong: float
    too_few: float
    tokens: int | None = None
    wasted_tokens: float | None = None


@dataclass(frozen=True, slots=True)
class SetAudit:
    """One set: all units that share their `labels` (dataset, policy, level, ...). `units` have at least one decided answer.

    `mean` is the mean success rate over units. `equal_reward` is the share of units whose rewards are all equal: what
    a trainer that compares raw rewards would call uniform, and different from `observed` where rewards are shaped.
    """

    labels: dict[str, str]
    units: int
    rollouts: int
    undecided: int
    odd_rewards: int
    mean: float
    equal_reward: float
    observed: Observed | None
    expected: tuple[Expected, ...]
    cells: CellTable = field(repr=False, compare=False)


def audit(
    rollouts: Rollouts, group_sizes: Sequence[int] = (4, 8, 16, 32), by: Sequence[str] | None = None
) -> tuple[list[SetAudit], SetAudit]:
    """Audit each set of rollouts that shares its values in the columns `by`, and all of them together.

    Without `by` a set is a dataset, or a dataset under a policy where there are several policies.

    Raises:
        TossupError: group sizes below 2, or no decided rollout at all.
    """
    if not group_sizes or min(group_sizes) < 2:
        raise TossupError(f"group sizes must be at least 2, got {', '.join(map(str, group_sizes)) or 'none'}")
    labels = list(by) if by is not None else ["dataset", "policy"]
    folded = fold(rollouts, labels)
    if by is None and folded["policy"].n_unique() < 2:
        labels = ["dataset"]
    if folded.filter(pl.col("n") > 0).is_empty():
        raise TossupError("no decided rollout in these sources: every reward is null, or there are no rows")
    sizes = sorted(set(group_sizes))
    sets = [
        audit_set(dict(zip(labels, map(str, key), strict=True)), part, rollouts, sizes)
        for key, part in folded.group_by(*labels, maintain_order=True)
        if part["n"].max() != 0
    ]
    return sets, audit_set({}, folded, rollouts, sizes)


def audit_set(
    labels: dict[str, str],
    part: pl.DataFrame,
    rollouts: Rollouts,
    group_sizes: Sequence[int],
) -> SetAudit:
    """Audit the cells of one set; see `audit`."""
    decided = part.filter(pl.col("n") > 0)
    table = cell_table(decided, rollouts.has_tokens)
    weights = table.weights
    units = int(weights.sum())
    rate = table.cells.c / table.cells.n
    several = decided.filter(pl.col("n") > 1)
    return SetAudit(
        labels=labels,
        units=units,
        rollouts=int((part["n"] * part["units"]).sum()),
        undecided=int(part["undecided"].sum()),
        odd_rewards=int(part["odd"].sum()),
        mean=float(weights @ rate / units),
        equal_reward=float(several["equal"].sum()) / max(1, int(several["units"].sum())),
        observed=_observed(part, rollouts.has_tokens) if rollouts.grouped else None,
        expected=tuple(_expected(table, group_sizes, grouped=rollouts.grouped)),
        cells=table,
    )


def _observed(part: pl.DataFrame, has_tokens: bool) -> Observed:
    n, c, units = pl.col("n"), pl.col("c"), pl.col("units")
    enough = n > 1
    kinds = {"all_correct": enough & (c == n), "all_wrong": enough & (c == 0), "too_few": ~enough}
    wasted = pl.any_horizontal(*kinds.values())
    sums = part.select(
        units.sum().alias("groups"),
        n.max().alias("size"),
        pl.col("tokens").sum(),
        pl.col("tokens").filter(wasted).sum().alias("wasted_tokens"),
        *(units.filter(rule).sum().alias(name) for name, rule in {**kinds, "wasted": wasted}.items()),
    ).row(0, named=True)
    groups, tokens = int(sums["groups"]), int(sums["tokens"])
    return Observed(
        groups=groups,
        group_size=int(sums["size"]),
        tokens=tokens if has_tokens else None,
        wasted_tokens=sums["wasted_tokens"] / tokens if has_tokens and tokens else None,
        **{name: int(sums[name]) / groups for name in ("wasted", "all_correct", "all_wrong", "too_few")},
    )


def _expected(table: CellTable, group_sizes: Sequence[int], *, grouped: bool) -> list[Expected]:
    cells = table.cells
    weights_RJ = np.vstack([table.weights, table.resampled(REPLICATES)])
    beyond = [size for size in group_sizes if (cells.n < size).any()]
    mix_RK = cells.fit(table.weights[None]) if beyond else None
    ends = _profiled(table, beyond, ALLOWANCE * (_design_effect(table) if grouped else 1.0)) if beyond else {}
    found = []
    for size in group_sizes:
        right, wrong = cells.values(size, mix_RK)
        per_cell = {"wasted": right + wrong, "all_correct": right, "all_wrong": wrong}
        if size in ends:
            weights = table.weights / table.weights.sum()
            shares = {kind: _covered(float(v[0] @ weights), *ends[size][kind]) for kind, v in per_cell.items()}
        else:
            shares = {
                kind: _resampled((weights_RJ @ v[0]) / weights_RJ.sum(axis=1), len(table.units_BJ))
                for kind, v in per_cell.items()
            }
        enough = cells.n >= size
        every_token = float(table.tokens_all.sum())
        tokens = float(right[0] @ table.tokens_right + wrong[0] @ table.tokens_wrong)
        found.append(
            Expected(
                group_size=size,
                method="unbiased" if enough.all() else "mixed" if enough.any() else "fitted",
                wasted_tokens=tokens / every_token if table.has_tokens and every_token > 0 else None,
                **shares,
            )
        )
    return found


def tail_of(problems: int) -> float:
    """The share of bootstrap samples beyond each end of an interval, a little less than 5 % with few problems.

    Percentiles of a bootstrap are too narrow by about the factor of Student's t over the normal, and of n over n - 1
    (Hesterberg 2015, the expanded percentile interval); the quantile of t is taken to its first correction.
    """
    if problems < 2:
        return 0.0
    normal = NormalDist()
    z = normal.inv_cdf((1.0 + LEVEL) / 2.0)
    t = z + (z**3 + z) / (4.0 * (problems - 1))
    return normal.cdf(-t * math.sqrt(problems / (problems - 1)))


def _resampled(values_R: Floats, problems: int) -> Share:
    """The first value with the percentiles of the others."""
    tail = tail_of(problems)
    low, high = np.quantile(values_R[1:], [tail, 1.0 - tail])
    return _covered(float(values_R[0]), float(low), float(high))


def _covered(value: float, low: float, high: float) -> Share:
    return Share(value, min(low, value), max(high, value))


def _profiled(table: CellTable, sizes: Sequence[int], allowance: float) -> dict[int, dict[str, tuple[float, float]]]:
    """Profile likelihood intervals by group size and kind."""
    points = estimate.grid(PROFILE_GRID)
    cells, share_JI = table.cells.thinned()
    likelihood = estimate.likelihood_JK(cells.n, cells.c, points)
    functionals = []
    for size in sizes:
        right, wrong = estimate.uniform_share(points, size)
        functionals += [right + wrong, right, wrong]
    low, high = profile.interval(likelihood, table.weights @ share_JI, np.array(functionals), allowance)
    ends = list(zip(low.tolist(), high.tolist(), strict=True))
    return {size: dict(zip(KINDS, ends[3 * at : 3 * at + 3], strict=True)) for at, size in enumerate(sizes)}


def _design_effect(table: CellTable) -> float:
    """How much more the mean waste varies than if every group were of another problem: at least 1.

    Groups of one problem resemble each other, so that many visits to few problems say less than their number suggests.
    The likelihood counts them as independent; its allowance is scaled by this ratio of variances.
    """
    size = max(2, int(np.median(table.cells.n)))
    right, wrong = estimate.subset_shares(table.cells.n, table.cells.c, size)
    known = np.isfinite(right)
    weights = table.weights[known]
    if weights.sum() == 0:
        return 1.0
    away = (right + wrong)[known]
    away = away - away @ weights / weights.sum()
    alone = float(weights @ away**2)
    together = float(((table.units_BJ[:, known] @ away) ** 2).sum())
    return max(1.0, together / alone) if alone > 0 else 1.0
