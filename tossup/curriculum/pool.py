"""A pool: the problems that one can train on, with what is known of how often they are solved.

On disk a pool is Parquet or JSONL, one problem a row: `id, prompt, reference, verifier, dataset`, once measured also
`attempts, correct, undecided, mean_tokens_correct, mean_tokens_wrong, policy, measured_at`, and any further columns of
the source (level, subject), which become each problem's `meta`. What `curate` writes is what `train` reads, and after a
run `train` writes the counts back.

In memory it is a polars frame with exactly these columns, in this order: unmeasured counts are 0, means null.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import polars as pl

from tossup.curriculum import atomic, reading, schemas
from tossup.curriculum.reading import FIELDS
from tossup.curriculum.sources import suffix
from tossup.records import Problem, TossupError

Ints = npt.NDArray[np.int64]
Counts = Sequence[int] | npt.NDArray[np.integer]
Means = Sequence[float] | npt.NDArray[np.floating]


class Pool:
    """Problems and their counts, by position. Frozen: `with_counts` and `take` return new pools."""

    def __init__(self, frame: pl.DataFrame, schema: str = "tossup") -> None:
        self.frame = frame
        self.schema = schema
        """The name of the schema that read it, for reports."""

    @classmethod
    def of(cls, problems: Sequence[Problem]) -> Pool:
        """A pool, not yet measured, of problems made in memory; their ids must differ. Their meta become columns."""
        names = dict.fromkeys(name for p in problems for name in p.meta)
        columns: dict[str, object] = {
            "id": [p.id for p in problems],
            "prompt": reading.prompt_column([p.prompt for p in problems]),
            "reference": [p.reference for p in problems],
            "verifier": [p.verifier for p in problems],
            "dataset": [p.dataset for p in problems],
        }
        columns |= {name: pl.zeros(len(problems), pl.Int64, eager=True) for name in reading.COUNTS}
        columns |= {name: pl.Series(name, [None] * len(problems), dtype=pl.Float64) for name in reading.MEANS}
        columns |= {name: [""] * len(problems) for name in ("policy", "measured_at")}
        columns |= {name: [p.meta.get(name) for p in problems] for name in names}
        return cls(pl.DataFrame(columns, strict=False))

    def __len__(self) -> int:
        return self.frame.height

    def __getitem__(self, index: int) -> Problem:
        row = self.frame.row(index, named=True)
        meta = {name: row[name] for name in self.extra if row[name] is not None}
        return Problem(
            id=row["id"],
            prompt=schemas.messages(row["prompt"]),
            reference=row["reference"],
            verifier=row["verifier"],
            dataset=row["dataset"],
            meta=meta,
        )

    def __iter__(self) -> Iterator[Problem]:
        return (self[i] for i in range(len(self)))

    @property
    def extra(self) -> tuple[str, ...]:
        """The source's further columns, kept as each problem's meta."""
        return tuple(self.frame.columns[len(FIELDS) :])

    @property
    def ids(self) -> list[str]:
        """The problems' ids, by position."""
        return self.frame["id"].to_list()

    @property
    def attempts(self) -> Ints:
        """Decided rollouts per problem, int64; 0 where unmeasured."""
        return self.frame["attempts"].to_numpy()

    @property
    def correct(self) -> Ints:
        """Correct rollouts per problem, int64; 0 where unmeasured."""
        return self.frame["correct"].to_numpy()

    def with_counts(
        self,
        *,
        attempts: Counts,
        correct: Counts,
        undecided: Counts | None = None,
        mean_tokens_correct: Means | None = None,
        mean_tokens_wrong: Means | None = None,
        policy: str = "",
        measured_at: str = "",
    ) -> Pool:
        """The same problems with these counts in place of the old ones, one value a problem.

        `attempts` counts decided rollouts only, `undecided` the others. Means are in tokens, NaN where there was none.
        `measured_at` is an ISO 8601 time. Raises ValueError on other lengths, or more correct than attempts.
        """
        n = len(self)
        zeros = np.zeros(n, dtype=np.int64)
        nans = np.full(n, np.nan)
        counts = {"attempts": attempts, "correct": correct, "undecided": zeros if undecided is None else undecided}
        means = {
            "mean_tokens_correct": nans if mean_tokens_correct is None else mean_tokens_correct,
            "mean_tokens_wrong": nans if mean_tokens_wrong is None else mean_tokens_wrong,
        }
        for name, values in {**counts, **means}.items():
            if len(values) != n:
                raise ValueError(f"{name} has {len(values)} values for a pool of {n} problems")
        if np.any(np.asarray(correct) > np.asarray(attempts)) or np.any(np.asarray(correct) < 0):
            raise ValueError("correct must lie between 0 and attempts for every problem")
        series = [pl.Series(k, np.asarray(v, dtype=np.int64)) for k, v in counts.items()]
        series += [pl.Series(k, np.asarray(v, dtype=np.float64)).fill_nan(None) for k, v in means.items()]
        labels = [pl.lit(policy).alias("policy"), pl.lit(measured_at).alias("measured_at")]
        return Pool(self.frame.with_columns(*series, *labels), self.schema)

    def take(self, where: Sequence[int] | npt.NDArray[np.integer] | npt.NDArray[np.bool_]) -> Pool:
        """The problems at these positions, in this order; a boolean array keeps those that are true."""
        index = np.asarray(where)
        index = np.flatnonzero(index) if index.dtype == bool else index.astype(np.int64)
        return Pool(self.frame[index], self.schema)

    def write(self, path: str | Path) -> None:
        """Write as Parquet or JSONL, by the suffix; the file appears whole or not at all.

        Raises:
            TossupError: another suffix, or the disk refused (full, not writable); an older file stays as it was.
        """
        path = Path(path)
        kind = suffix(path)
        if kind not in (".parquet", ".jsonl") or path.name.endswith(".gz"):
            raise TossupError(f"{path}: a pool is written as .parquet or .jsonl")
        with atomic.replacing(path) as file:
            if kind == ".parquet":
                self.frame.write_parquet(file)
            else:
                self.frame.write_ndjson(file)


def read_pool(source: str | Path, mapping: Mapping[str, str] | None = None) -> Pool:
    """Read a pool from a file or from `hf:NAME[:CONFIG][:SPLIT]`; `mapping` names the column of a field.

    `{"reference": "answer"}` takes the references from the column `answer` (a dotted name reaches into a struct);
    an empty name ignores whatever column would have been used. See `schemas` for what needs no mapping.

    Raises:
        TossupError: nothing to read, no schema fits (the message lists the columns), counts that are none, ids twice.
    """
    return Pool(*reading.read(source, mapping or {}))
