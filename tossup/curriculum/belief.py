"""What is believed of each problem's success rate now, while the policy moves under it.

For every problem: right answers S and wrong answers F, which lose a part of their weight at every visit (S <- d S +
c), so that the last visits speak loudest. Between visits the weight k = S + F ages by exp(-steps / 100), though never
below min(k, 1), while the problem's own mean S / k stays: a problem that looked hopeless long ago becomes uncertain
again, which is what brings it back. The belief is Beta(k m + s q, k (1 - m) + s (1 - q)) with the pooled prior rate q
(see `prior`) of strength s.

How fast to forget (d) and how far to trust the pool (s) are not settings: a small grid of both runs along, and the
pair that has predicted the recent groups best (prequential beta-binomial likelihood) is the one that speaks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tossup.curriculum.prior import Indices, Prior, State
from tossup.curriculum.value import Floats, log_likelihood


@dataclass(frozen=True, slots=True)
class BeliefRule:
    """How counts fade. The first decay and strength speak until there is evidence; pass one of each to fix them."""

    decays: tuple[float, ...] = (0.6, 0.85)
    """The shares of the old counts that a visit leaves."""
    strengths: tuple[float, ...] = (1.0,)
    """The weights of the pooled prior, in answers."""
    ageing_steps: float = 100.0
    """Between visits the weight falls to 1/e in this many steps."""
    least_weight: float = 1.0
    """Ageing stops at this weight, in answers."""


class Belief:
    """Decayed counts for `n` problems, 12 + 8 x decays bytes a problem. Problems are named by their index."""

    def __init__(
        self,
        attempts: Sequence[int] | NDArray[np.integer],
        correct: Sequence[int] | NDArray[np.integer],
        prior: Prior,
        group_size: int,
        rule: BeliefRule | None = None,
    ) -> None:
        """Counts measured beforehand (`attempts`, `correct`) load as one visit of at most `group_size` answers."""
        self.rule = rule or BeliefRule()
        self.prior = prior
        n, c = np.asarray(attempts, np.float64), np.asarray(correct, np.float64)
        if n.shape != c.shape or np.any(c < 0) or np.any(c > n):
            raise ValueError("attempts and correct must have one entry a problem, with 0 <= correct <= attempts")
        share = np.where(n > 0, np.minimum(n, group_size) / np.maximum(n, 1.0), 0.0)
        decays = len(self.rule.decays)
        self.right = np.repeat((c * share).astype(np.float32)[None], decays, axis=0)
        self.wrong = np.repeat(((n - c) * share).astype(np.float32)[None], decays, axis=0)
        self.last_step = np.zeros(len(n), np.int32)
        self.experts = [(d, s) for d in range(decays) for s in self.rule.strengths]
        self.evidence = np.zeros(len(self.experts))
        self.best = 0
        measured = np.flatnonzero(n)
        if len(measured):
            prior.learn(measured, (c * share)[measured], (n * share)[measured], 0)

    def __len__(self) -> int:
        return len(self.last_step)

    @property
    def decay(self) -> float:
        """The decay that has predicted best lately."""
        return self.rule.decays[self.experts[self.best][0]]

    @property
    def strength(self) -> float:
        """The prior strength that has predicted best lately."""
        return self.experts[self.best][1]

    def own_mean(self, index: Indices) -> Floats:
        """The problems' own decayed success rates, without the prior; NaN where nothing was seen."""
        d = self.experts[self.best][0]
        right, weight = self.right[d, index].astype(np.float64), self._weight(d, index)
        mean: Floats = np.divide(right, weight, out=np.full(len(right), np.nan), where=weight > 0)
        return mean

    def posterior(self, index: Indices, step: int) -> tuple[Floats, Floats]:
        """The parameters (a, b) of the Beta belief in the success rate of each of these problems at this step."""
        return self._posterior(index, step, *self.experts[self.best], self.prior.mean(index))

    def visit(
        self,
        index: Indices,
        correct: Floats,
        decided: Floats,
        step: int,
        blind: NDArray[np.bool_] | None = None,
    ) -> None:
        """Take in one group for each of these problems, none named twice and each with at least one decided answer.

        `blind` says which of them were drawn without regard to what is known of them; without it, all. Only these and the
        problems never seen before teach the prior: the others come back because they are hard, and not as their tag is.
        """
        prior_mean = self.prior.mean(index)
        fade = 0.995 ** (len(index) / 16)
        for e, (d, s) in enumerate(self.experts):
            a, b = self._posterior(index, step, d, s, prior_mean)
            self.evidence[e] = fade * self.evidence[e] + log_likelihood(a, b, correct, decided).sum()
        self.best = int(np.argmax(self.evidence))
        fair = np.full(len(index), True) if blind is None else blind | (self._weight(0, index) == 0)
        self.prior.learn(index[fair], correct[fair], decided[fair], step)
        for d, decay in enumerate(self.rule.decays):
            self.right[d, index] = decay * self.right[d, index] + correct
            self.wrong[d, index] = decay * self.wrong[d, index] + (decided - correct)
        self.last_step[index] = step

    def state(self) -> State:
        """Everything that changes; the prior's arrays under `prior.`."""
        own: State = {
            "right": self.right.copy(),
            "wrong": self.wrong.copy(),
            "last_step": self.last_step.copy(),
            "evidence": self.evidence.copy(),
            "best": np.array(self.best),
        }
        return own | {f"prior.{k}": v for k, v in self.prior.state().items()}

    def restore(self, state: State) -> None:
        """Continue from `state`.

        Raises:
            ValueError: the state is of another pool or another grid.
        """
        if state["right"].shape != self.right.shape or state["evidence"].shape != self.evidence.shape:
            raise ValueError(
                f"the saved belief has counts of shape {state['right'].shape} and {len(state['evidence'])} experts, "
                f"this pool and rule have {self.right.shape} and {len(self.evidence)}: restore it into its own pool"
            )
        self.right[:], self.wrong[:], self.last_step[:] = state["right"], state["wrong"], state["last_step"]
        self.evidence[:] = state["evidence"]
        self.best = int(state["best"])
        self.prior.restore({k.removeprefix("prior."): v for k, v in state.items() if k.startswith("prior.")})

    def _weight(self, d: int, index: Indices) -> Floats:
        weight: Floats = self.right[d, index].astype(np.float64) + self.wrong[d, index]
        return weight

    def _posterior(
        self, index: Indices, step: int, d: int, strength: float, prior_mean: Floats
    ) -> tuple[Floats, Floats]:
        weight = self._weight(d, index)
        age = np.maximum(step - self.last_step[index], 0) / self.rule.ageing_steps
        kept = np.maximum(weight * np.exp(-age), np.minimum(weight, self.rule.least_weight))
        own = self.right[d, index] / np.maximum(weight, 1e-9)
        a = np.maximum(kept * own + strength * prior_mean, 0.01)
        b = np.maximum(kept * (1.0 - own) + strength * (1.0 - prior_mean), 0.01)
        return a, b
