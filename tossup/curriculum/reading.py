"""From a source's rows to the frame of a pool: finding the columns, filling what is missing, giving ids."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import polars as pl

from tossup.curriculum import schemas
from tossup.curriculum.sources import as_text, read_table, stem
from tossup.records import Prompt, TossupError, content_id

MESSAGES = pl.List(pl.Struct({"role": pl.String, "content": pl.String}))
"""The type of a `prompt` column that holds chats."""

COUNTS = ("attempts", "correct", "undecided")
MEANS = ("mean_tokens_correct", "mean_tokens_wrong")
LABELS = ("policy", "measured_at")
FIELDS = ("id", "prompt", "reference", "verifier", "dataset", *COUNTS, *MEANS, *LABELS)
"""The columns that every pool frame has, in order; what follows them is meta."""


def read(source: str | Path, mapping: Mapping[str, str]) -> tuple[pl.DataFrame, str]:
    """The frame of a pool and the name of the schema that read it; see `pool.read_pool`."""
    frame = _renamed(read_table(source), mapping, str(source))
    names: dict[str, str] = {}
    for column in frame.columns:
        names.setdefault(column.lower(), column)
    schema = schemas.schema_for(names)
    if schema is None:
        raise _unknown(source, names)
    canonical = schema.name == "tossup" and {"prompt", "reference"} <= set(frame.columns)
    problems = _cast(frame, str(source)) if canonical else _mapped(frame, names, schema, str(source))
    problems = problems.with_columns(
        pl.col("reference").fill_null(""),
        _default(problems, "verifier", schema.verifier),
        _default(problems, "dataset", _dataset_name(source)),
    )
    problems = _with_ids(problems, str(source)).with_columns(_measured(frame, names, str(source)))
    own_id = next((name for name in schemas.IDS if name in names), "id")
    taken = {*FIELDS, *schema.uses, own_id}
    extra = [frame[column] for column in frame.columns if column.lower() not in taken]
    return problems.select(FIELDS).with_columns(extra), schema.name


def _unknown(source: str | Path, names: Mapping[str, str]) -> TossupError:
    """What to say of columns that are those of no known set: which of the two that it takes could not be found."""
    usual = {"prompt": schemas.PROMPTS, "reference": schemas.REFERENCES}
    missing = [field for field, known in usual.items() if not names.keys() & set(known)] or list(usual)
    maps = " ".join(f"--map {field}=COLUMN" for field in missing)
    return TossupError(
        f"{source}: no column is known as its {' or '.join(missing)}; it has {', '.join(names.values())}; name with {maps} "
        f"the one that holds {'it' if len(missing) == 1 else 'each'}"
    )


def _measured(frame: pl.DataFrame, names: Mapping[str, str], source: str) -> list[pl.Series]:
    """The columns of counts, means, policy and time, each empty where the source has none."""
    columns = [_counts(frame, names, name, source) for name in COUNTS]
    empty = pl.Series([None] * frame.height, dtype=pl.String)
    for name in (*MEANS, *LABELS):
        values = frame[names[name]] if name in names else empty
        values = values.cast(pl.Float64, strict=False) if name in MEANS else _as_strings(values).fill_null("")
        columns.append(values.alias(name))
    return columns


def _dataset_name(source: str | Path) -> str:
    if isinstance(source, str) and source.startswith("hf:"):
        return source.removeprefix("hf:").split(":")[0]
    return stem(Path(source))


def _renamed(frame: pl.DataFrame, mapping: Mapping[str, str], source: str) -> pl.DataFrame:
    for field, column in mapping.items():
        if field not in FIELDS:
            raise TossupError(f"--map {field}={column}: a pool has no field {field!r}; it has {', '.join(FIELDS)}")
        if not column:
            frame = frame.drop(field, strict=False)
            continue
        top, *path = column.split(".")
        if top not in frame.columns:
            raise TossupError(f"{source}: no column {top!r} to map to {field}; it has {', '.join(frame.columns)}")
        try:
            value = pl.col(top)
            for key in path:
                value = value.struct.field(key)
            values = frame.select(value.alias(field))[field]
        except pl.exceptions.PolarsError as e:
            raise TossupError(f"{source}: {column!r} reaches into a column that has no such field ({e})") from e
        frame = frame.drop({field, *(() if path else (top,))}, strict=False).with_columns(values)
    return frame


def _cast(frame: pl.DataFrame, source: str) -> pl.DataFrame:
    """The fields of a pool under our own names; no row is touched in Python, so that a million load fast."""
    prompt = frame["prompt"]
    if prompt.dtype.is_nested():
        prompt = prompt_column([_prompt(value, source, at) for at, value in enumerate(prompt.to_list())])
    else:
        prompt = prompt.cast(pl.String).fill_null("")
    fields = {"prompt": prompt, "reference": _as_strings(frame["reference"])}
    for name in ("id", "verifier", "dataset"):
        if name in frame.columns:
            fields[name] = _as_strings(frame[name])
    return pl.DataFrame([series.alias(name) for name, series in fields.items()])


def _prompt(value: Any, source: str, row: int) -> Prompt:
    """A prompt from a row, or an error that says where it stands."""
    try:
        return schemas.messages(value)
    except TossupError as e:
        raise _misread(e, source, row) from e


def _misread(error: TossupError, source: str, row: int) -> TossupError:
    return TossupError(f"{source} row {row + 1}: {error}")


def _as_strings(series: pl.Series) -> pl.Series:
    if series.dtype.is_nested():
        return pl.Series(series.name, [as_text(v) for v in series.to_list()], dtype=pl.String)
    return series.cast(pl.String)


def _mapped(frame: pl.DataFrame, names: Mapping[str, str], schema: schemas.Schema, source: str) -> pl.DataFrame:
    lower = frame.select(pl.col(column).alias(name) for name, column in names.items())
    prompts, references, datasets = [], [], []
    for at, row in enumerate(lower.iter_rows(named=True)):
        try:
            prompts.append(schema.prompt(row))
            references.append(schema.reference(row))
            datasets.append(schema.dataset(row))
        except TossupError as e:
            raise _misread(e, source, at) from e
        except (KeyError, TypeError, ValueError, AttributeError) as e:
            raise TossupError(f"{source} row {at + 1}: not a row of {schema.name} ({type(e).__name__}: {e})") from e
    fields = [
        prompt_column(prompts),
        pl.Series("reference", references),
        pl.Series("dataset", datasets, dtype=pl.String),
    ]
    own = next((name for name in schemas.IDS if name in names), None)
    if own is not None:
        fields.append(_as_strings(lower[own]).alias("id"))
    if "verifier" in names:
        fields.append(_as_strings(lower["verifier"]).alias("verifier"))
    return pl.DataFrame(fields)


def prompt_column(prompts: Sequence[Prompt]) -> pl.Series:
    """Text if all are text; else all as chats, a text becoming one user message."""
    if all(isinstance(p, str) for p in prompts):
        return pl.Series("prompt", prompts, dtype=pl.String)
    chats = [[{"role": "user", "content": p}] if isinstance(p, str) else [dict(m) for m in p] for p in prompts]
    return pl.Series("prompt", chats, dtype=MESSAGES)


def _default(frame: pl.DataFrame, name: str, value: str) -> pl.Expr:
    if name not in frame.columns:
        return pl.lit(value).alias(name)
    return pl.when(pl.col(name).fill_null("") == "").then(pl.lit(value)).otherwise(pl.col(name)).alias(name)


def _counts(frame: pl.DataFrame, names: Mapping[str, str], name: str, source: str) -> pl.Series:
    if name not in names:
        return pl.Series(name, [0] * frame.height, dtype=pl.Int64)
    column = frame[names[name]]
    if column.dtype.is_nested():
        raise TossupError(
            f"{source}: {name!r} holds {column.dtype}, a pool holds a count; this looks like rollouts (tossup audit "
            f"reads them), or ignore the column with --map {name}="
        )
    numbers = column.cast(pl.Int64, strict=False)
    if numbers.null_count() != column.null_count():
        raise TossupError(f"{source}: {name!r} holds values that are no counts; ignore the column with --map {name}=")
    return numbers.fill_null(0).alias(name)


def _with_ids(frame: pl.DataFrame, source: str) -> pl.DataFrame:
    given = frame["id"] if "id" in frame.columns else pl.Series("id", [None] * frame.height, dtype=pl.String)
    if given.null_count() == 0:
        ids = given
    else:
        made = (content_id(schemas.messages(p), r) for p, r in frame.select("prompt", "reference").iter_rows())
        ids = pl.Series("id", _numbered(own or new for own, new in zip(given, made, strict=True)))
    twice = ids.filter(ids.is_duplicated()).unique(maintain_order=True)
    if len(twice):
        shown = ", ".join(twice.head(3))
        raise TossupError(
            f"{source}: {len(twice)} ids stand on more than one row ({shown}); counts are kept by id, so name another "
            "column with --map id=COLUMN, or --map id= to have ids made from the content"
        )
    return frame.with_columns(ids)


def _numbered(ids: Iterable[str]) -> list[str]:
    """Made ids of exact copies told apart by their order: the second copy of x is x-2."""
    seen: dict[str, int] = {}
    out = []
    for one in ids:
        seen[one] = seen.get(one, 0) + 1
        out.append(one if seen[one] == 1 else f"{one}-{seen[one]}")
    return out
