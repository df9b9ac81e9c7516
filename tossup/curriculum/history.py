"""Waste over a run: how it changes from visit to visit of the same problem, and how well one visit tells the next.

A visit is one group of a problem, in the order of steps. A wasted group is one with fewer than two decided answers, or
all of them alike. This is what a filter that is fixed at the start never sees.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import polars as pl

from tossup.curriculum.rollouts import Rollouts, collected
from tossup.records import TossupError

LONGEST_STREAK = 6
"""Streaks of this many wasted visits or more are counted together."""


@dataclass(frozen=True, slots=True)
class Window:
    """The groups of visits `first` to `last` (from 1, both included; None: to the end), as shares of `groups`."""

    labels: dict[str, str]
    first: int
    last: int | None
    problems: int
    groups: int
    mean: float
    wasted: float
    all_correct: float
    all_wrong: float


@dataclass(frozen=True, slots=True)
class Persistence:
    """The chance that the next visit is wasted: after a wasted one, after a mixed one, after a streak of wasted ones.

    None where there was no such visit. `after_streak[k]` is that after exactly k, for the longest k after k or more.
    """

    after_wasted: float | None
    after_mixed: float | None
    after_streak: dict[int, float]


def history(
    rollouts: Rollouts, windows: Sequence[tuple[int, int | None]], by: Sequence[str] = ()
) -> tuple[list[Window], Persistence]:
    """Waste in windows of visits, for each set and for all sets together, and its persistence over all.

    Raises:
        TossupError: the sources do not tell which answers were one group, so there are no visits.
    """
    if not rollouts.grouped:
        raise TossupError("visits need groups in time: a `step` or `group` column, or lists of counts a visit")
    n, c = pl.col("n").cast(pl.Int64), pl.col("c").cast(pl.Int64)
    problem = (*rollouts.keys, "problem")
    visits = rollouts.units.select(
        pl.col(rollouts.keys).cast(pl.String),
        "problem",
        "order",
        rate=c / pl.max_horizontal(n, 1),
        all_correct=(n > 1) & (c == n),
        all_wrong=(n > 1) & (c == 0),
        wasted=(n < 2) | (c == n) | (c == 0),
    )
    table = collected(visits).sort(*problem, "order").with_columns(visit=pl.int_range(1, pl.len() + 1).over(problem))
    groupings = ((), tuple(by)) if by else ((),)
    found = [w for first, last in windows for keys in groupings for w in _windows(table, first, last, keys)]
    return found, _persistence(table, problem)


def _windows(table: pl.DataFrame, first: int, last: int | None, keys: tuple[str, ...]) -> list[Window]:
    part = table.filter(pl.col("visit") >= first, pl.col("visit") <= (last or pl.col("visit").max()))
    sums = part.group_by(*(keys or (pl.lit("all").alias("all"),)), maintain_order=True).agg(
        pl.col("problem").n_unique().alias("problems"),
        pl.len().alias("groups"),
        pl.col("rate").mean().alias("mean"),
        pl.col("wasted", "all_correct", "all_wrong").mean(),
    )
    names = ("problems", "groups", "mean", "wasted", "all_correct", "all_wrong")
    return [
        Window({key: row[key] for key in keys}, first, last, **{name: row[name] for name in names})
        for row in sums.iter_rows(named=True)
    ]


def _persistence(table: pl.DataFrame, problem: Sequence[str]) -> Persistence:
    """Streaks count the wasted visits just before: the run length since the last mixed visit of the same problem."""
    mixed_so_far = (~pl.col("wasted")).cum_sum().over(problem).alias("mixed_so_far")
    table = table.with_columns(mixed_so_far, pl.col("wasted").shift(-1).over(problem).alias("next"))
    streak = pl.col("wasted").cum_sum().over(*problem, "mixed_so_far").clip(upper_bound=LONGEST_STREAK)
    table = table.with_columns(streak.alias("streak")).drop_nulls("next")
    by_last = dict(table.group_by("wasted").agg(pl.col("next").mean()).iter_rows())
    by_streak = table.filter("wasted").group_by("streak").agg(pl.col("next").mean()).sort("streak")
    return Persistence(by_last.get(True), by_last.get(False), {int(k): float(v) for k, v in by_streak.iter_rows()})
