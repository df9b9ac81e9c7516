"""Checkpoints are whole or absent, and a damaged one is never loaded."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from tossup.engine import checkpoint
from tossup.records import TossupError

CPU = torch.device("cpu")


def state(n: int) -> dict[str, object]:
    return {"model": {"w": torch.full((3,), float(n))}, "progress": f'{{"step": {n}}}'}


def test_what_is_saved_is_read(tmp_path: Path) -> None:
    checkpoint.save(tmp_path, 3, state(3), keep=2)
    newest = checkpoint.latest(tmp_path)
    assert newest is not None
    assert newest.name == "step-00000003.pt"
    assert torch.equal(checkpoint.read(newest, CPU)["model"]["w"], torch.full((3,), 3.0))


def test_only_the_newest_are_kept(tmp_path: Path) -> None:
    for step in range(1, 6):
        checkpoint.save(tmp_path, step, state(step), keep=2)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["step-00000004.pt", "step-00000005.pt"]


def test_a_write_that_fails_leaves_the_one_before(tmp_path: Path) -> None:
    checkpoint.save(tmp_path, 1, state(1), keep=2)
    with pytest.raises(Exception, match="pickle"):
        checkpoint.save(tmp_path, 2, {"model": lambda: 0}, keep=2)
    assert [p.name for p in tmp_path.iterdir()] == ["step-00000001.pt"]


def test_leftovers_of_a_killed_writer_are_not_checkpoints(tmp_path: Path) -> None:
    checkpoint.save(tmp_path, 1, state(1), keep=2)
    (tmp_path / ".part-abc").write_bytes(b"half")
    (tmp_path / "step-00000009.pt.old").write_bytes(b"")
    newest = checkpoint.latest(tmp_path)
    assert newest is not None
    assert newest.name == "step-00000001.pt"


@pytest.mark.parametrize("damage", [lambda b: b[: len(b) // 2], lambda b: b"", lambda b: b"\0" * len(b)])
def test_a_damaged_checkpoint_is_an_error_that_names_it(tmp_path: Path, damage) -> None:  # type: ignore[no-untyped-def]
    path = checkpoint.save(tmp_path, 1, state(1), keep=1)
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(TossupError, match=r"step-00000001\.pt is damaged"):
        checkpoint.read(path, CPU)


def test_code_in_a_checkpoint_is_not_run(tmp_path: Path) -> None:
    class Boom:
        def __reduce__(self):  # type: ignore[no-untyped-def]
            return (Path.touch, (tmp_path / "ran",))

    torch.save({"model": Boom()}, tmp_path / "step-00000001.pt")
    with pytest.raises(TossupError, match="damaged"):
        checkpoint.read(tmp_path / "step-00000001.pt", CPU)
    assert not (tmp_path / "ran").exists()


@pytest.fixture
def no_room() -> Iterator[None]:
    """The kernel refuses to let any file of this process grow beyond 4 kB, as a full disk would."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, hard))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_disk_that_refuses_is_an_error_the_user_can_fix(tmp_path: Path, no_room: None) -> None:
    checkpoint.save(tmp_path, 1, state(1), keep=2)
    with pytest.raises(TossupError, match=r"step-00000002\.pt could not be written"):
        checkpoint.save(tmp_path, 2, {"model": {"w": torch.zeros(100_000)}}, keep=2)
    assert [p.name for p in tmp_path.iterdir()] == ["step-00000001.pt"]
