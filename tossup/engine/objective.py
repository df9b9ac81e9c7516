"""The GRPO objective (Shao et al., arXiv:2402.03300, equations 3 and 4) as pure functions of numbers and tensors.

Shapes, as suffixes of names:
    B  sequences (rollouts) of a batch or micro-batch
    T  token positions of a sequence; position t predicts the token t + 1

    loss = - sum_b w_b sum_t mask_bt [ min(rho_bt A_b, clip(rho_bt, 1 - low, 1 + high) A_b) - beta KL_bt ]

The weights w_B hold the whole normalisation. They are computed once, from the lengths of all kept sequences of the batch,
before it is cut into micro-batches: a micro-batch adds its own sum, so one micro-batch and many give the same gradient, and
a group that was dropped is in no denominator.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor


def advantages(rewards: Sequence[float], std_norm: bool = True) -> list[float]:
    """Group-relative advantages (r - mean) / std with the population standard deviation; they sum to zero.

    Without `std_norm` the division is left out (Dr. GRPO, arXiv:2503.20783). `rewards` are those of the decided rollouts.

    Raises:
        ValueError: the group is degenerate. Such a group is dropped before this point, not trained with zeros.
    """
    if len(rewards) < 2 or max(rewards) == min(rewards):
        raise ValueError(f"a degenerate group has no advantages: rewards {list(rewards)}")
    mean = sum(rewards) / len(rewards)
    std = (sum((r - mean) ** 2 for r in rewards) / len(rewards)) ** 0.5
    scale = std if std_norm else 1.0
    return [(r - mean) / scale for r in rewards]


def sequence_weights(lengths: Sequence[int], aggregate: str, max_new_tokens: int) -> list[float]:
    """The weight of every token of each kept sequence of the whole batch.

    sequence  1 / (B len_b): the mean over each answer, then over answers (GRPO, equation 3)
    token     1 / sum of lengths: the mean over all tokens (DAPO, arXiv:2503.14476, equation 8)
    constant  1 / (B max_new_tokens): a fixed length, so that long answers are not favoured (Dr. GRPO)

    Raises:
        ValueError: `aggregate` is none of these.
    """
    if aggregate == "sequence":
        return [1.0 / (len(lengths) * length) for length in lengths]
    if aggregate == "token":
        return [1.0 / sum(lengths)] * len(lengths)
    if aggregate == "constant":
        return [1.0 / (len(lengths) * max_new_tokens)] * len(lengths)
    raise ValueError(f"aggregate is sequence, token or constant, got {aggregate!r}")


class LossParts(NamedTuple):
    """The loss of a micro-batch and what the log shows of it; sums over tokens, not means."""

    loss: Tensor
    """Scalar, this micro-batch's share of the batch's loss."""
    clipped: Tensor
    """Tokens at which the clipped term was the smaller one."""
    kl: Tensor
    """Sum of k3 estimates against the reference; zero without one."""
    ratio_max: Tensor
    """Largest importance ratio at an unmasked token."""
    mismatch: Tensor
    """Sum of k3 estimates of KL(sampler || trainer): how far the two log-probs are apart."""


def grpo_loss(
    logps_BT: Tensor,
    old_logps_BT: Tensor,
    advantages_B: Tensor,
    weights_B: Tensor,
    mask_BT: Tensor,
    clip_low: float,
    clip_high: float,
    kl_beta: float = 0.0,
    ref_logps_BT: Tensor | None = None,
) -> LossParts:
    """The clipped surrogate with an optional KL penalty, summed over the tokens where `mask_BT` is true.

    All log-probabilities are in nats at the sampling temperature; `old_logps_BT` are the sampler's own, so the ratio
    corrects for every update since sampling.
    """
    log_ratio_BT = torch.where(mask_BT, logps_BT - old_logps_BT, 0.0)
    ratio_BT = log_ratio_BT.exp()
    plain_BT = ratio_BT * advantages_B[:, None]
    clipped_BT = ratio_BT.clamp(1 - clip_low, 1 + clip_high) * advantages_B[:, None]
    gain_BT = torch.minimum(plain_BT, clipped_BT)
    kl = logps_BT.new_zeros(())
    if kl_beta > 0 and ref_logps_BT is not None:
        kl_BT = torch.where(mask_BT, k3(ref_logps_BT, logps_BT), 0.0)
        gain_BT = gain_BT - kl_beta * kl_BT
        kl = kl_BT.detach().sum()
    loss = -(torch.where(mask_BT, gain_BT, 0.0).sum(dim=1) * weights_B).sum()
    with torch.no_grad():
        return LossParts(
            loss,
            clipped=(mask_BT & (clipped_BT < plain_BT)).sum(),
            kl=kl,
            ratio_max=ratio_BT.max(),
            mismatch=torch.where(mask_BT, k3(logps_BT, old_logps_BT), 0.0).sum(),
        )


def k3(other_logps: Tensor, own_logps: Tensor) -> Tensor:
    """The k3 estimate of KL(own || other) at tokens sampled from `own` (equation 4): never negative, unbiased."""
    difference = other_logps - own_logps
    return torch.expm1(difference) - difference
