"""Records of other tools that are nested, opened into the flat columns that `layout` finds.

    an episode a row    verifiers from 0.2 on, prime-rl: `task` and `traces`, each trace with its named, weighted `rewards`;
                        episodes without traces, and traces of agents that are not trained, are left out
    a trace a row       prime-rl between: the same without the episode around it
    a result a row      verifiers before: flat, but for the `token_usage`; a reward beside an `error` was never earned
    a chat a row        `messages` that end with the answer: what stands before the first answer is the problem

and any field of a struct by a dotted name, as in `--map reward=rewards.correct.score`. Nothing is read but the schema.
"""

from __future__ import annotations

from collections.abc import Collection

import polars as pl

from tossup.curriculum.layout import ROLES, inner_type

Columns = dict[str, pl.Expr]

USUAL_FIELDS = tuple(name for names in ROLES.values() for name in names if "." in name)
"""Nested fields that are looked for without a `--map`."""

PLACES: dict[str, tuple[str, ...]] = {
    "problem": ("task.key", "task.hash", "task.data.id", "task.data.idx", "task.data"),
    "dataset": ("env.name", "env.id", "env_name", "task.type"),
    "policy": ("agent.config.model",),
    "group": ("group.id", "group_id"),
    "step": ("run.work.step", "info.prime_rl.step"),
    "num_tokens": ("num_output_tokens",),
}
"""Where a trace, or the episode around it, keeps what a column of that name would hold."""


def opened(frame: pl.LazyFrame, schema: pl.Schema, dotted: Collection[str]) -> tuple[pl.LazyFrame, pl.Schema]:
    """The table with nested records opened; `dotted` are names that may point into structs. Others pass unchanged."""
    columns = {
        name: found[0]
        for name in (*dotted, *USUAL_FIELDS)
        if name not in schema and (found := field(schema, name)) is not None
    }
    if field(schema, "task") is not None and isinstance(schema.get("traces"), pl.List):
        frame = frame.filter(pl.col("traces").list.len() > 0).explode("traces")
        schema = frame.collect_schema()
    place = next((place for place in ("traces.", "") if _struct(schema, f"{place}rewards") is not None), None)
    if place is not None and _struct(schema, "task") is not None:
        columns = _trace(schema, place) | columns
        if (trained := field(schema, f"{place}agent.trainable")) is not None:
            frame = frame.filter(trained[0].fill_null(value=True))
    if {"example_id", "reward", "error", "is_completed"} <= set(schema):
        columns["reward"] = pl.when(pl.col("error").is_null()).then(pl.col("reward"))
    if isinstance(inner_type(schema.get("messages")), pl.Struct) and "prompt" not in schema:
        columns["prompt"] = _question()
    if not columns:
        return frame, schema
    frame = frame.with_columns(**columns)
    return frame, frame.collect_schema()


def field(schema: pl.Schema, dotted: str) -> tuple[pl.Expr, pl.DataType] | None:
    """The column, or the field of a struct, that a dotted name points to, with its type; None where there is none."""
    first, *rest = dotted.split(".")
    if first not in schema:
        return None
    expression, dtype = pl.col(first), schema[first]
    for name in rest:
        fields = {f.name: f.dtype for f in dtype.fields} if isinstance(dtype, pl.Struct) else {}
        if name not in fields:
            return None
        expression, dtype = expression.struct.field(name), pl.Series(dtype=fields[name]).dtype
    return expression, dtype


def _struct(schema: pl.Schema, dotted: str) -> tuple[pl.Expr, pl.Struct] | None:
    found = field(schema, dotted)
    return (found[0], found[1]) if found is not None and isinstance(found[1], pl.Struct) else None


def _trace(schema: pl.Schema, place: str) -> Columns:
    """The flat columns of a trace at `place`, or of the episode around it."""
    columns = {"reward": _total(schema, place)}
    for role, candidates in PLACES.items():
        found = (field(schema, name) for candidate in candidates for name in (f"{place}{candidate}", candidate))
        if (first := next((f for f in found if f is not None), None)) is not None:
            columns[role] = first[0]
    return columns


def _total(schema: pl.Schema, place: str) -> pl.Expr:
    """The weighted sum of a trace's rewards; null where none was given."""
    found = _struct(schema, f"{place}rewards")
    parts = [] if found is None else [_part(found[0].struct.field(f.name), f.dtype) for f in found[1].fields]
    if not parts:
        return pl.lit(None, pl.Float64)
    return pl.when(pl.any_horizontal([part.is_not_null() for part in parts])).then(pl.sum_horizontal(parts))


def _part(value: pl.Expr, dtype: object) -> pl.Expr:
    """What one named reward adds: a number, or a score with its weight."""
    if not isinstance(dtype, pl.Struct):
        return value.cast(pl.Float64)
    weighed = "weight" in {f.name for f in dtype.fields}
    score = value.struct.field("score")
    return score * value.struct.field("weight").fill_null(1.0) if weighed else score.cast(pl.Float64)


def _question() -> pl.Expr:
    """The messages of a chat before its first answer; all of them where there is none."""
    answers = pl.col("messages").list.eval(pl.element().struct.field("role") == "assistant")
    return pl.when(answers.list.any()).then(pl.col("messages").list.head(answers.list.arg_max())).otherwise("messages")
