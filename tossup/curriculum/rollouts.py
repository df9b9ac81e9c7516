"""Rollouts as anyone wrote them, read into one shape: how many of a problem's answers were judged, and how many are right.

The columns are found by their names and types (see `layout`); `mapping` names them where that fails. Shapes:

    a row a rollout      problem, reward                  most trainers; with `step` or `group` the groups are known
    a row a problem      id, correct: [1, 0, 1]           also scores: [0.5, 1.0]
    a row a set          scores: [[1, 0], [0, 0]]         one inner list a problem
    lists of counts      correct_of_10: [10, 0, 7]        one a problem where there is a list `ids`, else one a visit
    counted problems     attempts, correct                a pool that `curate` wrote

Nested records are opened first (see `foreign`). Folders are a ledger, a run with a ledger in it, or files of one of these
shapes (see `places`). A null reward is an undecided rollout and counts for nothing. Everything stays lazy, for polars'
streaming engine: no row passes through Python.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import polars as pl

from tossup.curriculum import foreign, ledger, places
from tossup.curriculum.criterion import Criterion
from tossup.curriculum.layout import MEAN_TOKENS, Layout, find_layout, inner_type, listed
from tossup.curriculum.sources import suffix
from tossup.records import TossupError

SUMS = ("n", "c", "undecided", "odd")
"""Added up over a unit: decided, right and undecided answers, and rewards that are neither 0 nor 1."""

TOKEN_SUMS = ("tokens", "tokens_right", "tokens_wrong")
"""Generated tokens: of all answers, of the right and of the wrong ones."""

ROW, PLACE = "_row", "_place"
"""Where an answer stood before its list was unrolled."""

PATH_STEP = "_step"
"""The step that the path names."""


@dataclass(frozen=True, slots=True)
class Rollouts:
    """A lazy table of units: groups where groups are known, else problems with all their answers.

    Columns: the keys (categories), `problem` and, if `grouped`, `group` (64-bit hashes) and `order` (the visit or the step),
    the SUMS (32 bits, since there may be very many units), `low` and `high` (the extreme rewards) and, if `has_tokens`,
    the TOKEN_SUMS.

    `rows` counts the rows of Parquet sources, which say it for nothing; those of text are not counted. `read` names what
    was read, with its columns by role; `left_out` the files of a folder that hold no rollouts, with the reason.
    """

    units: pl.LazyFrame
    keys: tuple[str, ...]
    grouped: bool
    has_tokens: bool
    rows: int
    read: tuple[tuple[str, Layout], ...]
    left_out: tuple[str, ...] = ()


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
    rule, left_out, tables = criterion or Criterion(), [], []
    for source in map(Path, sources):
        found, refused = _in_place(source, keys, mapping or {}, rule)
        tables += found
        left_out += refused
    if not tables:
        raise TossupError("no rollouts given: name files or folders")
    grouped = any(table.grouped for table in tables)
    has_tokens = all(table.has_tokens for table in tables)
    sums = [pl.col(name).sum() for name in (*SUMS, *(TOKEN_SUMS if has_tokens else ()))]
    ends = [pl.col("low").min(), pl.col("high").max(), *([pl.col("order").min()] if grouped else [])]
    rows = pl.concat([table.units for table in tables], how="vertical")
    units = rows.group_by(*keys, "problem", *(["group"] if grouped else [])).agg(*sums, *ends)
    return Rollouts(
        units,
        keys,
        grouped,
        has_tokens,
        rows=sum(table.rows for table in tables),
        read=tuple(pair for table in tables for pair in table.read),
        left_out=tuple(left_out),
    )


def collected(table: pl.LazyFrame) -> pl.DataFrame:
    """Run a query over rollouts in the streaming engine.

    Raises:
        TossupError: a row deep in a file is not what its beginning promised, or the file ends in the middle of one.
    """
    try:
        return table.collect(engine="streaming")
    except (pl.exceptions.PolarsError, OSError) as e:
        raise TossupError(f"the rollouts cannot be read to their end: {str(e).splitlines()[0]}") from e


def _in_place(
    path: Path, keys: Sequence[str], mapping: Mapping[str, str], criterion: Criterion
) -> tuple[list[Rollouts], list[str]]:
    """The tables of a file or of a folder, and why files of the folder are none."""
    if not path.exists():
        raise TossupError(f"{path}: no such file or folder")
    if not path.is_dir():
        return [_read(path, keys, mapping, criterion)], []
    if (folder := ledger.ledger_of(path)) is not None:
        return [_table(path, ledger.scan_ledger(folder), keys, mapping, criterion)], []
    found, refused = [], []
    for file in places.files_of(path):
        try:
            found.append(_read(file, keys, mapping, criterion))
        except TossupError as e:
            refused.append(str(e))
    if not found:
        raise TossupError(f"{path}: no file of it can be read as rollouts; the first: {refused[0]}")
    return found, refused


def _read(path: Path, keys: Sequence[str], mapping: Mapping[str, str], criterion: Criterion) -> Rollouts:
    return _table(path, _scan(path), keys, mapping, criterion)


def _table(
    path: Path, frame: pl.LazyFrame, keys: Sequence[str], mapping: Mapping[str, str], criterion: Criterion
) -> Rollouts:
    """One source as rows of units, not yet added up."""
    whole = frame
    try:
        frame, schema = foreign.opened(frame, frame.collect_schema(), [*mapping.values(), *keys])
        rows = whole.select(pl.len()).collect().item() if path.is_dir() or suffix(path) == ".parquet" else 0
    except (pl.exceptions.PolarsError, OSError) as e:
        raise TossupError(f"{path}: cannot be read ({str(e).splitlines()[0]})") from e
    layout = find_layout(schema, mapping, str(path))
    missing = [key for key in keys[2:] if key not in schema]
    if missing:
        raise TossupError(f"{path}: no column {missing[0]!r} to report by; it has {listed(schema)}")
    if layout.step is None and layout.group is None and (step := places.step_of(path)) is not None:
        frame, layout = frame.with_columns(pl.lit(step).alias(PATH_STEP)), replace(layout, step=PATH_STEP)
    frame, unrolled, reward_type = _unrolled(frame, schema, layout, keys)
    sums = _counts(unrolled) if layout.attempts or unrolled.count_of else _judged(unrolled, reward_type, criterion)
    named = {"dataset": path.name if path.is_dir() else places.dataset_of(path)}
    labels = [_label(getattr(unrolled, key, key), named.get(key, "")).alias(key) for key in keys]
    units = frame.select(*labels, *_place(unrolled), *sums)
    return Rollouts(units, tuple(keys), unrolled.grouped, layout.has_tokens, rows, ((str(path), layout),))


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
