"""The processes that train one model together, under `torchrun`; or the one that trains it alone.

Theory of operation. torchrun starts the same command once for each GPU (or CPU slot), on one node or several; each process
is a *rank*. Rank 0 leads: it alone holds the curriculum, the ledger, the metrics and the evaluation, and it alone runs the loop
of `train`. The others follow: each holds its shard of the model and of the optimizer, and waits for rank 0 to name the next
collective method of `Learner`, which all ranks then run together. There is no `if rank == 0` in the loop.

    rank 0   choose ── sample ── observe ── update ── ledger, metrics ── save ── ...
    others             sample               update                       save        (and wait between)

Orders and groups travel as pickled objects over gloo; weights and gradients by FSDP2 (`fully_shard`), over NCCL between GPUs
and over gloo between CPUs. The parameters are sharded by rows over all ranks and gathered layer by layer for the update, whole
for generation.

A rank that raises or dies closes its connections: the others get an error from the call in which they wait for it, a rank
that hangs is waited for at most `timeout`, and torchrun ends what is left. The checkpoints hold every finished step, and the
same command resumes, with any number of ranks.

Left out: pipeline and tensor parallelism, loading a model that does not fit on one device unsharded.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from tossup.engine import lora
from tossup.engine.policy import Policy
from tossup.records import TossupError

T = TypeVar("T")

LOST = ("Connection closed by peer", "Connection reset by peer", "Timed out waiting", "NCCL error", "gloo/transport")
"""What gloo and NCCL say of a rank that is gone, in errors that have no class of their own."""


class World:
    """A process alone; `Torchrun` gives the same for several."""

    rank = 0
    size = 1
    told = ""
    """By what this process, or one that it has gathered from since, was told to stop (see `stopping`); empty: by nothing."""

    @property
    def leads(self) -> bool:
        """Whether this process runs the loop."""
        return self.rank == 0

    def share(self, n: int) -> range:
        """Which of `n` things are this rank's: a run of neighbours, so that the shares in rank order are all of them."""
        return range(n * self.rank // self.size, n * (self.rank + 1) // self.size)

    def device(self, name: str) -> str:
        """The device of this rank where `name` is asked for."""
        return name

    def broadcast(self, value: T) -> T:
        """Rank 0's value, on every rank."""
        return value

    def gather(self, value: T) -> list[T]:
        """The values of all ranks in their order, on every rank."""
        return [value]

    def sums(self, values: Sequence[float]) -> list[float]:
        """Each value summed over the ranks, on every rank."""
        return [sum(column) for column in zip(*self.gather(list(values)), strict=True)]

    def shard(self, policy: Policy) -> None:
        """Leave on each rank its share of the policy's parameters."""

    @contextmanager
    def gathered(self, policy: Policy) -> Iterator[None]:
        """Within it, the policy's parameters are whole on every rank; they are not to be changed."""
        yield

    def whole(self, policy: Policy) -> dict[str, Tensor] | None:
        """What is to be written of the policy, on rank 0; nothing on the others, and None where the policy holds it itself."""
        return None

    @contextmanager
    def together(self) -> Iterator[None]:
        """Around what all ranks do together.

        Raises:
            TossupError: another rank is lost.
        """
        yield

    def leave(self) -> None:
        """Part from the others."""


ALONE = World()
"""For whoever trains without torchrun."""


class Torchrun(World):
    """One of the processes that torchrun started."""

    def __init__(self, device: str, timeout_s: float) -> None:
        self.rank, self.size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        self.local_rank = int(os.environ["LOCAL_RANK"])
        self.cuda = torch.device(self.device(device)).type == "cuda"
        if self.cuda:
            torch.cuda.set_device(self.device(device))
        with _as_user_error(self.rank):
            dist.init_process_group("cpu:gloo,cuda:nccl" if self.cuda else "gloo", timeout=timedelta(seconds=timeout_s))

    def device(self, name: str) -> str:
        """Each rank of a node has a GPU of its own, or the CPU.

        Raises:
            TossupError: there are fewer GPUs than ranks on this node, or one GPU is named for all.
        """
        there = torch.cuda.device_count()
        if name == "cpu" or (name == "auto" and there == 0):
            return "cpu"
        if name not in ("auto", "cuda"):
            raise TossupError(
                f"under torchrun each process takes a GPU of its own: --device auto, cuda or cpu, got {name!r}"
            )
        if self.local_rank >= there:
            raise TossupError(
                f"torchrun started more processes than the {there} GPUs of this node: lower --nproc-per-node, or --device cpu"
            )
        return f"cuda:{self.local_rank}"

    def broadcast(self, value: T) -> T:
        """Rank 0's value, on every rank."""
        box = [value if self.leads else None]
        with _as_user_error(self.rank):
            dist.broadcast_object_list(box, src=0)
        return box[0]  # type: ignore[return-value]

    def gather(self, value: T) -> list[T]:
        """The values of all ranks in their order, on every rank; what a rank was told comes along."""
        found: list[Any] = [None] * self.size
        with _as_user_error(self.rank):
            dist.all_gather_object(found, (value, self.told))
        told = next((told for _, told in found if told), "")
        if told:  # else its own stays, which may have come in the meantime
            self.told = told
        return [value for value, _ in found]

    def shard(self, policy: Policy) -> None:
        """FSDP2: a unit for each decoder layer, and one for the rest (embeddings, last norm, head).

        Each rank keeps its shard in float32; what travels is in the compute type on the way to the layers, and in float32
        on the way back.
        """
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard, register_fsdp_forward_method

        mesh = init_device_mesh(policy.device.type, (self.size,))
        precision = MixedPrecisionPolicy()
        if policy.compute is not torch.float32:
            # Autocast goes on choosing what a layer's inputs and outputs are, as in a process alone.
            precision = MixedPrecisionPolicy(policy.compute, torch.float32, cast_forward_inputs=False)
        for part in [*_layers(policy.model), policy.model]:
            unit = fully_shard(part, mesh=mesh, mp_policy=precision)
            # The loss weights hold the whole normalisation (see `objective`), so gradients are summed over ranks, not averaged.
            unit.set_gradient_divide_factor(1.0)
            unit.set_force_sum_reduction_for_comms(True)  # gloo knows no sum with a factor
        policy.model.run = _call
        register_fsdp_forward_method(policy.model, "run")

    @contextmanager
    def gathered(self, policy: Policy) -> Iterator[None]:
        """Within it, the policy's parameters are whole on every rank; they are not to be changed."""
        from torch.distributed.fsdp import FSDPModule

        units = [module for module in policy.model.modules() if isinstance(module, FSDPModule)]
        policy.model.set_reshard_after_forward(False)
        for unit in units:
            unit.unshard()
        try:
            yield
        finally:
            policy.model.set_reshard_after_forward(True)
            for unit in units:
                unit.reshard()

    def whole(self, policy: Policy) -> dict[str, Tensor] | None:
        """What an export needs, on rank 0, in its CPU memory: all weights, or the adapter's; nothing on the others.

        Gathering makes two tensors of one that is tied; the second of its names is left out, as it is in any saved model.
        """
        from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict

        adapter = lora.attached(policy.model)
        options = StateDictOptions(full_state_dict=True, cpu_offload=True, ignore_frozen_params=adapter)
        weights: dict[str, Any] = get_model_state_dict(policy.model, options=options)
        own = {name for name, _ in policy.model.named_parameters()}
        tied = {name for name, _ in policy.model.named_parameters(remove_duplicate=False)} - own
        return {name: tensor for name, tensor in weights.items() if name not in tied}

    @contextmanager
    def together(self) -> Iterator[None]:
        """Around what all ranks do together; in it FSDP2 and torch's checkpoints talk without our asking.

        Raises:
            TossupError: another rank is lost.
        """
        try:
            yield
        except RuntimeError as e:
            if not any(words in str(e) for words in LOST):
                raise
            with _as_user_error(self.rank):
                raise

    def leave(self) -> None:
        """Part from the others."""
        dist.destroy_process_group()


def join(device: str, timeout_s: float) -> World:
    """The world of this process: with the others that torchrun started, or alone.

    Raises:
        TossupError: the others cannot be reached, or there is no device for this rank.
    """
    return Torchrun(device, timeout_s) if int(os.environ.get("WORLD_SIZE", "1")) > 1 else World()


def follows() -> bool:
    """Whether this process is one that follows: it prints nothing."""
    return int(os.environ.get("RANK", "0")) > 0


def _call(function: Callable[..., T], *args: Any) -> T:
    return function(*args)


def _layers(model: Any) -> Sequence[Any]:
    """The decoder layers: the list of modules that holds the most parameters, wherever a model family keeps it."""
    lists = [module for module in model.modules() if isinstance(module, torch.nn.ModuleList)]
    return list(max(lists, key=lambda layers: sum(p.numel() for p in layers.parameters()), default=()))


@contextmanager
def _as_user_error(rank: int) -> Iterator[None]:
    """What is wrong when the others do not answer."""
    try:
        yield
    except (RuntimeError, ValueError) as e:  # gloo and the rendezvous raise nothing more special
        first_line = str(e).strip().splitlines()[0]
        raise TossupError(
            f"rank {rank} has lost the other processes of this run ({first_line}); what was saved is safe: the same "
            "command resumes it"
        ) from e
