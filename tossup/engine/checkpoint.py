"""Checkpoints: one file a step, complete or absent.

A checkpoint holds all that the next step depends on: weights, optimizer, the curriculum's state, the groups that wait for
a batch, and the run's counters. It is written to a temporary name, flushed to the disk and renamed, so a kill at any
instant leaves the previous one. Random numbers need no state: they are functions of (seed, step), see `rollouts.stream`.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import torch

from tossup.curriculum import atomic
from tossup.records import TossupError

NAME = re.compile(r"step-\d{8}\.pt")


def save(folder: Path, step: int, state: dict[str, Any], keep: int) -> Path:
    """Write the state after `step` steps and delete all but the newest `keep` checkpoints.

    `state` holds tensors, numbers, strings and containers of them.

    Raises:
        TossupError: the disk refused (full, read-only); the previous checkpoint is still there.
    """
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"step-{step:08d}.pt"
    with atomic.replacing(path) as file:
        try:
            torch.save(state, file)
        except RuntimeError as e:  # torch's complaint that the file is short hides the disk's own
            raise (e.__context__ if isinstance(e.__context__, OSError) else e) from None
    for old in _all(folder)[:-keep]:
        old.unlink()
    return path


def latest(folder: Path) -> Path | None:
    """The newest checkpoint, or None."""
    found = _all(folder)
    return found[-1] if found else None


def read(path: Path, device: torch.device) -> dict[str, Any]:
    """Read a checkpoint. Only tensors and plain data are loaded, never code.

    Raises:
        TossupError: the file is damaged; the message names what to delete to go on from the one before.
    """
    try:
        state: dict[str, Any] = torch.load(path, map_location=device, weights_only=True)
    except Exception as e:
        raise TossupError(f"checkpoint {path} is damaged ({e}); delete it to go on from the one before") from e
    return state


def _all(folder: Path) -> list[Path]:
    return sorted(path for path in folder.glob("step-*.pt") if NAME.fullmatch(path.name))
