"""Kept groups -> tensors, cut into micro-batches by a token budget.

Shapes, here and in `objective`, `step` and `policy`:
    B    sequences of a micro-batch: prompt then response, right-padded
    T    predicted positions: position t predicts token t + 1, so a row of T + 1 tokens has T of them
    _BT  mask, log-probs: at predicted positions; the mask is true exactly where a response token is predicted
    _B   advantage and loss weight: one a sequence
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from tossup.curriculum.batch import Batch
from tossup.engine.objective import advantages, overlong_penalty, sequence_weights
from tossup.records import Fate, Group, Rollout


@dataclass(frozen=True)
class MicroBatch:
    """One forward and backward pass."""

    ids_BT1: Tensor
    attention_BT1: Tensor
    mask_BT: Tensor
    old_logps_BT: Tensor
    advantages_B: Tensor
    weights_B: Tensor
    fresh_B: Tensor
    """Sampled by the newest policy of the batch; the others waited for a batch, see `curriculum.refill`."""


def mini_batches(groups: Sequence[Group], parts: int, seed: int) -> list[list[Group]]:
    """The groups in an order drawn from `seed`, cut into `parts` whose sizes differ by one at most; no part is empty."""
    if parts == 1:
        return [list(groups)]
    order = np.random.default_rng(seed).permutation(len(groups))
    return [[groups[i] for i in part] for part in np.array_split(order, parts) if len(part)]


def earned(group: Group, max_new_tokens: int, overlong: float) -> list[float]:
    """The rewards of the decided rollouts, in order, less the overlong punishment (see `objective.overlong_penalty`)."""
    lengths = [len(rollout.response_ids) for rollout in group.decided]
    lost = [overlong_penalty(length, max_new_tokens, overlong) for length in lengths]
    return [reward - penalty for reward, penalty in zip(group.rewards, lost, strict=True)]


def without_levelled(batch: Batch, max_new_tokens: int, overlong: float) -> Batch:
    """The batch of a step without the groups whose rewards the overlong punishment makes equal.

    That is where every right answer loses all of its reward and no wrong one any: nothing in the group has earned anything, as
    where all are wrong, so what would have trained leaves as ALL_WRONG.
    """
    levelled = [group.id for group in batch.kept if len(set(earned(group, max_new_tokens, overlong))) == 1]
    if not levelled:
        return batch
    return replace(
        batch,
        kept=tuple(group for group in batch.kept if group.id not in levelled),
        entries=tuple(
            (group, tuple(Fate.ALL_WRONG if fate is Fate.TRAINED else fate for fate in fates))
            if group.id in levelled
            else (group, fates)
            for group, fates in batch.entries
        ),
    )


Row = tuple[Rollout, float, float]
"""A rollout, its advantage, the loss weight of each of its tokens."""


def micro_batches(
    groups: Sequence[Group],
    *,
    std_norm: bool,
    aggregate: str,
    max_new_tokens: int,
    token_budget: int,
    pad_id: int,
    device: torch.device,
    overlong: float = 0.0,
    packed: bool = False,
    newest: int | None = None,
    rank: int = 0,
    ranks: int = 1,
) -> list[MicroBatch]:
    """All decided rollouts of `groups`, none of them degenerate, with advantages and weights of all of them.

    Rows are sorted by length and cut so that rows times the longest row, or `packed` the sum of the rows, stays within
    `token_budget`; a single longer row gets a micro-batch of its own. Of several `ranks` each gets every so many rows, and all
    get equally many micro-batches, some perhaps empty: a row without a response token, of weight 0.

    `overlong` is the share of `max_new_tokens` in which a longer answer loses reward (see `objective.overlong_penalty`).
    A mixed group whose rewards that makes equal is left out; where none remains, there is no micro-batch. `newest` is the step
    of the newest policy that sampled for the batch (None: of these groups).
    """
    rows: list[tuple[Rollout, float]] = []
    for group in groups:
        rewards = earned(group, max_new_tokens, overlong)
        if max(rewards) > min(rewards):
            rows += zip(group.decided, advantages(rewards, std_norm), strict=True)
    if not rows:
        return []
    weights = sequence_weights([len(r.response_ids) for r, _ in rows], aggregate, max_new_tokens)
    weighted = [(r, a, w) for (r, a), w in zip(rows, weights, strict=True)]
    weighted.sort(key=_tokens)
    newest = max(r.policy_step for r, _ in rows) if newest is None else newest
    shares = [list(_cut(weighted[r::ranks], token_budget, packed)) for r in range(ranks)]
    missing = max(len(parts) for parts in shares) - len(shares[rank])
    batches = [_tensors(part, newest, pad_id, device) for part in shares[rank]]
    return batches + ([_empty(_tensors(weighted[:1], newest, pad_id, device))] * missing if missing else [])


def _tokens(row: Row) -> int:
    return len(row[0].prompt_ids) + len(row[0].response_ids)


def _cut(rows: Sequence[Row], token_budget: int, packed: bool) -> Iterator[Sequence[Row]]:
    start = total = 0
    for end, row in enumerate(rows):
        total += _tokens(row)
        if end > start and (total if packed else (end - start + 1) * _tokens(row)) > token_budget:
            yield rows[start:end]
            start, total = end, _tokens(row)
    if rows:  # a rank may have none
        yield rows[start:]


def _empty(batch: MicroBatch) -> MicroBatch:
    nothing = torch.zeros_like(batch.mask_BT)
    return replace(batch, mask_BT=nothing, weights_B=torch.zeros_like(batch.weights_B))


def _tensors(rows: Sequence[Row], newest: int, pad_id: int, device: torch.device) -> MicroBatch:
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
        fresh_B=torch.tensor([r.policy_step == newest for r, _, _ in rows], device=device),
    )
