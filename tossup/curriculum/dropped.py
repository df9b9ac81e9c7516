"""Why a problem is not in the pool that `curate` writes: one reason each, with what a person can do about it.

Two sources: what the checks find wrong before anything is sampled (`unclean`), and what the rule says of the counts
(`unwanted`). Both give rows of one table, `COLUMNS`, which becomes NAME.dropped.jsonl beside the pool.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

import numpy as np
import polars as pl

from tossup.curriculum.checks import Finding, Kind
from tossup.curriculum.estimate import Floats
from tossup.curriculum.pool import Pool
from tossup.curriculum.rule import Band, Calls, Counts, Rule

COLUMNS = {
    "id": pl.String,
    "dataset": pl.String,
    "reason": pl.String,
    "why": pl.String,
    "other": pl.String,
    "attempts": pl.Int64,
    "correct": pl.Int64,
    "inside": pl.Float64,
    "signal": pl.Float64,
}
"""`reason` is the kind, `why` says it of this problem, `other` is the id of the copy or of the rival, where there is one.

`inside` is the probability that it is what the rule asks for; it, the counts and the signal are null where nothing was
sampled.
"""

TOO_EASY, TOO_HARD, LITTLE = "too easy", "too hard", "too little signal"
OPEN, UNJUDGED, UNMEASURED = "undecided", "not judged", "not measured"

REMEDIES = {
    Kind.EMPTY_PROMPT.value: "write the prompt",
    Kind.EMPTY_REFERENCE.value: "give it a key",
    Kind.DUPLICATE.value: "nothing: its first copy stays",
    Kind.CONFLICT.value: "mend the key that is wrong, then curate again",
    Kind.LEAK.value: "take the answer out of the prompt",
    Kind.SOLUTION.value: "take the solution out of the prompt",
    Kind.LINK.value: "leave out, or put what the link shows into the prompt",
    Kind.CHOICES.value: "see that the key is what the verifier compares: letter or value",
    Kind.OVERLAP.value: "nothing: what is tested on is not trained on",
    TOO_EASY: "nothing, or widen --keep",
    TOO_HARD: "look at some keys, a wrong one looks the same; or widen --keep",
    LITTLE: "lower --signal, or shorten the answers",
    OPEN: "raise --samples-max, lower --confidence, or --undecided keep",
    UNJUDGED: "see the reasons above: mend the key or the verifier",
    UNMEASURED: "raise --token-budget; the same command goes on",
}
"""Reason -> what to do about it."""

SLUGS = {
    "empty": (Kind.EMPTY_PROMPT, Kind.EMPTY_REFERENCE),
    "leak": (Kind.LEAK,),
    "solution": (Kind.SOLUTION,),
    "link": (Kind.LINK,),
    "choices": (Kind.CHOICES,),
}
"""What `--drop` takes -> kinds of findings."""

TOGETHER = (Kind.DUPLICATE, Kind.CONFLICT)
"""What `--dedupe` drops."""


def unclean(pool: Pool, findings: Iterable[Finding], kinds: Collection[Kind]) -> dict[int, dict[str, Any]]:
    """Position -> row of the table, of every problem that has a finding of these kinds; the first finding counts.

    Of duplicates the first stays. Of one prompt with different references none does: at most one is right, and nothing
    here can tell which.
    """
    ids, datasets = pool.ids, pool.frame["dataset"].to_list()
    found: dict[int, dict[str, Any]] = {}
    for finding in findings:
        if finding.kind not in kinds:
            continue
        for row in finding.rows[1:] if finding.kind is Kind.DUPLICATE else finding.rows:
            other = next((ids[one] for one in finding.rows if one != row), None)
            why = _why(finding, other)
            reason = finding.kind.value
            found.setdefault(row, _row(ids[row], datasets[row], reason, why) | {"other": other})
    return found


def _why(finding: Finding, other: str | None) -> str:
    match finding.kind:
        case Kind.DUPLICATE:
            return f"the same prompt and reference as {other}, which stays"
        case Kind.CONFLICT:
            return f"the same prompt as {other} with another reference: {finding.note}"
        case Kind.OVERLAP:
            return f"its prompt is in the evaluation set {finding.note}"
        case Kind.LEAK:
            return "the prompt gives the reference as the answer"
        case Kind.SOLUTION:
            return "the prompt carries a folded section, as forums use for solutions"
        case Kind.LINK:
            return "the prompt refers to a page or a picture, which a model does not see"
        case Kind.CHOICES:
            return "the prompt lists choices"
        case Kind.EMPTY_PROMPT | Kind.EMPTY_REFERENCE:
            return f"{finding.kind.value.removeprefix('empty ')} is empty"


def _row(id_: str, dataset: str, reason: str, why: str) -> dict[str, Any]:
    return dict.fromkeys(COLUMNS) | {"id": id_, "dataset": dataset, "reason": reason, "why": why}


def unwanted(pool: Pool, rule: Rule, counts: Counts, calls: Calls, unjudged: Mapping[str, str]) -> list[dict[str, Any]]:
    """A row of the table for every problem that the rule does not keep, in the order of the pool.

    `unjudged` says for problems without a judged answer, by id, what the verifier said.
    """
    ids, datasets = pool.ids, pool.frame["dataset"].to_list()
    below, above = _outside(rule, calls)
    found = []
    for row in map(int, np.flatnonzero(~calls.keep)):
        reason, why = _said_by_rule(rule, counts, calls, row, (float(below[row]), float(above[row])))
        if reason == UNJUDGED:
            why = f"none of its {counts.answers[row]} answers could be judged: {unjudged.get(ids[row], 'no reason given')}"
        figures: dict[str, Any] = {"attempts": int(counts.attempts[row]), "correct": int(counts.correct[row])}
        if counts.attempts[row]:
            figures |= {"inside": float(calls.inside[row]), "signal": float(calls.signal[row])}
        found.append(_row(ids[row], datasets[row], reason, why) | figures)
    return found


def _outside(rule: Rule, calls: Calls) -> tuple[Floats, Floats]:
    """How likely each rate is below and above the band; by the observed rate, where the rule goes by that."""
    n, c = calls.posterior.n, calls.posterior.c
    band = rule.band or Band(0.0, 1.0)
    if rule.confidence is None:
        rate = c / np.maximum(n, 1)
        return (rate < band.low).astype(np.float64), (rate > band.high).astype(np.float64)
    low, high, one = (np.full(len(n), edge) for edge in (band.low, band.high, 1.0))
    above = calls.posterior.inside(np.nextafter(high, 2.0), one)
    return 1.0 - calls.posterior.inside(low, one), above


def _said_by_rule(rule: Rule, counts: Counts, calls: Calls, row: int, outside: tuple[float, float]) -> tuple[str, str]:
    """Reason and sentence for one problem; `outside` is how likely its rate is below and above the band."""
    n, c = int(counts.attempts[row]), int(counts.correct[row])
    if counts.answers[row] == 0:
        return UNMEASURED, "the token budget was spent before its turn"
    if n == 0:
        return UNJUDGED, ""
    solved = f"solved {c} of {n}"
    if calls.sure[row] == 0:
        return (
            OPEN,
            f"{solved}: it is what was asked for with probability {calls.inside[row]:.2f}, which settles nothing",
        )
    if rule.band is None or sum(outside) < 0.5:
        length = f"answers of {counts.mean_tokens[row]:,.0f} tokens"
        return LITTLE, f"{solved}, {length}: {calls.signal[row]:.3g} informative groups per 1,000 tokens expected"
    hard = outside[0] > outside[1]
    reason, side, edge = (TOO_HARD, "below", rule.band.low) if hard else (TOO_EASY, "above", rule.band.high)
    if rule.confidence is None:
        return reason, f"{solved}: a rate of {c / n:.2f} is {side} {edge:g}"
    return reason, f"{solved}: its rate is {side} {edge:g} with probability {max(outside):.2f}"


def table(rows: Iterable[Mapping[str, Any]]) -> pl.DataFrame:
    """The rows as a frame with COLUMNS."""
    return pl.DataFrame(list(rows), schema=COLUMNS)


def summary(dropped: pl.DataFrame) -> dict[str, dict[str, Any]]:
    """Reason -> how many problems, up to three of them, and what to do, the commonest reason first."""
    counted = (
        dropped.group_by("reason", maintain_order=True)
        .agg(problems=pl.len(), examples=pl.col("id").head(3))
        .sort("problems", "reason", descending=[True, False])
    )
    return {
        row["reason"]: {"problems": row["problems"], "examples": row["examples"], "remedy": REMEDIES[row["reason"]]}
        for row in counted.iter_rows(named=True)
    }
