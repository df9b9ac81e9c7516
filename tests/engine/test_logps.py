"""Log-probs in chunks: the same values and gradients as from all logits at once, in a fraction of the memory."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from conftest import VOCABULARY, make_policy

from tossup.engine.logps import token_logps
from tossup.engine.policy import Policy, _has_plain_head


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


@pytest.mark.parametrize("rows", [1, 2, 5])
def test_chunks_give_the_same_values_and_gradients(policy: Policy, rows: int) -> None:
    whole, chunked = value_and_gradients(policy, 1 << 25), value_and_gradients(policy, rows * VOCABULARY)
    torch.testing.assert_close(whole[0], chunked[0], rtol=1e-12, atol=1e-12)
    for a, b in zip(whole[1], chunked[1], strict=True):
        torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-12)


def test_they_are_the_log_softmax_of_the_model_s_own_logits(policy: Policy) -> None:
    ids, attention, mask = batch()
    logits = policy.model(input_ids=ids, attention_mask=attention).logits[:, :-1] / 0.7
    expected = logits.log_softmax(-1).gather(-1, ids[:, 1:, None])[..., 0]
    logps = token_logps(policy, ids, attention, mask, 0.7)
    torch.testing.assert_close(logps, torch.where(mask, expected, 0.0))
    assert not logps[~mask].any()


def test_a_model_that_does_more_than_its_head_takes_the_whole_way() -> None:
    policy = make_policy()
    assert _has_plain_head(policy)
    plain = value_and_gradients(policy, VOCABULARY)
    forward = policy.model.forward

    def capped(*args: object, **kwargs: object) -> object:
        out = forward(*args, **kwargs)
        out.logits = torch.tanh(out.logits)
        return out

    policy.model.forward = capped
    assert not _has_plain_head(policy)
    honest = value_and_gradients(dataclasses.replace(policy, plain_head=False), VOCABULARY)
    assert not torch.allclose(plain[0], honest[0])


def test_padding_changes_nothing(policy: Policy) -> None:
    ids, attention, mask = batch()
    together = token_logps(policy, ids, attention, mask, 1.0)
    for b in range(3):
        n = int(attention[b].sum())
        alone = token_logps(policy, ids[b : b + 1, :n], attention[b : b + 1, :n], mask[b : b + 1, : n - 1], 1.0)
        torch.testing.assert_close(alone[0], together[b, : n - 1], rtol=1e-9, atol=1e-12)
