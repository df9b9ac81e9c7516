"""The run folder: who may write to it, what it was started with, where its files lie.

config.toml      the resolved configuration
inputs.json      fingerprints of the pools and the model that it names, see `inputs`
ledger/          one Parquet part a step
metrics.jsonl    one line a step
checkpoints/     the newest few
pool.parquet     the pool with what the run learned, written at the end
model/           the trained model as a Hugging Face folder, written at the end
best/            the model of the best evaluation, if that was not the start model's; best.json says which it was
summary.json     the result, written last: a run that has it is complete
"""

from __future__ import annotations

import fcntl
import json
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tossup.curriculum import atomic
from tossup.curriculum.ledger import is_ledger
from tossup.engine.config import TrainConfig, conflicts, digest, load, to_toml
from tossup.engine.section import Section
from tossup.records import TossupError, counted


class RunFolder:
    """The files of one run."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.config = root / "config.toml"
        self.inputs = root / "inputs.json"
        self.ledger = root / "ledger"
        self.metrics = root / "metrics.jsonl"
        self.checkpoints = root / "checkpoints"
        self.pool = root / "pool.parquet"
        self.model = root / "model"
        self.best = root / "best"
        self.watched = root / "watched.json"
        self.summary = root / "summary.json"

    @contextmanager
    def held(self) -> Iterator[None]:
        """Hold the folder for this process; the lock goes with the process, however it ends.

        Raises:
            TossupError: another process is writing this run, or the folder cannot be written.
        """
        try:
            self.root.mkdir(parents=True, exist_ok=True)
            opened = (self.root / ".lock").open("w")
        except OSError as e:
            raise TossupError(f"{self.root} cannot be a run's folder ({e.strerror}): choose another --out") from e
        with opened as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise TossupError(f"another process is writing {self.root}: wait for it, or choose --out") from None
            yield

    def sweep(self) -> None:
        """Delete what a killed process left half written; only for the process that holds the folder."""
        for folder in (self.root, self.ledger, self.checkpoints):
            for path in folder.glob(f"{atomic.TEMPORARY}*"):
                if path.is_dir():
                    shutil.rmtree(path)
                else:
                    path.unlink()

    def start_or_resume(self, config: Section, inputs: Mapping[str, str]) -> None:
        """Write what a new run is started with, or go on with the one that the folder holds.

        Raises:
            TossupError: as `check`.
        """
        self.check(config, inputs)
        write_atomically(self.config, to_toml(config))
        write_atomically(self.inputs, json.dumps(dict(inputs), indent=1) + "\n")

    def check(self, config: Section, inputs: Mapping[str, str]) -> None:
        """See that the run that the folder holds, if it holds one, is this one; nothing is written.

        `inputs` are the fingerprints of the pools and the model. A run that failed before it had generated anything, as
        for a mistyped name, holds nothing and gives way.

        Raises:
            TossupError: the folder holds a run with other settings, or one of another pool or model.
        """
        if self.config.exists() and self._has_begun():
            try:
                changed = conflicts(config, load(type(config), self.config))
            except TossupError as e:
                raise TossupError(
                    f"{self.config} does not read as the settings of this command: mend it, or choose another --out\n{e}"
                ) from e
            if changed:
                lines = "\n  ".join(changed)
                raise TossupError(f"{self.root} holds a run with other settings; choose another --out\n  {lines}")
            self._check_inputs(inputs)

    def _has_begun(self) -> bool:
        return is_ledger(self.ledger) or any(self.checkpoints.glob("step-*"))

    def _check_inputs(self, inputs: Mapping[str, str]) -> None:
        if not self.inputs.exists():
            return
        try:
            before: dict[str, str] = dict(json.loads(self.inputs.read_text(encoding="utf-8")))
        except (ValueError, TypeError) as e:
            raise TossupError(
                f"{self.inputs} is damaged ({e}); if pools and model are still those that it began with, delete it to go on"
            ) from e
        changed = [name for name in inputs if before.get(name, inputs[name]) != inputs[name]]
        if changed:
            raise TossupError(
                f"the content of {' and '.join(changed)} is no longer what {self.root} was started with; put it back to go "
                "on with that run, or choose another --out"
            )


def default_root(config: TrainConfig) -> Path:
    """`runs/NAME-HASH`: the same settings give the same folder, so that the same command resumes."""
    model = config.model.removeprefix("builtin:").rstrip("/").rsplit("/", 1)[-1]
    return Path("runs") / f"{model}-{digest(config)}"


def write_atomically(path: Path, text: str) -> None:
    """Write a text file so that a reader, or a kill, sees the old one or the new one."""
    with atomic.replacing(path) as file:
        file.write(text.encode())


class Metrics:
    """`metrics.jsonl`: one JSON object a step, always there, whatever else logs."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def keep_before(self, step: int) -> str | None:
        """Drop the lines of `step` and later, and a line that a kill left half written: those steps run again.

        Returns what is to be said where steps before `step` have no line, as after somebody has deleted one.

        Raises:
            TossupError: a line is damaged.
        """
        text = self.path.read_text(encoding="utf-8") if self.path.exists() else ""
        lines = text.split("\n")[:-1]  # what follows the last "\n" is torn
        steps = [self._step(number, line) for number, line in enumerate(lines, 1)]
        kept = [line + "\n" for at, line in zip(steps, lines, strict=True) if at < step]
        if text:
            write_atomically(self.path, "".join(kept))
        lost = sorted(set(range(step)) - set(steps))
        if not lost:
            return None
        return (
            f"warning: {self.path} has no line of {counted(len(lost), 'step')} that the checkpoint counts, the first of them "
            f"step {lost[0]}; charts have a gap there, and nothing else depends on it"
        )

    def sync(self) -> None:
        """Wait until the lines are on the disk; a checkpoint that claims their steps comes after that.

        Raises:
            TossupError: the disk refused.
        """
        if self.path.exists():
            try:
                atomic.sync(self.path)
                atomic.sync(self.path.parent)
            except OSError as e:
                raise self._refused(e) from e

    def _step(self, number: int, line: str) -> int:
        try:
            return int(json.loads(line)["step"])
        except (ValueError, KeyError, TypeError) as e:
            raise TossupError(f"{self.path} line {number} is damaged ({e}): delete that line to go on") from e

    def append(self, values: Mapping[str, Any]) -> None:
        """Add one line.

        Raises:
            TossupError: the disk refused; what it took of the line is dropped when the run is resumed.
        """
        line = json.dumps(values, allow_nan=False) + "\n"
        try:
            with self.path.open("ab") as file:
                file.write(line.encode())
        except OSError as e:
            raise self._refused(e) from e

    def _refused(self, e: OSError) -> TossupError:
        return TossupError(
            f"{self.path} could not be written: {e.strerror or e}; the checkpoints are intact: free what is missing and "
            "run the same command"
        )
