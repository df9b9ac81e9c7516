"""The ledger: one row a rollout, with what became of its tokens. Counts, audit and report are folds over it.

A folder of Parquet parts, one a step, named `step-00000012.parquet`; with `keep_text` a parallel part
`text-00000012.parquet` holds the responses, so that folds never read them. A part is written beside its place and
renamed over it, so a killed writer leaves whole parts only. Appending the same step again replaces it: a resumed run
re-writes the step that it repeats and drops with `truncate` those that its checkpoint has not seen.

`sample` numbers the rollouts of a group from 0; `reward` is null for an undecided rollout; times are wall seconds.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import polars as pl

from tossup.curriculum import atomic
from tossup.records import Fate, Group, Rollout, TossupError

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
        self._unflushed: list[Path] = []
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as e:
            raise TossupError(f"{self.folder}: cannot be made a ledger's folder ({e.strerror})") from e

    def append(self, step: int, entries: Sequence[Entry], flush: bool = True) -> None:
        """Write the part of this step, whole or not at all, in place of any earlier part of the same step.

        Without `flush` a power cut may take the part with it until `flush()` is called, which is far cheaper for several.

        Raises:
            ValueError: a group comes with another number of fates than rollouts, or a rollout has no verdict.
            TossupError: the disk refused; the ledger is as it was.
        """
        rows = [
            _row(self.run, step, group, at, rollout, fate)
            for group, fates in entries
            for at, (rollout, fate) in enumerate(_paired(group, fates))
        ]
        if self.keep_text:
            texts = [
                (
                    self.run,
                    step,
                    group.id,
                    group.problem.id,
                    at,
                    r.text,
                    r.verdict.answer if r.verdict is not None else None,
                )
                for group, _ in entries
                for at, r in enumerate(group.rollouts)
            ]
            # Text first: a part whose rows are there always has its text.
            with atomic.replacing(self._part("text", step), flush) as file:
                pl.DataFrame(texts, schema=TEXT_SCHEMA, orient="row").write_parquet(file)
        with atomic.replacing(self._part("step", step), flush) as file:
            pl.DataFrame(rows, schema=SCHEMA, orient="row").write_parquet(file)
        if not flush:
            self._unflushed += [self._part("step", step)] + [self._part("text", step)] * self.keep_text

    def flush(self) -> None:
        """Bring to the disk what was appended without."""
        atomic.flushed(self._unflushed)
        self._unflushed = []

    def truncate(self, step: int) -> None:
        """Drop the parts of this step and of all later ones, and whatever a killed writer left half-written."""
        for path in self.folder.glob(f"{atomic.TEMPORARY}*"):
            path.unlink()
        for path in [*self.folder.glob("step-*.parquet"), *self.folder.glob("text-*.parquet")]:
            if _step_of(path) >= step:
                path.unlink()

    def steps(self) -> list[int]:
        """The steps that have a part, in order."""
        return sorted(_step_of(path) for path in self.folder.glob("step-*.parquet"))

    def scan(self) -> pl.LazyFrame:
        """All rows, lazily; see `scan_ledger`."""
        return scan_ledger(self.folder)

    def tokens_by_fate(self) -> dict[Fate, int]:
        """Generated tokens per fate, every fate named; their sum is every token that was generated."""
        sums = self.scan().group_by("fate").agg(pl.col("response_tokens").sum()).collect()
        found = dict(sums.iter_rows())
        return {fate: int(found.get(fate.value, 0)) for fate in Fate}

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


def _paired(group: Group, fates: tuple[Fate, ...]) -> list[tuple[Rollout, Fate]]:
    if len(group.rollouts) != len(fates):
        raise ValueError(f"group {group.id} has {len(group.rollouts)} rollouts and {len(fates)} fates")
    return list(zip(group.rollouts, fates, strict=True))


def _row(run: str, step: int, group: Group, at: int, rollout: Rollout, fate: Fate) -> tuple[object, ...]:
    verdict = rollout.verdict
    if verdict is None:
        raise ValueError(f"rollout {at} of group {group.id} has no verdict; judge before entering it")
    return (
        run,
        step,
        group.id,
        group.problem.dataset,
        group.problem.id,
        at,
        verdict.ruling.value,
        verdict.reason,
        verdict.reward if verdict.decided else None,
        len(rollout.response_ids),
        rollout.stop.value,
        rollout.policy_step,
        fate.value,
        rollout.generate_seconds,
        verdict.seconds,
        group.drawn_by,
    )
