"""The log-probabilities of given words and the entropy, straight from hidden states, a few words of the vocabulary at a time.

With hidden states h, the head's weights W and z = (h W^T + bias) / temperature, one row of logits a position:

    logp     = z[target] - log Z            Z = sum over the vocabulary of exp z
    entropy  = log Z - sum of exp z / Z * z
    d logp   = (onehot(target) - exp z / Z) dz

None of it needs a row of z at once: both sums can be added up, and the gradient be handed on, block by block of words. A block
is computed, used and forgotten, once on the way forward and once more on the way back, so that neither the logits nor their
gradient ever exist as a whole, and on a CPU no block leaves the cache. Each word meets all rows in one block; its gradient is
therefore a single product, rounded once, however many blocks there are. (Wijmans et al., "Cut your losses in large-vocabulary
language models", arXiv:2411.09009, do the same in a GPU kernel, and leave out what would round to nothing; here all is exact.)

Shapes:
    N  positions        D  width        V  vocabulary        W  words of one block
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

BLOCK_LOGITS = {"cpu": 1 << 19, "cuda": 1 << 27}
"""Logits of one block, by the kind of device: 2 and 512 MiB in float32, of which two are held at a time."""

BLOCK_WORDS = 64
"""A block has at least so many words, however many the rows: products of thinner matrices are slow."""


def block_logits(rows: int, device: torch.device) -> int:
    """How many logits a block has at most."""
    return max(BLOCK_LOGITS[device.type], BLOCK_WORDS * rows)


def chosen_logps(
    hidden_ND: Tensor,
    weight_VD: Tensor,
    bias_V: Tensor | None,
    targets_N: Tensor,
    temperature: float,
    block: int,
    entropy: bool,
) -> tuple[Tensor, Tensor]:
    """Log-probabilities of the targets, in nats at `temperature`, and the sum of the rows' entropies, or 0.

    `block` bounds the logits held at once. Products are in the type of `hidden_ND`, all else is in at least float32. The
    entropy has no gradient.
    """
    words = max(1, block // max(1, len(hidden_ND)))
    found: tuple[Tensor, Tensor] = _ChosenLogps.apply(  # type: ignore[no-untyped-call]
        hidden_ND, weight_VD, bias_V, targets_N, temperature, words, entropy
    )
    return found


def exactly(tensor: Tensor) -> Tensor:
    """The tensor in float32, or in float64 where it is that."""
    return tensor if tensor.dtype == torch.float64 else tensor.float()


class _Block(NamedTuple):
    """Some neighbouring words of the vocabulary."""

    words: slice
    weight_WD: Tensor
    bias_W: Tensor | None

    def logits(self, hidden_ND: Tensor, temperature: float) -> Tensor:
        return exactly(torch.nn.functional.linear(hidden_ND, self.weight_WD, self.bias_W)).div_(temperature)

    def place(self, targets_N: Tensor) -> tuple[Tensor, Tensor]:
        """Where in the block each row's target is, and whether it is there at all; both [N, 1]."""
        index_N1 = targets_N[:, None] - self.words.start
        there_N1 = (index_N1 >= 0) & (index_N1 < len(self.weight_WD))
        return index_N1.clamp(0, len(self.weight_WD) - 1), there_N1


def _blocks(weight_VD: Tensor, bias_V: Tensor | None, words: int, dtype: torch.dtype) -> Iterator[_Block]:
    for start in range(0, len(weight_VD), words):
        part = slice(start, start + words)
        yield _Block(part, weight_VD[part].to(dtype), None if bias_V is None else bias_V[part].to(dtype))


class _Sums:
    """Over the words seen so far: Z and the sum of exp z * z, both divided by exp of the largest z, so that none overflows."""

    def __init__(self, hidden_ND: Tensor) -> None:
        like = exactly(hidden_ND[:, :1])
        self.top_N1 = torch.full_like(like, torch.finfo(like.dtype).min)
        self.total_N1, self.weighted_N1 = torch.zeros_like(like), torch.zeros_like(like)

    def add(self, logits_NW: Tensor, entropy: bool) -> None:
        top_N1 = torch.maximum(self.top_N1, logits_NW.amax(1, keepdim=True))
        shrink_N1 = (self.top_N1 - top_N1).exp_()
        exp_NW = (logits_NW - top_N1).exp_()
        self.top_N1, self.total_N1 = top_N1, shrink_N1 * self.total_N1 + exp_NW.sum(1, keepdim=True)
        if entropy:  # an impossible word adds nothing; 0 times -inf is where nan comes from
            self.weighted_N1 = shrink_N1 * self.weighted_N1 + exp_NW.mul_(logits_NW).nansum(1, keepdim=True)


class _ChosenLogps(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        hidden_ND: Tensor,
        weight_VD: Tensor,
        bias_V: Tensor | None,
        targets_N: Tensor,
        temperature: float,
        words: int,
        entropy: bool,
    ) -> tuple[Tensor, Tensor]:
        sums, chosen_N1 = _Sums(hidden_ND), torch.zeros_like(exactly(hidden_ND[:, :1]))
        for block in _blocks(weight_VD, bias_V, words, hidden_ND.dtype):
            logits_NW = block.logits(hidden_ND, temperature)
            index_N1, there_N1 = block.place(targets_N)
            chosen_N1 = torch.where(there_N1, logits_NW.gather(1, index_N1), chosen_N1)
            sums.add(logits_NW, entropy)
            del logits_NW  # before the next one is there
        log_total_N1 = sums.top_N1 + sums.total_N1.log()
        logps_N1 = (chosen_N1 - sums.top_N1) - sums.total_N1.log()  # far from 0, log Z alone would round more
        ctx.save_for_backward(hidden_ND, weight_VD, bias_V, targets_N, log_total_N1)
        ctx.temperature, ctx.words = temperature, words
        total = (log_total_N1 - sums.weighted_N1 / sums.total_N1).sum() if entropy else log_total_N1.new_zeros(())
        ctx.mark_non_differentiable(total)
        return logps_N1.squeeze(1), total

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_N: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        hidden_ND, weight_VD, bias_V, targets_N, log_total_N1 = ctx.saved_tensors
        grad_N1 = grad_N[:, None] / ctx.temperature
        to_hidden_ND = torch.zeros_like(exactly(hidden_ND))
        to_weight_VD = torch.empty_like(weight_VD) if ctx.needs_input_grad[1] else None
        to_bias_V = torch.empty_like(bias_V) if ctx.needs_input_grad[2] else None
        for block in _blocks(weight_VD, bias_V, ctx.words, hidden_ND.dtype):
            probs_NW = block.logits(hidden_ND, ctx.temperature).sub_(log_total_N1).exp_()
            index_N1, there_N1 = block.place(targets_N)
            to_logits_NW = probs_NW.mul_(-grad_N1).scatter_add_(1, index_N1, torch.where(there_N1, grad_N1, 0.0))
            if to_bias_V is not None:
                to_bias_V[block.words] = to_logits_NW.sum(0)
            to_logits_NW = to_logits_NW.to(hidden_ND.dtype)
            to_hidden_ND += to_logits_NW @ block.weight_WD
            if to_weight_VD is not None:
                to_weight_VD[block.words] = to_logits_NW.T @ hidden_ND
            del probs_NW, to_logits_NW
        return to_hidden_ND.to(hidden_ND.dtype), to_weight_VD, to_bias_V, None, None, None, None
