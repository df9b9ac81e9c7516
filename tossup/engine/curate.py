"""Curating a pool: leave out what is unclean, sample answers to the rest, judge them, keep what the rule asks for.

The data that flows:

    pool ── checks ──> rest ── first look, waves ──> ledger ── counts ──> rule ──> NAME.parquet     kept, with counts
              │                                                            │
              └────────── duplicate, overlap, ... ──────────> NAME.dropped.jsonl <── too easy, too hard, ...

Resumable (see `measure` and `waves`); what is written at the end is a fold over the ledger, and follows from it again
whenever the command is given again, also with another --keep.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from tossup.curriculum import atomic, dropped
from tossup.curriculum.checks import summary
from tossup.curriculum.ledger import Ledger
from tossup.curriculum.pool import Pool
from tossup.curriculum.rule import Calls, Counts, Rule, parse_band, parse_signal
from tossup.engine import inputs
from tossup.engine.cleaning import Cleaned, clean
from tossup.engine.folder import RunFolder, write_atomically
from tossup.engine.measure import Watcher, chunk_size
from tossup.engine.measure_config import CurateConfig
from tossup.engine.metrics import undecided_reasons
from tossup.engine.pools import counts, measured
from tossup.engine.waves import Waves
from tossup.records import TossupError, counted

FEW = 0.01
"""Below this share of toss-ups a pool is as good as useless to the model, and the report says so."""


def rule_of(config: CurateConfig) -> Rule:
    """What the settings ask of a problem.

    Raises:
        TossupError: a band or a signal that is none, a confidence that decides nothing, waves without one.
    """
    rule = Rule(
        parse_band(config.keep) if config.keep else None,
        parse_signal(config.signal) if config.signal else None,
        config.confidence or None,
        config.group_size,
        config.undecided,
    )
    if rule.confidence is not None and rule.confidence <= 0.5:
        raise TossupError(f"--confidence is a probability above 0.5, such as 0.9; got {rule.confidence:g}")
    if rule.confidence is not None and not rule.asks:
        raise TossupError("--confidence says how sure a choice must be: give --keep or --signal, what to choose by")
    if 0 < config.samples_max < config.samples:
        raise TossupError(f"--samples-max {config.samples_max} is less than the first look, --samples {config.samples}")
    if config.samples_max > config.samples and rule.confidence is None:
        raise TossupError(
            "--samples-max goes on where a choice is not sure yet: give --keep or --signal, and --confidence 0.9"
        )
    return rule


def curate(config: CurateConfig, watcher: Watcher) -> dict[str, Any]:
    """Curate `config.pool` under `config.model`, write `config.out` and what was dropped, and return the report.

    Raises:
        TossupError: the pool, the model or the output cannot be used; what was measured stays in the ledger.
    """
    rule = rule_of(config)
    out = Path(config.out)
    if out.suffix not in (".parquet", ".jsonl"):
        raise TossupError(f"--out is a pool, .parquet or .jsonl; got {config.out!r}")
    folder = RunFolder(out.with_name(f"{out.stem}.curate"))
    cleaned = clean(config)
    if cleaned.findings:
        watcher.note(_found(cleaned))
    rest = cleaned.rest
    pool = rest.take(range(min(config.limit, len(rest)))) if config.limit else rest
    with folder.held():
        folder.start_or_resume(config, cleaned.fingerprints | inputs.of_model(config.model))
        ledger = Ledger(folder.ledger, folder.root.name, keep_text=config.save_text)
        first = -(-len(rest) // chunk_size(config))
        waves = Waves(config, pool, first, ledger, folder.root / "wave.json", rule, watcher)
        seconds = waves.sample()
        known = counts(pool, ledger.scan())
        calls = rule.judge(known)
        whole = measured(pool, ledger.scan(), config.model)
        kept = whole.take(calls.keep)
        left_out = dropped.table([*cleaned.dropped.values(), *_unwanted(pool, rule, known, calls, ledger)])
        _write(left_out, out)
        kept.write(out)
        result = report(whole, ledger, config, known) | {
            "kept": len(kept),
            "dropped": dropped.summary(left_out),
            "kept_wrongly": round(calls.kept_wrongly, 6),
            "dropped_wrongly": round(calls.dropped_wrongly, 6),
            "undecided_problems": int((calls.sure == 0).sum()),
            "ended_by": waves.ended_by,
            "pool": str(out),
            "dropped_to": str(_dropped_path(out)),
            "run": str(folder.root),
            "seconds": round(seconds, 3),
        }
        write_atomically(folder.summary, json.dumps(result, ensure_ascii=False, allow_nan=False) + "\n")
        return result


def _found(cleaned: Cleaned) -> str:
    kinds = ", ".join(f"{kind} {number:,}" for kind, number in summary(cleaned.findings).items() if number)
    out = f"; {counted(len(cleaned.dropped), 'problem')} left out for it" if cleaned.dropped else ""
    return f"{counted(len(cleaned.findings), 'finding')} in the pool before sampling (see --check-only): {kinds}{out}"


def _unwanted(pool: Pool, rule: Rule, known: Counts, calls: Calls, ledger: Ledger) -> list[dict[str, Any]]:
    reasons = ledger.scan().filter(pl.col("ruling") == "undecided").group_by("problem").agg(pl.col("reason").first())
    return dropped.unwanted(pool, rule, known, calls, dict(reasons.collect().iter_rows()))


def _dropped_path(out: Path) -> Path:
    return out.with_name(f"{out.stem}.dropped.jsonl")


def _write(left_out: pl.DataFrame, out: Path) -> None:
    """Write why each problem is not in the pool, also when none is missing: an older file would speak of another one."""
    with atomic.replacing(_dropped_path(out)) as file:
        left_out.write_ndjson(file)


def report(measured: Pool, ledger: Ledger, config: CurateConfig, known: Counts) -> dict[str, Any]:
    """What was found: counts over all problems and by dataset, undecided answers by reason, and in words what follows."""
    rates = _first_rates(measured, ledger)
    totals = _counts(measured.frame, rates)
    by_dataset = {
        name: _counts(part.drop("row"), rates[part["row"].to_numpy()])
        for (name,), part in measured.frame.with_row_index("row").group_by("dataset", maintain_order=True)
    }
    most = int(known.answers.max(initial=0))
    return {
        **totals,
        "samples": config.samples,
        "samples_most": most,
        "samples_mean": round(float(known.answers.mean()), 3) if len(known.answers) else 0.0,
        "tokens_generated": sum(ledger.tokens_by_fate().values()),
        "datasets": by_dataset,
        "undecided_reasons": undecided_reasons(ledger.scan()),
        "verdict": _in_words(totals),
    }


def _first_rates(measured: Pool, ledger: Ledger) -> Any:
    """Each problem's rate in the first look, NaN without one: later answers were asked for where the first were mixed."""
    first = counts(measured, ledger.scan().filter(pl.col("drawn_by") == "uniform"))
    return np.divide(first.correct, first.attempts, out=np.full(len(measured), np.nan), where=first.attempts > 0)


def _counts(frame: pl.DataFrame, rates: Any) -> dict[str, Any]:
    judged = frame.filter(pl.col("attempts") > 0)
    rate = judged["correct"] / judged["attempts"]
    known = rates[~np.isnan(rates)]
    return {
        "problems": frame.height,
        "judged": judged.height,
        "mean_rate": round(float(known.mean()), 6) if len(known) else 0.0,
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
            f"The model solved none of {counted(judged, 'problem')}: every group would be all wrong, and nothing in this pool "
            "can train it."
        )
    if totals["always_solved"] == judged:
        return (
            f"The model solved {counted(judged, 'problem')} of {judged:,} every time: every group would be all right, and "
            "nothing in this pool can train it."
        )
    found = (
        f"{totals['toss_ups']:,} of {counted(n, 'problem')} gave both right and wrong answers and can train this model now; "
        f"always solved: {totals['always_solved']:,}, never: {totals['never_solved']:,}."
    )
    few = totals["toss_ups"] < FEW * judged
    return f"Hardly anything here can train this model: {found}" if few else found
