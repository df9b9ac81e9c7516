"""The mismatch figures of a step, and truncated importance sampling through a whole update."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from small import make_group, make_policy

from tossup.engine.config import SamplingConfig, TrainConfig, load
from tossup.engine.generate import TransformersGenerator
from tossup.engine.objective import SURROGATES, policy_loss
from tossup.engine.policy import Policy
from tossup.engine.step import update
from tossup.records import Group

BASE = {"rollout.temperature": 0.8, "rollout.max_new_tokens": 12, "update.micro_batch_tokens": 24, "update.lr": 1e-3}


def sampled(policy: Policy, shift: float = 0.0) -> list[Group]:
    """Two groups whose answers the policy itself sampled, with log-probs that are off by `shift` in every other answer."""
    generator = TransformersGenerator(policy)
    sampling = SamplingConfig(temperature=0.8, max_new_tokens=12)
    groups = []
    for gid, prompt in enumerate([(2, 3, 4), (5, 6)]):
        (answers,) = generator.generate([prompt], 4, [gid], sampling)
        made = make_group("1001", gid=gid)
        rollouts = [
            replace(
                rollout,
                prompt_ids=prompt,
                response_ids=answer.ids,
                response_logps=tuple(x - shift * (i % 2) for x in answer.logps),
            )
            for i, (rollout, answer) in enumerate(zip(made.rollouts, answers, strict=True))
        ]
        groups.append(replace(made, rollouts=tuple(rollouts)))
    return groups


def take(policy: Policy, groups: list[Group], **changes: float) -> tuple[dict[str, float], torch.Tensor]:
    """The figures of an update and the weights after it."""
    settings = BASE | {f"update.{name}": value for name, value in changes.items()}
    optimizer = torch.optim.SGD(policy.model.parameters(), lr=0.1)
    figures = update(policy, optimizer, groups, load(TrainConfig, None, settings), None)
    return figures, torch.cat([p.detach().flatten() for p in policy.model.parameters()])


@pytest.mark.parametrize("cap", [0.0, 2.0])
@pytest.mark.parametrize("epochs", [1, 3])
def test_the_figures_are_those_of_the_weights_that_sampled(cap: float, epochs: int) -> None:
    groups = sampled(make_policy(), shift=0.3)
    figures, _ = take(make_policy(), groups, tis_cap=cap, epochs=epochs)
    even, odd = (
        sum(len(r.response_ids) for g in groups for i, r in enumerate(g.rollouts) if i % 2 == k) for k in (0, 1)
    )
    share = odd / (even + odd)
    assert figures["mismatch/max_ratio"] == pytest.approx(math.exp(0.3), rel=1e-4)
    assert figures["mismatch/mean_ratio"] == pytest.approx(1 + share * (math.exp(0.3) - 1), rel=1e-4)
    assert figures["mismatch/kl"] == pytest.approx(share * (math.exp(0.3) - 1 - 0.3), rel=1e-3)


def test_answers_of_an_older_policy_do_not_count_as_mismatch() -> None:
    fresh, stale = sampled(make_policy(), shift=0.0)
    fresh = replace(fresh, rollouts=tuple(replace(r, policy_step=7) for r in fresh.rollouts))
    stale = replace(
        stale,
        rollouts=tuple(
            replace(r, policy_step=6, response_logps=tuple(x - 1.0 for x in r.response_logps)) for r in stale.rollouts
        ),
    )
    figures, _ = take(make_policy(), [fresh, stale])
    assert figures["mismatch/max_ratio"] == pytest.approx(1, abs=1e-4)
    assert figures["mismatch/kl"] < 1e-8
    assert figures["update/max_ratio"] == pytest.approx(math.e, rel=1e-3)


def test_without_a_mismatch_the_correction_changes_nothing() -> None:
    groups = sampled(make_policy())
    (_, plain), (_, corrected) = (take(make_policy(), groups, tis_cap=cap) for cap in (0.0, 2.0))
    torch.testing.assert_close(plain, corrected, rtol=0, atol=1e-6)


def test_the_correction_weighs_by_the_ratio_up_to_the_cap() -> None:
    groups = sampled(make_policy(), shift=0.15)  # within the clip range, where both ways weigh by the same ratio
    start = torch.cat([p.detach().flatten() for p in make_policy().model.parameters()])
    (_, plain), (_, loose), (_, tight) = (take(make_policy(), groups, tis_cap=cap) for cap in (0.0, 2.0, 1.0))
    torch.testing.assert_close(plain, loose, rtol=0, atol=1e-6)
    _, exact = take(make_policy(), sampled(make_policy()), tis_cap=2.0)
    torch.testing.assert_close(tight, exact, rtol=0, atol=1e-6)  # every ratio is at least 1, so the cap makes them 1
    assert (loose - tight).abs().max() > 1e-4 * (loose - start).abs().max()


@pytest.mark.parametrize("name", sorted(SURROGATES))
def test_the_correction_weighs_the_gain_and_not_the_kl_term(name: str) -> None:
    """The KL estimate is at the trainer's own log-probs; the sampler's are not in it."""
    g = torch.Generator().manual_seed(0)
    logps, old, ref = (-2 + torch.randn(3, 5, generator=g, dtype=torch.float64) for _ in range(3))
    trust, mask = torch.rand(3, 5, generator=g, dtype=torch.float64), torch.rand(3, 5, generator=g) < 0.7
    adv, weights = torch.tensor([1.0, -1.0, 0.5]).double(), torch.tensor([0.1, 0.2, 0.3]).double()
    given = (SURROGATES[name], logps, old, adv, weights, mask, 0.2, 0.2)
    both = policy_loss(*given, kl_beta=0.3, ref_logps_BT=ref, trust_BT=trust).loss
    gain = policy_loss(*given, trust_BT=trust).loss
    penalty = sum(
        0.3 * weights[b].item() * (math.exp(d) - d - 1)
        for b, t in mask.nonzero().tolist()
        for d in [(ref - logps)[b, t].item()]
    )
    assert (both - gain).item() == pytest.approx(penalty)
