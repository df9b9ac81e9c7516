"""Opening a pool by name, and writing back what a run learned of it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

import numpy as np
import polars as pl

from tossup.curriculum.pool import Pool, read_pool
from tossup.curriculum.rule import Counts
from tossup.engine import arithmetic
from tossup.records import Problem, TossupError

BUILTIN = {"builtin:arithmetic/train": arithmetic.pool, "builtin:arithmetic/heldout": arithmetic.heldout}
"""The pools that ship with tossup, by name."""


def open_pool(source: str, mapping: Sequence[str] = (), verifier: str = "") -> Pool:
    """The pool of this name: built in, a file, or `hf:NAME[:CONFIG][:SPLIT]`; `verifier` overrides the problems' own.

    `mapping` names the columns of fields, as "reference=answer".

    Raises:
        TossupError: there is no such pool, it is empty, or its counts or the mapping make no sense.
    """
    pairs = [text.partition("=") for text in mapping]
    if bad := next((field + sign for field, sign, _ in pairs if not sign), None):
        raise TossupError(f"--map names the column of a field, as reference=answer; got {bad!r}")
    if source in BUILTIN:
        pool = Pool.of(BUILTIN[source]())
    elif source.startswith("builtin:"):
        raise TossupError(f"there is no pool {source!r}; the built-in ones are {', '.join(BUILTIN)}")
    else:
        pool = read_pool(source, {field: column for field, _, column in pairs})
    if len(pool) == 0:
        raise TossupError(f"pool {source} holds no problems")
    wrong_counts = pool.frame.filter(~pl.col("correct").is_between(0, pl.col("attempts")))
    if wrong_counts.height:
        row = wrong_counts.row(0, named=True)
        raise TossupError(
            f"pool {source}: problem {row['id']} has {row['correct']} correct of {row['attempts']} attempts; correct lies "
            "between 0 and attempts (answers that were judged). Mend the counts, or ignore them with "
            "--map attempts= --map correct="
        )
    if verifier:
        pool = Pool(pool.frame.with_columns(pl.lit(verifier).alias("verifier")), pool.schema)
    return pool


def check_prompts(pool: Pool, source: str) -> None:
    """See that there is something to answer in every problem, before one of them stops a run on its way.

    Raises:
        TossupError: a prompt is empty.
    """
    text = pl.col("prompt")
    if pool.frame.schema["prompt"] != pl.String:
        text = text.list.eval(pl.element().struct.field("content")).list.join("")
    empty = pool.frame.filter(text == "")["id"]
    if len(empty):
        raise TossupError(
            f"pool {source}: the prompt of problem {empty[0]} is empty ({len(empty)} such in all): leave them out, as tossup "
            "curate does"
        )


def tags(pool: Pool) -> list[str]:
    """What pools the beliefs of unseen problems: the dataset, with the level where the pool knows one."""
    columns = [pl.col("dataset")] + ([pl.col("level").cast(pl.String).fill_null("")] if "level" in pool.extra else [])
    return pool.frame.select(pl.concat_str(columns, separator="/")).to_series().to_list()


def learned(pool: Pool, ledger: pl.LazyFrame, policy: str) -> Pool:
    """The pool with the counts of each problem's last group in the run.

    Only the last group, since the policy moved; a problem that was never drawn keeps the counts that it had.
    """
    return _with_counts(pool, ledger.filter(pl.col("group") == pl.col("group").max().over("problem")), policy)


def measured(pool: Pool, ledger: pl.LazyFrame, policy: str) -> Pool:
    """The pool with the counts of all answers in the ledger of one policy; a problem without any has no counts."""
    zeros = np.zeros(len(pool), np.int64)
    return _with_counts(pool.with_counts(attempts=zeros, correct=zeros), ledger, policy)


def _with_counts(pool: Pool, ledger: pl.LazyFrame, policy: str) -> Pool:
    fresh = (
        ledger.group_by(pl.col("problem").alias("id"))
        .agg(
            attempts=pl.col("reward").count().cast(pl.Int64),
            correct=pl.col("reward").sum().cast(pl.Int64),
            undecided=pl.col("reward").null_count().cast(pl.Int64),
            mean_tokens_correct=pl.col("response_tokens").filter(pl.col("reward") == 1).mean(),
            mean_tokens_wrong=pl.col("response_tokens").filter(pl.col("reward") == 0).mean(),
            policy=pl.lit(policy),
            measured_at=pl.lit(datetime.now(UTC).isoformat(timespec="seconds")),
        )
        .collect()
    )
    return Pool(pool.frame.update(fresh, on="id", how="left", include_nulls=True), pool.schema)


def counts(pool: Pool, ledger: pl.LazyFrame) -> Counts:
    """What the ledger says of each problem of the pool, by position."""
    fold = ledger.group_by(pl.col("problem").alias("id")).agg(
        answers=pl.len().cast(pl.Int64),
        attempts=pl.col("reward").count().cast(pl.Int64),
        correct=pl.col("reward").sum().cast(pl.Int64),
        mean_tokens=pl.col("response_tokens").mean(),
    )
    ids = pool.frame.lazy().select("id")
    table = ids.join(fold, on="id", how="left", maintain_order="left").fill_null(0).collect()
    answers, attempts, correct, mean_tokens = (table[name].to_numpy() for name in table.columns[1:])
    return Counts(answers, attempts, correct, mean_tokens, tags(pool))


def spread(pool: Pool, n: int) -> list[Problem]:
    """At most `n` problems, evenly spaced, so that every part of an ordered pool is among them."""
    return [pool[int(i)] for i in np.linspace(0, len(pool) - 1, min(n, len(pool)))]
