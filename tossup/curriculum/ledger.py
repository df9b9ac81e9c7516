"""The ledger: one row a rollout, with what became of its tokens. Counts, audit and report are folds over it.

A folder of Parquet parts, one a step, named `step-00000012.parquet`; with `keep_text` a parallel part
`text-00000012.parquet` holds the responses, so that folds never read them. A part is written beside its place and
renamed over it, so a killed writer leaves whole parts only. Appending the same step again replaces it: a resumed run
re-writes the step that it repeats and drops with `truncate` those that its checkpoint has not seen.

A part may be written by a thread while the run goes on (`append_soon`): compressing, writing and flushing leave Python alone,
so they cost the run nothing. One part at most is under way, and `settle` says when it is on the disk. Whoever calls
`append_soon` calls `close` in the end, however it ends: until then the folder is being written.

`sample` numbers the rollouts of a group from 0; `reward` is null for an undecided rollout; times are wall seconds.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import polars as pl

from tossup.curriculum import atomic
from tossup.records import Fate, Group, Rollout, TossupError, Verdict

Entry = tuple[Group, tuple[Fate, ...]]
"""One group with one fate a rollout, in the order of its rollouts."""

SCHEMA = pl.Schema(
    {
        "run": pl.String,
        "step": pl.Int64,
        "group": pl.Int64,
        "dataset": pl.String,
        "problem": pl.String,
        "sample": pl.Int32,
        "ruling": pl.String,
        "reason": pl.String,
        "reward": pl.Float64,
        "response_tokens": pl.Int64,
        "stop": pl.String,
        "policy_step": pl.Int64,
        "fate": pl.String,
        "generate_seconds": pl.Float64,
        "verify_seconds": pl.Float64,
        "drawn_by": pl.String,
    }
)
"""The columns of a part. `drawn_by` is the rule that chose the problem; the uniform draws are a run's control arm."""

TEXT_SCHEMA = pl.Schema(
    {
        "run": pl.String,
        "step": pl.Int64,
        "group": pl.Int64,
        "problem": pl.String,
        "sample": pl.Int32,
        "text": pl.String,
        "answer": pl.String,
    }
)
"""The columns of a text part: the response, and the final answer that the verifier found in it."""


class Ledger:
    """Writes and folds the ledger of one run.

    Raises:
        TossupError: the folder cannot be made or written to.
    """

    def __init__(self, folder: Path, run: str, keep_text: bool = False) -> None:
        self.folder = Path(folder)
        self.run = run
        self.keep_text = keep_text
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="tossup-ledger")
        self._under_way: Future[None] | None = None
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as e:
            raise TossupError(f"{self.folder}: cannot be made a ledger's folder ({e.strerror})") from e

    def append(self, step: int, entries: Sequence[Entry]) -> None:
        """Write the part of this step, whole or not at all, in place of any earlier part of the same step.

        Raises:
            ValueError: a group comes with another number of fates than rollouts, or a rollout has no verdict.
            TossupError: the disk refused; the ledger is as it was.
        """
        frames = self._frames(step, entries)
        self.settle()
        _write(frames)

    def append_soon(self, step: int, entries: Sequence[Entry]) -> None:
        """As `append`, but the part is on the disk only when `settle`, or the next call, has returned.

        Raises:
            ValueError: as in `append`.
            TossupError: the disk refused the part before this one.
        """
        frames = self._frames(step, entries)
        self.settle()
        self._under_way = self._writer.submit(_write, frames)

    def settle(self) -> None:
        """Wait until everything that was appended is on the disk.

        Raises:
            TossupError: the disk refused the last part; the parts before are as they were.
        """
        under_way, self._under_way = self._under_way, None
        if under_way is not None:
            under_way.result()

    def close(self) -> None:
        """Wait for the part under way, but do not ask what became of it: whoever leaves in order has asked `settle`."""
        self._writer.shutdown()

    def truncate(self, step: int) -> None:
        """Drop the parts of this step and of all later ones, and whatever a killed writer left half-written."""
        self.settle()
        for path in self.folder.glob(f"{atomic.TEMPORARY}*"):
            path.unlink()
        for path in [*self.folder.glob("step-*.parquet"), *self.folder.glob("text-*.parquet")]:
            if _step_of(path) >= step:
                path.unlink()

    def steps(self) -> list[int]:
        """The steps that have a part, in order."""
        self.settle()
        return sorted(_step_of(path) for path in self.folder.glob("step-*.parquet"))

    def scan(self) -> pl.LazyFrame:
        """All rows, lazily; see `scan_ledger`."""
        self.settle()
        return scan_ledger(self.folder)

    def tokens_by_fate(self) -> dict[Fate, int]:
        """Generated tokens per fate, every fate named; their sum is every token that was generated."""
        sums = self.scan().group_by("fate").agg(pl.col("response_tokens").sum()).collect()
        found = dict(sums.iter_rows())
        return {fate: int(found.get(fate.value, 0)) for fate in Fate}

    def _frames(self, step: int, entries: Sequence[Entry]) -> dict[Path, pl.DataFrame]:
        """What to write where. Text first: a part whose rows are there always has its text."""
        answers = list(_answers(entries))
        frames = {self._part("text", step): _texts(self.run, step, answers)} if self.keep_text else {}
        return frames | {self._part("step", step): _rows(self.run, step, answers)}

    def _part(self, kind: str, step: int) -> Path:
        return self.folder / f"{kind}-{step:08d}.parquet"


def scan_ledger(folder: str | Path) -> pl.LazyFrame:
    """The rows of every part in the folder, lazily, in the order of steps; no rows for a ledger without parts.

    Raises:
        TossupError: no such folder.
    """
    return _scan(Path(folder), "step", SCHEMA)


def scan_texts(folder: str | Path) -> pl.LazyFrame:
    """The responses of a ledger, lazily, to join on step, group and sample; no rows where none were kept."""
    return _scan(Path(folder), "text", TEXT_SCHEMA)


def ledger_of(folder: Path) -> Path | None:
    """The ledger in a run's folder, or the folder itself where it is one; None where it is neither."""
    return next((place for place in (folder / "ledger", folder) if is_ledger(place)), None)


def is_ledger(folder: Path) -> bool:
    """Whether the folder holds the parts of a ledger."""
    return folder.is_dir() and any(folder.glob("step-*.parquet"))


def _scan(folder: Path, kind: str, schema: pl.Schema) -> pl.LazyFrame:
    if not folder.is_dir():
        raise TossupError(f"{folder}: no such ledger folder")
    parts = sorted(folder.glob(f"{kind}-*.parquet"))
    return pl.scan_parquet(parts, schema=schema, glob=False) if parts else pl.LazyFrame(schema=schema)


def _step_of(path: Path) -> int:
    return int(path.stem.rsplit("-", 1)[1])


class _Answer(NamedTuple):
    """What makes a row; `at` numbers the rollouts of the group."""

    group: Group
    at: int
    rollout: Rollout
    verdict: Verdict
    fate: Fate


def _answers(entries: Sequence[Entry]) -> Iterator[_Answer]:
    for group, fates in entries:
        if len(group.rollouts) != len(fates):
            raise ValueError(f"group {group.id} has {len(group.rollouts)} rollouts and {len(fates)} fates")
        for at, (rollout, fate) in enumerate(zip(group.rollouts, fates, strict=True)):
            if rollout.verdict is None:
                raise ValueError(f"rollout {at} of group {group.id} has no verdict; judge before entering it")
            yield _Answer(group, at, rollout, rollout.verdict, fate)


def _rows(run: str, step: int, answers: Sequence[_Answer]) -> pl.DataFrame:
    columns: dict[str, Sequence[object]] = {
        "dataset": [a.group.problem.dataset for a in answers],
        "ruling": [a.verdict.ruling.value for a in answers],
        "reason": [a.verdict.reason for a in answers],
        "reward": [a.verdict.reward if a.verdict.decided else None for a in answers],
        "response_tokens": [len(a.rollout.response_ids) for a in answers],
        "stop": [a.rollout.stop.value for a in answers],
        "policy_step": [a.rollout.policy_step for a in answers],
        "fate": [a.fate.value for a in answers],
        "generate_seconds": [a.rollout.generate_seconds for a in answers],
        "verify_seconds": [a.verdict.seconds for a in answers],
        "drawn_by": [a.group.drawn_by for a in answers],
    }
    return _frame(SCHEMA, columns | _place(run, step, answers))


def _texts(run: str, step: int, answers: Sequence[_Answer]) -> pl.DataFrame:
    columns: dict[str, Sequence[object]] = {
        "text": [a.rollout.text for a in answers],
        "answer": [a.verdict.answer for a in answers],
    }
    return _frame(TEXT_SCHEMA, columns | _place(run, step, answers))


def _place(run: str, step: int, answers: Sequence[_Answer]) -> dict[str, Sequence[object]]:
    """The columns by which the two kinds of parts join."""
    return {
        "run": [run] * len(answers),
        "step": [step] * len(answers),
        "group": [a.group.id for a in answers],
        "problem": [a.group.problem.id for a in answers],
        "sample": [a.at for a in answers],
    }


def _frame(schema: pl.Schema, columns: Mapping[str, Sequence[object]]) -> pl.DataFrame:
    return pl.DataFrame([pl.Series(name, columns[name], dtype) for name, dtype in schema.items()])


def _write(frames: Mapping[Path, pl.DataFrame]) -> None:
    for path, frame in frames.items():
        with atomic.replacing(path) as file:
            frame.write_parquet(file)
