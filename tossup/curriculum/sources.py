"""Tables of problems as they lie on a disk or on the Hub, read into one frame, columns untouched.

Local Parquet, JSONL, JSON and CSV, each also gzipped, and `hf:NAME[:CONFIG][:SPLIT]` through the `datasets` package.
JSONL is split on "\\n" only: real files hold U+2028 inside strings, and splitting there breaks a line in two.
CSV is read as text throughout, so that a key of "007" or "1e5" stays what was written.
What is left out: directories of mixed formats, and streaming (a pool fits in memory; for rollouts see `rollouts`).
"""

from __future__ import annotations

import gzip
import io
import json
from collections.abc import Iterable, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import polars as pl

from tossup.records import TossupError

SUFFIXES = (".parquet", ".jsonl", ".ndjson", ".json", ".csv")
"""What `read_table` reads, each also with `.gz` behind it."""

SCALARS: dict[frozenset[type], pl.DataType] = {
    frozenset(): pl.Null(),
    frozenset({bool}): pl.Boolean(),
    frozenset({int}): pl.Int64(),
    frozenset({float}): pl.Float64(),
    frozenset({int, float}): pl.Float64(),
    frozenset({str}): pl.String(),
}

MOST_KEYS = 64
"""Objects with more different keys than this are a mapping, not a record, and stay JSON text."""


def read_table(source: str | Path) -> pl.DataFrame:
    """The rows of a file or of `hf:...`, with the columns of the source.

    Raises:
        TossupError: the file is missing, broken (the message names the line), empty or of another kind.
    """
    if isinstance(source, str) and source.startswith("hf:"):
        return _read_hub(source)
    if not str(source).strip():
        raise TossupError(f"the name of a pool is empty; expected a file ({', '.join(SUFFIXES)}) or hf:NAME")
    path = Path(source)
    if not path.exists():
        raise TossupError(f"{path}: no such file")
    if path.is_dir():
        raise TossupError(f"{path} is a folder; name a file ({', '.join(SUFFIXES)}, or one of them with .gz)")
    kind = suffix(path)
    if kind == ".parquet":
        frame = _read_parquet(path)
    elif kind == ".csv":
        frame = _read_csv(path)
    elif kind == ".json":
        frame = _read_json(path)
    elif kind in (".jsonl", ".ndjson"):
        frame = frame_of_rows(_json_lines(path))
    else:
        raise TossupError(f"{path}: cannot tell the format from {kind or 'no suffix'}; expected {', '.join(SUFFIXES)}")
    if frame.height == 0:
        raise TossupError(f"{path}: no rows; expected one problem or one answer a row")
    return frame


def suffix(path: Path) -> str:
    """The suffix that names the format: that of the name without `.gz`, in lower case."""
    name = path.name.lower().removesuffix(".gz")
    return Path(name).suffix


def stem(path: Path) -> str:
    """The name without folder, `.gz` and format: what a dataset is called that does not say."""
    name = path.name
    for ending in (".gz", *SUFFIXES):
        if name.lower().endswith(ending):
            name = name[: -len(ending)]
    return name


def frame_of_rows(rows: Sequence[dict[str, Any]]) -> pl.DataFrame:
    """A frame from JSON objects whose keys and types may differ; a column of mixed types becomes JSON text.

    Text stays itself in such a column, so an answer column of 7 and "x+1" reads as "7" and "x+1".
    """
    names: dict[str, None] = {}
    for row in rows:
        names.update(dict.fromkeys(row))
    return pl.DataFrame([column_of(name, [row.get(name) for row in rows]) for name in names])


def column_of(name: str, values: list[Any]) -> pl.Series:
    """One column, typed where its values agree and JSON text where they do not."""
    dtype = type_of(values)
    if dtype is not None:
        try:
            return pl.Series(name, values, dtype=dtype, strict=False)
        except (pl.exceptions.PolarsError, TypeError, OverflowError):
            pass  # what polars cannot hold after all, such as integers beyond 64 bits: text keeps it whole
    return pl.Series(name, [as_text(v) for v in values], dtype=pl.String)


def type_of(values: Iterable[Any]) -> pl.DataType | None:
    """The type that holds all of these JSON values whole, at every depth; None where they disagree.

    polars' own inference goes by the first value: later objects lose the keys that it lacks, later numbers their fraction.
    """
    there = [v for v in values if v is not None]
    kinds = {type(v) for v in there}
    if kinds == {list}:
        inner = type_of(chain.from_iterable(there))
        return None if inner is None else pl.List(inner)
    if kinds == {dict}:
        keys = dict.fromkeys(chain.from_iterable(there))
        fields = {key: type_of(v.get(key) for v in there) for key in keys}
        if not keys or len(keys) > MOST_KEYS or None in fields.values():
            return None
        return pl.Struct({key: dtype for key, dtype in fields.items() if dtype is not None})
    whole = 2**53 if float in kinds else 2**63 - 1  # beyond it a double, or 64 bits, cannot hold an integer
    if int in kinds and any(abs(v) > whole for v in there if type(v) is int):
        return None
    return SCALARS.get(frozenset(kinds))


def as_text(value: Any) -> str | None:
    """A value as the text that stands for it: text itself, None for None, JSON for anything else."""
    if value is None or isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False, default=str)


def _open(path: Path) -> io.BufferedIOBase:
    return gzip.open(path, "rb") if path.name.lower().endswith(".gz") else path.open("rb")


def _json_lines(path: Path) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    try:
        with _open(path) as file:
            for number, line in enumerate(file, start=1):  # a binary file iterates over b"\n" and nothing else
                if not line.strip():
                    continue
                try:
                    row = json.loads(line)
                except ValueError as e:
                    raise TossupError(f"{path} line {number}: not JSON ({e}); it starts with {_shown(line)}") from e
                if not isinstance(row, dict):
                    raise TossupError(f"{path} line {number}: expected an object {{...}}, got {_shown(line)}")
                rows.append(row)
    except (OSError, EOFError) as e:
        raise TossupError(f"{path}: cannot be read ({e})") from e
    return rows


def _shown(line: bytes) -> str:
    text = line.decode("utf-8", "replace").strip()
    return repr(text[:60] + ("…" if len(text) > 60 else ""))


def _read_json(path: Path) -> pl.DataFrame:
    try:
        with _open(path) as file:
            value = json.load(file)
    except (OSError, EOFError, ValueError) as e:
        raise TossupError(f"{path}: not JSON ({e}); one object a line needs the name .jsonl") from e
    if not isinstance(value, list) or not all(isinstance(row, dict) for row in value):
        raise TossupError(f"{path}: expected a list of objects, got {type(value).__name__}")
    return frame_of_rows(value)


def _read_parquet(path: Path) -> pl.DataFrame:
    try:
        with _open(path) as file:
            return pl.read_parquet(file.read() if path.name.lower().endswith(".gz") else path)
    except (OSError, EOFError, pl.exceptions.PolarsError) as e:
        raise TossupError(f"{path}: not a readable Parquet file ({e})") from e


def _read_csv(path: Path) -> pl.DataFrame:
    try:
        with _open(path) as file:
            return pl.read_csv(file.read(), infer_schema=False)
    except pl.exceptions.NoDataError:
        return pl.DataFrame()
    except (OSError, EOFError, pl.exceptions.PolarsError) as e:
        raise TossupError(f"{path}: not a readable CSV file ({e})") from e


def _read_hub(source: str) -> pl.DataFrame:
    try:
        import datasets
    except ModuleNotFoundError as e:
        raise TossupError(f"{source} needs the datasets package: pip install 'tossup[hf]'") from e
    name, *rest = source.removeprefix("hf:").split(":")
    if not name or len(rest) > 2 or not all(rest):
        raise TossupError(f"{source}: expected hf:NAME, hf:NAME:SPLIT, hf:NAME:CONFIG or hf:NAME:CONFIG:SPLIT")
    try:
        configs = datasets.get_dataset_config_names(name)
        config, split = _hub_parts(source, rest, configs)
        splits = datasets.get_dataset_split_names(name, config)
        split = split or ("train" if "train" in splits else splits[0])
        if split not in splits:
            raise TossupError(f"{source}: no split {split!r}; {name} has {', '.join(splits)}")
        frame = datasets.load_dataset(name, config, split=split).to_polars()
    except (OSError, ValueError, RuntimeError) as e:
        line = str(e).strip().splitlines()[0] if str(e).strip() else ""
        raise TossupError(
            f"{source}: could not be fetched from the Hub or its cache ({type(e).__name__}: {line}); "
            "check the name and the network, or give a local file"
        ) from e
    if not isinstance(frame, pl.DataFrame) or frame.height == 0:
        raise TossupError(f"{source}: no rows")
    return frame


def _hub_parts(source: str, rest: Sequence[str], configs: Sequence[str]) -> tuple[str, str]:
    """Config and split; a single part is a config if there is one of that name, and else a split."""
    if rest and (len(rest) == 2 or rest[0] in configs):
        if rest[0] not in configs:
            raise TossupError(f"{source}: no config {rest[0]!r}; it has {', '.join(configs)}")
        return rest[0], rest[1] if len(rest) == 2 else ""
    for usual in ("default", "main"):
        if len(configs) > 1 and usual in configs:
            return usual, rest[0] if rest else ""
    if len(configs) != 1:
        raise TossupError(f"{source}: name one of its configs: {', '.join(configs)}")
    return configs[0], rest[0] if rest else ""
