"""What several processes compute, for `test_sharded.py`, which runs this file under torchrun and calls its parts alone.

    torchrun --nproc-per-node 2 two_ranks.py FOLDER

Writes FOLDER/outcomes.pt, the outcome of every variant, runs FOLDER/two, and goes on with FOLDER/from-one.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple
from unittest.mock import patch

import torch
from small import make_group, make_policy
from torch import Tensor

import tossup.engine.train as training
from tossup.engine import logps, lora
from tossup.engine.config import LoraConfig, TrainConfig, load
from tossup.engine.distributed import World, join
from tossup.engine.policy import Policy
from tossup.engine.progress import Silent
from tossup.engine.step import update

GROUPS = [make_group("1001", [2, 9, 4, 3], seed=1), make_group("10?1", [5, 1, 7, 2], seed=2, gid=1)]


class Variant(NamedTuple):
    """One way to make an update."""

    adapter: bool = False
    compute: torch.dtype = torch.float64
    settings: Mapping[str, Any] = MappingProxyType({})
    words: int = 0
    """The head goes so many words at a time; 0: as many as the engine finds right, which here are all."""


SAVING = {"gradient_checkpointing": True, "packing": "packed", "micro_batch_tokens": 30}
BF16 = torch.bfloat16
VARIANTS = {
    "whole": Variant(),
    "whole, recomputed, packed and in blocks": Variant(settings=SAVING, words=5),
    "adapter": Variant(adapter=True),
    "adapter, recomputed": Variant(adapter=True, settings={"gradient_checkpointing": True}),
    "adapter, recomputed, packed and in blocks": Variant(adapter=True, settings=SAVING, words=5),
    "bf16": Variant(compute=BF16),
    "bf16, recomputed, packed and in blocks": Variant(compute=BF16, settings=SAVING, words=5),
    "bf16 adapter": Variant(adapter=True, compute=BF16),
    "bf16 adapter, recomputed, packed and in blocks": Variant(adapter=True, compute=BF16, settings=SAVING, words=5),
}

RUN = {
    "rollout.problems_per_step": 12,
    "rollout.group_size": 6,
    "rollout.max_new_tokens": 8,
    "update.lr": 5e-4,
    "update.kl_beta": 0.1,
    "update.micro_batch_tokens": 64,
    "lora.rank": 4,
    "eval.every": 0,
    "threads": 1,
    "timeout": 120,
}


class Outcome(NamedTuple):
    """What one update gave: its figures, and its gradient and the moved weights as whole tensors."""

    figures: dict[str, float]
    gradient: dict[str, Tensor]
    moved: dict[str, Tensor]
    gathered: set[torch.dtype]
    """Types of the weights that a generator would read."""


def policy_of(variant: Variant) -> Policy:
    """The tiny model, and an adapter that has moved already where there is one."""
    policy = make_policy(dtype=torch.float64 if variant.compute is torch.float64 else torch.float32)
    if variant.compute is BF16:
        policy = dataclasses.replace(policy, compute=BF16)
    if variant.adapter:
        lora.attach(policy.model, "base", LoraConfig(rank=3, alpha=6), seed=0)
        g = torch.Generator().manual_seed(1)
        with torch.no_grad():
            for name, p in policy.model.named_parameters():
                if ".lora_B." in name:
                    p.copy_(0.3 * torch.randn(p.shape, generator=g, dtype=torch.float64))
    return dataclasses.replace(policy, packs=True)


def outcome(variant: Variant, world: World) -> Outcome:
    """One update with a KL term, by all of this world."""
    policy, ref = policy_of(variant), None
    world.shard(policy)
    if not variant.adapter:
        ref = make_policy(seed=1, dtype=policy.model.dtype)
        world.shard(ref)
    settings = {
        "update": {"max_grad_norm": 1e9, "kl_beta": 0.5} | dict(variant.settings),
        "rollout": {"max_new_tokens": 12},
    }
    optimizer = torch.optim.SGD(policy.trainable().values(), lr=0.1)
    blocks = patch.object(logps, "block_logits", lambda rows, device: variant.words * rows)
    with blocks if variant.words else nullcontext():
        figures = update(policy, optimizer, GROUPS, TrainConfig.model_validate(settings), ref, world)
    gradient = {name: whole(p.grad) for name, p in policy.trainable().items() if p.grad is not None}
    moved = {name: whole(p) for name, p in policy.trainable().items()}
    with world.gathered(policy):
        return Outcome(figures, gradient, moved, {tensor.dtype for _, tensor in policy.weights()})


def whole(tensor: Tensor) -> Tensor:
    """All of a tensor, of which this rank may hold a shard."""
    gathered: Tensor = getattr(tensor, "full_tensor", lambda: tensor)()
    return gathered.detach().clone()


def run(out: Path, steps: int) -> None:
    """A run with an adapter, by this process or by all that torchrun started."""
    training.train(load(TrainConfig, None, RUN | {"out": str(out), "steps": steps}), Silent())


def main(folder: Path) -> None:
    """What each of the processes does; they can meet only once, so that all is done in one world."""
    torch.set_num_threads(1)
    world = join("cpu", 120)
    found = {name: outcome(variant, world) for name, variant in VARIANTS.items()}
    if world.leads:
        torch.save({name: tuple(o) for name, o in found.items()}, folder / "outcomes.pt")
    with patch.object(training, "join", lambda device, timeout: world), patch.object(world, "leave"):
        run(folder / "two", 3)
        run(folder / "from-one", 5)
    world.leave()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
