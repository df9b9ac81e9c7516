"""Kept groups -> tensors, cut into micro-batches by a token budget.

Shapes, here and in `objective`, `step` and `policy`:
    B    sequences of a micro-batch: prompt then response, right-padded
    T    predicted positions: position t predicts token t + 1, so a row of T + 1 tokens has T of them
    _BT  mask, log-probs: at predicted positions; the mask is true exactly where a response token is predicted
    _B   advantage and loss weight: one a sequence
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from tossup.engine.objective import advantages, sequence_weights
from tossup.records import Group, Rollout


@dataclass(frozen=True)
class MicroBatch:
    """One forward and backward pass."""

    ids_BT1: Tensor
    attention_BT1: Tensor
    mask_BT: Tensor
    old_logps_BT: Tensor
    advantages_B: Tensor
    weights_B: Tensor


def micro_batches(
    groups: Sequence[Group],
    *,
    std_norm: bool,
    aggregate: str,
    max_new_tokens: int,
    token_budget: int,
    pad_id: int,
    device: torch.device,
) -> list[MicroBatch]:
    """All decided rollouts of `groups`, none of them degenerate, with advantages and weights of the whole batch.

    Rows are sorted by length and packed so that rows times the longest row stays within `token_budget`; a single longer row
    gets a micro-batch of its own.
    """
    rows = [
        (rollout, advantage)
        for group in groups
        for rollout, advantage in zip(group.decided, advantages(group.rewards, std_norm), strict=True)
    ]
    weights = sequence_weights([len(r.response_ids) for r, _ in rows], aggregate, max_new_tokens)
    weighted = [(r, a, w) for (r, a), w in zip(rows, weights, strict=True)]
    weighted.sort(key=lambda row: len(row[0].prompt_ids) + len(row[0].response_ids))
    return [_tensors(part, pad_id, device) for part in _cut(weighted, token_budget)]


Row = tuple[Rollout, float, float]
"""A rollout, its advantage, the loss weight of each of its tokens."""


def _cut(rows: Sequence[Row], token_budget: int) -> Iterator[Sequence[Row]]:
    start = 0
    for end in range(1, len(rows) + 1):
        longest_next = len(rows[end][0].prompt_ids) + len(rows[end][0].response_ids) if end < len(rows) else 0
        if end == len(rows) or (end - start + 1) * longest_next > token_budget:
            yield rows[start:end]
            start = end


def _tensors(rows: Sequence[Row], pad_id: int, device: torch.device) -> MicroBatch:
    width = max(len(r.prompt_ids) + len(r.response_ids) for r, _, _ in rows)
    ids, attention, mask, old_logps = [], [], [], []
    for rollout, _, _ in rows:
        n_prompt, n_response = len(rollout.prompt_ids), len(rollout.response_ids)
        padding = width - n_prompt - n_response
        ids.append([*rollout.prompt_ids, *rollout.response_ids] + [pad_id] * padding)
        attention.append([1] * (width - padding) + [0] * padding)
        mask.append([False] * (n_prompt - 1) + [True] * n_response + [False] * padding)
        old_logps.append([0.0] * (n_prompt - 1) + list(rollout.response_logps) + [0.0] * padding)
    return MicroBatch(
        ids_BT1=torch.tensor(ids, device=device),
        attention_BT1=torch.tensor(attention, device=device),
        mask_BT=torch.tensor(mask, device=device),
        old_logps_BT=torch.tensor(old_logps, device=device),
        advantages_B=torch.tensor([a for _, a, _ in rows], device=device),
        weights_B=torch.tensor([w for _, _, w in rows], device=device),
    )
