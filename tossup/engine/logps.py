"""Log-probabilities of given tokens, without ever holding [tokens, vocabulary] for a whole micro-batch.

The decoder runs once over all positions; the output head, whose logits are by far the largest tensor of a training step,
runs over the response positions only, in chunks of bounded size. Each chunk's logits are computed again in the backward
pass instead of being kept (gradient checkpointing), so memory grows with tokens times the model's width, not its vocabulary.

Shapes:
    B  sequences        T  predicted positions (one fewer than tokens)
    N  response positions of all sequences        D  width        V  vocabulary
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from tossup.engine.policy import Policy

CHUNK_LOGITS = 1 << 25
"""Logits computed at once: 128 MiB in float32."""


def token_logps(
    policy: Policy,
    ids_BT1: Tensor,
    attention_BT1: Tensor,
    mask_BT: Tensor,
    temperature: float,
    chunk: int = CHUNK_LOGITS,
) -> Tensor:
    """Log-probabilities, in nats at `temperature`, of token t + 1 given those up to t, where `mask_BT` is true; 0 elsewhere.

    Rows of `ids_BT1` [B, T + 1] are right-padded; positions count from the first token of each row. `chunk` bounds the
    number of logits held at once.
    """
    model = policy.model
    targets_N = ids_BT1[:, 1:][mask_BT]
    with policy.autocast():
        if not policy.plain_head:
            logits_NV = model(input_ids=ids_BT1, attention_mask=attention_BT1, use_cache=False).logits[:, :-1][mask_BT]
            logps_N = chosen_logps(logits_NV, targets_N, temperature)
        else:
            hidden = model.base_model(
                input_ids=ids_BT1, attention_mask=attention_BT1, use_cache=False
            ).last_hidden_state
            logps_N = _by_chunks(model.get_output_embeddings(), hidden[:, :-1][mask_BT], targets_N, temperature, chunk)
    return torch.zeros(mask_BT.shape, dtype=logps_N.dtype, device=mask_BT.device).masked_scatter(mask_BT, logps_N)


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
