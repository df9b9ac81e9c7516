"""A generator over a stand-in for vLLM's process, for the tests of what surrounds it."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from small import make_policy

from tossup.engine.config import SamplingConfig
from tossup.engine.generate import Sample, VllmGenerator
from tossup.engine.generate.draws import answer_seeds
from tossup.engine.generate.vllm_generator import Limits
from tossup.engine.policy import Policy
from tossup.records import Stop

COMMAND = [sys.executable, str(Path(__file__).with_name("stand_in_worker.py"))]
PROMPTS = [(2, 3), (4,), (5, 6, 7)]
SEEDS = [11, 22, 33]
SAMPLING = SamplingConfig(max_new_tokens=8)


class Bench:
    """A generator over the stand-in, and what both sides said."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.log, self.notes, self.patch = folder / "log", list[str](), monkeypatch
        self.policy: Policy = make_policy(dtype=torch.float32, context=16)
        monkeypatch.setenv("STAND_IN_LOG", str(self.log))
        self.opened: list[VllmGenerator] = []

    def open(self, fault: str = "", times: int = 0) -> VllmGenerator:
        self.patch.setenv("STAND_IN_FAULT", fault)
        self.log.with_suffix(".times").write_text(str(times))
        limits = Limits(start_s=300.0, silence_s=300.0)
        generator = VllmGenerator(self.policy, SAMPLING, note=self.notes.append, command=COMMAND, limits=limits)
        self.opened.append(generator)
        return generator

    def order(self) -> list[str]:
        return [json.loads(line)["did"] for line in self.log.read_text().splitlines()]

    def said(self, did: str) -> list[dict[str, Any]]:
        return [entry for entry in map(json.loads, self.log.read_text().splitlines()) if entry["did"] == did]


def expected(version: int) -> list[list[Sample]]:
    return [
        [
            Sample((version + 2, (int(s) >> 1) % 7 + 2, 1), (-0.5, -1.5, -0.25), Stop.END, 0.0)
            for s in answer_seeds(seed, 2)
        ]
        for seed in SEEDS
    ]


def asked(generator: VllmGenerator, handed: dict[int, list[Sample]] | None = None) -> list[list[Sample]]:
    on_group = None if handed is None else handed.__setitem__
    answers = generator.generate(PROMPTS, 2, SEEDS, SAMPLING, on_group)
    return [[a._replace(seconds=0.0) for a in group] for group in answers]


def runs(pid: int) -> bool:
    """Whether a process is there and has not ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in ("Z", "X")
    except OSError:
        return False
