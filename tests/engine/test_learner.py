"""What a rank does around an update and a wave: who sleeps and wakes when, and figures of the optimizer and the weights."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pytest
import torch

from tossup.engine import learner as learning
from tossup.engine.config import SamplingConfig, TrainConfig, load
from tossup.engine.distributed import World
from tossup.engine.generate import Generator, Sample, TransformersGenerator
from tossup.engine.generate.words import OnGroup
from tossup.engine.learner import Learner
from tossup.engine.policy import Policy
from tossup.records import Group, Problem, Rollout, Stop, correct, wrong


class Sleeper(Generator):
    """Samples as the policy does, and writes down what it was told; asleep, it can do nothing."""

    def __init__(self, policy: Policy, told: list[str]) -> None:
        self.within, self.told, self.asleep, self.version = TransformersGenerator(policy), told, False, -1

    def generate(
        self,
        prompts: Sequence[tuple[int, ...]],
        group_size: int,
        seeds: Sequence[int],
        sampling: SamplingConfig,
        on_group: OnGroup | None = None,
    ) -> list[list[Sample]]:
        assert not self.asleep
        self.told.append(f"generate by the weights of step {self.version}")
        return self.within.generate(prompts, group_size, seeds, sampling, on_group)

    def push(self, policy: Policy, version: int) -> None:
        self.told.append("push")
        self.version, self.asleep = version, False
        self.within.push(policy, version)

    def sleep(self) -> None:
        self.told.append("sleep")
        self.asleep = True

    def wake(self) -> None:
        if self.asleep:
            self.told.append("wake")
        self.asleep = False

    def close(self) -> None:
        self.told.append("close")


def one_group() -> Group:
    rollouts = [
        Rollout((3, 4), (5, 6 + i), (-1.0, -1.5), "", Stop.END, 0, correct("yes") if i else wrong("no"))
        for i in range(2)
    ]
    return Group(0, Problem("p", "a1+a1=", "a2", "exact"), tuple(rollouts))


@pytest.fixture
def learner() -> Iterator[Learner]:
    settings = {"update.lr": 1e-3, "update.warmup_steps": 3, "threads": 1, "rollout.max_new_tokens": 2}
    learner = Learner(load(TrainConfig, None, settings), World())
    yield learner
    learner.close()


def test_the_generator_sleeps_while_the_weights_move_and_gets_them_before_it_samples(
    learner: Learner, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[str] = []
    real = learning.update

    def seen(*args: Any, **kwargs: Any) -> dict[str, float]:
        told.append("update")
        return real(*args, **kwargs)

    monkeypatch.setattr(learning, "update", seen)
    monkeypatch.setattr(learning, "open_generator", lambda policy, *_: Sleeper(policy, told))

    def sample(step: int) -> None:
        problem = Problem("p", "a1+a1=", "a2", "exact")
        groups, _ = learner.sample([problem], learner.config.rollout, group_size=2, seed=0, policy_step=step)
        assert {r.policy_step for g in groups for r in g.rollouts} == {step}

    sample(0)
    learner.update([one_group()], 0)
    sample(1)
    sample(1)
    assert told == [
        "push",
        "generate by the weights of step 0",
        "sleep",
        "update",
        "push",
        "generate by the weights of step 1",
        "generate by the weights of step 1",
    ]
    del told[:]
    learner.update([one_group()], 1)
    sample(1)  # as after a step without an update
    assert told == ["sleep", "update", "wake", "generate by the weights of step 1"]


def test_the_figures_are_of_the_optimizer_and_the_weights(learner: Learner) -> None:
    rates = []
    for step in range(5):
        before = [p.detach().clone() for p in learner.policy.model.parameters()]
        figures = learner.update([one_group()], step)
        weights = torch.cat([p.detach().flatten() for p in learner.policy.model.parameters()]).double()
        assert figures["update/weight_norm"] == pytest.approx(weights.norm().item(), rel=1e-6)
        assert figures["update/lr"] == learner.optimizer.param_groups[0]["lr"]
        moved = max((p - q).abs().max().item() for p, q in zip(learner.policy.model.parameters(), before, strict=True))
        assert 0 < moved < 2 * figures["update/lr"]
        rates.append(figures["update/lr"])
    assert rates == pytest.approx([2.5e-4, 5e-4, 7.5e-4, 1e-3, 1e-3])
    assert all(p.grad is None for p in learner.policy.model.parameters())
