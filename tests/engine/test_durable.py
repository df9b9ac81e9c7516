"""What a run says to have happened is on the disk before it says so: a power cut takes back nothing that was claimed."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tossup.curriculum import atomic
from tossup.engine.config import TrainConfig, load
from tossup.engine.folder import Metrics
from tossup.engine.progress import Silent
from tossup.engine.train import train

SETTINGS = {
    "eval_pool": ["builtin:arithmetic/heldout"],
    "steps": 4,
    "save_every": 2,
    "save_text": True,
    "rollout.problems_per_step": 8,
    "rollout.group_size": 8,
    "rollout.max_new_tokens": 8,
    "update.lr": 1e-3,
    "eval.problems": 8,
    "eval.samples": 1,
    "eval.every": 1,
    "threads": 1,
}


def state_of(path: Path) -> tuple[int, int]:
    found = path.stat()
    return found.st_ino, found.st_size


class Disk:
    """Looks on as files are flushed, and at every new name which files of the run are not yet."""

    def __init__(self, run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.run = run
        self.flushed: set[tuple[int, int]] = set()
        self.unflushed: dict[str, list[str]] = {}
        """Name that was given -> the files which were not on the disk then."""
        fsync, rename, replace = os.fsync, os.rename, os.replace

        def watched_fsync(handle: int) -> None:
            fsync(handle)
            found = os.fstat(handle)
            self.flushed.add((found.st_ino, found.st_size))

        def watched(rename: Any) -> Any:
            def named(source: Any, target: Any) -> None:
                rename(source, target)
                self.unflushed[Path(target).name] = sorted(self._missing())

            return named

        monkeypatch.setattr(os, "fsync", watched_fsync)
        monkeypatch.setattr(os, "rename", watched(rename))
        monkeypatch.setattr(os, "replace", watched(replace))

    def _missing(self) -> Iterator[str]:
        for path in self.run.rglob("*"):
            if path.is_file() and path.name != ".lock" and state_of(path) not in self.flushed:
                yield str(path.relative_to(self.run))


def test_at_every_checkpoint_and_at_the_end_all_files_of_the_run_are_on_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = Disk(tmp_path, monkeypatch)
    train(load(TrainConfig, None, SETTINGS | {"out": str(tmp_path)}), Silent())
    claims = ["step-00000002", "step-00000004", "summary.json"]
    assert {name: disk.unflushed[name] for name in claims} == {name: [] for name in claims}


def test_a_folder_that_appears_whole_is_on_the_disk_with_all_that_was_written_into_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = Disk(tmp_path, monkeypatch)
    with atomic.renewing(tmp_path / "best") as part:
        (part / "inner").mkdir()
        (part / "inner" / "weights").write_bytes(b"1" * 100)
    assert disk.unflushed["best"] == []


def test_lines_of_metrics_that_are_gone_are_told_and_later_ones_dropped(tmp_path: Path) -> None:
    metrics = Metrics(tmp_path / "metrics.jsonl")
    for step in (0, 1, 2, 3, 4):
        metrics.append({"step": step})
    assert metrics.keep_before(4) is None
    lines = metrics.path.read_text().splitlines()
    assert lines == [f'{{"step": {step}}}' for step in range(4)]
    metrics.path.write_text("".join(line + "\n" for line in (lines[0], lines[3])))
    assert "has no line of 2 steps that the checkpoint counts, the first of them step 1;" in (
        metrics.keep_before(4) or ""
    )
    metrics.path.unlink()
    assert "no line of 3 steps" in (metrics.keep_before(3) or "")
    assert metrics.keep_before(0) is None


def test_a_resumed_run_says_which_lines_are_gone(tmp_path: Path) -> None:
    settings = SETTINGS | {"eval_pool": [], "steps": 2, "save_every": 1, "out": str(tmp_path)}
    train(load(TrainConfig, None, settings), Silent())
    (tmp_path / "metrics.jsonl").unlink()

    said: list[str] = []

    class Listener(Silent):
        def note(self, text: str) -> None:
            said.append(text)

    train(load(TrainConfig, None, settings | {"steps": 3}), Listener())
    assert any("metrics.jsonl has no line of 2 steps" in text for text in said)
