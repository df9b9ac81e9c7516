"""How a model is tried; that it is tried rightly, the architectures show."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from torch.nn.modules.module import register_module_forward_pre_hook

from tossup.engine.policy import load


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
