"""What a model can do, found by trying it on a few tokens instead of by its name.

Causal language models differ behind one interface: some scale their logits, some mix what stands in one row, some count
positions in a way of their own, some cannot be left-padded or continued from a cache. What the engine would rely on is
compared with the plain forward pass of one sequence; a model that cannot do it goes another way, or is refused before it is
trained on numbers that are not its own.

A large model's forward pass takes seconds on a CPU, so a model that can do everything makes five of few tokens: the plain
one; two sequences packed into one row, under the head; two prompts read as a padded batch; and two steps over its cache. The
shorter prompt is the beginning of the longer one, whose plain logits are thus those of both if the model is causal, and
if it is not, decoding cannot agree with them. Only where something does not agree is it looked for what.

The rows tried are shorter than any attention window; the rest is the model's code, which its own tests hold.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from tossup.engine.cached import Cached
from tossup.records import TossupError

if TYPE_CHECKING:
    from tossup.engine.policy import Policy

ROW = (3, 1, 4, 2, 5, 0)
"""Token ids of the sequence tried. What is often the padding is within it: some models number the tokens around it."""

LENGTHS = (len(ROW), 3)
"""Of it, so many tokens from its beginning are the prompts that are decoded together."""

STEPS = 2
"""Of their tokens, the last so many are appended one by one: a state may go wrong only after the first."""

REFUSALS = (RuntimeError, ValueError, TypeError, IndexError, KeyError, AttributeError, AssertionError)
"""What models raise for what they cannot do."""


@torch.no_grad()
def probe(policy: Policy) -> Policy:
    """The policy with what it can do filled in.

    Raises:
        TossupError: it is no causal language model, or it cannot be run.
    """
    with _precisely(policy):
        try:
            expected, plain_head = _plain_and_head(policy)
            packs = _packs_rows_apart(policy, expected, plain_head)
            if plain_head and not packs:  # what stands under the head may be other than within the model
                plain_head = _close(policy, _under_head(policy, {"input_ids": _ids(policy, ROW)}), expected)
            padded = _over_cache(policy, LENGTHS, expected)
            if padded:
                _check_causal(policy, expected)
        except REFUSALS as e:
            raise TossupError(f"{_name(policy)} cannot be run as a causal language model: {_said(e)}") from e
        alone = [trouble for n in LENGTHS if (trouble := _over_cache(policy, (n,), expected))] if padded else []
    fault = f"{_name(policy)} cannot be sampled from through its cache: {alone[0]}" if alone else ""
    return replace(policy, plain_head=plain_head, packs=packs, pads=not padded, cache_fault=fault)


def decoder(model: Any) -> Any:
    """What is under the output head: token ids -> last hidden states."""
    inner = model.base_model
    return inner if inner is not model else model.get_decoder()


@contextmanager
def seen_at_head(model: Any) -> Iterator[dict[str, Tensor]]:
    """What passes through the model within it leave here: the decoder's "last" hidden states, what the output head was "given"
    and its "out"; nothing of what the model does not have or does not call.
    """
    seen: dict[str, Tensor] = {}

    def of_decoder(_: Any, __: Any, out: Any) -> None:
        if (last := getattr(out, "last_hidden_state", None)) is not None:
            seen["last"] = last

    def of_head(_: Any, given: tuple[Tensor, ...], out: Tensor) -> None:
        seen["given"], seen["out"] = given[0], out

    head, under = model.get_output_embeddings(), decoder(model)
    there = head is not None and under is not model
    hooks = [under.register_forward_hook(of_decoder), head.register_forward_hook(of_head)] if there else []
    try:
        yield seen
    finally:
        for hook in hooks:
            hook.remove()


def _plain_and_head(policy: Policy) -> tuple[Tensor, bool]:
    """The logits of the row by itself, [T, V], what everything else has to agree with; and whether they are the output head of
    the last hidden states and nothing more: some models cap or scale them, each in a way of its own.
    """
    with seen_at_head(policy.model) as seen:
        logits = _plain(policy, ROW)
    if "out" not in seen or not torch.equal(seen["out"][0], logits):
        return logits, False
    last = seen["last"] if "last" in seen else _hidden(policy, {"input_ids": _ids(policy, ROW)})
    return logits, last is not None and last.shape == seen["given"].shape and torch.equal(last, seen["given"])


def _packs_rows_apart(policy: Policy, expected: Tensor, plain_head: bool) -> bool:
    """Try it on two sequences: attention may look across, and other kinds of layers do not know the border."""
    first, second = ROW[:2:-1], ROW[:4]
    positions = torch.tensor([[*range(len(first)), *range(len(second))]], device=policy.device)
    if getattr(policy.model.config.get_text_config(), "attention_chunk_size", None):
        return False  # its chunks are counted from the start of the row, which is too short here to show it
    inputs = {"input_ids": _ids(policy, first + second), "position_ids": positions}
    try:
        got = _under_head(policy, inputs) if plain_head else policy.model(**inputs, use_cache=False).logits[0]
    except REFUSALS:
        return False
    return _close(policy, got[len(first) :], expected[: len(second)])


def _check_causal(policy: Policy, expected: Tensor) -> None:
    *before, last = ROW
    if not _close(policy, _plain(policy, (*before, last - 1))[:-1], expected[:-1]):
        raise TossupError(
            f"{_name(policy)} is no causal language model: what follows a token changes its log-prob, so training on them "
            "would be training on nonsense"
        )


def _over_cache(policy: Policy, lengths: Sequence[int], expected: Tensor) -> str:
    """What is wrong with decoding prompts of these lengths as one left-padded batch over a cache; nothing, where it is as
    without.
    """
    width, n = max(lengths), len(lengths)
    attention = torch.tensor([[0] * (width - k) + [1] * k for k in lengths], device=policy.device)
    padded = [[policy.pad_id] * (width - k) + _fit(policy, ROW[:k]) for k in lengths]
    ids = torch.tensor(padded, device=policy.device)
    positions = (attention.cumsum(1) - 1).clamp(min=0)
    plain = torch.stack([expected[k - STEPS - 1 : k] for k in lengths], 1)  # after each step, of each row
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
    """The logits of one sequence by itself, [T, V]."""
    return policy.model(input_ids=_ids(policy, row), use_cache=False).logits[0]  # type: ignore[no-any-return]


def _hidden(policy: Policy, inputs: Mapping[str, Tensor]) -> Tensor | None:
    return getattr(decoder(policy.model)(**inputs, use_cache=False), "last_hidden_state", None)


def _under_head(policy: Policy, inputs: Mapping[str, Tensor]) -> Tensor:
    """The logits as the trainer computes them where there is nothing beside the head, [T, V]."""
    return policy.model.get_output_embeddings()(_hidden(policy, inputs))[0]  # type: ignore[no-any-return]


def _ids(policy: Policy, row: Sequence[int]) -> Tensor:
    return torch.tensor([_fit(policy, row)], device=policy.device)


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
