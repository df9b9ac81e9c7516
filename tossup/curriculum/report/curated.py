"""What a curate job left out, and why: the part of its page that the ledger alone does not hold."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import polars as pl

from tossup.curriculum.dropped import COLUMNS, summary
from tossup.curriculum.report.source import Source
from tossup.records import TossupError

ROWS_OF_REASON = 25
"""Problems of one reason that the page shows."""


@dataclass(frozen=True, slots=True)
class LeftOut:
    """How many problems were `kept` and how many not; `reasons` as in `dropped.summary`, and a spread of `rows` of each."""

    kept: int
    problems: int
    reasons: dict[str, dict[str, Any]]
    rows: list[dict[str, Any]]
    kept_wrongly: float
    dropped_wrongly: float
    undecided: int
    file: str


def left_out(source: Source) -> LeftOut | None:
    """What the job of this page left out; None where it is none of ours, or has not ended.

    Raises:
        TossupError: the list beside its pool is damaged.
    """
    path = source.root.with_name(f"{source.root.name.removesuffix('.curate')}.dropped.jsonl")
    if source.kind != "curate" or "dropped" not in source.summary or not path.is_file():
        return None
    try:
        lines = [json.loads(line) for line in path.read_text(encoding="utf-8").split("\n") if line]
        table = pl.DataFrame(lines, schema=COLUMNS)
    except (ValueError, TypeError, pl.exceptions.PolarsError) as e:
        raise TossupError(f"{path} is damaged ({e}): run the same curate command again, it is written anew") from e
    shown = table.group_by("reason", maintain_order=True).head(ROWS_OF_REASON)
    of = source.summary
    return LeftOut(
        kept=int(of.get("kept", 0)),
        problems=table.height,
        reasons=summary(table),
        rows=shown.to_dicts(),
        kept_wrongly=float(of.get("kept_wrongly", 0.0)),
        dropped_wrongly=float(of.get("dropped_wrongly", 0.0)),
        undecided=int(of.get("undecided_problems", 0)),
        file=path.name,
    )
