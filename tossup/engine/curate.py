"""Measuring a pool: sample answers to every problem, judge them, count, write the pool with its counts.

Problems are taken in the order of the pool, a batch at a time; each batch becomes one part of the ledger, written whole or
not at all. A killed job loses the batch in flight: started again, it skips what the ledger holds and goes on, and since the
seed of a batch is a function of its number, it samples what it would have sampled. The pool is written last, from the ledger.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import polars as pl

from tossup.curriculum.gate import fates
from tossup.curriculum.ledger import Ledger
from tossup.curriculum.pool import Pool
from tossup.engine.config import CurateConfig
from tossup.engine.folder import RunFolder
from tossup.engine.policy import load, set_threads
from tossup.engine.pools import learned, open_pool
from tossup.engine.rollouts import sample_groups, stream
from tossup.records import Fate, Group, TossupError

CURATE_STREAM = 3
"""Keeps the seeds of curate apart from those of training and evaluation."""


class Watcher(Protocol):
    """Whoever looks on."""

    def note(self, text: str) -> None:
        """Something worth a line."""

    def started(self, problems: int, done: int) -> None:
        """So many problems are to be measured, and so many of them were done before."""

    def measured(self, problems: int, tokens: int) -> None:
        """A batch of problems is measured and saved; it took so many generated tokens."""


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
    pool = open_pool(config.pool, config.verifier)
    if config.limit:
        pool = pool.take(range(min(config.limit, len(pool))))
    with folder.held():
        folder.start_or_resume(config)
        ledger = Ledger(folder.ledger, folder.root.name, keep_text=config.save_text)
        seconds = _measure(config, pool, ledger, watcher)
        measured = learned(pool, ledger.scan(), config.model)
        kept = measured.take(_in_band(measured, band)) if band else measured
        kept.write(out)
        return report(measured, kept, ledger, config.samples) | {
            "pool": str(out),
            "run": str(folder.root),
            "seconds": round(seconds, 3),
        }


def _measure(config: CurateConfig, pool: Pool, ledger: Ledger, watcher: Watcher) -> float:
    """Sample what the ledger does not hold yet; returns the seconds that it took."""
    begun = time.perf_counter()
    size = max(1, config.sampling.batch_size // config.samples)
    batches = range(-(-len(pool) // size))
    done = set(ledger.scan().select("problem").unique().collect()["problem"])
    ids = pool.ids
    todo = [b for b in batches if any(i not in done for i in ids[b * size : (b + 1) * size])]
    watcher.started(len(pool), len(pool) - sum(len(ids[b * size : (b + 1) * size]) for b in todo))
    if not todo:
        return 0.0
    policy = load(config.model, config.device, config.dtype)
    set_threads(policy, config.threads)
    for b in todo:
        rows = range(b * size, min(len(pool), (b + 1) * size))
        groups, _ = sample_groups(
            policy,
            [pool[i] for i in rows],
            config.sampling,
            group_size=config.samples,
            seed=stream(config.seed, CURATE_STREAM, b),
            first_id=b * size,
        )
        ledger.append(b, [(group, _measured_fates(group)) for group in groups])
        watcher.measured(len(groups), sum(len(r.response_ids) for g in groups for r in g.rollouts))
    return time.perf_counter() - begun


def _measured_fates(group: Group) -> tuple[Fate, ...]:
    return tuple(Fate.MEASURED if fate is Fate.TRAINED else fate for fate in fates(group))


def _in_band(pool: Pool, band: Band) -> list[bool]:
    """Which problems were judged at least once and have a success rate in the band."""
    rate = pl.col("correct") / pl.col("attempts")
    inside = (pl.col("attempts") > 0) & rate.is_between(band.low, band.high)
    return pool.frame.select(inside.fill_null(value=False)).to_series().to_list()


def report(measured: Pool, kept: Pool, ledger: Ledger, samples: int) -> dict[str, Any]:
    """What was found: counts over all problems and by dataset, undecided answers by reason, and in words what follows."""
    totals = _counts(measured.frame)
    reasons = (
        ledger.scan()
        .filter(pl.col("ruling") == "undecided")
        .group_by("reason")
        .agg(answers=pl.len())
        .sort("answers", descending=True)
        .head(10)
        .collect()
    )
    by_fate = ledger.tokens_by_fate()
    return {
        **totals,
        "kept": len(kept),
        "samples": samples,
        "tokens_generated": sum(by_fate.values()),
        "datasets": {name: _counts(part) for (name,), part in measured.frame.group_by("dataset", maintain_order=True)},
        "undecided_reasons": dict(reasons.iter_rows()),
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
    return (
        f"{totals['toss_ups']:,} of {n:,} problems gave both right and wrong answers and can train this model now; "
        f"{totals['always_solved']:,} were always solved, {totals['never_solved']:,} never."
    )
