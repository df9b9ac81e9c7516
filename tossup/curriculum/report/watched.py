"""The problems that a run's curriculum set aside, as it listed them in `watched.json` when it ended; see `curriculum.watch`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

KINDS = {
    "parked_hard": (
        "Parked as too hard",
        "Three groups in a row were all wrong. One of these in a data set that the model otherwise solves is a suspected "
        "wrong key.",
    ),
    "stuck": (
        "Stuck",
        "Informative again and again while the rate does not move, as a coin flip is: a suspected noisy key, or a question "
        "that two answers fit.",
    ),
    "unjudged": (
        "Parked as unjudged",
        "Three groups in a row in which fewer than two answers could be judged: look at the verifier's reasons.",
    ),
    "parked_easy": ("Parked as too easy", "Three groups in a row were all right: nothing is left to learn here."),
}
"""The lists by name, those first that a person should look at: title and what it means."""


@dataclass(frozen=True, slots=True)
class Listed:
    """One list: how many problems are on it, and the first of them with what became of their groups.

    Rows hold problem, dataset, n, c (decided and right answers in all), right (of each visit), size, step and group of the
    last visit, and `rest`, the success rate of the rest of the data set.
    """

    title: str
    meaning: str
    problems: int
    rows: Sequence[Mapping[str, Any]]


def lists(watched: Mapping[str, Sequence[str]], table: pl.DataFrame, limit: int) -> list[Listed]:
    """The lists that are not empty, each with `limit` problems at most; `table` has a row a group (`folds.groups`).

    Those parked as too hard come in the order of suspicion: first where the model solves most of the rest of the data set.
    The other lists keep their order.
    """
    visits = (
        table.group_by("problem", "dataset", maintain_order=True)
        .agg(
            pl.col("n", "c").sum(),
            right=pl.col("c"),
            size=pl.col("n"),
            step=pl.col("step").last(),
            group=pl.col("group").last(),
        )
        .with_columns(n_rest=pl.col("n").sum().over("dataset") - pl.col("n"))
        .with_columns(
            rest=pl.when(pl.col("n_rest") > 0).then(
                (pl.col("c").sum().over("dataset") - pl.col("c")) / pl.col("n_rest")
            )
        )
    )
    found = []
    for kind, (title, meaning) in KINDS.items():
        ids = pl.DataFrame({"problem": list(watched.get(kind, ()))}, schema={"problem": pl.String})
        rows = ids.join(visits, on="problem", how="inner", maintain_order="left")
        if kind == "parked_hard":
            rows = rows.sort("rest", descending=True, nulls_last=True, maintain_order=True)
        if ids.height:
            found.append(Listed(title, meaning, ids.height, rows.head(limit).to_dicts()))
    return found
