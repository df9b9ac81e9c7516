"""The audit: what share of groups would teach nothing, for each set of problems and each group size, with intervals.

Everything here works on the small table of cells (see `cells`), so that a hundred million rollouts cost one pass. The
intervals are percentiles over bootstrap samples of problems, the fit repeated for each: with the fitted distribution
held fixed they would be far too narrow. They speak of problems like these, not only of these.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import polars as pl

from tossup.curriculum import estimate
from tossup.curriculum.cells import CellTable, cell_table, fold
from tossup.curriculum.estimate import Floats
from tossup.curriculum.rollouts import Rollouts
from tossup.records import TossupError

BOUNDED_SETS = 40
"""Above so many sets only the whole gets bounds: a linear programme of 4 ms for each end of each share."""

LEVEL = 0.9
REPLICATES = 400
"""Bootstrap samples behind an interval; fewer, but never under 100, where very many distinct (n, c) make each costly."""

KINDS = ("wasted", "all_correct", "all_wrong")


@dataclass(frozen=True, slots=True)
class Share:
    """An estimated share of groups with its interval, and the bounds that n answers a problem leave open, if any."""

    value: float
    low: float
    high: float
    bounds: tuple[float, float] | None = None


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
    few = folded.select(labels).n_unique() <= BOUNDED_SETS
    sets = [
        audit_set(dict(zip(labels, map(str, key), strict=True)), part, rollouts, sizes, bounds=few)
        for key, part in folded.group_by(*labels, maintain_order=True)
        if part["n"].max() != 0
    ]
    return sets, audit_set({}, folded, rollouts, sizes)


def audit_set(
    labels: dict[str, str],
    part: pl.DataFrame,
    rollouts: Rollouts,
    group_sizes: Sequence[int],
    *,
    bounds: bool = True,
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
        expected=tuple(_expected(table, group_sizes, bounds=bounds)),
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


def _expected(table: CellTable, group_sizes: Sequence[int], *, bounds: bool) -> list[Expected]:
    """Row 0 of everything is the estimate; the rows below it are the bootstrap samples, refitted."""
    cells = table.cells
    needs_fit = bool((cells.n < max(group_sizes)).any())
    cost = 4.0 * len(cells.n) * estimate.GRID_SIZE * estimate.em_steps(float(table.weights.sum()))
    replicates = int(np.clip(2e10 / cost, 100, REPLICATES)) if needs_fit else REPLICATES
    weights_RJ = np.vstack([table.weights, table.resampled(replicates)])
    mix_RK = cells.fit(weights_RJ) if needs_fit else None
    typical = _median(cells.n, table.weights) if bounds else None
    return [_expected_at(table, size, weights_RJ, mix_RK, typical) for size in group_sizes]


def _expected_at(
    table: CellTable, size: int, weights_RJ: Floats, mix_RK: Floats | None, typical: int | None
) -> Expected:
    """`typical` is the usual number of answers a problem, for the bounds; None leaves the bounds out."""
    cells = table.cells
    right, wrong = cells.values(size, mix_RK)
    per_cell = {"wasted": right + wrong, "all_correct": right, "all_wrong": wrong}
    open_ends: dict[str, tuple[float, float] | None] = dict.fromkeys(KINDS)
    if mix_RK is not None and typical is not None and size > 2 * typical:
        chance_right, chance_wrong = estimate.uniform_share(estimate.grid(), size)
        chances = {"wasted": chance_right + chance_wrong, "all_correct": chance_right, "all_wrong": chance_wrong}
        open_ends = {kind: estimate.bounds(typical, mix_RK[0], chance) for kind, chance in chances.items()}
    shares = {
        kind: _share((weights_RJ * v).sum(axis=1) / weights_RJ.sum(axis=1), open_ends[kind])
        for kind, v in per_cell.items()
    }
    enough = cells.n >= size
    tokens = float(right[0] @ table.tokens_right + wrong[0] @ table.tokens_wrong)
    return Expected(
        group_size=size,
        method="unbiased" if enough.all() else "mixed" if enough.any() else "fitted",
        wasted=shares["wasted"],
        all_correct=shares["all_correct"],
        all_wrong=shares["all_wrong"],
        wasted_tokens=tokens / float(table.tokens_all.sum()) if table.has_tokens else None,
    )


def _share(values_R: Floats, open_ends: tuple[float, float] | None) -> Share:
    value = float(values_R[0])
    tail = (1.0 - LEVEL) / 2.0
    low, high = np.quantile(values_R[1:], [tail, 1.0 - tail])
    return Share(value, min(float(low), value), max(float(high), value), open_ends)


def _median(values: estimate.Ints, weights: Floats) -> int:
    order = np.argsort(values, kind="stable")
    reached = np.cumsum(weights[order]) >= weights.sum() / 2.0
    return int(values[order][np.argmax(reached)])
