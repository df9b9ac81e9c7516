"""Log-probabilities of given tokens, without ever holding [tokens, vocabulary] for a whole micro-batch.

The decoder runs once over all positions; the output head, whose logits are by far the largest tensor of a training step,
runs over the response positions only, in chunks of bounded size. Each chunk's logits are computed again in the backward
pass instead of being kept (gradient checkpointing), so memory grows with tokens times the model's width, not its vocabulary.

The decoder sees the rows either padded to one width, or packed: end to end in one row, with positions that begin anew and no
padding. Packed, attention must not look from one answer into the one before; transformers reads the borders off the
positions, flash attention skips what lies beyond them, and the others get a mask whose cost grows with the square of the row.

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

from tossup.engine.policy import Policy
from tossup.records import TossupError

CHUNK_LOGITS = 1 << 25
"""Logits computed at once: 128 MiB in float32."""


def token_logps(
    policy: Policy,
    ids_BT1: Tensor,
    attention_BT1: Tensor,
    mask_BT: Tensor,
    temperature: float,
    chunk: int = CHUNK_LOGITS,
    packed: bool = False,
) -> Tensor:
    """Log-probabilities, in nats at `temperature`, of token t + 1 given those up to t, where `mask_BT` is true; 0 elsewhere.

    Rows of `ids_BT1` [B, T + 1] are right-padded; positions count from the first token of each row. `chunk` bounds the
    number of logits held at once. `packed` says how the decoder sees the rows; the values are the same.
    """
    # Where the model is sharded over processes, its weights are there only within a call through the model itself.
    run = getattr(policy.model, "run", lambda function, *args: function(*args))
    with policy.autocast():
        logps_N = run(_response_logps, policy, ids_BT1, attention_BT1, mask_BT, temperature, chunk, packed)
    return torch.zeros(mask_BT.shape, dtype=logps_N.dtype, device=mask_BT.device).masked_scatter(mask_BT, logps_N)


def _response_logps(
    policy: Policy,
    ids_BT1: Tensor,
    attention_BT1: Tensor,
    mask_BT: Tensor,
    temperature: float,
    chunk: int,
    packed: bool,
) -> Tensor:
    """The log-probabilities alone, [N], row by row."""
    model, targets_N = policy.model, ids_BT1[:, 1:][mask_BT]
    predicts_BT1 = torch.nn.functional.pad(mask_BT, (0, 1))
    there_BT1 = attention_BT1.bool()
    if packed:
        positions = (attention_BT1.cumsum(1) - 1)[there_BT1][None]
        inputs = {"input_ids": ids_BT1[there_BT1][None], "position_ids": positions}
        chosen = predicts_BT1[there_BT1][None]
    else:
        inputs, chosen = {"input_ids": ids_BT1, "attention_mask": attention_BT1}, predicts_BT1
    if not policy.plain_head:
        return chosen_logps(model(**inputs, use_cache=False).logits[chosen], targets_N, temperature)
    hidden_ND = model.base_model(**inputs, use_cache=False).last_hidden_state[chosen]
    return _by_chunks(model.get_output_embeddings(), hidden_ND, targets_N, temperature, chunk)


def _by_chunks(head: Any, hidden_ND: Tensor, targets_N: Tensor, temperature: float, chunk: int) -> Tensor:
    rows = max(1, chunk // head.weight.shape[0])
    if len(hidden_ND) <= rows:
        return chosen_logps(head(hidden_ND), targets_N, temperature)

    def one(hidden: Tensor, targets: Tensor) -> Tensor:
        return chosen_logps(head(hidden), targets, temperature)

    parts = zip(torch.split(hidden_ND, rows), torch.split(targets_N, rows), strict=True)
    return torch.cat([checkpoint(one, h, t, use_reentrant=False) for h, t in parts])


def chosen_logps(logits_NV: Tensor, ids_N: Tensor, temperature: float) -> Tensor:
    """Log-softmax at `temperature` of `logits_NV` at `ids_N`, in at least float32."""
    scaled = (logits_NV if logits_NV.dtype == torch.float64 else logits_NV.float()) / temperature
    return scaled.gather(-1, ids_N[..., None]).squeeze(-1) - scaled.logsumexp(dim=-1)


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
