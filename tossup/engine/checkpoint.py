"""Checkpoints: one folder a step, complete or absent.

step-00000012/state.pt   all that the next step depends on: the curriculum's state, the groups that wait for a batch, the run's
                         counters; of a process alone also weights and optimizer
step-00000012/shards/    of several ranks, weights and optimizer by torch.distributed.checkpoint: each rank writes its own

A checkpoint is written under a temporary name, flushed to the disk and renamed, so a kill at any instant leaves the previous
one. Either kind is read by any number of ranks. Random numbers need no state: they are functions of (seed, step), see
`rollouts.stream`. Weights that are not trained are not in it: they are the start model's.

Tensors are kept by flat names: "weight/NAME", and "exp_avg/NAME" and the like for the optimizer's state of that parameter; the
number "step/NAME", how often AdamW has moved it, in state.pt as a plain number.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.filesystem import FileSystemReader, FileSystemWriter
from torch.distributed.checkpoint.metadata import TensorStorageMetadata
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import save
from torch.distributed.tensor import DTensor, distribute_tensor

from tossup.curriculum import atomic
from tossup.engine.distributed import World
from tossup.records import TossupError

NAME = re.compile(r"step-\d{8}")
STATE, SHARDS = "state.pt", "shards"


@contextmanager
def writing(folder: Path, step: int, keep: int) -> Iterator[Path]:
    """A folder to write the state after `step` steps to; on leaving the block it becomes the newest checkpoint.

    All but the newest `keep` are then deleted. On an error nothing changes.

    Raises:
        TossupError: the disk refused (full, read-only); the previous checkpoint is still there.
    """
    with atomic.renewing(folder / f"step-{step:08d}") as part:
        yield part
    for old in _all(folder)[:-keep]:
        atomic.remove(old)


def write_state(folder: Path, state: Mapping[str, Any]) -> None:
    """Write tensors, numbers, strings and containers of them as the state of the checkpoint that is being written."""
    with (folder / STATE).open("xb") as file:
        try:
            torch.save(dict(state), file)
            file.flush()  # so that a full disk is met here
        except RuntimeError as e:  # torch's complaint that the file is short hides the disk's own
            raise (e.__context__ if isinstance(e.__context__, OSError) else e) from None


def latest(folder: Path) -> Path | None:
    """The newest checkpoint, or None."""
    found = _all(folder)
    return found[-1] if found else None


def read_state(folder: Path) -> dict[str, Any]:
    """Read the state of a checkpoint. Only tensors and plain data are loaded, never code.

    Raises:
        TossupError: the file is damaged; the message names what to delete to go on from the one before.
    """
    try:
        state: dict[str, Any] = torch.load(folder / STATE, map_location="cpu", weights_only=True)
    except Exception as e:
        raise _damaged(folder, e) from e
    return state


def write_tensors(model: Any, optimizer: torch.optim.Optimizer, world: World, folder: Path) -> dict[str, Any]:
    """Several ranks write weights and optimizer to `folder`; a process alone gets them back, for `write_state`.

    Raises:
        TossupError: the disk refused.
    """
    tensors = {
        f"{kind}/{name}": value
        for name, p in model.named_parameters()
        if p.requires_grad
        for kind, value in ({"weight": p.detach()} | dict(optimizer.state.get(p, {}))).items()
    }
    if world.size == 1:
        # Written as a tensor each, AdamW's counts of steps would take a third of the time of a small model's checkpoint.
        counts = [name for name in tensors if name.startswith("step/")]
        values = torch.stack([tensors.pop(name) for name in counts]).tolist() if counts else []
        return {"tensors": tensors, "counts": dict(zip(counts, values, strict=True))}
    try:
        save(tensors, storage_writer=FileSystemWriter(folder / SHARDS))
    except CheckpointException as e:
        raise TossupError(
            f"{folder / SHARDS} could not be written ({_cause(e)}); the checkpoint before is intact"
        ) from e
    return {}


def read_tensors(model: Any, optimizer: torch.optim.Optimizer, world: World, folder: Path) -> None:
    """Give model and optimizer the tensors of a checkpoint.

    Raises:
        TossupError: it is damaged, or of another model.
    """
    parameters = {name: p for name, p in model.named_parameters() if p.requires_grad}
    tensors = _from_shards(folder, parameters, world) if (folder / SHARDS).exists() else _from_state(folder)
    weights = {name.removeprefix("weight/") for name in tensors if name.startswith("weight/")}
    if weights != parameters.keys():
        raise TossupError(f"checkpoint {folder} is of another model: {sorted(weights ^ parameters.keys())[:3]} differ")
    optimizer.state.clear()
    for key, value in tensors.items():
        kind, name = key.split("/", 1)
        p = parameters[name]
        placed = _like(value, p)
        if kind == "weight":
            with torch.no_grad():
                p.copy_(placed)
        else:
            optimizer.state[p][kind] = placed


def _from_state(folder: Path) -> dict[str, Tensor]:
    state = read_state(folder)
    tensors: dict[str, Tensor] = state["tensors"]
    return tensors | {name: torch.tensor(value) for name, value in state.get("counts", {}).items()}


def _like(value: Tensor, p: Tensor) -> Tensor:
    """The tensor on the parameter's device, and sharded like it where it has its shape."""
    if isinstance(p, DTensor) and not isinstance(value, DTensor) and value.shape == p.shape:
        return distribute_tensor(value.to(p.device), p.device_mesh, p.placements, src_data_rank=None)
    return value.to(p.device)


def _from_shards(folder: Path, parameters: Mapping[str, Tensor], world: World) -> dict[str, Tensor]:
    """Read what several ranks wrote: of each tensor the part that this rank holds."""
    try:
        reader = FileSystemReader(folder / SHARDS)
        stored = reader.read_metadata().state_dict_metadata.items()
        shapes = {key: m.size for key, m in stored if isinstance(m, TensorStorageMetadata)}
        names = {key: key.split("/", 1)[1] for key in shapes}
        tensors = {
            key: torch.zeros_like(p) if shape == p.shape else torch.zeros(shape, device=p.device)
            for key, shape in shapes.items()
            if (p := parameters.get(names[key])) is not None
        }
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "torch.distributed is disabled", UserWarning)
            load(tensors, storage_reader=reader, no_dist=world.size == 1)
    except (Exception, CheckpointException) as e:
        raise _damaged(folder, e) from e
    return tensors


def _damaged(folder: Path, e: BaseException) -> TossupError:
    return TossupError(f"checkpoint {folder} is damaged ({_cause(e)}); delete it to go on from the one before")


def _cause(e: BaseException) -> str:
    """What really went wrong: of a failure of several ranks, that of the first."""
    if isinstance(e, CheckpointException) and e.failures:
        e = next(iter(e.failures.values()))[0]
    return f"{type(e).__name__}: {str(e).strip().splitlines()[0] if str(e).strip() else 'no more is known'}"


def _all(folder: Path) -> list[Path]:
    return sorted(path for path in folder.glob("step-*") if NAME.fullmatch(path.name))
