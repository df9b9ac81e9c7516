"""The head block by block of its words: the values, the gradients and the entropy of all logits at once."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from tossup.engine.head import chosen_logps


def tensors(n: int, d: int, v: int, seed: int = 0, scale: float = 1.0) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Hidden states, weight and bias, that want a gradient, and targets."""
    g = torch.Generator().manual_seed(seed)
    hidden, weight, bias = (
        (scale * torch.randn(shape, generator=g, dtype=torch.float64)).requires_grad_()
        for shape in ((n, d), (v, d), (v,))
    )
    return hidden, weight, bias, torch.randint(0, v, (n,), generator=g)


def plainly(logits: Tensor, targets: Tensor) -> tuple[Tensor, float]:
    """What one would write first; the entropy in plain Python."""
    logps = logits.log_softmax(1)
    probs = (math.exp(logp) for row in logps.tolist() for logp in row)
    return logps.gather(1, targets[:, None])[:, 0], -sum(p * math.log(p) for p in probs if p > 0)


@pytest.mark.parametrize("words", [1, 3, 7, 50])
@pytest.mark.parametrize("biased", [False, True])
def test_the_gradient_is_that_of_the_values(words: int, biased: bool) -> None:
    hidden, weight, bias, targets = tensors(5, 4, 7)

    def logps(hidden: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        return chosen_logps(hidden, weight, bias if biased else None, targets, 0.7, 5 * words, True)[0]

    assert torch.autograd.gradcheck(logps, (hidden, weight, bias))


@given(
    n=st.integers(0, 6),
    v=st.integers(1, 20),
    block=st.integers(1, 130),
    temperature=st.sampled_from([0.3, 1.0, 2.5]),
    scale=st.sampled_from([0.0, 1.0, 40.0]),
    seed=st.integers(0, 1000),
    impossible=st.sets(st.integers(0, 19)),
)
def test_any_block_gives_what_all_logits_give(
    n: int, v: int, block: int, temperature: float, scale: float, seed: int, impossible: set[int]
) -> None:
    """Words that a bias of -inf rules out are among them, whole blocks of them too; some word is always possible."""
    hidden, weight, bias, targets = tensors(n, 3, v, seed, scale)
    ruled_out = torch.tensor([word in impossible and word != seed % v for word in range(v)])
    targets = torch.where(ruled_out[targets], seed % v, targets)
    bias = bias.detach().masked_fill(ruled_out, -torch.inf).requires_grad_()
    upstream = torch.randn(n, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)

    logps, entropy = chosen_logps(hidden, weight, bias, targets, temperature, block, True)
    expected, expected_entropy = plainly((hidden @ weight.T + bias) / temperature, targets)
    torch.testing.assert_close(logps, expected, rtol=1e-9, atol=1e-9)
    assert entropy.item() == pytest.approx(expected_entropy, rel=1e-9, abs=1e-9)
    found = torch.autograd.grad(logps, (hidden, weight, bias), upstream)
    for mine, plain in zip(found, torch.autograd.grad(expected, (hidden, weight, bias), upstream), strict=True):
        torch.testing.assert_close(mine, plain, rtol=1e-8, atol=1e-8)


def test_impossible_words_leave_the_entropy_of_the_others() -> None:
    bias = torch.tensor([0.0, -torch.inf, 0.0, -torch.inf, -torch.inf, 0.0])
    for block in range(1, 13):
        zeros = torch.zeros(2, 1), torch.zeros(6, 1)
        logps, entropy = chosen_logps(*zeros, bias, torch.tensor([5, 1]), 1.0, block, True)
        assert entropy.item() == pytest.approx(2 * math.log(3))
        assert logps.tolist() == pytest.approx([-math.log(3), -math.inf])


def test_far_logits_neither_overflow_nor_vanish() -> None:
    """exp of 1,000 is no number, and exp of -1,000 is none beside 0."""
    hidden, weight = torch.tensor([[1.0], [-1.0]]), torch.tensor([[-1000.0], [0.0], [1000.0], [999.0]])
    logps, entropy = chosen_logps(hidden, weight, None, torch.tensor([3, 0]), 1.0, 2, True)
    p = 1 / (1 + math.exp(-1))
    assert logps.tolist() == pytest.approx([math.log(1 - p), 0.0])
    assert entropy.item() == pytest.approx(
        -p * math.log(p) - (1 - p) * math.log(1 - p), rel=1e-3
    )  # of 1,000 in float32


def test_the_entropy_is_left_out_where_nobody_asks_and_has_no_gradient() -> None:
    hidden, weight, bias, targets = tensors(5, 4, 7)
    with_it, entropy = chosen_logps(hidden, weight, bias, targets, 1.0, 10, True)
    without, nothing = chosen_logps(hidden, weight, bias, targets, 1.0, 10, False)
    assert torch.equal(with_it, without)
    assert not entropy.requires_grad
    assert nothing == 0 < entropy


def test_a_frozen_head_gets_no_gradient() -> None:
    hidden, weight, _, targets = tensors(5, 4, 7)
    logps, _ = chosen_logps(hidden, weight.detach(), None, targets, 1.0, 10, False)
    expected, _ = plainly(hidden @ weight.detach().T, targets)
    torch.testing.assert_close(torch.autograd.grad(logps.sum(), hidden), torch.autograd.grad(expected.sum(), hidden))


def test_no_more_logits_than_two_blocks_are_ever_held() -> None:
    """Of the 40,000 there are; counted by torch's own profiler."""
    hidden, weight, _, targets = tensors(20, 4, 2000)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profiler:
        logps, _ = chosen_logps(hidden, weight, None, targets, 1.0, 1000, True)
        logps.sum().backward()
    held = most = 0
    for event in profiler.profiler.kineto_results.events():
        if event.name() == "[memory]":
            held += event.nbytes()
            most = max(most, held)
    assert 8 * 2 * 1000 < most < 8 * (2 * 1000 + 2000 * 4 + 30 * 20 * 4)
