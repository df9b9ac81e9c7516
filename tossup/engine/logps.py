"""Log-probabilities of given tokens, without ever holding [tokens, vocabulary] for a whole micro-batch.

The decoder runs once over all positions; the output head, whose logits are by far the largest tensor of a training step,
runs over the response positions only, a bounded number of logits at a time. They are computed again in the backward pass
instead of being kept, so memory grows with tokens times the model's width, not its vocabulary. A head that is one matrix goes
block by block of its words (see `head`); any other, say with an adapter beside it, chunk by chunk of positions.

The decoder sees the rows either padded to one width, or packed: end to end in one row, with positions that begin anew and no
padding. Padded, it gets no attention mask: padding comes after a row's tokens, and a causal decoder looks at no later one; so
torch's attention takes its flash kernel on a GPU, which knows no masks. Packed, attention must not look from one answer into
the one before; transformers reads the borders off the positions, flash attention skips what lies beyond them, and the others
get a mask whose cost grows with the square of the row.

Shapes:
    B  sequences        T  predicted positions (one fewer than tokens)
    N  response positions of all sequences        D  width        V  vocabulary
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint
from transformers.modeling_layers import GradientCheckpointingLayer

from tossup.engine.head import block_logits, chosen_logps, exactly
from tossup.engine.policy import Policy
from tossup.engine.probe import decoder
from tossup.records import TossupError

CHUNK_LOGITS = {"cpu": 1 << 25, "cuda": 1 << 27}
"""Logits computed at once of a head that is no plain matrix, by the kind of device: 128 and 512 MiB in float32. Every chunk
passes over the head's weights and their gradient, so smaller ones would be bound by that."""


def token_logps(
    policy: Policy,
    ids_BT1: Tensor,
    attention_BT1: Tensor,
    mask_BT: Tensor,
    temperature: float,
    chunk: int | None = None,
    packed: bool = False,
) -> Tensor:
    """Log-probabilities, in nats at `temperature`, of token t + 1 given those up to t, where `mask_BT` is true; 0 elsewhere.

    Rows of `ids_BT1` [B, T + 1] are right-padded; positions count from the first token of each row. `chunk` bounds the
    number of logits held at once (None: by the device). `packed` says how the decoder sees the rows; the values are the same.
    """
    return logps_and_entropy(policy, ids_BT1, attention_BT1, mask_BT, temperature, chunk, packed, entropy=False)[0]


def logps_and_entropy(
    policy: Policy,
    ids_BT1: Tensor,
    attention_BT1: Tensor,
    mask_BT: Tensor,
    temperature: float,
    chunk: int | None = None,
    packed: bool = False,
    entropy: bool = True,
) -> tuple[Tensor, Tensor]:
    """`token_logps`, and the sum over these tokens of the entropy, in nats, of the distribution that each was drawn from.

    The entropy is over the whole vocabulary, exact, and without a gradient; it costs time, and without `entropy` it is 0.
    """
    # Where the model is sharded over processes, its weights are there only within a call through the model itself.
    run = getattr(policy.model, "run", lambda function, *args: function(*args))
    args = (policy, ids_BT1, attention_BT1, mask_BT, temperature, chunk, packed, entropy)
    with policy.autocast():
        logps_N, total = run(_response_scores, *args)
    zeros_BT = torch.zeros(mask_BT.shape, dtype=logps_N.dtype, device=mask_BT.device)
    return zeros_BT.masked_scatter(mask_BT, logps_N), total


def _response_scores(
    policy: Policy,
    ids_BT1: Tensor,
    attention_BT1: Tensor,
    mask_BT: Tensor,
    temperature: float,
    chunk: int | None,
    packed: bool,
    entropy: bool,
) -> tuple[Tensor, Tensor]:
    """The log-probabilities alone, [N], row by row, and the sum of the entropies."""
    model, targets_N = policy.model, ids_BT1[:, 1:][mask_BT]
    predicts_BT1 = torch.nn.functional.pad(mask_BT, (0, 1))
    there_BT1 = attention_BT1.bool()
    if packed:
        positions = (attention_BT1.cumsum(1) - 1)[there_BT1][None]
        inputs = {"input_ids": ids_BT1[there_BT1][None], "position_ids": positions}
        chosen = predicts_BT1[there_BT1][None]
    else:
        inputs, chosen = {"input_ids": ids_BT1}, predicts_BT1
    if not policy.plain_head:
        return _chosen(model(**inputs, use_cache=False).logits[chosen], targets_N, temperature, entropy)
    hidden_ND = decoder(model)(**inputs, use_cache=False).last_hidden_state[chosen]
    return _from_hidden(policy, hidden_ND, targets_N, temperature, chunk, entropy)


def _from_hidden(
    policy: Policy, hidden_ND: Tensor, targets_N: Tensor, temperature: float, chunk: int | None, entropy: bool
) -> tuple[Tensor, Tensor]:
    """In one go where all logits are few; else they are computed twice, and never held together."""
    head = policy.model.get_output_embeddings()
    matrix, rows = type(head) is torch.nn.Linear, len(hidden_ND)
    limit = chunk or (block_logits(rows, policy.device) if matrix else CHUNK_LOGITS[policy.device.type])
    if rows * len(head.weight) <= limit:
        return _chosen(head(hidden_ND), targets_N, temperature, entropy)
    if matrix:
        hidden_ND = hidden_ND if policy.compute is torch.float32 else hidden_ND.to(policy.compute)
        return chosen_logps(hidden_ND, head.weight, head.bias, targets_N, temperature, limit, entropy)
    return _by_chunks(policy, hidden_ND, targets_N, temperature, max(1, limit // len(head.weight)), entropy)


def _by_chunks(
    policy: Policy, hidden_ND: Tensor, targets_N: Tensor, temperature: float, rows: int, entropy: bool
) -> tuple[Tensor, Tensor]:
    head = policy.model.get_output_embeddings()

    def one(hidden: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        # Were the weight cast once for all chunks, their gradients would be summed in the compute type; so, in float32.
        with policy.autocast(cast_once=False):
            return _chosen(head(hidden), targets, temperature, entropy)

    again = partial(checkpoint, one, use_reentrant=False, preserve_rng_state=False)
    parts = zip(torch.split(hidden_ND, rows), torch.split(targets_N, rows), strict=True)
    logps, entropies = zip(*(again(h, t) for h, t in parts), strict=True)
    return torch.cat(logps), torch.stack(entropies).sum()


def _chosen(logits_NV: Tensor, ids_N: Tensor, temperature: float, entropy: bool) -> tuple[Tensor, Tensor]:
    """Log-softmax at `temperature` of `logits_NV` at `ids_N`, in at least float32; the sum of the rows' entropies, or 0.

    The entropy comes last: the backward pass, which computes a chunk again up to what it needs, stops before it.
    """
    scaled_NV = exactly(logits_NV) / temperature
    log_total_N = scaled_NV.logsumexp(dim=-1)
    logps_N = scaled_NV.gather(-1, ids_N[..., None]).squeeze(-1) - log_total_N
    return logps_N, _entropy(scaled_NV, log_total_N) if entropy else logps_N.new_zeros(())


@torch.no_grad()
def _entropy(logits_NV: Tensor, log_total_N: Tensor) -> Tensor:
    """Sum over rows of log Z - E[logit], with one more tensor of the chunk's size; impossible tokens add nothing."""
    probs_NV = (logits_NV - log_total_N[:, None]).exp_()
    return (log_total_N - probs_NV.mul_(logits_NV).nansum(dim=-1)).sum()  # 0 times -inf is where nan comes from


@contextmanager
def recomputed(model: Any, on: bool = True) -> Iterator[None]:
    """Within it, each decoder layer keeps only its input for the backward pass and computes the rest again.

    The model stays in eval mode (transformers' own switch works in training mode only, which would turn dropout on).

    Raises:
        TossupError: the model does not say which its layers are.
    """
    layers = [module for module in model.modules() if isinstance(module, GradientCheckpointingLayer)] if on else []
    if on and not layers:
        raise TossupError(f"{type(model).__name__} has no layers made for it: leave update.gradient_checkpointing off")
    for layer in layers:
        layer.forward = partial(checkpoint, layer.forward, use_reentrant=False, preserve_rng_state=False)
    try:
        yield
    finally:
        for layer in layers:
            del layer.forward
