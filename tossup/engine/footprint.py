"""What the passes of a run take of memory: the engine's own code, run on tensors that have shapes and no data.

The model's tensors are torch's fake ones; a dispatch mode sees every tensor that an operation makes and its end, so the most
that is there at once is counted as on the device, whatever the architecture. Two answers depend on data, and fake tensors have
none: a number that is read from a tensor reads as 1, and a mask chooses as many elements as there are response tokens.

Left out: what an operation needs within itself, what the allocator keeps or cannot use, and the libraries.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from tossup.engine.cached import Cached
from tossup.engine.generate.loop import cast_once, pick
from tossup.engine.logps import CHUNK_LOGITS, logps_and_entropy, recomputed
from tossup.engine.policy import Policy
from tossup.engine.probe import REFUSALS, seen_at_head

UNKNOWN = REFUSALS
"""Raised where a model's shapes depend on its data in some other way, or where a kernel of its own takes no tensor without."""

BLOCKS = {"cpu": 1 << 22, "cuda": 1 << 27}
"""Logits of a head's block while it is counted, by the kind of device. On a CPU a run's are smaller, but so many that
counting them would take seconds; these add some 40 MiB."""

aten = torch.ops.aten
BY_MASK = {aten.index.Tensor, aten.index_put.default, aten.index_put_.default, aten._index_put_impl_.default}


class Live(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch's own __init_subclass__
    """Within it, the bytes of all tensors that were made and are still there, and the most that there were at once."""

    def __init__(self, known: Iterable[Tensor], chosen: int = 0) -> None:
        """`known` are there in any case and count nothing; a mask chooses so many elements, or all where that is 0."""
        super().__init__()  # type: ignore[no-untyped-call]
        self.now, self.most, self._chosen = 0, 0, chosen
        self._held = list(known)  # their storages keep their addresses, so that these are no other's
        self._counted = {t.untyped_storage()._cdata for t in self._held}

    def forget_most(self) -> None:
        """Begin to look for the most anew."""
        self.most = self.now

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Do what the operation does to shapes, and count what it gives."""
        result = _by_shapes(func, args, kwargs or {}, self._chosen)
        for tensor in tree_leaves(result):
            if isinstance(tensor, Tensor):
                self._count(tensor.untyped_storage())
        return result

    def _count(self, storage: torch.UntypedStorage) -> None:
        key = storage._cdata
        if key not in self._counted:
            self._counted.add(key)
            self.now += storage.nbytes()
            self.most = max(self.most, self.now)
            weakref.finalize(storage, self._drop, key, storage.nbytes())

    def _drop(self, key: int, size: int) -> None:
        self._counted.discard(key)
        self.now -= size


def _by_shapes(func: Any, args: Any, kwargs: Any, chosen: int) -> Any:
    """The operation on fake tensors, with an answer where it asks for data, and where torch's own rule says too little."""
    if func is aten._local_scalar_dense.default:
        return 1.0 if args[0].is_floating_point() else 1
    if func is aten.nonzero.default:
        return args[0].new_zeros((chosen or args[0].numel(), args[0].dim()), dtype=torch.long)
    if func in BY_MASK:
        return func(args[0], _by_index(args[1], chosen), *args[2:], **kwargs)
    if func is aten._grouped_mm.default:  # its rule knows bfloat16 alone
        return _grouped(*args, **kwargs)
    return func(*args, **kwargs)


def _by_index(indices: Sequence[Tensor | None], chosen: int) -> list[Tensor | None]:
    """Indices that say as much as these, with numbers instead of masks."""
    found: list[Tensor | None] = []
    for index in indices:
        if index is not None and index.dtype is torch.bool:
            found += [index.new_zeros(chosen or index.numel(), dtype=torch.long)] * index.dim()
        else:
            found.append(index)
    return found


def _grouped(a: Tensor, b: Tensor, offs: Tensor | None = None, bias: Tensor | None = None, dtype: Any = None) -> Tensor:
    """The shape of torch's grouped matrix product: rows, columns or the inner dimension are cut into groups at `offs`."""
    outer = [a.shape[0] if offs is None else len(offs)] if a.dim() == b.dim() else []
    return a.new_empty((*outer, a.shape[-2], b.shape[-1]), dtype=dtype or a.dtype)


class Update(NamedTuple):
    """Bytes of one forward and backward pass beside weights and gradients."""

    activations: int
    """What the forward pass keeps for the backward pass; in 16 bits a copy of the weights is among it."""
    passing: int
    """What is there beside it at the worst moment."""


def of_update(policy: Policy, rows: int, width: int, temperature: float, again: bool, packed: bool) -> Update | None:
    """The update's pass over `rows` of `width` tokens; None where it cannot be followed.

    `policy` is a skeleton, see `plan.skeleton`. Every parameter has its gradient already, as from the second micro-batch on.
    """
    mode, head = _fake_mode(policy), policy.model.get_output_embeddings()
    chunk = (BLOCKS if type(head) is torch.nn.Linear else CHUNK_LOGITS)[policy.device.type]
    trained = list(policy.trainable().values())
    try:
        with mode:
            for p in trained:
                p.grad = torch.zeros_like(p)
            ids = torch.zeros(rows, width, dtype=torch.long)
            there, mask = torch.ones_like(ids), torch.ones(rows, width - 1, dtype=torch.bool)
        gradients = [p.grad for p in trained if p.grad is not None]
        live = Live([*policy.model.parameters(), *policy.model.buffers(), *gradients], chosen=mask.numel())
        here = replace(policy, device=torch.device("cpu"))
        with mode, live, recomputed(policy.model, again):
            logps, _ = logps_and_entropy(here, ids, there, mask, temperature, chunk, packed)
            kept = live.now
            logps.sum().backward()  # type: ignore[no-untyped-call]
    except UNKNOWN:
        return None
    finally:
        for p in trained:
            p.grad = None
    return Update(kept, live.most - kept)


class Generation(NamedTuple):
    """Bytes of decoding one batch beside the weights."""

    copies: int
    """Of the weights, in 16 bits."""
    cache: int
    passing: int
    """What is there beside both at the worst moment: as the prompts are read, or at the last token."""


def of_generation(
    policy: Policy, prompts: int, longest: int, group_size: int, width: int, temperature: float
) -> Generation | None:
    """Decoding `group_size` answers to each of `prompts` prompts of `longest` tokens, with them `width` tokens at most.

    None where it cannot be followed.
    """
    here = replace(policy, device=torch.device("cpu"))
    live = Live([*policy.model.parameters(), *policy.model.buffers()])
    rows, width = prompts * group_size, max(3, width)  # a prompt's token, and two steps
    try:
        with _fake_mode(policy), torch.no_grad(), live, cast_once(here):
            copies = live.now
            batch, before = Cached(policy.model), live.now
            logits = _appended(here, batch, torch.zeros(prompts, longest, dtype=torch.long), longest) / temperature
            logits = logits.repeat_interleave(group_size, dim=0)
            batch.take(torch.arange(prompts).repeat_interleave(group_size))
            reading = live.most - copies
            del batch, logits
            batch = Cached(policy.model)
            _appended(here, batch, torch.zeros(rows, width - 2, dtype=torch.long), width - 2)  # in no run at once
            token = torch.zeros(rows, 1, dtype=torch.long)
            _appended(here, batch, token, width - 1)  # now a window's layer has let go of what is outside it
            cache = live.now - before
            live.forget_most()
            pick(
                _appended(here, batch, token, width) / temperature, torch.zeros(rows, dtype=torch.float64), temperature
            )
    except UNKNOWN:
        return None
    return Generation(copies, cache, max(reading, live.most - copies) - cache)


def _appended(policy: Policy, batch: Cached, ids: Tensor, total: int) -> Tensor:
    """As the decoding loop does it: the logits after these tokens, the last of `total`."""
    there = torch.ones(len(ids), total, dtype=torch.long)
    positions = (there.cumsum(1) - 1)[:, -ids.shape[1] :]
    with policy.autocast():
        return batch.logits(ids, there, positions).float()


def has_plain_head(policy: Policy) -> bool:
    """As `probe` finds it, but on shapes: whether the head's own tensor is the logits, and its input the decoder's last."""
    with seen_at_head(policy.model) as seen:
        try:
            with _fake_mode(policy), torch.no_grad(), Live([]):
                logits = policy.model(input_ids=torch.zeros(1, 2, dtype=torch.long), use_cache=False).logits
        except UNKNOWN:
            return True
    return _one(seen.get("out"), logits) and ("last" not in seen or _one(seen["given"], seen["last"]))


def _one(a: Tensor | None, b: Tensor | None) -> bool:
    return a is not None and b is not None and a.untyped_storage()._cdata == b.untyped_storage()._cdata


def _fake_mode(policy: Policy) -> Any:
    return next(policy.model.parameters()).fake_mode
