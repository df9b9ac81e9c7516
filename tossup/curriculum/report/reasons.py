"""Verifier reasons, counted without the particulars of each answer, and the problems whose key looks wrong.

A wrong key looks exactly like a very hard problem: never solved, every group wasted. What tells them apart is that the
answers to a hard problem scatter, while those to a problem that is solved but mis-keyed agree. That is evidence and no
proof: a trap that every answer falls into agrees as well, so the list is for a person to look at.
"""

from __future__ import annotations

import polars as pl

QUOTED = r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\""
NUMBER = r"[-+]?\d[\d.,/]*"
FOUND = r"^([\w# ]{2,20}: ).+?( equals the reference| is not the reference| cannot be read: |: )"
"""The math verifier's reasons: where the answer stood, the answer, what is said of it."""

REASONS = 25
"""Kinds of reasons that the page shows; the rest is counted together."""

MIN_ANSWERS = 4
MIN_AGREEMENT = 0.5
"""Fewer answers, or less agreement among them, say nothing of the key."""


def reasons(rows: pl.LazyFrame) -> pl.DataFrame:
    """Ruling, reason with "…" for quoted text and numbers, number of answers, one reason as it stood; commonest first."""
    reason = pl.col("reason")
    kind = (
        reason.str.replace_all(QUOTED, "…")
        .str.replace(FOUND, "${1}…${2}")
        .str.replace_all(NUMBER, "…")
        .str.replace_all(r"…(\s*…)+", "…")
        .str.slice(0, 120)
    )
    return (
        rows.group_by("ruling", kind.alias("kind"))
        .agg(answers=pl.len().cast(pl.Int64), example=reason.min())
        .collect(engine="streaming")
        .sort("answers", "ruling", "kind", descending=[True, False, False])
    )


def suspects(rows: pl.LazyFrame, texts: pl.LazyFrame, table: pl.DataFrame, limit: int) -> pl.DataFrame:
    """Problems that were never solved though most of their answers agree, the likeliest wrong key first.

    `answer` is the commonest answer, spaces and case aside, `agree` how many of the `n` decided answers gave it, and
    `rate` the success rate of the other problems of its dataset. Ranked by agreement (its lower 90 % bound) times that
    rate: where the model solves nearly everything else, an agreed-on answer is likelier right than the key.
    """
    solved = table.group_by("problem", "dataset").agg(pl.col("n", "c").sum(), pl.col("step", "group").last())
    totals = solved.group_by("dataset").agg(n_all=pl.col("n").sum(), c_all=pl.col("c").sum())
    never = (
        solved.filter((pl.col("c") == 0) & (pl.col("n") >= MIN_ANSWERS))
        .join(totals, on="dataset")
        .with_columns(rate=(pl.col("c_all") / (pl.col("n_all") - pl.col("n"))).fill_nan(0.0))
    )
    key = ["step", "group", "sample"]
    answers = (
        rows.filter(pl.col("ruling") == "wrong")
        .select(*key, "problem")
        .join(never.lazy().select("problem"), on="problem", how="semi")
        .join(texts.select(*key, "answer"), on=key, how="inner")
        .with_columns(plain=pl.col("answer").str.replace_all(r"\s|\$", "").str.to_lowercase())
        .filter(pl.col("plain") != "")
        .group_by("problem", "plain")
        .agg(agree=pl.len().cast(pl.Int64), answer=pl.col("answer").min())
        .sort("agree", "plain", descending=[True, False])
        .group_by("problem", maintain_order=True)
        .first()
        .collect(engine="streaming")
    )
    share = pl.col("agree") / pl.col("n")
    z2 = 1.645**2
    half = (share * (1 - share) * z2 / pl.col("n") + (z2 / (2 * pl.col("n"))) ** 2).sqrt()
    bound = (share + z2 / (2 * pl.col("n")) - half) / (1 + z2 / pl.col("n"))
    return (
        never.join(answers, on="problem")
        .filter(share >= MIN_AGREEMENT)
        .with_columns(agreement=share, score=bound * pl.col("rate"))
        .sort("score", "agreement", "problem", descending=[True, True, False])
        .head(limit)
    )
