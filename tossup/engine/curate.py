"""Measuring a pool: sample answers to every problem, judge them, count, write the pool with its counts.

Resumable (see `measure`); the pool is written last, as a fold over the ledger.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import polars as pl

from tossup.curriculum.ledger import Ledger
from tossup.curriculum.pool import Pool
from tossup.engine.config import CurateConfig
from tossup.engine.folder import RunFolder
from tossup.engine.measure import Watcher, measure, open_inputs
from tossup.engine.metrics import undecided_reasons
from tossup.engine.pools import learned
from tossup.records import TossupError

FEW = 0.01
"""Below this share of toss-ups a pool is as good as useless to the model, and the report says so."""


class Band(NamedTuple):
    """A band of success rates, both ends in it."""

    low: float
    high: float


def parse_band(text: str) -> Band:
    """Read "0.1..0.9".

    Raises:
        TossupError: it is not LOW..HIGH with 0 <= LOW <= HIGH <= 1.
    """
    low, dots, high = text.partition("..")
    try:
        band = Band(float(low), float(high))
    except ValueError:
        band = Band(1.0, 0.0)
    if not dots or not 0 <= band.low <= band.high <= 1:
        raise TossupError(f"a band of success rates is LOW..HIGH between 0 and 1, such as 0.1..0.9; got {text!r}")
    return band


def curate(config: CurateConfig, watcher: Watcher) -> dict[str, Any]:
    """Measure `config.pool` under `config.model`, write `config.out` and return the report.

    Raises:
        TossupError: the pool, the model or the output cannot be used; what was measured stays in the ledger.
    """
    band = parse_band(config.keep) if config.keep else None
    out = Path(config.out)
    if out.suffix not in (".parquet", ".jsonl"):
        raise TossupError(f"--out is a pool, .parquet or .jsonl; got {config.out!r}")
    folder = RunFolder(out.with_name(f"{out.stem}.curate"))
    pool, inputs = open_inputs(config)
    with folder.held():
        folder.start_or_resume(config, inputs)
        ledger = Ledger(folder.ledger, folder.root.name, keep_text=config.save_text)
        seconds = measure(config, pool, ledger, watcher)
        measured = learned(pool, ledger.scan(), config.model)
        kept = measured.take(_in_band(measured, band)) if band else measured
        kept.write(out)
        return report(measured, kept, ledger, config.samples) | {
            "pool": str(out),
            "run": str(folder.root),
            "seconds": round(seconds, 3),
        }


def _in_band(pool: Pool, band: Band) -> list[bool]:
    """Which problems were judged at least once and have a success rate in the band."""
    rate = pl.col("correct") / pl.col("attempts")
    inside = (pl.col("attempts") > 0) & rate.is_between(band.low, band.high)
    return pool.frame.select(inside.fill_null(value=False)).to_series().to_list()


def report(measured: Pool, kept: Pool, ledger: Ledger, samples: int) -> dict[str, Any]:
    """What was found: counts over all problems and by dataset, undecided answers by reason, and in words what follows."""
    totals = _counts(measured.frame)
    by_fate = ledger.tokens_by_fate()
    return {
        **totals,
        "kept": len(kept),
        "samples": samples,
        "tokens_generated": sum(by_fate.values()),
        "datasets": {name: _counts(part) for (name,), part in measured.frame.group_by("dataset", maintain_order=True)},
        "undecided_reasons": undecided_reasons(ledger.scan()),
        "verdict": _in_words(totals),
    }


def _counts(frame: pl.DataFrame) -> dict[str, Any]:
    judged = frame.filter(pl.col("attempts") > 0)
    rate = judged["correct"] / judged["attempts"]
    return {
        "problems": frame.height,
        "judged": judged.height,
        "mean_rate": round(float(rate.mean() or 0.0), 6),  # type: ignore[arg-type]
        "always_solved": int((rate == 1).sum()),
        "never_solved": int((rate == 0).sum()),
        "toss_ups": int(((rate > 0) & (rate < 1)).sum()),
        "undecided_answers": int(frame["undecided"].sum()),
    }


def _in_words(totals: dict[str, Any]) -> str:
    """The report's conclusion, in one sentence."""
    n, judged = totals["problems"], totals["judged"]
    if judged == 0:
        return "No answer could be judged: look at the reasons before anything else."
    if totals["never_solved"] == judged:
        return (
            f"The model solved none of the {judged:,} problems: every group would be all wrong, and nothing in this pool "
            "can train it."
        )
    if totals["always_solved"] == judged:
        return (
            f"The model solved all of the {judged:,} problems every time: every group would be all right, and nothing in "
            "this pool can train it."
        )
    found = (
        f"{totals['toss_ups']:,} of {n:,} problems gave both right and wrong answers and can train this model now; "
        f"{totals['always_solved']:,} were always solved, {totals['never_solved']:,} never."
    )
    few = totals["toss_ups"] < FEW * judged
    return f"Hardly anything here can train this model: {found}" if few else found
