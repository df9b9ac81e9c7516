"""What a model can do, found by trying it on a few tokens instead of by its name.

Causal language models differ behind one interface: some scale their logits, some mix what stands in one row, some count
positions in a way of their own, some cannot be left-padded or continued from a cache. What the engine would rely on is
compared with the plain forward pass of one sequence; a model that cannot do it goes another way, or is refused before it is
trained on numbers that are not its own.

The rows tried are shorter than any attention window; the rest is the model's code, which its own tests hold.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from tossup.engine.cached import Cached
from tossup.records import TossupError

if TYPE_CHECKING:
    from tossup.engine.policy import Policy

ROWS = ((0, 1, 2, 3, 4, 5, 6, 7), (3, 1, 2, 0))
"""Token ids of the sequences tried, of different lengths."""

STEPS = 3
"""Of their tokens, the last so many are appended one by one: a state may go wrong only after the first."""

REFUSALS = (RuntimeError, ValueError, TypeError, IndexError, KeyError, AttributeError, AssertionError)
"""What models raise for what they cannot do."""


@torch.no_grad()
def probe(policy: Policy) -> Policy:
    """The policy with what it can do filled in.

    Raises:
        TossupError: it is no causal language model, or it cannot be run.
    """
    try:
        with _precisely(policy):
            _check_causal(policy)
            plain, packs = has_plain_head(policy), packs_rows_apart(policy)
    except REFUSALS as e:
        raise TossupError(f"{_name(policy)} cannot be run as a causal language model: {_said(e)}") from e
    with _precisely(policy):
        padded = _without_cache(policy, list(ROWS))
        alone = [trouble for row in ROWS if (trouble := _without_cache(policy, [row]))] if padded else []
    unsampled = f"{_name(policy)} cannot be sampled from through its cache: {alone[0]}" if alone else ""
    return replace(policy, plain_head=plain, packs=packs, pads=not padded, unsampled=unsampled)


def decoder(model: Any) -> Any:
    """What is under the output head: token ids -> last hidden states."""
    inner = model.base_model
    return inner if inner is not model else model.get_decoder()


def has_plain_head(policy: Policy) -> bool:
    """Whether logits are the head of the last hidden states: some models cap or scale them, each in a way of its own."""
    model, ids = policy.model, _ids(policy, [ROWS[0]])
    head, under = model.get_output_embeddings(), decoder(model)
    if head is None or under is model:
        return False
    hidden = getattr(under(input_ids=ids, use_cache=False), "last_hidden_state", None)
    return (
        hidden is not None
        and hidden.shape[-1] == getattr(head, "in_features", hidden.shape[-1])
        and (torch.equal(head(hidden), model(input_ids=ids, use_cache=False).logits))
    )


def packs_rows_apart(policy: Policy) -> bool:
    """Try it on two sequences that begin alike: attention may look across, and other kinds of layers do not know the border."""
    first, second = _ids(policy, [ROWS[0][::-1]]), _ids(policy, [ROWS[0]])
    positions = torch.arange(first.shape[1], device=policy.device).repeat(2)[None]
    if getattr(policy.model.config.get_text_config(), "attention_chunk_size", None):
        return False  # its chunks are counted from the start of the row, which is too short here to show it
    try:
        packed = policy.model(input_ids=torch.cat([first, second], 1), position_ids=positions, use_cache=False).logits
    except REFUSALS:
        return False
    return _close(policy, packed[:, first.shape[1] :], _plain(policy, ROWS[0]))


def _check_causal(policy: Policy) -> None:
    *head, last = ROWS[0]
    if not _close(policy, _plain(policy, (*head, last - 1))[:, :-1], _plain(policy, ROWS[0])[:, :-1]):
        raise TossupError(
            f"{_name(policy)} is no causal language model: what follows a token changes its log-prob, so training on them "
            "would be training on nonsense"
        )


def _without_cache(policy: Policy, rows: Sequence[Sequence[int]]) -> str:
    """What is wrong with decoding these rows as one left-padded batch over a cache; nothing, where it is as without."""
    width, n = max(len(row) for row in rows), len(rows)
    attention = torch.tensor([[0] * (width - len(row)) + [1] * len(row) for row in rows], device=policy.device)
    ids = torch.tensor([[policy.pad_id] * (width - len(row)) + _fit(policy, row) for row in rows], device=policy.device)
    positions = (attention.cumsum(1) - 1).clamp(min=0)
    plain = torch.stack([_plain(policy, row)[0, -STEPS - 1 :] for row in rows], 1)  # after each step, of each row
    read = width - STEPS
    order = torch.arange(n, device=policy.device).flip(0).repeat_interleave(2)
    try:
        batch = Cached(policy.model)
        if not _close(policy, batch.logits(ids[:, :read], attention[:, :read], positions[:, :read]), plain[0]):
            return "what was read first changes with the padding"
        batch.take(order)
        for step in range(STEPS):
            at = read + step
            got = batch.logits(ids[order, at : at + 1], attention[order, : at + 1], positions[order, at : at + 1])
            if not _close(policy, got, plain[step + 1][order]):
                return "its logits are others than without it"
            if step == 0:
                order = order[1:]
                batch.take(torch.arange(1, len(order) + 1, device=policy.device))
    except REFUSALS as e:
        return _said(e)
    return ""


def _plain(policy: Policy, row: Sequence[int]) -> Tensor:
    """The logits of one sequence by itself, [1, T, V]: what everything else has to agree with."""
    return policy.model(input_ids=_ids(policy, [row]), use_cache=False).logits  # type: ignore[no-any-return]


def _ids(policy: Policy, rows: Sequence[Sequence[int]]) -> Tensor:
    return torch.tensor([_fit(policy, row) for row in rows], device=policy.device)


def _fit(policy: Policy, row: Sequence[int]) -> list[int]:
    vocabulary = policy.model.get_input_embeddings().num_embeddings
    return [token % vocabulary for token in row]


def _close(policy: Policy, got: Tensor, expected: Tensor) -> bool:
    """Equal but for rounding. A wrong position or a look at padding moves logits by much more."""
    if got.shape != expected.shape:
        return False
    apart = (got.float() - expected.float()).norm() / expected.float().norm().clamp(min=1e-12)
    return bool(apart < (0.1 if _by_halves(policy) else 1e-3))


def _by_halves(policy: Policy) -> bool:
    """Flash attention knows 16-bit types only; everything else is tried in float32, where rounding cannot hide a fault."""
    return "flash" in str(getattr(policy.model.config, "_attn_implementation", ""))


@contextmanager
def _precisely(policy: Policy) -> Iterator[None]:
    """Within it, float32 is float32: some containers turn TF32 on, whose rounding looks like a fault."""
    backends: Any = torch.backends
    matmuls = (backends.cuda.matmul, backends.mkldnn.matmul)
    before = [matmul.fp32_precision for matmul in matmuls]
    try:
        for matmul in matmuls:
            matmul.fp32_precision = "ieee"
        with torch.autocast(policy.device.type, dtype=torch.bfloat16, enabled=_by_halves(policy)):
            yield
    finally:
        for matmul, precision in zip(matmuls, before, strict=True):
            matmul.fp32_precision = precision


def _name(policy: Policy) -> str:
    return type(policy.model).__name__


def _said(e: BaseException) -> str:
    return f"{type(e).__name__}: {e}".strip().splitlines()[0]
