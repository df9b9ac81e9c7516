"""How far a run is, whether it has lost what it had, and who looks on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from tossup.curriculum.batch import Batch, NothingLeft

APART = 0.05
"""Nats a token. bfloat16 makes 1e-5 to 1e-3 of it; weights of some steps ago, or a layer left out, far more."""


def ended(reason: str) -> str:
    """Why a run was over, in words that follow its number of steps; none where it took all that it was to take."""
    return {"steps": "", "token_budget": ", the token budget spent"}.get(reason, f", {reason}")


class Watcher(Protocol):
    """Whoever looks on: the command line, a notebook, a test."""

    def note(self, text: str) -> None:
        """Something worth a line: where the run lies, that it resumes, how accurate the start model is."""

    def generated(self, answers: int) -> None:
        """So many answers have just been finished."""

    def step(self, step: int, metrics: Mapping[str, float]) -> None:
        """A step is done and saved."""


class Silent:
    """A watcher that says nothing."""

    def note(self, text: str) -> None:
        """Say nothing."""

    def generated(self, answers: int) -> None:
        """Say nothing."""

    def step(self, step: int, metrics: Mapping[str, float]) -> None:
        """Say nothing."""


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
    level: float = 0.0
    """Share of right answers among those judged, smoothed over about ten steps."""
    level_best: float = 0.0
    fallen: bool = False
    """Whether it was said that the level is far below its best."""
    apart: bool = False
    """Whether it was said that sampler and trainer disagree."""

    def take(self, batch: Batch) -> None:
        """Count a step, and note why it is the last one if nothing is left to learn."""
        self.step += 1
        self.groups += batch.generated_groups
        self.tokens_generated += batch.generated_tokens
        if batch.nothing_left is NothingLeft.ALL_IMPOSSIBLE and self.level_best > 0:
            self.ended_by = f"collapse: no answer is right any more, where {self.level_best:.0%} were"
        elif batch.nothing_left is not None:
            self.ended_by = f"nothing left to learn: {batch.nothing_left.value}"

    def take_times(self, times: Mapping[str, float], since_start: float) -> None:
        """Add the parts of a step, by the names of `Clock.lap`; `since_start` is of the whole run."""
        self.seconds = since_start
        self.seconds_generate += times.get("time/generate", 0.0)
        self.seconds_verify += times.get("time/verify", 0.0)
        self.seconds_update += times["time/update"]

    def warnings(self, figures: Mapping[str, float]) -> list[str]:
        """What is to be said of a step, by its figures; each thing once in a run's life."""
        found = (self.take_level(figures.get("rollout/reward")), self._take_mismatch(figures.get("mismatch/kl", 0.0)))
        return [text for text in found if text is not None]

    def _take_mismatch(self, kl: float) -> str | None:
        if self.apart or kl < APART:
            return None
        self.apart = True
        return (
            f"warning: the sampler's log-probs and the trainer's are {kl:.2g} nats a token apart (mismatch/kl), far more than "
            "rounding: weights that did not arrive, or an architecture that the two compute in different ways. Try "
            "--generator transformers"
        )

    def take_level(self, reward: float | None) -> str | None:
        """Note a step's share of right answers, None without a judged one; returns what is to be said of it, once.

        The curriculum aims at problems that are solved now and then, so a level that falls to a fifth of its best is a
        policy that has lost what it had, whatever problems come.
        """
        if reward is None:
            return None
        self.level = 0.9 * self.level + 0.1 * reward if self.level_best else reward
        self.level_best = max(self.level_best, self.level)
        if self.fallen or self.level * 5 > self.level_best or self.level_best == 0:
            return None
        self.fallen = True
        return (
            f"warning: {self.level:.1%} of the answers are right where it was {self.level_best:.1%}: the policy may have "
            "collapsed. If it does not recover, begin anew with a lower --lr or with --kl-beta, and another --out"
        )
