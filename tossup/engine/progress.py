"""How far a run is, and who looks on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol


class Watcher(Protocol):
    """Whoever looks on: the command line, a notebook, a test."""

    def note(self, text: str) -> None:
        """Something worth a line: where the run lies, that it resumes, how accurate the start model is."""

    def generated(self, answers: int) -> None:
        """So many answers have just been finished."""

    def step(self, step: int, metrics: Mapping[str, float]) -> None:
        """A step is done and saved."""


@dataclass
class Progress:
    """The run's counters; part of every checkpoint."""

    step: int = 0
    groups: int = 0
    tokens_generated: int = 0
    tokens_eval: int = 0
    seconds: float = 0.0
    seconds_generate: float = 0.0
    seconds_verify: float = 0.0
    seconds_update: float = 0.0
    evaluations: list[dict[str, float]] = field(default_factory=list)
    ended_by: str = ""
