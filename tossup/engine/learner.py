"""What one rank holds of a run, and the methods that all ranks run together.

Rank 0 calls a collective method; the wrapper names it to the others, which wait in `follow`, and then every rank runs it with
the same arguments. Alone, a call is a call.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import wraps
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar

import torch

from tossup.engine import checkpoint
from tossup.engine.config import SamplingConfig, TrainConfig
from tossup.engine.distributed import World
from tossup.engine.generate import Generator, open_generator
from tossup.engine.policy import export, load, set_threads
from tossup.engine.rollouts import Progress, Seconds, sample_groups
from tossup.engine.schedule import learning_rate
from tossup.engine.step import make_optimizer, update
from tossup.records import Group, Problem, TossupError

P = ParamSpec("P")
R = TypeVar("R")


def collective(method: Callable[Concatenate[Learner, P], R]) -> Callable[Concatenate[Learner, P], R]:
    """A method of `Learner` that rank 0 calls and that every rank runs."""

    @wraps(method)
    def run(self: Learner, *args: P.args, **kwargs: P.kwargs) -> R:
        if self.world.leads:
            self.world.broadcast((method.__name__, args, kwargs))
        with self.world.together():
            return method(self, *args, **kwargs)

    return run  # type: ignore[return-value]  # mypy takes `self` for a name of it


class Learner:
    """The policy, the start model where the KL term needs it, and the optimizer: this rank's shard of each."""

    def __init__(
        self,
        config: TrainConfig,
        world: World,
        progress: Progress | None = None,
        note: Callable[[str], None] = lambda text: print(text, file=sys.stderr),
    ) -> None:
        self.config, self.world, self.progress, self.note = config, world, progress, note
        self.generator: Generator | None = None
        device = world.device(config.device)
        self.policy = load(
            config.model, device, config.dtype, attention=config.attention, adapter=config.lora, seed=config.seed
        )
        set_threads(self.policy, config.threads)
        world.shard(self.policy)
        self.ref = None
        if config.update.kl_beta > 0 and not config.lora.rank:  # beside an adapter, the start model is it without
            self.ref = load(config.model, device, config.dtype, attention=config.attention)
            world.shard(self.ref)
        self.optimizer = make_optimizer(self.policy, config.update)

    def follow(self) -> None:
        """Run what rank 0 names, until it dismisses."""
        while (order := self.world.broadcast(None)) is not None:
            name, args, kwargs = order
            getattr(self, name)(*args, **kwargs)

    def close(self) -> None:
        """End what this rank has started."""
        if self.generator is not None:
            self.generator.close()

    def dismiss(self) -> None:
        """Let the others go; rank 0 says it once, when the run is over."""
        self.world.broadcast(None)

    @collective
    def interrupt(self) -> None:
        """End on every rank as by Ctrl-C.

        Raises:
            KeyboardInterrupt: always.
        """
        raise KeyboardInterrupt

    @collective
    def sample(
        self,
        problems: Sequence[Problem],
        sampling: SamplingConfig,
        *,
        group_size: int,
        seed: int,
        policy_step: int = 0,
        first_id: int = 0,
        drawn_by: Sequence[str] | None = None,
    ) -> tuple[list[Group], Seconds]:
        """`sample_groups` by all ranks: each generates and judges its share; the times are those of the slowest."""
        share = self.world.share(len(problems))
        mine: tuple[list[Group], Seconds] | TossupError
        try:
            with self.world.gathered(self.policy):
                mine = sample_groups(
                    self.policy,
                    [problems[i] for i in share],
                    sampling,
                    group_size=group_size,
                    seed=seed,
                    policy_step=policy_step,
                    first_id=first_id + share.start,
                    drawn_by=None if drawn_by is None else [drawn_by[i] for i in share],
                    progress=self.progress,
                    generator=self._generator(policy_step),
                )
        except TossupError as e:  # what fails on one rank has to end them all
            mine = e
        groups: list[Group] = []
        times: list[Seconds] = []
        for theirs in self.world.gather(mine):
            if isinstance(theirs, TossupError):
                raise theirs
            groups += theirs[0]
            times.append(theirs[1])
        return groups, Seconds(*(max(part) for part in zip(*times, strict=True)))

    def _generator(self, policy_step: int) -> Generator:
        """This rank's generator, with the weights as they are after `policy_step` updates; they have to be whole here."""
        if self.generator is None:
            self.generator = open_generator(self.policy, self.config.rollout, self.note)
        if self.generator.version != policy_step:
            self.generator.push(self.policy, policy_step)
        self.generator.wake()
        return self.generator

    @collective
    def update(self, groups: Sequence[Group], step: int) -> dict[str, float]:
        """Train on these groups, the same on every rank, as the update after `step` steps.

        Raises:
            TossupError: training has diverged.
        """
        rate = learning_rate(self.config, step)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        if self.generator is not None:
            self.generator.sleep()
        figures = update(self.policy, self.optimizer, groups, self.config, self.ref, self.world, step)
        self.optimizer.zero_grad(set_to_none=True)  # generation can use their memory
        figures["update/lr"] = self.optimizer.param_groups[0]["lr"]  # as it was used, not as it was meant
        return figures | {"update/weight_norm": self._weight_norm()}

    def _weight_norm(self) -> float:
        """The norm of all weights, after seeing that they are finite: what is saved from here on can be gone on with."""
        local = [getattr(p, "to_local", lambda p=p: p)().detach() for p in self.policy.model.parameters()]
        squares = torch.stack(torch._foreach_norm(local)).double().square().sum().item()
        norm: float = self.world.sums([squares])[0] ** 0.5
        if norm != norm or norm == float("inf"):
            raise TossupError(
                "training has diverged: the update made weights that are not finite. It was not saved, and the checkpoints "
                "hold the steps before it. Begin anew with a lower --lr and another --out"
            )
        return norm

    @collective
    def write_checkpoint(self, folder: Path) -> dict[str, Any]:
        """Weights and optimizer, for the checkpoint that is being written in this folder; see `checkpoint`."""
        return checkpoint.write_tensors(self.policy.model, self.optimizer, self.world, folder)

    @collective
    def read_checkpoint(self, folder: Path) -> None:
        """Take weights and optimizer from a checkpoint, of any number of ranks."""
        checkpoint.read_tensors(self.policy.model, self.optimizer, self.world, folder)

    @collective
    def export(self, folder: Path) -> None:
        """Write the model as a Hugging Face folder."""
        weights = self.world.whole(self.policy)
        if self.world.leads:
            export(self.policy, folder, weights)
