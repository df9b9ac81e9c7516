"""The group scorer as a page: what a group of answers teaches, tried by hand, and the picture of p and G beside it.

The page does its own arithmetic, so that it needs no server. What it says of a pool was computed here, by the audit.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from tossup.curriculum.audit import LEVEL, audit_set
from tossup.curriculum.cells import fold
from tossup.curriculum.pool import read_pool
from tossup.curriculum.report import charts, page
from tossup.curriculum.report.show import legible
from tossup.curriculum.rollouts import read_rollouts
from tossup.records import TossupError

SIZES = range(2, 33)
"""Group sizes that the page can show."""

TABLE_SIZES = (4, 8, 16, 32)
TABLE_RATES = (0.5, 0.7, 0.9, 0.95, 0.99)
"""The table under the picture."""

BARS = 20
"""Bars of the pool's histogram."""

START = {"problem": "What is 23 × 47?", "key": "1081", "answers": ["1081", "1071", "981", "1,081"]}
"""The worked example: rewards 1, 0, 0, 1, so mean 0.5, std 0.5 and advantages +1, -1, -1, +1."""


def html(pool: Path | None = None) -> str:
    """The page as one string, with the success rates of `pool` laid under the curves.

    Raises:
        TossupError: the pool cannot be read, or holds no counts.
    """
    below = None if pool is None else overlay(pool)
    return page.render(
        "lab.html",
        scripts=["lab.js"],
        charts={
            "reward": charts.group_bars("reward"),
            "centred": charts.group_bars("reward − mean"),
            "chance": charts.uniform_chance([] if below is None else below["bars"]),
        },
        data={"start": START, "pool": below},
        title="The group scorer · tossup",
        sizes=(SIZES[0], SIZES[-1]),
        table={p: [p**g + (1 - p) ** g for g in TABLE_SIZES] for p in TABLE_RATES},
        table_sizes=TABLE_SIZES,
        pool=below,
        level=LEVEL,
    )


def overlay(path: Path) -> dict[str, Any]:
    """What the page shows of a pool: a histogram of its rates, and the expected waste at every group size.

    The histogram is of the observed rates, which scatter more than the true ones; the waste is the audit's estimate.
    """
    pool = read_pool(path)
    measured = pool.take(pool.attempts > 0)
    if not len(measured):
        raise TossupError(f"{path}: no problem has counts; measure the pool with `tossup curate` first")
    rollouts = read_rollouts([path])
    audited = audit_set({}, fold(rollouts, ["dataset"]), rollouts, list(SIZES))
    rates = measured.correct / measured.attempts
    counts, edges = np.histogram(rates, bins=BARS, range=(0.0, 1.0))
    return {
        "name": legible(path.name),
        "problems": len(measured),
        "unmeasured": len(pool) - len(measured),
        "mean": float(rates.mean()),
        "bars": [
            {"low": float(low), "high": float(high), "share": float(count) / len(measured)}
            for count, low, high in zip(counts, edges[:-1], edges[1:], strict=True)
        ],
        "waste": {
            str(e.group_size): {"value": e.wasted.value, "low": e.wasted.low, "high": e.wasted.high}
            for e in audited.expected
        },
    }
