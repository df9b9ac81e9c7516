"""The objectives as pure functions of numbers and tensors: GRPO (Shao et al., arXiv:2402.03300, equations 3 and 4) and kin.

Shapes, as suffixes of names:
    B  sequences (rollouts) of a batch or micro-batch
    T  token positions of a sequence; position t predicts the token t + 1

    loss = - sum_b w_b sum_t mask_bt [ gain_bt - beta KL_bt ]        gain: a `Surrogate`, for GRPO the clipped ratio

The weights w_B hold the whole normalisation. They are computed once, from the lengths of all kept sequences of the batch,
before it is cut into micro-batches: a micro-batch adds its own sum, so one micro-batch and many give the same gradient, and
a group that was dropped is in no denominator.

A surrogate is chosen once, by name, in `SURROGATES`; another objective is another function here and a line in that table.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
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


def overlong_penalty(length: int, max_new_tokens: int, share: float) -> float:
    """What an answer of `length` tokens loses of its reward: DAPO's soft overlong punishment (equation 13), from 0 to 1.

    It grows linearly over the last `share` of `max_new_tokens`. Which groups train is decided before it, on the verdicts.
    """
    room = share * max_new_tokens
    return min(1.0, max(0.0, length - (max_new_tokens - room)) / room) if room > 0 else 0.0


class LossParts(NamedTuple):
    """The loss of a micro-batch and what the log shows of it; sums over tokens, not means."""

    loss: Tensor
    """Scalar, this micro-batch's share of the batch's loss."""
    low: Tensor
    """Tokens at which clipping changed the value because the ratio was too low."""
    high: Tensor
    """Tokens at which it did because the ratio was too high."""
    kl: Tensor
    """Sum of k3 estimates against the reference; zero without one."""
    moved: Tensor
    """Sum of k3 estimates of KL(old || now), how far the policy is from the one that sampled."""
    ratio_max: Tensor
    """Largest importance ratio at an unmasked token."""
    tokens: Tensor
    """Tokens in the mask."""


class Gain(NamedTuple):
    """What a surrogate gives for every token; positions outside the mask may hold anything finite."""

    gain_BT: Tensor
    low_BT: Tensor
    """Where clipping changed the value because the ratio was too low."""
    high_BT: Tensor
    """Where it did because the ratio was too high."""


Surrogate = Callable[[Tensor, Tensor, Tensor, Tensor, float, float], Gain]
"""(logps_BT, old_logps_BT, advantages_B, mask_BT, clip_low, clip_high) -> Gain."""


def clipped_ratio(
    logps_BT: Tensor, old_logps_BT: Tensor, advantages_B: Tensor, mask_BT: Tensor, clip_low: float, clip_high: float
) -> Gain:
    """min(rho A, clip(rho, 1 - low, 1 + high) A), token by token: GRPO; with low != high, DAPO (arXiv:2503.14476)."""
    ratio_BT = torch.where(mask_BT, logps_BT - old_logps_BT, 0.0).exp()
    return _pessimistic(ratio_BT, advantages_B, clip_low, clip_high)


def sequence_ratio(
    logps_BT: Tensor, old_logps_BT: Tensor, advantages_B: Tensor, mask_BT: Tensor, clip_low: float, clip_high: float
) -> Gain:
    """GSPO (arXiv:2507.18071, equations 5 and 7): one ratio a sequence, the geometric mean of its tokens' ratios.

    Its clip range is that of a mean, so a hundredth of GRPO's: the paper uses 3e-4 and 4e-4.
    """
    log_ratio_BT = torch.where(mask_BT, logps_BT - old_logps_BT, 0.0)
    mean_B = log_ratio_BT.sum(dim=1) / mask_BT.sum(dim=1).clamp(min=1)
    return _pessimistic(mean_B.exp()[:, None].expand_as(log_ratio_BT), advantages_B, clip_low, clip_high)


def clipped_weight(
    logps_BT: Tensor, old_logps_BT: Tensor, advantages_B: Tensor, mask_BT: Tensor, clip_low: float, clip_high: float
) -> Gain:
    """CISPO (arXiv:2506.13585, equation 4): REINFORCE with a clipped importance weight that takes no gradient.

    Every token keeps a gradient; only its weight is bounded.
    """
    ratio_BT = torch.where(mask_BT, logps_BT - old_logps_BT, 0.0).exp().detach()
    weight_BT = ratio_BT.clamp(1 - clip_low, 1 + clip_high)
    return Gain(weight_BT * advantages_B[:, None] * logps_BT, weight_BT > ratio_BT, weight_BT < ratio_BT)


def _pessimistic(ratio_BT: Tensor, advantages_B: Tensor, clip_low: float, clip_high: float) -> Gain:
    plain_BT = ratio_BT * advantages_B[:, None]
    clipped_BT = ratio_BT.clamp(1 - clip_low, 1 + clip_high) * advantages_B[:, None]
    changed_BT = clipped_BT < plain_BT
    return Gain(torch.minimum(plain_BT, clipped_BT), changed_BT & (ratio_BT < 1), changed_BT & (ratio_BT > 1))


def dual_clipped(gain: Gain, advantages_B: Tensor, bound: float) -> Gain:
    """max(gain, bound A) where A < 0: the second clip of dual-clip PPO (Ye et al., arXiv:1912.09729, equation 5).

    The first clip is pessimistic: it lets the ratio of an answer that was bad grow without limit, and its gradient with it.
    TRL calls the bound `delta`, verl `clip_ratio_c`.
    """
    worst_B1 = bound * advantages_B[:, None]
    changed_BT = (advantages_B[:, None] < 0) & (gain.gain_BT < worst_B1)
    return Gain(torch.where(changed_BT, worst_B1, gain.gain_BT), gain.low_BT, gain.high_BT | changed_BT)


SURROGATES: dict[str, Surrogate] = {"grpo": clipped_ratio, "gspo": sequence_ratio, "cispo": clipped_weight}
"""By the names of `update.objective`."""


def policy_loss(
    surrogate: Surrogate,
    logps_BT: Tensor,
    old_logps_BT: Tensor,
    advantages_B: Tensor,
    weights_B: Tensor,
    mask_BT: Tensor,
    clip_low: float,
    clip_high: float,
    kl_beta: float = 0.0,
    ref_logps_BT: Tensor | None = None,
    trust_BT: Tensor | None = None,
    clip_dual: float = 0.0,
) -> LossParts:
    """The surrogate with an optional KL penalty, summed over the tokens where `mask_BT` is true.

    All log-probabilities are in nats at the sampling temperature. `old_logps_BT` are the sampler's own, so that the ratio
    corrects for every update since sampling and for the sampler's own rounding; or they are the trainer's at the weights
    that sampled, and `trust_BT` (see `truncated_weights`) corrects for the sampler. `clip_dual` above 0 bounds the ratio of
    answers with a negative advantage, see `dual_clipped`.

    Raises:
        ValueError: there is a KL penalty and no reference.
    """
    gain = surrogate(logps_BT, old_logps_BT, advantages_B, mask_BT, clip_low, clip_high)
    gain_BT, low_BT, high_BT = dual_clipped(gain, advantages_B, clip_dual) if clip_dual > 0 else gain
    if trust_BT is not None:
        gain_BT = gain_BT * trust_BT
    kl = logps_BT.new_zeros(())
    if kl_beta > 0:
        if ref_logps_BT is None:
            raise ValueError(f"a KL penalty of {kl_beta:g} needs the reference's log-probabilities")
        kl_BT = torch.where(mask_BT, k3(ref_logps_BT, logps_BT), 0.0)
        gain_BT = gain_BT - kl_beta * kl_BT
        kl = kl_BT.detach().sum()
    loss = -(torch.where(mask_BT, gain_BT, 0.0).sum(dim=1) * weights_B).sum()
    with torch.no_grad():
        return LossParts(
            loss,
            low=(mask_BT & low_BT).sum(),
            high=(mask_BT & high_BT).sum(),
            kl=kl,
            moved=torch.where(mask_BT, k3(logps_BT, old_logps_BT), 0.0).sum(),
            ratio_max=torch.where(mask_BT, logps_BT - old_logps_BT, -torch.inf).max().exp(),
            tokens=mask_BT.sum(),
        )


class Mismatch(NamedTuple):
    """How far the sampler's log-probs are from the trainer's at the same weights; sums over tokens, not means."""

    kl: Tensor
    """Sum of k3 estimates of KL(sampler || trainer)."""
    ratio: Tensor
    """Sum of the ratios trainer / sampler; its mean is 1 where the sampler draws from what it reports."""
    ratio_max: Tensor
    tokens: Tensor


@torch.no_grad()
def mismatch(trainer_logps_BT: Tensor, sampler_logps_BT: Tensor, mask_BT: Tensor) -> Mismatch:
    """Compare the two where `mask_BT` is true."""
    difference_BT = torch.where(mask_BT, trainer_logps_BT - sampler_logps_BT, 0.0)
    ratio_BT = torch.where(mask_BT, difference_BT.exp(), 0.0)
    kl_BT = torch.where(mask_BT, k3(trainer_logps_BT, sampler_logps_BT), 0.0)
    return Mismatch(kl_BT.sum(), ratio_BT.sum(), ratio_BT.max(), mask_BT.sum())


@torch.no_grad()
def truncated_weights(trainer_logps_BT: Tensor, sampler_logps_BT: Tensor, mask_BT: Tensor, cap: float) -> Tensor:
    """Truncated importance sampling: min(trainer / sampler, cap) of every token, without gradient; 1 outside the mask.

    Tokens come from the sampler, while the gradient is that of the trainer's distribution; the two differ by rounding, and
    by more where the sampler computes in fewer bits. The weight corrects for that, and the cap bounds its variance (Yao et
    al. 2025, "Your efficient RL framework secretly brings you off-policy RL training"; Ionides 2008 for the truncation).
    """
    return torch.where(mask_BT, trainer_logps_BT - sampler_logps_BT, 0.0).exp().clamp(max=cap)


def k3(other_logps: Tensor, own_logps: Tensor) -> Tensor:
    """The k3 estimate of KL(own || other) at tokens sampled from `own` (equation 4): never negative, unbiased."""
    difference = other_logps - own_logps
    return torch.expm1(difference) - difference
