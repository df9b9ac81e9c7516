"""Folders appear whole or not at all, and what was there before stays."""

from __future__ import annotations

import resource
from pathlib import Path

import pytest

from tossup.curriculum import atomic
from tossup.records import TossupError


def fill(folder: Path, size: int) -> None:
    with atomic.renewing(folder) as part:
        (part / "file").write_bytes(b"x" * size)


def test_a_folder_takes_the_place_of_the_one_before(tmp_path: Path) -> None:
    for size in (10, 20):
        fill(tmp_path / "best", size)
        assert (tmp_path / "best" / "file").stat().st_size == size
    assert [path.name for path in tmp_path.iterdir()] == ["best"]


def test_a_folder_that_finds_no_room_leaves_the_one_before(tmp_path: Path) -> None:
    fill(tmp_path / "best", 10)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, hard))  # no file of this process may be larger
    try:
        with pytest.raises(TossupError, match=r"best could not be written: .*before is intact.*same command"):
            fill(tmp_path / "best", 100_000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert (tmp_path / "best" / "file").stat().st_size == 10
    assert [path.name for path in tmp_path.iterdir()] == ["best"]
