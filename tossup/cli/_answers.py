"""Files of answers, as `tossup verify` reads them: one row, one response with what it takes to judge it.

JSON lines are read one by one (split on "\\n" only: real files hold U+2028 inside strings), plain or gzipped; Parquet
and CSV through the pools' reader. The columns go by their usual names, listed in `COLUMNS`.
"""

from __future__ import annotations

import contextlib
import gzip
import io
import json
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tossup.records import Problem, TossupError

COLUMNS = {
    "response": (
        "response", "completion", "output", "generation", "generated_text", "prediction", "pred", "solution", "code", "text"
    ),
    "reference": ("reference", "gold", "ground_truth", "expected_answer", "answer", "target", "expected"),
    "label": ("label", "is_correct", "correct"),
    "id": ("id", "task_id", "problem_id", "problem", "question_id", "unique_id"),
    "verifier": ("verifier",),
    "prompt": ("prompt", "question"),
}  # fmt: skip
"""Field -> the column names that stand for it, first wins. `--map FIELD=COLUMN` overrides."""


@dataclass(frozen=True, slots=True)
class Answer:
    """One row of a file: what to judge, what was known of it (`label`), and the row itself."""

    id: str
    problem: Problem
    response: str
    label: bool | None
    row: Mapping[str, Any]


def parse_mapping(pairs: tuple[str, ...]) -> dict[str, str]:
    """`--map FIELD=COLUMN` options as a dictionary."""
    fields = {}
    for pair in pairs:
        field, equals, column = pair.partition("=")
        if not equals or not field or not column:
            raise TossupError(f"--map {pair!r}: write it as FIELD=COLUMN, e.g. --map response=text")
        fields[field] = column
    return fields


@contextlib.contextmanager
def open_lines(path: Path) -> Iterator[io.BufferedIOBase]:
    """The file's bytes, unzipped where its name ends in .gz; iterating over them splits on b"\\n" alone."""
    if not path.is_file():
        what = "is a folder" if path.is_dir() else "no such file"
        raise TossupError(f"{path}: {what}; give a file of JSON lines, or VERIFIER --reference TEXT RESPONSE")
    try:
        with gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb") as lines:
            yield lines
    except (EOFError, OSError, zlib.error) as e:
        raise TossupError(f"{path}: cannot be read ({e})") from e


def read_rows(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Each row with its place ("FILE line 3") for messages."""
    name = path.name.removesuffix(".gz")
    if name.endswith((".parquet", ".csv")):
        from tossup.curriculum.sources import read_table

        for number, row in enumerate(read_table(path).iter_rows(named=True), 1):
            yield f"{path} row {number}", row
        return
    with open_lines(path) as lines:
        for number, line in enumerate(lines, 1):
            if line.strip():
                yield f"{path} line {number}", json_object(line, f"{path} line {number}")


def json_object(line: bytes, place: str) -> dict[str, Any]:
    """One line as a JSON object."""
    try:
        row = json.loads(line)
    except ValueError as e:
        raise TossupError(f"{place}: not JSON ({e}); expected one object a line, got {line[:60]!r}") from e
    if not isinstance(row, dict):
        raise TossupError(f'{place}: expected an object like {{"response": ..., "reference": ...}}, got {line[:60]!r}')
    return row


def count_rows(path: Path) -> int | None:
    """How many rows there are, for the progress bar; None where only reading the file would tell."""
    if path.name.removesuffix(".gz").endswith((".parquet", ".csv")):
        return None
    with open_lines(path) as lines:
        return sum(1 for line in lines if line.strip())


def column(row: Mapping[str, Any], field: str, fields: Mapping[str, str], taken: str | None = None) -> str | None:
    """The name of the column that holds a field in this row, or None. `taken` is a column with another meaning already."""
    if field in fields:
        return fields[field] if fields[field] in row else None
    return next((name for name in COLUMNS[field] if name in row and name != taken), None)


def needed(row: Mapping[str, Any], field: str, fields: Mapping[str, str], place: str, taken: str | None = None) -> str:
    """Like `column`, for a field that must be there."""
    name = column(row, field, fields, taken)
    if name is None:
        looked = fields.get(field) or ", ".join(COLUMNS[field])
        raise TossupError(
            f"{place}: no column for {field} (looked for {looked}); the row has {', '.join(row)}. "
            f"Name it with --map {field}=COLUMN"
        )
    return name


def text_of(value: Any) -> str:
    """A cell as text: a number as JSON writes it, nothing as "", a chat as what its last message says."""
    if isinstance(value, str):
        return value
    if value is None:
        return ""
    if isinstance(value, list) and value and isinstance(value[-1], Mapping) and "content" in value[-1]:
        return text_of(value[-1]["content"])
    return json.dumps(value, ensure_ascii=False, default=str)


def label_of(value: Any, place: str) -> bool | None:
    """A label as a truth value; None where there is none."""
    known = {"1": True, "true": True, "1.0": True, "0": False, "false": False, "0.0": False, "": None, "null": None}
    text = text_of(value).strip().lower()
    if text not in known:
        raise TossupError(
            f"{place}: a label is true, false, 1 or 0, got {value!r}; name another with --map label=COLUMN"
        )
    return known[text]


def read_answers(path: Path, fields: Mapping[str, str], verifier: str) -> Iterator[Answer]:
    """The rows of a file as answers. Raises TossupError, naming the line, for what cannot be read."""
    unknown = sorted(fields.keys() - COLUMNS.keys())
    if unknown:
        raise TossupError(f"--map {unknown[0]}=...: no such field; there are {', '.join(COLUMNS)}")
    for place, row in read_rows(path):
        response = needed(row, "response", fields, place)
        reference = needed(row, "reference", fields, place, taken=response)
        own = {field: column(row, field, fields) for field in ("id", "verifier", "prompt", "label")}
        named = {field: row[name] for field, name in own.items() if name is not None}
        name = text_of(named.get("id")) or place.rsplit(" ", 1)[1]
        problem = Problem(
            id=name,
            prompt=text_of(named.get("prompt")),
            reference=text_of(row[reference]),
            verifier=text_of(named.get("verifier")) or verifier,
            meta={k: v for k, v in row.items() if k not in {response, reference, *own.values()}},
        )
        yield Answer(name, problem, text_of(row[response]), label_of(named.get("label"), place), row)
