"""Neither forward nor backward ever holds [tokens, vocabulary]: every tensor that torch makes on the way is watched."""

from __future__ import annotations

import dataclasses
import weakref
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from transformers import Qwen3Config, Qwen3ForCausalLM

from tossup.engine.logps import logps_and_entropy
from tossup.engine.policy import Policy

ROWS, WIDTH, VOCABULARY, BOUND = 4, 65, 4096, 1 << 16
LOGITS = ROWS * (WIDTH - 1) * VOCABULARY
"""All of them together: sixteen times BOUND, which is itself as large as the head's weights."""


class Held(TorchDispatchMode):
    """Counts the bytes of the storages that operations make and that something still holds, and remembers the most."""

    def __init__(self) -> None:
        super().__init__()
        self.bytes = self.most = self.largest = 0
        self._known: set[int] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        for tensor in tree_leaves(out):
            if isinstance(tensor, Tensor):
                self._see(tensor.untyped_storage())
        return out

    def given(self, *tensors: Tensor) -> None:
        """These are there already; changing them in place makes nothing."""
        self._known |= {tensor.untyped_storage()._cdata for tensor in tensors}

    def _see(self, storage: Any) -> None:
        key, size = storage._cdata, storage.nbytes()
        if key not in self._known:
            self._known.add(key)
            self.bytes += size
            self.most, self.largest = max(self.most, self.bytes), max(self.largest, size)
            weakref.finalize(storage, self._let_go, key, size)

    def _let_go(self, key: int, size: int) -> None:
        self._known.discard(key)
        self.bytes -= size


def small_but_for_its_words() -> Policy:
    torch.manual_seed(0)
    config = Qwen3Config(
        vocab_size=VOCABULARY,
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=8,
    )
    return Policy(
        Qwen3ForCausalLM(config).eval(), None, torch.device("cpu"), torch.float32, frozenset([1]), 0, packs=True
    )


class Scaled(torch.nn.Linear):
    """A head that is more than its matrix."""

    def forward(self, hidden: Tensor) -> Tensor:
        return super().forward(hidden) * 2


def watched(policy: Policy, bound: int, packed: bool) -> Held:
    ids = torch.randint(2, VOCABULARY, (ROWS, WIDTH), generator=torch.Generator().manual_seed(0))
    mask = torch.ones(ROWS, WIDTH - 1).bool()
    with Held() as held:
        held.given(*policy.model.parameters())
        logps, _ = logps_and_entropy(policy, ids, torch.ones_like(ids), mask, 0.8, bound, packed)
        logps.sum().backward()
    return held


@pytest.mark.parametrize("head", [torch.nn.Linear, Scaled])
@pytest.mark.parametrize(("packed", "compute"), [(False, torch.float32), (True, torch.bfloat16)])
def test_no_logits_of_all_tokens_are_ever_held(packed: bool, head: type[torch.nn.Linear], compute: torch.dtype) -> None:
    policy = dataclasses.replace(small_but_for_its_words(), compute=compute)
    policy.model.lm_head.__class__ = head
    whole, bounded = (watched(policy, bound, packed) for bound in (LOGITS, BOUND))
    assert whole.largest >= 4 * LOGITS  # so the watch would see them
    assert bounded.largest <= 8 * BOUND
    assert bounded.most < 4 * LOGITS * 2 / 3 < whole.most / 4  # all together less than one copy of them
