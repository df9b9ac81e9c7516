"""The unit in which the measuring of a pool is handed out, and the plain way to do it: here, one after the other.

A chunk holds everything that its answers follow from but the model and the sampling settings, its seed included. So it
gives the same groups wherever and whenever it is done, and a chunk that was lost with its worker is simply done again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from tossup.engine.config import MeasureConfig
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


def do(policy: Policy, config: MeasureConfig, chunk: Chunk) -> list[Group]:
    """The judged groups of one chunk, in the order of its problems."""
    groups, _ = sample_groups(
        policy,
        chunk.problems,
        config.sampling,
        group_size=chunk.samples,
        seed=chunk.seed,
        first_id=chunk.first_id,
        drawn_by=[chunk.drawn_by] * len(chunk.problems),
    )
    return groups


def open_policy(config: MeasureConfig) -> Policy:
    """The model to measure, ready in this process."""
    policy = load(config.model, config.device, config.dtype)
    set_threads(policy, config.threads)
    return policy


class Here:
    """Does chunks in this process; the model is loaded once there is something to do."""

    def __init__(self, config: MeasureConfig) -> None:
        self.config = config
        self.policy: Policy | None = None

    def __call__(self, chunks: Iterable[Chunk]) -> Iterator[tuple[Chunk, list[Group]]]:
        """Do them in order."""
        for chunk in chunks:
            self.policy = self.policy or open_policy(self.config)
            yield chunk, do(self.policy, self.config, chunk)
