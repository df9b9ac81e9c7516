"""The unit in which the measuring of a pool is handed out, and the plain way to do it: here, one after the other.

A chunk holds everything that its answers follow from but the model and the sampling settings, its seed included. So it
gives the same groups wherever and whenever it is done, and a chunk that was lost with its worker is simply done again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from tossup.engine.generate import Generator, open_generator
from tossup.engine.measure_config import MeasureConfig
from tossup.engine.policy import Policy, load, set_threads
from tossup.engine.rollouts import sample_groups
from tossup.records import Group, Problem


@dataclass(frozen=True, slots=True)
class Chunk:
    """Some problems of a pool, and how often and from which seed each is to be answered."""

    number: int
    """Its part of the ledger."""
    problems: tuple[Problem, ...]
    samples: int
    seed: int
    first_id: int
    """The id of its first group; the others count up."""
    drawn_by: str = "uniform"
    """Why these problems: all of a pool alike, or a choice among them."""


Execute = Callable[[Iterable[Chunk]], Iterator[tuple[Chunk, list[Group]]]]
"""Does chunks, and gives each back with its judged groups, in whatever order they are finished."""


class Measured(NamedTuple):
    """The model to measure, ready in this process, and who samples from it."""

    policy: Policy
    generator: Generator


def open_model(config: MeasureConfig, note: Callable[[str], None]) -> Measured:
    """Load the model and start its generator; close that one."""
    policy = load(config.model, config.device, config.dtype)
    set_threads(policy, config.threads)
    generator = open_generator(policy, config.sampling, note)
    generator.push(policy, 0)
    return Measured(policy, generator)


def do(model: Measured, config: MeasureConfig, chunk: Chunk) -> list[Group]:
    """The judged groups of one chunk, in the order of its problems."""
    groups, _ = sample_groups(
        model.policy,
        chunk.problems,
        config.sampling,
        group_size=chunk.samples,
        seed=chunk.seed,
        first_id=chunk.first_id,
        drawn_by=[chunk.drawn_by] * len(chunk.problems),
        generator=model.generator,
    )
    return groups


class Here:
    """Does chunks in this process; the model is loaded once there is something to do."""

    def __init__(self, config: MeasureConfig, note: Callable[[str], None]) -> None:
        self.config, self.note = config, note
        self.model: Measured | None = None

    def __call__(self, chunks: Iterable[Chunk]) -> Iterator[tuple[Chunk, list[Group]]]:
        """Do them in order."""
        for chunk in chunks:
            self.model = self.model or open_model(self.config, self.note)
            yield chunk, do(self.model, self.config, chunk)

    def close(self) -> None:
        """End what was started."""
        if self.model is not None:
            self.model.generator.close()
