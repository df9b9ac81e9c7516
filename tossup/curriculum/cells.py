"""Rollouts folded to cells: how many units of a set have n decided answers and c right ones.

A unit is a group, or a problem where groups are not known. Cells are kept apart by buckets, a hash of the problem, so
that problems can be resampled when the rollouts are long gone: with fewer problems than buckets each bucket is one of
them (but for a few collisions), with more it is a random handful, and the groups of a problem always stay together.

Memory goes with the number of units that are open at once. Where there may be very many, the rollouts are folded in
passes, each over its own buckets: the passes share no unit, so that their tables only need to be put together. A pass
reads the files again, which costs about as much as folding; the first is sized by the number of rows, and those behind
it by how many units it held.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from tossup.curriculum.estimate import Cells, Floats
from tossup.curriculum.rollouts import Rollouts, collected

BUCKETS = 65_536
RESAMPLED = 2_048
"""Buckets that are resampled; with more problems than this, several share one."""

UNITS_A_PASS = 6_000_000
"""Units that are open at once, at about 0.2 GB a million."""

ROWS_A_UNIT = 4
"""How few rows a unit is taken to have before the first pass has told."""


@dataclass(frozen=True, slots=True)
class CellTable:
    """The folded set: `cells` (J), how many units of each bucket are in each (B, J), and token means summed per cell (J).

    `tokens_right` sums, over the units of a cell, the mean length of their right answers; `tokens_all` that of all.
    """

    cells: Cells
    units_BJ: Floats
    tokens_right: Floats
    tokens_wrong: Floats
    tokens_all: Floats
    has_tokens: bool

    @property
    def weights(self) -> Floats:
        """The number of units in each cell."""
        total: Floats = self.units_BJ.sum(axis=0)
        return total

    def resampled(self, replicates: int, seed: int = 0) -> Floats:
        """Cell weights of so many bootstrap samples of the buckets, shape (R, J)."""
        buckets = len(self.units_BJ)
        rng = np.random.default_rng(seed)
        times = rng.multinomial(buckets, np.full(buckets, 1.0 / buckets), size=replicates)
        drawn: Floats = times.astype(np.float64) @ self.units_BJ
        some: Floats = drawn[drawn.sum(axis=1) > 0]
        return some


def fold(rollouts: Rollouts, by: Sequence[str]) -> pl.DataFrame:
    """The table of cells: one row a set, bucket, n and c, sorted, with the number of units and their token sums."""
    parts: list[pl.DataFrame] = []
    done, units = 0, rollouts.rows / ROWS_A_UNIT
    while done < BUCKETS:
        left = BUCKETS - done
        passes = max(1, math.ceil(units * left / BUCKETS / UNITS_A_PASS))
        end = done + math.ceil(left / passes)
        parts.append(_folded(rollouts, by, done, end))
        done = end
        units = sum(int(part["units"].sum()) for part in parts) * BUCKETS / done
    table = pl.concat(parts).sort(*by, "bucket", "n", "c")
    return (
        table
        if rollouts.has_tokens
        else table.with_columns(*(pl.lit(0).alias(name) for name in ("tokens", "mean_right", "mean_wrong", "mean_all")))
    )


def _folded(rollouts: Rollouts, by: Sequence[str], first: int, end: int) -> pl.DataFrame:
    """The cells of the problems in the buckets `first` to `end`."""
    mean = {
        "right": pl.col("tokens_right") / pl.max_horizontal("c", 1),
        "wrong": pl.col("tokens_wrong") / pl.max_horizontal(pl.col("n") - pl.col("c"), 1),
        "all": (pl.col("tokens_right") + pl.col("tokens_wrong")) / pl.max_horizontal("n", 1),
    }
    sums = [pl.col("undecided", "odd").cast(pl.Int64).sum(), (pl.col("low") == pl.col("high")).sum().alias("equal")]
    if rollouts.has_tokens:
        sums += [pl.col("tokens").sum(), *(value.sum().alias(f"mean_{name}") for name, value in mean.items())]
    bucket = (pl.col("problem") % BUCKETS).cast(pl.UInt32)
    units = rollouts.units if end - first >= BUCKETS else rollouts.units.filter(bucket.is_between(first, end - 1))
    cells = units.group_by(*by, bucket.alias("bucket"), "n", "c").agg(pl.len().alias("units"), *sums)
    return collected(cells).with_columns(pl.col(by).cast(pl.String), pl.col("n", "c", "units").cast(pl.Int64))


def cell_table(part: pl.DataFrame, has_tokens: bool) -> CellTable:
    """The arrays of one set, from its rows of `fold`; every row has decided answers."""
    pairs = part.select("n", "c").unique().sort("n", "c").with_row_index("cell")
    rows = part.join(pairs, on=["n", "c"], how="left")
    buckets = rows["bucket"].rank("dense").to_numpy().astype(np.int64) - 1
    buckets = buckets % RESAMPLED if buckets.max() >= RESAMPLED else buckets
    cell = rows["cell"].to_numpy().astype(np.int64)
    shape = (int(buckets.max()) + 1, pairs.height)
    units = rows["units"].to_numpy().astype(np.float64)
    flat = np.bincount(buckets * shape[1] + cell, weights=units, minlength=shape[0] * shape[1])

    def summed(column: str) -> Floats:
        values = rows[column].to_numpy().astype(np.float64)
        return np.bincount(cell, weights=values, minlength=shape[1]).astype(np.float64)

    return CellTable(
        cells=Cells(pairs["n"].to_numpy().astype(np.int64), pairs["c"].to_numpy().astype(np.int64)),
        units_BJ=flat.astype(np.float64).reshape(shape),
        tokens_right=summed("mean_right"),
        tokens_wrong=summed("mean_wrong"),
        tokens_all=summed("mean_all"),
        has_tokens=has_tokens,
    )
