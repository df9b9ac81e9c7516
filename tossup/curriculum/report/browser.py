"""The groups that one can leaf through: a spread over time of each kind, and those that the tables speak of.

A page must stay small whatever the ledger holds, so the number of groups is bounded, and each answer is cut in the middle
where the whole would be too much; the page says so.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import polars as pl

from tossup.curriculum.report.show import legible, name
from tossup.records import Ruling

SHARE_OF_KIND = {"mixed": 100, "all_wrong": 40, "all_correct": 40, "too_few": 30}
"""Groups of each kind on the page, at most, beside those that a table links to."""

TEXT_BUDGET = 3_000_000
ANSWER_LIMITS = (160, 2000)
"""Characters of all answers together, and the least and the most of one answer that the page shows."""

Key = tuple[int, int]
"""Step and group."""


def choose(table: pl.DataFrame, linked: Iterable[Key]) -> pl.DataFrame:
    """The groups to show, in the order of time: an even spread of each kind, and the linked ones."""
    numbered = table.with_row_index("row")
    rows: set[int] = set()
    for kind, most in SHARE_OF_KIND.items():
        of_kind = numbered.filter(pl.col("kind") == kind)["row"].to_numpy()
        spread = np.linspace(0, len(of_kind) - 1, min(most, len(of_kind))).round().astype(int)
        rows.update(of_kind[spread].tolist())
    wanted = pl.DataFrame(sorted(set(linked)), schema={"step": pl.Int64, "group": pl.Int64}, orient="row")
    rows.update(numbered.join(wanted, on=["step", "group"], how="semi")["row"].to_list())
    return numbered.filter(pl.col("row").is_in(sorted(rows))).drop("row")


def cards(
    chosen: pl.DataFrame,
    rows: pl.LazyFrame,
    texts: pl.LazyFrame,
    prompts: Mapping[str, tuple[str, str]],
    *,
    divide: bool,
) -> list[dict[str, Any]]:
    """The chosen groups as the page's scripts read them; `text` is None where the run kept none.

    `divide` says whether advantages are divided by the standard deviation of the group.
    """
    key = ["step", "group"]
    few = chosen.lazy().select(key)
    # By step first: a part of the ledger is one step, and the texts of the others are never read.
    near = pl.col("step").is_in(chosen["step"].unique().to_list())
    answers = (
        rows.filter(near)
        .join(few, on=key, how="semi")
        .join(texts.filter(near).select(*key, "sample", "text", "answer"), on=[*key, "sample"], how="left")
        .sort(*key, "sample")
        .collect(engine="streaming")
    )
    longest = int(np.clip(TEXT_BUDGET // max(1, answers.height), *ANSWER_LIMITS))
    by_group = dict(answers.group_by(*key, maintain_order=True))
    return [
        _card(row, by_group[row["step"], row["group"]], prompts.get(row["problem"]), longest, divide=divide)
        for row in chosen.iter_rows(named=True)
    ]


def advantages(rewards: list[float | None], *, divide: bool) -> tuple[float | None, float | None, list[float | None]]:
    """Mean and population standard deviation of the decided rewards, and each reward's advantage; None where there is none."""
    decided = np.array([r for r in rewards if r is not None])
    if len(decided) < 2:
        return (float(decided.mean()) if len(decided) else None), None, [None] * len(rewards)
    mean, std = float(decided.mean()), float(decided.std())
    scale = std if divide and std > 0 else 1.0
    return mean, std, [None if r is None else (r - mean) / scale for r in rewards]


def _card(
    row: Mapping[str, Any], answers: pl.DataFrame, known: tuple[str, str] | None, longest: int, *, divide: bool
) -> dict[str, Any]:
    mean, std, pushes = advantages(answers["reward"].to_list(), divide=divide)
    return {
        "key": f"{row['step']}-{row['group']}",
        "step": row["step"],
        "kind": row["kind"],
        "dataset": name(row["dataset"]),
        "problem": name(row["problem"]),
        "drawn_by": name(row["drawn_by"]),
        "prompt": None if known is None else legible(known[0], 4 * longest),
        "reference": None if known is None else legible(known[1], longest),
        "mean": mean,
        "std": std,
        "answers": [
            {
                "text": None if a["text"] is None else legible(a["text"], longest),
                "found": None if a["answer"] is None else legible(a["answer"], 200),
                "ruling": Ruling(a["ruling"]).value,
                "reason": legible(a["reason"], 300),
                "advantage": push,
                "tokens": a["response_tokens"],
                "cut": a["stop"] == "length",
                "fate": a["fate"],
            }
            for a, push in zip(answers.iter_rows(named=True), pushes, strict=True)
        ],
    }
