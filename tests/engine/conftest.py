"""What the engine's tests share."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from small import make_policy
from stand_in import Bench

from tossup.engine.policy import Policy


@pytest.fixture
def policy() -> Policy:
    return make_policy()


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    bench = Bench(tmp_path, monkeypatch)
    yield bench
    for generator in bench.opened:
        generator.close()


@pytest.fixture
def on_gpu(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> Bench:
    """As on the second of two GPUs; the weights stay where they are, and the stand-in computes nothing."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,GPU-5f")
    bench.policy = replace(bench.policy, device=torch.device("cuda", 1))
    return bench
