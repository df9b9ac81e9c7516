"""Checkpoints are whole or absent, and a damaged one is never loaded."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from small import make_policy

from tossup.engine import checkpoint
from tossup.engine.distributed import ALONE
from tossup.records import TossupError


def save(folder: Path, step: int, keep: int = 2, **more: object) -> Path:
    with checkpoint.writing(folder, step, keep) as part:
        checkpoint.write_state(part, {"w": torch.full((3,), float(step)), "progress": f'{{"step": {step}}}'} | more)
    found = checkpoint.latest(folder)
    assert found is not None
    return found


def names(folder: Path) -> list[str]:
    return sorted(p.name for p in folder.iterdir())


def test_what_is_saved_is_read(tmp_path: Path) -> None:
    newest = save(tmp_path, 3)
    assert newest.name == "step-00000003"
    assert torch.equal(checkpoint.read_state(newest)["w"], torch.full((3,), 3.0))


def test_only_the_newest_are_kept(tmp_path: Path) -> None:
    for step in range(1, 6):
        save(tmp_path, step)
    assert names(tmp_path) == ["step-00000004", "step-00000005"]


def test_a_write_that_fails_leaves_the_one_before(tmp_path: Path) -> None:
    save(tmp_path, 1)
    with pytest.raises(Exception, match="pickle"):
        save(tmp_path, 2, model=lambda: 0)
    assert names(tmp_path) == ["step-00000001"]


def test_leftovers_of_a_killed_writer_are_not_checkpoints(tmp_path: Path) -> None:
    save(tmp_path, 1)
    (tmp_path / ".part-step-00000002-abc").mkdir()
    (tmp_path / "step-00000009.old").mkdir()
    newest = checkpoint.latest(tmp_path)
    assert newest is not None
    assert newest.name == "step-00000001"


def test_a_step_that_is_saved_again_replaces_its_checkpoint(tmp_path: Path) -> None:
    save(tmp_path, 1, note="first")
    assert checkpoint.read_state(save(tmp_path, 1, note="second"))["note"] == "second"
    assert names(tmp_path) == ["step-00000001"]


@pytest.mark.parametrize("damage", [lambda b: b[: len(b) // 2], lambda b: b"", lambda b: b"\0" * len(b)])
def test_a_damaged_checkpoint_is_an_error_that_names_it(tmp_path: Path, damage) -> None:  # type: ignore[no-untyped-def]
    path = save(tmp_path, 1)
    state = path / "state.pt"
    state.write_bytes(damage(state.read_bytes()))
    with pytest.raises(TossupError, match="step-00000001 is damaged"):
        checkpoint.read_state(path)


def test_code_in_a_checkpoint_is_not_run(tmp_path: Path) -> None:
    class Boom:
        def __reduce__(self):  # type: ignore[no-untyped-def]
            return (Path.touch, (tmp_path / "ran",))

    torch.save({"model": Boom()}, tmp_path / "state.pt")
    with pytest.raises(TossupError, match="damaged"):
        checkpoint.read_state(tmp_path)
    assert not (tmp_path / "ran").exists()


@pytest.fixture
def no_room() -> Iterator[None]:
    """The kernel refuses to let any file of this process grow beyond 4 kB, as a full disk would."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, hard))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_disk_that_refuses_is_an_error_the_user_can_fix(tmp_path: Path, no_room: None) -> None:
    save(tmp_path, 1)
    with pytest.raises(TossupError, match=r"step-00000002 could not be written.*same command"):
        save(tmp_path, 2, model=torch.zeros(100_000))
    assert names(tmp_path) == ["step-00000001"]


def test_weights_and_optimizer_come_back_as_they_were(tmp_path: Path) -> None:
    policies = [make_policy(seed) for seed in (0, 1)]
    optimizers = [torch.optim.AdamW(p.model.parameters(), lr=0.01, fused=True) for p in policies]
    ids = torch.tensor([[2, 3, 4, 5]])

    def train(policy, optimizer, steps: int) -> None:  # type: ignore[no-untyped-def]
        for _ in range(steps):
            optimizer.zero_grad()
            policy.model(input_ids=ids, labels=ids).loss.backward()
            optimizer.step()

    train(policies[0], optimizers[0], 2)
    with checkpoint.writing(tmp_path, 2, keep=1) as part:
        checkpoint.write_state(part, checkpoint.write_tensors(policies[0].model, optimizers[0], ALONE, part))
    newest = checkpoint.latest(tmp_path)
    assert newest is not None
    train(policies[1], optimizers[1], 1)
    checkpoint.read_tensors(policies[1].model, optimizers[1], ALONE, newest)
    for policy, optimizer in zip(policies, optimizers, strict=True):
        train(policy, optimizer, 2)
    for a, b in zip(policies[0].model.parameters(), policies[1].model.parameters(), strict=True):
        assert torch.equal(a, b)


def test_a_checkpoint_of_another_model_is_refused(tmp_path: Path) -> None:
    policy = make_policy()
    optimizer = torch.optim.AdamW(policy.model.parameters())
    with checkpoint.writing(tmp_path, 1, keep=1) as part:
        checkpoint.write_state(part, {"tensors": {"weight/other": torch.zeros(1)}})
    newest = checkpoint.latest(tmp_path)
    assert newest is not None
    with pytest.raises(TossupError, match="another model"):
        checkpoint.read_tensors(policy.model, optimizer, ALONE, newest)
