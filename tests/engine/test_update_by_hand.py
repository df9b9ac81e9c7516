"""One update with everything on, against the equations written out over whole logits: its figures, its gradient, its step."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest
import torch
from small import make_group, make_policy
from torch import Tensor

from tossup.engine.config import TrainConfig, load
from tossup.engine.policy import Policy
from tossup.engine.step import make_optimizer, update
from tossup.records import Rollout

GROUPS = [make_group("1001", [2, 9, 4, 3], seed=1), make_group("10?1", [5, 1, 7, 2], seed=2, gid=1)]
TEMPERATURE, BETA, CLIP = 0.8, 0.3, 0.2


def config(**changes: Any) -> TrainConfig:
    base = {"rollout.temperature": TEMPERATURE, "rollout.max_new_tokens": 12, "update.max_grad_norm": 1e9}
    update = {"kl_beta": BETA, "micro_batch_tokens": 30} | changes
    return load(TrainConfig, None, base | {f"update.{name}": value for name, value in update.items()})


def logps_of(policy: Policy, rollout: Rollout) -> Tensor:
    """Of the response's tokens, at the temperature."""
    ids = torch.tensor([rollout.prompt_ids + rollout.response_ids])
    logps = torch.log_softmax(policy.model(input_ids=ids).logits[0, :-1] / TEMPERATURE, dim=-1)
    return logps.gather(1, ids[0, 1:, None])[-len(rollout.response_ids) :, 0]


class Expected(NamedTuple):
    """What the paper's equations 3 and 4 give."""

    loss: float
    kl: float
    approx_kl: float
    clipped: float
    gradient: list[Tensor]

    @property
    def norm(self) -> float:
        return float(torch.cat([g.flatten() for g in self.gradient]).norm())


def by_hand(policy: Policy, ref: Policy) -> Expected:
    answers = []
    for group in GROUPS:
        rewards = torch.tensor(group.rewards, dtype=torch.float64)
        advantages = (rewards - rewards.mean()) / rewards.std(correction=0)
        answers += list(zip(group.decided, advantages, strict=True))
    loss = torch.zeros((), dtype=torch.float64)
    kls, moved, clipped = [], [], []
    for rollout, advantage in answers:
        now, old = logps_of(policy, rollout), torch.tensor(rollout.response_logps)
        start = logps_of(ref, rollout).detach()
        ratio = (now - old).exp()
        plain, bounded = ratio * advantage, ratio.clamp(1 - CLIP, 1 + CLIP) * advantage
        kl = start.exp() / now.exp() - (start - now) - 1  # of the policy to the start model, at tokens that it sampled
        loss = loss - (torch.minimum(plain, bounded) - BETA * kl).mean() / len(answers)
        kls.append(kl)
        moved.append(ratio - ratio.log() - 1)
        clipped.append((bounded < plain).double())
    gradient = torch.autograd.grad(loss, list(policy.model.parameters()))
    kl, approx_kl, share = (torch.cat(parts).mean().item() for parts in (kls, moved, clipped))
    return Expected(loss.item(), kl, approx_kl, share, list(gradient))


@pytest.fixture
def ref() -> Policy:
    return make_policy(seed=1)


@pytest.mark.parametrize("budget", [10_000, 30])
def test_figures_and_weights_are_those_of_the_equations(policy: Policy, ref: Policy, budget: int) -> None:
    expected = by_hand(policy, ref)
    start = [p.detach().clone() for p in policy.model.parameters()]
    optimizer = torch.optim.SGD(policy.model.parameters(), lr=0.1)
    figures = update(policy, optimizer, GROUPS, config(micro_batch_tokens=budget), ref)
    assert figures["update/loss"] == pytest.approx(expected.loss, rel=1e-6)
    assert figures["update/kl"] == pytest.approx(expected.kl, rel=1e-6)
    assert figures["update/approx_kl"] == pytest.approx(expected.approx_kl, rel=1e-6)
    assert figures["update/clip_ratio"] == pytest.approx(expected.clipped)
    assert figures["update/grad_norm"] == pytest.approx(expected.norm, rel=1e-6)
    for moved, before, gradient in zip(policy.model.parameters(), start, expected.gradient, strict=True):
        torch.testing.assert_close(moved, before - 0.1 * gradient, rtol=1e-5, atol=1e-6)


def test_over_several_optimizer_steps_the_figures_are_means(policy: Policy, ref: Policy) -> None:
    """At a learning rate of 0 each of them is the same."""
    expected = by_hand(policy, ref)
    figures = update(policy, torch.optim.SGD(policy.model.parameters(), lr=0.0), GROUPS, config(epochs=3), ref)
    found = [figures[f"update/{name}"] for name in ("loss", "kl", "approx_kl", "clip_ratio", "grad_norm")]
    assert found == pytest.approx([*expected[:4], expected.norm], rel=1e-6)
    assert figures["update/optimizer_steps"] == 3


@pytest.mark.parametrize("share", [0.25, 4.0])
def test_a_gradient_longer_than_the_bound_is_cut_to_it(policy: Policy, ref: Policy, share: float) -> None:
    """The figure is the length before."""
    expected = by_hand(policy, ref)
    start = torch.cat([p.detach().flatten() for p in policy.model.parameters()])
    optimizer = torch.optim.SGD(policy.model.parameters(), lr=1.0)
    figures = update(policy, optimizer, GROUPS, config(max_grad_norm=share * expected.norm), ref)
    step = torch.cat([p.detach().flatten() for p in policy.model.parameters()]) - start
    assert figures["update/grad_norm"] == pytest.approx(expected.norm, rel=1e-6)
    assert step.norm().item() == pytest.approx(min(share, 1.0) * expected.norm, rel=1e-5)


def test_the_optimizer_is_adamw_with_every_setting(policy: Policy) -> None:
    """Its first two steps on a gradient of 1, 3, by Loshchilov and Hutter (arXiv:1711.05101, algorithm 2)."""
    lr, beta1, beta2, decay = 0.01, 0.6, 0.9, 0.5
    optimizer = make_optimizer(policy, config(lr=lr, beta1=beta1, beta2=beta2, weight_decay=decay).update)
    held = [p for part in optimizer.param_groups for p in part["params"]]
    assert {id(p) for p in held} == {id(p) for p in policy.model.parameters()}
    value = policy.model.model.norm.weight
    expected, m, v = value.detach().clone(), 0.0, 0.0
    for t, gradient in enumerate([1.0, 3.0], start=1):
        value.grad = torch.full_like(value, gradient)
        optimizer.step()
        m, v = beta1 * m + (1 - beta1) * gradient, beta2 * v + (1 - beta2) * gradient**2
        expected -= lr * decay * expected
        expected -= lr * (m / (1 - beta1**t)) / ((v / (1 - beta2**t)) ** 0.5 + 1e-8)
        torch.testing.assert_close(value.detach(), expected, rtol=1e-7, atol=1e-9)
