"""How a model is tried; that it is tried rightly, the architectures show."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from small import make_policy
from torch.nn.modules.module import register_module_forward_pre_hook

from tossup.engine.policy import load
from tossup.engine.probe import probe


@pytest.fixture
def tf32() -> Iterator[None]:
    """Products as some containers set them."""
    before = torch.backends.cuda.matmul.fp32_precision
    torch.backends.cuda.matmul.fp32_precision = "tf32"
    yield
    torch.backends.cuda.matmul.fp32_precision = before


def test_a_model_is_tried_in_float32_even_where_products_are_tf32(tf32: None) -> None:
    seen: set[str] = set()
    hook = register_module_forward_pre_hook(lambda *_: seen.add(torch.backends.cuda.matmul.fp32_precision))
    try:
        load("builtin:arithmetic", "cpu")
    finally:
        hook.remove()
    assert seen == {"ieee"}
    assert torch.backends.cuda.matmul.fp32_precision == "tf32"


def test_a_model_that_can_do_everything_is_tried_on_few_tokens() -> None:
    """Of a large model on a CPU, a pass takes seconds, and every resumed run makes them."""
    tokens: list[int] = []
    policy = make_policy(dtype=torch.float32)
    hook = policy.model.base_model.register_forward_pre_hook(
        lambda _, __, given: tokens.append(given["input_ids"].numel()), with_kwargs=True
    )
    try:
        found = probe(policy)
    finally:
        hook.remove()
    assert (found.plain_head, found.packs, found.pads, found.cache_fault) == (True, True, True, "")
    assert len(tokens) == 5
    assert sum(tokens) <= 28


def test_a_decoder_that_is_another_within_its_model_is_found_out() -> None:
    """The trainer calls it by itself; what its model gives it beside the tokens would be lost."""
    policy = make_policy(dtype=torch.float32)
    assert probe(policy).plain_head
    within: list[bool] = []
    policy.model.register_forward_pre_hook(lambda *_: within.append(True))
    policy.model.register_forward_hook(lambda *_: within.clear())
    under = policy.model.base_model
    forward = under.forward
    under.forward = lambda input_ids, **kw: forward(input_ids=input_ids if within else input_ids.flip(1), **kw)
    found = probe(policy)
    assert not found.plain_head
    assert found.cache_fault == ""
