"""The figures of the page: folds over the ledger, no row passing through Python.

Everything but the tokens by fate and the reasons is computed from one table with a row a group (see `groups`).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl

from tossup.curriculum.estimate import Floats, Ints
from tossup.records import Fate

KINDS = ("mixed", "all_correct", "all_wrong", "too_few")
"""What a group can be: it teaches, every decided answer is right, every one is wrong, fewer than two are decided."""

FATES = [fate.value for fate in Fate]

BARS = 60
"""Bars of a chart over time, at most."""

ARM_BARS = 12
ARM_GROUPS = 10
"""A bar of the comparison with the control arm covers at least so many uniform groups on average."""

Z = 1.645
"""Of a two-sided 90 % interval."""


def groups(rows: pl.LazyFrame) -> pl.DataFrame:
    """One row a group in the order of time: n decided answers, c of them right, tokens, what kind of group it is."""
    n, c = pl.col("n"), pl.col("c")
    kind = (
        pl.when(n < 2)
        .then(pl.lit("too_few"))
        .when(c == n)
        .then(pl.lit("all_correct"))
        .when(c == 0)
        .then(pl.lit("all_wrong"))
        .otherwise(pl.lit("mixed"))
    )
    first = [pl.col(name).first() for name in ("dataset", "problem", "drawn_by")]
    return (
        rows.group_by("step", "group")
        .agg(
            *first,
            answers=pl.len().cast(pl.Int64),
            n=pl.col("reward").count().cast(pl.Int64),
            c=pl.col("reward").sum().cast(pl.Int64),
            tokens=pl.col("response_tokens").sum(),
            cut=(pl.col("stop") == "length").sum().cast(pl.Int64),
        )
        .with_columns(kind=kind, wasted=(n < 2) | (c == n) | (c == 0))
        .collect(engine="streaming")
        .sort("step", "group")
    )


def of_problems(table: pl.DataFrame) -> pl.DataFrame:
    """The groups of each problem as one: for a job that asked again because it was undecided, while the policy stood still.

    Columns as of `groups`, of which step and group are those of the first.
    """
    sums = [pl.col(x).sum() for x in ("answers", "n", "c", "tokens", "cut")]
    same = [pl.col(x).first() for x in table.columns if x not in ("problem", "answers", "n", "c", "tokens", "cut")]
    return table.group_by("problem", maintain_order=True).agg(*same, *sums).select(table.columns)


def width_of_bars(first: int, last: int, bars: int) -> int:
    """How many steps a bar covers so that `bars` of them reach from the first to the last step."""
    return max(1, -(-(last - first + 1) // max(1, bars)))


def tokens_by_fate(rows: pl.LazyFrame, first: int, width: int) -> pl.DataFrame:
    """Generated tokens by bar (its first and last step) and fate, with each fate's share of the bar."""
    bar = (pl.col("step") - first) // width * width + first
    return (
        rows.group_by(bar.alias("step"), "fate")
        .agg(tokens=pl.col("response_tokens").sum())
        .with_columns(
            until=pl.col("step") + width - 1,
            share=(pl.col("tokens") / pl.col("tokens").sum().over("step")).fill_nan(0.0),
            order=pl.col("fate").replace_strict(FATES, range(len(FATES)), default=len(FATES), return_dtype=pl.Int64),
        )
        .collect(engine="streaming")
        .sort("step", "order")
    )


def arms(table: pl.DataFrame) -> pl.DataFrame:
    """The wasted share of the groups that were drawn uniformly and of those that the curriculum chose, by bar.

    Columns: arm, step, until, middle, groups, wasted, and a 90 % Wilson interval low to high.
    """
    uniform = int((table["drawn_by"] == "uniform").sum())
    first, last = _span(table)
    width = width_of_bars(first, last, min(ARM_BARS, uniform // ARM_GROUPS))
    bar = (pl.col("step") - first) // width * width + first
    arm = pl.when(pl.col("drawn_by") == "uniform").then(pl.lit("uniform")).otherwise(pl.lit("curriculum"))
    counted = (
        table.group_by(arm.alias("arm"), bar.alias("step"))
        .agg(groups=pl.len().cast(pl.Int64), hits=pl.col("wasted").sum().cast(pl.Int64))
        .sort("arm", "step")
    )
    low, high = wilson(counted["hits"].to_numpy(), counted["groups"].to_numpy())
    return counted.with_columns(
        until=pl.min_horizontal(pl.col("step") + width - 1, pl.lit(last)),
        wasted=pl.col("hits") / pl.col("groups"),
        low=pl.Series(low),
        high=pl.Series(high),
    ).with_columns(middle=(pl.col("step") + pl.col("until")) / 2)


def wilson(hits: Ints, n: Ints) -> tuple[Floats, Floats]:
    """The 90 % score interval of a share (Wilson 1927); 0 to 1 where n is 0."""
    total = np.maximum(n, 1)
    share = hits / total
    scale = 1 + Z**2 / total
    middle = (share + Z**2 / (2 * total)) / scale
    half = Z * np.sqrt(share * (1 - share) / total + Z**2 / (4 * total**2)) / scale
    return np.where(n > 0, np.maximum(middle - half, 0), 0.0), np.where(n > 0, np.minimum(middle + half, 1), 1.0)


@dataclass(frozen=True, slots=True)
class ThenNow:
    """How many problems had which success rate: columns `when`, `rate` (the label of a bin), `order`, `problems`."""

    bins: pl.DataFrame
    problems: int
    mean_then: float | None
    mean_now: float


def then_and_now(table: pl.DataFrame, before: pl.DataFrame | None = None) -> ThenNow:
    """Each problem's rate in its first and its last group; in a job that saw each once, `before` (id, n, c) is the then.

    Only problems with two visits are counted when there are any, so that both histograms are of the same problems.
    """
    seen = table.filter(pl.col("n") > 0)
    visits = seen.group_by("problem", maintain_order=True).agg(
        pl.len().alias("visits"),
        *(pl.col(x).first().alias(f"{x}0") for x in ("n", "c")),
        *(pl.col(x).last().alias(f"{x}1") for x in ("n", "c")),
    )
    twice = visits.filter(pl.col("visits") > 1)
    if twice.is_empty() and before is not None:
        known = before.filter(pl.col("n") > 0).select(problem="id", n0="n", c0="c")
        twice = visits.drop("n0", "c0").join(known, on="problem", how="inner")
    pairs = visits if twice.is_empty() else twice
    parts = [_binned(pairs, "1", "now")]
    if not twice.is_empty():
        parts.insert(0, _binned(pairs, "0", "then"))
    return ThenNow(
        pl.concat(parts),
        pairs.height,
        None if twice.is_empty() else _mean_rate(pairs, "0"),
        _mean_rate(pairs, "1"),
    )


def _mean_rate(pairs: pl.DataFrame, which: str) -> float:
    return float((pairs[f"c{which}"] / pairs[f"n{which}"]).mean() or 0.0)  # type: ignore[arg-type]


def _binned(pairs: pl.DataFrame, which: str, when: str) -> pl.DataFrame:
    """Bins k/n where every group has the same small n; else never, always, and tenths between."""
    n, c = pl.col(f"n{which}"), pl.col(f"c{which}")
    sizes = {*pairs["n0"], *pairs["n1"]} if "n0" in pairs.columns else {*pairs["n1"]}
    if len(sizes) == 1 and (size := sizes.pop()) <= 16:
        labels = [f"{k}/{size}" for k in range(size + 1)]
        order = c
    else:
        labels = ["never", *(f"{k}0–{k + 1}0 %" if k else "0–10 %" for k in range(10)), "always"]
        order = pl.when(c == 0).then(0).when(c == n).then(11).otherwise(1 + (c * 10 // n).clip(0, 9))
    counts = pairs.group_by(order.cast(pl.Int64).alias("order")).agg(problems=pl.len().cast(pl.Int64))
    every = pl.DataFrame({"order": range(len(labels)), "rate": labels}, schema_overrides={"order": pl.Int64})
    return every.join(counts, on="order", how="left", maintain_order="left").select(
        pl.lit(when).alias("when"), "rate", "order", pl.col("problems").fill_null(0)
    )


def datasets(table: pl.DataFrame) -> pl.DataFrame:
    """One row a dataset, largest first; shares are over groups, `undecided` over answers, `lost` over tokens."""
    kinds = [(pl.col("kind") == kind).mean().alias(kind) for kind in KINDS]
    return (
        table.group_by("dataset")
        .agg(
            *kinds,
            problems=pl.col("problem").n_unique(),
            groups=pl.len(),
            answers=pl.col("answers").sum(),
            rate=pl.col("c").sum() / pl.col("n").sum(),
            wasted=pl.col("wasted").mean(),
            undecided=1 - pl.col("n").sum() / pl.col("answers").sum(),
            tokens=pl.col("tokens").sum(),
            lost=pl.col("tokens").filter(pl.col("wasted")).sum() / pl.col("tokens").sum(),
        )
        .with_columns(pl.col("rate", "lost").fill_nan(None))
        .sort("groups", "dataset", descending=[True, False])
    )


def moved(table: pl.DataFrame, limit: int) -> pl.DataFrame:
    """The problems whose rate moved most between the earlier and the later half of their visits, by the evidence for it.

    `z` is the two-sample score of the halves with half an answer added to each side; positive where it is solved more.
    """
    half = pl.col("visit") < pl.col("visits") // 2
    late = pl.col("visit") >= (pl.col("visits") + 1) // 2
    sums = [pl.col(x).filter(rule).sum().alias(f"{x}{i}") for i, rule in enumerate((half, late)) for x in ("n", "c")]
    found = (
        table.filter(pl.col("n") > 0)
        .with_columns(visit=pl.int_range(pl.len()).over("problem"), visits=pl.len().over("problem"))
        .filter(pl.col("visits") > 1)
        .group_by("problem", maintain_order=True)
        .agg(
            pl.col("dataset").first(),
            pl.col("visits").first(),
            *sums,
            right=pl.col("c"),
            size=pl.col("n"),
            step=pl.col("step").last(),
            group=pl.col("group").last(),
        )
    )
    p0, p1 = ((pl.col(f"c{i}") + 0.5) / (pl.col(f"n{i}") + 1) for i in (0, 1))
    spread = (p0 * (1 - p0) / (pl.col("n0") + 1) + p1 * (1 - p1) / (pl.col("n1") + 1)).sqrt()
    return (
        found.with_columns(then=pl.col("c0") / pl.col("n0"), now=pl.col("c1") / pl.col("n1"), z=(p1 - p0) / spread)
        .filter(pl.col("then") != pl.col("now"))
        .sort(pl.col("z").abs(), "problem", descending=[True, False])
        .head(limit)
    )


def _span(table: pl.DataFrame) -> tuple[int, int]:
    return int(table["step"].min() or 0), int(table["step"].max() or 0)  # type: ignore[arg-type]
