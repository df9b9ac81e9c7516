"""Log-probs in chunks: the same values and gradients as from all logits at once, in a fraction of the memory."""

from __future__ import annotations

import dataclasses
import functools
import math

import pytest
import torch
from small import VOCABULARY, make_policy

from tossup.engine import logps
from tossup.engine.logps import _chosen, logps_and_entropy, token_logps
from tossup.engine.policy import Policy
from tossup.engine.probe import probe


class OtherHead(torch.nn.Linear):
    """Computes the same; but that a head computes its matrix's products is known of `torch.nn.Linear` itself alone."""


def batch() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    g = torch.Generator().manual_seed(0)
    ids = torch.randint(2, VOCABULARY, (3, 9), generator=g)
    attention = torch.tensor([[1] * 9, [1] * 7 + [0] * 2, [1] * 5 + [0] * 4])
    mask = (torch.rand(3, 8, generator=g) < 0.6) & attention[:, 1:].bool()
    return ids, attention, mask


def value_and_gradients(
    policy: Policy, chunk: int, temperature: float = 0.7
) -> tuple[torch.Tensor, list[torch.Tensor]]:
    ids, attention, mask = batch()
    policy.model.zero_grad()
    logps = token_logps(policy, ids, attention, mask, temperature, chunk)
    (logps * torch.arange(8)).sum().backward()
    return logps.detach(), [p.grad.clone() for p in policy.model.parameters()]


@pytest.mark.parametrize("head", [torch.nn.Linear, OtherHead])
@pytest.mark.parametrize("rows", [1, 2, 5])
def test_chunks_give_the_same_values_and_gradients(policy: Policy, rows: int, head: type[torch.nn.Linear]) -> None:
    policy.model.lm_head.__class__ = head
    whole, chunked = value_and_gradients(policy, 1 << 25), value_and_gradients(policy, rows * VOCABULARY)
    torch.testing.assert_close(whole[0], chunked[0], rtol=1e-12, atol=1e-12)
    for a, b in zip(whole[1], chunked[1], strict=True):
        torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-12)


def test_they_are_the_log_softmax_of_the_model_s_own_logits(policy: Policy) -> None:
    ids, attention, mask = batch()
    logits = policy.model(input_ids=ids, attention_mask=attention).logits[:, :-1] / 0.7
    expected = logits.log_softmax(-1).gather(-1, ids[:, 1:, None])[..., 0]
    found = token_logps(policy, ids, attention, mask, 0.7)
    torch.testing.assert_close(found, torch.where(mask, expected, 0.0))
    assert not found[~mask].any()


@pytest.mark.parametrize("tied", [False, True])
def test_every_parameter_gets_the_gradient_of_all_logits_also_where_the_head_is_the_embedding(tied: bool) -> None:
    policy = make_policy()
    if tied:
        policy.model.lm_head.weight = policy.model.model.embed_tokens.weight
    ids, attention, mask = batch()
    weights = torch.arange(8, dtype=torch.float64)
    _, found = value_and_gradients(policy, 2 * VOCABULARY)
    policy.model.zero_grad()
    logits = policy.model(input_ids=ids, attention_mask=attention).logits[:, :-1] / 0.7
    logps = logits.log_softmax(-1).gather(-1, ids[:, 1:, None])[..., 0]
    (torch.where(mask, logps, 0.0) * weights).sum().backward()
    for mine, p in zip(found, policy.model.parameters(), strict=True):
        torch.testing.assert_close(mine, p.grad, rtol=1e-9, atol=1e-12)


def test_a_model_that_does_more_than_its_head_takes_the_whole_way() -> None:
    policy = make_policy()
    assert probe(policy).plain_head
    plain = value_and_gradients(policy, VOCABULARY)
    forward = policy.model.forward

    @functools.wraps(forward)
    def capped(*args: object, **kwargs: object) -> object:
        out = forward(*args, **kwargs)
        out.logits = torch.tanh(out.logits)
        return out

    policy.model.forward = capped
    assert not probe(policy).plain_head
    honest = value_and_gradients(dataclasses.replace(policy, plain_head=False), VOCABULARY)
    assert not torch.allclose(plain[0], honest[0])


def test_padding_changes_nothing(policy: Policy) -> None:
    ids, attention, mask = batch()
    together = token_logps(policy, ids, attention, mask, 1.0)
    for b in range(3):
        n = int(attention[b].sum())
        alone = token_logps(policy, ids[b : b + 1, :n], attention[b : b + 1, :n], mask[b : b + 1, : n - 1], 1.0)
        torch.testing.assert_close(alone[0], together[b, : n - 1], rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("head", [torch.nn.Linear, OtherHead])
def test_many_chunks_lose_no_more_of_the_gradient_than_bfloat16_itself(head: type[torch.nn.Linear]) -> None:
    """The head's gradient is a sum over chunks: 256 of them, added up in bfloat16, would lose ten times as much."""
    g = torch.Generator().manual_seed(0)
    ids = torch.randint(2, VOCABULARY, (8, 33), generator=g)
    exact = make_policy(dtype=torch.float32)
    exact.model.lm_head.__class__ = head
    half = dataclasses.replace(exact, compute=torch.bfloat16)

    def head_gradient(policy: Policy, chunk: int) -> torch.Tensor:
        policy.model.zero_grad()
        logps = token_logps(policy, ids, torch.ones_like(ids), torch.ones_like(ids[:, 1:]).bool(), 0.7, chunk)
        (logps * torch.arange(32)).sum().backward()
        return policy.model.lm_head.weight.grad.clone()

    truth = head_gradient(exact, 1 << 25)
    whole, chunked = ((head_gradient(half, chunk) - truth).norm() / truth.norm() for chunk in (1 << 25, VOCABULARY))
    assert whole < 0.02
    assert chunked < 1.2 * whole


@pytest.mark.parametrize("chunk", [VOCABULARY, 3 * VOCABULARY, 1 << 25])
@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("head", [torch.nn.Linear, OtherHead])
def test_the_entropy_is_that_of_the_whole_distribution_at_the_temperature(
    chunk: int, packed: bool, head: type[torch.nn.Linear]
) -> None:
    policy = dataclasses.replace(make_policy(), packs=True)
    policy.model.lm_head.__class__ = head
    ids, attention, mask = batch()
    logits = policy.model(input_ids=ids, attention_mask=attention).logits[:, :-1][mask] / 0.7
    expected = torch.distributions.Categorical(logits=logits).entropy().sum()
    logps, entropy = logps_and_entropy(policy, ids, attention, mask, 0.7, chunk, packed)
    torch.testing.assert_close(entropy, expected)
    assert not entropy.requires_grad
    assert torch.equal(logps, token_logps(policy, ids, attention, mask, 0.7, chunk, packed))


def test_impossible_tokens_leave_the_entropy_of_the_others() -> None:
    logits = torch.tensor([[0.0, -torch.inf, 0.0, -torch.inf], [3.0, 3.0, 3.0, 3.0]])
    _, entropy = _chosen(logits, torch.tensor([0, 1]), 1.0, entropy=True)
    assert entropy.item() == pytest.approx(math.log(2) + math.log(4))


def test_the_entropy_costs_the_backward_pass_nothing(policy: Policy, monkeypatch: pytest.MonkeyPatch) -> None:
    """Chunks of a head that is no plain matrix are computed again there, up to what the gradient needs."""
    policy.model.lm_head.__class__ = OtherHead
    calls: list[int] = []
    monkeypatch.setattr(logps, "_entropy", lambda scaled, total: calls.append(len(scaled)) or total.sum())
    ids, attention, mask = batch()
    found, _ = logps_and_entropy(policy, ids, attention, mask, 0.7, 2 * VOCABULARY)
    forward = list(calls)
    assert sum(forward) == mask.sum()
    found.sum().backward()
    assert calls == forward
