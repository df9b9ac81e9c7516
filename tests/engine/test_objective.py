"""The loss and its gradient against a plain Python loop over the paper's equations."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tossup.engine.objective import (
    SURROGATES,
    advantages,
    clipped_ratio,
    k3,
    mismatch,
    overlong_penalty,
    policy_loss,
    sequence_weights,
    truncated_weights,
)


def test_the_worked_examples() -> None:
    assert advantages([1, 0, 0, 1]) == [1, -1, -1, 1]
    assert advantages([1, 1, 1, 1, 1, 0, 0, 0], std_norm=False) == [0.375] * 5 + [-0.625] * 3


mixed = st.lists(st.sampled_from([0.0, 1.0]), min_size=2, max_size=32).filter(lambda r: len(set(r)) == 2)


@given(mixed)
def test_advantages_sum_to_zero_with_unit_variance(rewards: list[float]) -> None:
    a = advantages(rewards)
    assert sum(a) == pytest.approx(0, abs=1e-9)
    assert sum(x * x for x in a) / len(a) == pytest.approx(1)
    assert all((x > 0) == (r == 1) for x, r in zip(a, rewards, strict=True))


@pytest.mark.parametrize("rewards", [[], [1.0], [0.0, 0.0], [1.0, 1.0, 1.0]])
def test_a_degenerate_group_has_no_advantages(rewards: list[float]) -> None:
    with pytest.raises(ValueError, match="degenerate"):
        advantages(rewards)


def test_an_overlong_answer_loses_reward_as_in_dapo() -> None:
    """Equation 13 with L_max 20 and L_cache 4: nothing up to 16 tokens, then linearly to 1 at the limit."""
    lost = [overlong_penalty(length, 20, 0.2) for length in (1, 16, 17, 18, 19, 20, 25)]
    assert lost == pytest.approx([0, 0, 0.25, 0.5, 0.75, 1, 1])
    assert overlong_penalty(20, 20, 0.0) == 0
    assert overlong_penalty(5, 10, 1.0) == 0.5


def test_weights_are_the_named_denominators() -> None:
    lengths = [2, 6]
    assert sequence_weights(lengths, "sequence", 10) == [1 / 4, 1 / 12]
    assert sequence_weights(lengths, "token", 10) == [1 / 8, 1 / 8]
    assert sequence_weights(lengths, "constant", 10) == [1 / 20, 1 / 20]
    with pytest.raises(ValueError, match="aggregate"):
        sequence_weights(lengths, "mean", 10)


def loop_loss(name, logps, old, adv, weights, mask, low, high, beta, ref, frozen):  # type: ignore[no-untyped-def]
    """The papers' equations, token by token. `frozen` are the log-probs that CISPO's weight takes no gradient through."""
    total = 0.0
    for b in range(len(logps)):
        inside = [t for t in range(len(logps[b])) if mask[b][t]]
        for t in inside:
            if name == "cispo":
                weight = min(max(math.exp(frozen[b][t] - old[b][t]), 1 - low), 1 + high)
                gain = weight * adv[b] * logps[b][t]
            else:
                rho = math.exp(logps[b][t] - old[b][t])
                if name == "gspo":
                    rho = math.prod(math.exp(logps[b][u] - old[b][u]) for u in inside) ** (1 / len(inside))
                gain = min(rho * adv[b], min(max(rho, 1 - low), 1 + high) * adv[b])
            kl = math.exp(ref[b][t] - logps[b][t]) - (ref[b][t] - logps[b][t]) - 1
            total -= weights[b] * (gain - beta * kl)
    return total


@pytest.mark.parametrize("name", ["grpo", "gspo", "cispo"])
@pytest.mark.parametrize("beta", [0.0, 0.3])
@pytest.mark.parametrize(("low", "high"), [(0.2, 0.2), (0.05, 0.4)])
def test_loss_and_gradient_equal_the_loop(name: str, beta: float, low: float, high: float) -> None:
    g = torch.Generator().manual_seed(1)
    b, t = 5, 7
    logps = torch.randn(b, t, generator=g, dtype=torch.float64) - 2
    old = logps + 0.4 * torch.randn(b, t, generator=g, dtype=torch.float64)
    ref = logps + 0.4 * torch.randn(b, t, generator=g, dtype=torch.float64)
    mask = torch.rand(b, t, generator=g) < 0.7
    adv = torch.tensor([1.0, -1.0, 0.5, -0.2, 2.0], dtype=torch.float64)
    weights = torch.tensor([0.1, 0.2, 0.3, 0.05, 0.4], dtype=torch.float64)
    x = logps.clone().requires_grad_()
    parts = policy_loss(SURROGATES[name], x, old, adv, weights, mask, low, high, beta, ref)
    args = (old.tolist(), adv.tolist(), weights.tolist(), mask.tolist(), low, high, beta, ref.tolist(), logps.tolist())
    assert parts.loss.item() == pytest.approx(loop_loss(name, logps.tolist(), *args), rel=1e-12)
    assert 0 < parts.low + parts.high < mask.sum()
    parts.loss.backward()  # type: ignore[no-untyped-call]
    assert x.grad is not None
    eps = 1e-6
    for i in range(b):
        for j in range(t):
            up, down = logps.clone(), logps.clone()
            up[i, j] += eps
            down[i, j] -= eps
            slope = (loop_loss(name, up.tolist(), *args) - loop_loss(name, down.tolist(), *args)) / (2 * eps)
            assert x.grad[i, j].item() == pytest.approx(slope, abs=1e-6)


def test_masked_positions_change_nothing() -> None:
    logps, old = torch.tensor([[-1.0, -2.0]]), torch.tensor([[-1.1, -2.0]])
    mask = torch.tensor([[True, False]])
    a = policy_loss(clipped_ratio, logps, old, torch.ones(1), torch.ones(1), mask, 0.2, 0.2)
    b = policy_loss(clipped_ratio, logps, torch.tensor([[-1.1, -900.0]]), torch.ones(1), torch.ones(1), mask, 0.2, 0.2)
    assert torch.equal(a.loss, b.loss)
    assert a.ratio_max == b.ratio_max


def test_on_policy_nothing_is_clipped() -> None:
    logps = torch.full((2, 3), -1.5)
    parts = policy_loss(
        clipped_ratio, logps, logps, torch.tensor([1.0, -1.0]), torch.ones(2), torch.ones(2, 3).bool(), 0.2, 0.2
    )
    assert parts.low + parts.high == 0
    assert parts.ratio_max == 1


def test_a_kl_penalty_without_a_reference_is_an_error() -> None:
    logps, mask = torch.full((1, 2), -1.5), torch.ones(1, 2).bool()
    with pytest.raises(ValueError, match="needs the reference"):
        policy_loss(clipped_ratio, logps, logps, torch.ones(1), torch.ones(1), mask, 0.2, 0.2, kl_beta=0.1)


def two_log_probs() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The trainer's, the sampler's, and a mask; outside the mask they are absurd."""
    g = torch.Generator().manual_seed(2)
    trainer = torch.randn(4, 6, generator=g, dtype=torch.float64) - 2
    sampler = trainer + 0.7 * torch.randn(4, 6, generator=g, dtype=torch.float64)
    mask = torch.rand(4, 6, generator=g) < 0.6
    return trainer, torch.where(mask, sampler, -900.0), mask


def test_the_mismatch_equals_the_loop() -> None:
    trainer, sampler, mask = two_log_probs()
    pairs = [(p, q) for p, q in zip(trainer[mask].tolist(), sampler[mask].tolist(), strict=True)]
    found = mismatch(trainer, sampler, mask)
    assert found.kl.item() == pytest.approx(sum(math.exp(p - q) - 1 - (p - q) for p, q in pairs))
    assert found.ratio.item() == pytest.approx(sum(math.exp(p - q) for p, q in pairs))
    assert found.ratio_max.item() == pytest.approx(max(math.exp(p - q) for p, q in pairs))
    assert found.tokens.item() == len(pairs)
    same = mismatch(trainer, trainer, mask)
    assert (same.kl, same.ratio, same.ratio_max) == (0, len(pairs), 1)


@pytest.mark.parametrize("name", ["grpo", "gspo", "cispo"])
@pytest.mark.parametrize("cap", [0.9, 2.0])
def test_truncated_importance_sampling_equals_the_loop(name: str, cap: float) -> None:
    trainer, sampler, mask = two_log_probs()
    trust = truncated_weights(trainer, sampler, mask, cap)
    adv = torch.tensor([1.0, -1.0, 0.5, -0.2], dtype=torch.float64)
    logps = (trainer + 0.1).requires_grad_()
    none = torch.zeros(4, 6).tolist()
    total = 0.0
    for b in range(4):  # one token at a time through the plain loop, weighted by hand
        for t in (t for t in range(6) if mask[b][t]):
            w = min(math.exp(trainer[b, t].item() - sampler[b, t].item()), cap)
            assert trust[b, t].item() == pytest.approx(w)
            alone = [[u == t or (name == "gspo" and bool(mask[b][u])) for u in range(6)]]
            one = ([adv[b].item()], [0.3], alone, 0.2, 0.2, 0.0)
            args = ([logps[b].tolist()], [trainer[b].tolist()], *one, [none[b]], [logps[b].tolist()])
            total += w * loop_loss(name, *args) / (sum(alone[0]) if name == "gspo" else 1)
    weights = torch.full((4,), 0.3, dtype=torch.float64)
    parts = policy_loss(SURROGATES[name], logps, trainer, adv, weights, mask, 0.2, 0.2, trust_BT=trust)
    assert parts.loss.item() == pytest.approx(total)
    plain = policy_loss(SURROGATES[name], logps, trainer, adv, weights, mask, 0.2, 0.2)
    assert parts.loss.item() != pytest.approx(plain.loss.item(), rel=1e-3)
    (gradient,) = torch.autograd.grad(parts.loss, logps, retain_graph=True)
    (unweighted,) = torch.autograd.grad(plain.loss, logps)
    if name != "gspo":  # there a token's weight reaches the whole sequence
        assert torch.allclose(gradient, unweighted * torch.where(mask, trust, 1.0))
    assert (gradient[~mask] == 0).all()


@given(st.floats(-5, 0), st.floats(-5, 0))
def test_k3_is_never_negative_up_to_rounding_and_zero_only_at_equality(a: float, b: float) -> None:
    value = k3(torch.tensor(a, dtype=torch.float64), torch.tensor(b, dtype=torch.float64)).item()
    assert value >= -1e-12
    assert value > 0 or abs(a - b) < 1e-6
    assert k3(torch.tensor(a), torch.tensor(a)).item() == 0


@pytest.mark.parametrize("name", ["grpo", "gspo"])
def test_a_dual_clip_is_trl_s_delta_and_counts_as_too_high(name: str) -> None:
    """TRL: min(min(ratio, delta) A, clip(ratio) A), by `GRPOTrainer._compute_loss`."""
    g = torch.Generator().manual_seed(4)
    logps = torch.randn(6, 9, generator=g, dtype=torch.float64) - 2
    old = logps + torch.randn(6, 9, generator=g, dtype=torch.float64) + torch.linspace(-2, 0, 6)[:, None]
    mask = torch.rand(6, 9, generator=g) < 0.8
    adv = torch.tensor([-1.0, -0.5, 1.0, -2.0, 0.3, 0.7], dtype=torch.float64)
    weights = torch.full((6,), 0.1, dtype=torch.float64)
    x, y = logps.clone().requires_grad_(), logps.clone().requires_grad_()
    ours = policy_loss(SURROGATES[name], x, old, adv, weights, mask, 0.2, 0.3, clip_dual=1.7)
    ours.loss.backward()  # type: ignore[no-untyped-call]
    log_ratio = torch.where(mask, y - old, 0.0)
    if name == "gspo":
        log_ratio = (log_ratio.sum(1) / mask.sum(1))[:, None].expand_as(log_ratio)
    ratio = log_ratio.exp()
    gain = torch.minimum(ratio.clamp(max=1.7) * adv[:, None], ratio.clamp(0.8, 1.3) * adv[:, None])
    loss = -(torch.where(mask, gain, 0.0).sum(1) * weights).sum()
    loss.backward()
    torch.testing.assert_close(ours.loss, loss)
    torch.testing.assert_close(x.grad, y.grad)
    plain = policy_loss(SURROGATES[name], logps, old, adv, weights, mask, 0.2, 0.3)
    assert ours.high - plain.high == (mask & (ratio > 1.7) & (adv[:, None] < 0)).sum() > 0
    assert ours.low == plain.low


@pytest.mark.parametrize("name", ["grpo", "gspo", "cispo"])
def test_what_was_clipped_says_from_which_side(name: str) -> None:
    """One token each: ratios e^1 and e^-1, with either sign of the advantage. CISPO clips whatever the sign."""
    logps = torch.tensor([[-1.0], [-1.0], [-3.0], [-3.0]])
    adv, mask = torch.tensor([1.0, -1.0, 1.0, -1.0]), torch.ones(4, 1).bool()
    parts = policy_loss(SURROGATES[name], logps, torch.full((4, 1), -2.0), adv, torch.ones(4), mask, 0.2, 0.2)
    assert (parts.low, parts.high) == ((2, 2) if name == "cispo" else (1, 1))
    assert parts.moved.item() == pytest.approx(2 * (math.e - 2) + 2 / math.e)
