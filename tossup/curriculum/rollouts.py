"""Rollouts as anyone wrote them, read into one shape: how many of a problem's answers were judged, and how many are right.

The columns are found by their names and types (see `layout`); `mapping` names them where that fails. Shapes:

    a row a rollout      problem, reward                  most trainers; with `step` or `group` the groups are known
    a row a problem      id, correct: [1, 0, 1]           also scores: [0.5, 1.0]
    a row a set          scores: [[1, 0], [0, 0]]         one inner list a problem
    lists of counts      correct_of_10: [10, 0, 7]        one a problem where there is a list `ids`, else one a visit
    counted problems     attempts, correct                a pool that `curate` wrote

and folders: a ledger, or a run with a ledger in it. A null reward is an undecided rollout and counts for nothing.
Everything stays lazy, for polars' streaming engine: no row passes through Python.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import polars as pl

from tossup.curriculum import ledger
from tossup.curriculum.criterion import Criterion
from tossup.curriculum.layout import MEAN_TOKENS, Layout, find_layout, inner_type
from tossup.curriculum.sources import stem, suffix
from tossup.records import TossupError

SUMS = ("n", "c", "undecided", "odd")
"""Added up over a unit: decided, right and undecided answers, and rewards that are neither 0 nor 1."""

TOKEN_SUMS = ("tokens", "tokens_right", "tokens_wrong")
"""Generated tokens: of all answers, of the right and of the wrong ones."""

ROW, PLACE = "_row", "_place"
"""Where an answer stood before its list was unrolled."""


@dataclass(frozen=True, slots=True)
class Rollouts:
    """A lazy table of units: groups where groups are known, else problems with all their answers.

    Columns: the keys (categories), `problem` and, if `grouped`, `group` (64-bit hashes) and `order` (the visit or the step),
    the SUMS (32 bits, since there may be very many units), `low` and `high` (the extreme rewards) and, if `has_tokens`,
    the TOKEN_SUMS.
    """

    units: pl.LazyFrame
    keys: tuple[str, ...]
    grouped: bool
    has_tokens: bool


def read_rollouts(
    sources: Sequence[str | Path],
    *,
    by: Sequence[str] = (),
    mapping: Mapping[str, str] | None = None,
    criterion: Criterion | None = None,
) -> Rollouts:
    """Units from files and folders together; `by` names further columns to keep as keys, beside dataset and policy.

    Raises:
        TossupError: a source that cannot be read, or whose problem or reward column cannot be told.
    """
    keys = ("dataset", "policy", *(name for name in by if name not in ("dataset", "policy")))
    tables = [_read(Path(source), keys, mapping or {}, criterion or Criterion()) for source in sources]
    if not tables:
        raise TossupError("no rollouts given: name files or folders")
    grouped = any(table.grouped for table in tables)
    has_tokens = all(table.has_tokens for table in tables)
    sums = [pl.col(name).sum() for name in (*SUMS, *(TOKEN_SUMS if has_tokens else ()))]
    ends = [pl.col("low").min(), pl.col("high").max(), *([pl.col("order").min()] if grouped else [])]
    rows = pl.concat([table.units for table in tables], how="vertical")
    units = rows.group_by(*keys, "problem", *(["group"] if grouped else [])).agg(*sums, *ends)
    return Rollouts(units, keys, grouped, has_tokens)


def collected(table: pl.LazyFrame) -> pl.DataFrame:
    """Run a query over rollouts in the streaming engine.

    Raises:
        TossupError: a row deep in a file is not what its beginning promised, or the file ends in the middle of one.
    """
    try:
        return table.collect(engine="streaming")
    except (pl.exceptions.PolarsError, OSError) as e:
        raise TossupError(f"the rollouts cannot be read to their end: {str(e).splitlines()[0]}") from e


def _read(path: Path, keys: Sequence[str], mapping: Mapping[str, str], criterion: Criterion) -> Rollouts:
    if not path.exists():
        raise TossupError(f"{path}: no such file or folder")
    if path.is_dir():
        folder = path / "ledger" if ledger.is_ledger(path / "ledger") else path
        if not ledger.is_ledger(folder):
            raise TossupError(f"{path}: neither a ledger nor a run (no step-*.parquet in it or in its ledger folder)")
        frame, name = ledger.scan_ledger(folder), path.name
    else:
        frame, name = _scan(path), stem(path)
    try:
        schema = frame.collect_schema()
    except (pl.exceptions.PolarsError, OSError) as e:
        raise TossupError(f"{path}: cannot be read ({str(e).splitlines()[0]})") from e
    layout = find_layout(schema, mapping, str(path))
    missing = [key for key in keys[2:] if key not in schema]
    if missing:
        raise TossupError(f"{path}: no column {missing[0]!r} to report by; it has {', '.join(schema.names())}")
    frame, layout, reward_type = _unrolled(frame, schema, layout, keys)
    sums = _counts(layout) if layout.attempts or layout.count_of else _judged(layout, reward_type, criterion)
    labels = [_label(getattr(layout, key, key), name if key == "dataset" else "").alias(key) for key in keys]
    return Rollouts(frame.select(*labels, *_place(layout), *sums), tuple(keys), layout.grouped, layout.has_tokens)


def _scan(path: Path) -> pl.LazyFrame:
    kind = suffix(path)
    if kind == ".parquet":
        return pl.scan_parquet(path, glob=False)
    if kind in (".jsonl", ".ndjson"):
        return pl.scan_ndjson(path, infer_schema_length=2000)
    if kind == ".csv":
        return pl.scan_csv(path, infer_schema_length=2000)
    raise TossupError(f"{path}: cannot tell the format from {kind or 'no suffix'}; expected .parquet, .jsonl or .csv")


def _unrolled(
    frame: pl.LazyFrame, schema: pl.Schema, layout: Layout, keys: Sequence[str]
) -> tuple[pl.LazyFrame, Layout, pl.DataType]:
    """One row a reward or a count, and the type of those: lists unrolled, with the lists that run beside them."""
    inner = inner_type(schema[layout.reward])
    if inner is None:
        return frame, layout, schema[layout.reward]
    candidates = {*layout.problem, layout.tokens, *keys}
    lists = {name: inner_type(schema[name]) for name in candidates if name is not None and name in schema}
    beside = [name for name, held in lists.items() if held is not None and not held.is_nested()]
    length = pl.col(layout.reward).list.len()
    frame = frame.filter(length > 0).with_row_index(ROW)
    frame = frame.with_columns(pl.int_ranges(0, length).alias(PLACE)).explode(layout.reward, PLACE, *beside)
    ids_beside = bool(set(layout.problem) & set(beside))
    deeper = inner_type(inner)
    if deeper is not None:
        frame = frame.filter(pl.col(layout.reward).list.len() > 0).explode(layout.reward)
    if layout.count_of and not ids_beside:
        layout = replace(layout, step=PLACE, group=None)
    if not layout.problem or (deeper is not None and not ids_beside):
        layout = replace(layout, problem=(ROW,) if deeper is None else (ROW, PLACE))
    return frame, layout, inner if deeper is None else deeper


def _label(column: str | None, default: str) -> pl.Expr:
    text = pl.lit(default) if column is None else pl.col(column).cast(pl.String).fill_null(default)
    return text.cast(pl.Categorical)


def _place(layout: Layout) -> list[pl.Expr]:
    """The problem, the group and the order of a row. A group's number may repeat in the next step, so both count."""
    problem = pl.struct(layout.problem).hash() if len(layout.problem) > 1 else pl.col(layout.problem[0]).hash()
    parts = [name for name in (layout.step, layout.group) if name is not None]
    group = pl.struct(parts).hash() if parts else pl.lit(0, pl.UInt64)
    order = pl.col(layout.step).cast(pl.Int64) if layout.step is not None else pl.lit(0, pl.Int64)
    return [problem.alias("problem"), group.alias("group"), order.alias("order")]


def _counts(layout: Layout) -> list[pl.Expr]:
    """The sums of a row that holds a count already."""
    n = pl.col(layout.attempts) if layout.attempts is not None else pl.lit(layout.count_of)
    c = pl.col(layout.reward)
    counts = {"n": n, "c": c, "undecided": pl.lit(0), "odd": pl.lit(0)}
    ends = {"low": (c == n) & (n > 0), "high": c > 0}
    lengths = [pl.col(name).fill_null(0.0) if layout.mean_tokens else pl.lit(0.0) for name in MEAN_TOKENS]
    right, wrong = lengths[0] * c, lengths[1] * (n - c)
    tokens = zip(TOKEN_SUMS, (right + wrong, right, wrong), strict=True)
    return [
        *(value.cast(pl.UInt32).alias(name) for name, value in counts.items()),
        *(value.cast(pl.Float64).alias(name) for name, value in ends.items()),
        *(value.round().cast(pl.Int64).alias(name) for name, value in tokens),
    ]


def _judged(layout: Layout, dtype: pl.DataType, criterion: Criterion) -> list[pl.Expr]:
    """The sums of a row that holds one reward."""
    known = pl.col(layout.reward).is_not_null()
    right = criterion.right(layout.reward, dtype).fill_null(value=False)
    number = right.cast(pl.Float64) if dtype in (pl.String, pl.Boolean) else pl.col(layout.reward).cast(pl.Float64)
    tokens = pl.col(layout.tokens).fill_null(0) if layout.tokens is not None else pl.lit(0)
    sums = {
        "n": known,
        "c": right,
        "undecided": ~known,
        "odd": (number != 0.0) & (number != 1.0),
        "tokens": tokens,
        "tokens_right": tokens * right,
        "tokens_wrong": tokens * (known & ~right),
    }
    ends = [number.alias("low"), number.alias("high")]
    few = [sums[name].cast(pl.UInt32).alias(name) for name in SUMS]
    return [*few, *ends, *(sums[name].cast(pl.Int64).alias(name) for name in TOKEN_SUMS)]
