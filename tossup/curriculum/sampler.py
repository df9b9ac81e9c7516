"""Which problems come next.

A sampler chooses problems for a wave of groups and sees what every group showed, also those that will not train:

    draws = sampler.choose(n, step)         without replacement within a step
    ...                                     generate and judge a group for each
    sampler.observe(step, observations)

`TossUp` draws, in this order: a uniform floor (10 %), the problems of the greatest value (75 %), and Thompson draws
(15 %), for which each problem's rate is sampled from its belief and the best at the sampled rates are taken. The
floor comes first and knows nothing of the rest, so that its groups are an exact uniform sample: the control arm, from
which a run reads at no cost what uniform sampling would have wasted. Further waves of one step draw no floor, to keep
that arm exact.

The value of a problem is the signal that its next group is expected to carry, times what groups of its kind have
shown of what was expected (`calibration`), times its freshness, over its price: the length of its answers beside others
of its tag (`lengths`) and the root of 1 + stuck (`watch`).

All randomness is a function of the seed, the step and the wave within the step, and `state()` holds everything else, so
that a restored sampler continues bit for bit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from tossup.curriculum.belief import Belief, BeliefRule
from tossup.curriculum.calibration import Calibration
from tossup.curriculum.lengths import Lengths
from tossup.curriculum.prior import FeaturePrior, Indices, Prior, State, TagPrior, number_tags
from tossup.curriculum.value import Aim, Floats, expected_signal, expected_std, signal_at
from tossup.curriculum.watch import KINDS, MIXED, Watch


@dataclass(frozen=True, slots=True)
class Draw:
    """One chosen problem: its index in the pool, and the rule that chose it (`score`, `thompson` or `uniform`)."""

    index: int
    by: str


@dataclass(frozen=True, slots=True)
class Observation:
    """What one group showed: `correct` of `decided` answers, and the mean length of all its answers in tokens."""

    index: int
    correct: int
    decided: int
    mean_tokens: float


class Saved(Protocol):
    """What saves and restores itself."""

    def state(self) -> State:
        """Everything needed to continue bit for bit, as named arrays."""

    def restore(self, state: State) -> None:
        """Continue from a state of the same kind, pool and options."""


class Sampler(Saved, Protocol):
    """Chooses problems, sees every group, saves and restores itself."""

    def choose(self, n: int, step: int) -> list[Draw]:
        """At most `n` problems, none of them chosen before in this step; fewer when the pool has no more."""

    def observe(self, step: int, seen: Sequence[Observation]) -> None:
        """Take in what the groups of one wave showed."""


class Steps:
    """The bookkeeping of a step: which wave of it this is and what was drawn in it. Shared by the samplers."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.step = -1
        self.wave = 0
        self.floor = 0
        """How many of the first draws were blind."""
        self.drawn = np.zeros(0, np.intp)

    def enter(self, step: int) -> np.random.Generator:
        """Begin a wave of `step`: the generator for it."""
        if step != self.step:
            self.step, self.wave, self.floor, self.drawn = step, 0, 0, np.zeros(0, np.intp)
        else:
            self.wave += 1
        return np.random.default_rng([self.seed, step, self.wave])

    def took(self, index: Indices) -> None:
        """Note what was drawn."""
        self.drawn = np.concatenate([self.drawn, index])

    def keep_only(self, wave: Sequence[int], before: int) -> None:
        """Of what was drawn since there were `before` draws, note only `wave`: the rest was passed over."""
        self.drawn = np.concatenate([self.drawn[:before], np.array(wave, np.intp)])

    def state(self) -> State:
        """The step, the wave and the draws."""
        return {"at": np.array([self.step, self.wave, self.floor]), "drawn": self.drawn.copy()}

    def restore(self, state: State) -> None:
        """Continue from `state`."""
        self.step, self.wave, self.floor = (int(x) for x in state["at"])
        self.drawn = np.array(state["drawn"], np.intp)


@dataclass(frozen=True, slots=True)
class TossUpRule:
    """The options of `TossUp`. The defaults do well in simulation and on the built-in recipe; see `docs/curriculum.md`."""

    aim: Aim = Aim.HEADROOM
    """`headroom` seeks rates of about 0.3, where the most is left to learn; `half` seeks 0.5 exactly."""
    uniform: float = 0.1
    """The share of a step's first wave that is drawn uniformly: the floor, and the control arm."""
    thompson: float = 0.15
    """The share drawn by sampled beliefs."""
    candidates: int = 4000
    """In larger pools a wave considers this many problems drawn at random, and as many whose last group was mixed."""
    rest: int = 60
    """So many steps after a visit a problem is worth its full value again; until then a part that grows with the steps.

    So a problem that is worth twice as much comes back twice as often, and no few of them all the time: a shared network
    that trains on the same few hundred toss-ups again and again loses on the others. In a small pool the rest is shorter:
    never more than a third of the steps that a pass through the pool takes.
    """
    belief: BeliefRule = field(default_factory=BeliefRule)


class TossUp:
    """Seeks the problems whose next group is worth the most.

    `attempts` and `correct` are counts measured before (zeros where there are none), `tags` one text a problem (its
    dataset, its level) that pools what is known of unseen problems; `features`, of shape (n_problems, n_features), says
    more than a tag where there is more to say.
    """

    def __init__(
        self,
        attempts: Sequence[int] | NDArray[np.integer],
        correct: Sequence[int] | NDArray[np.integer],
        tags: Sequence[str] | None,
        group_size: int,
        seed: int,
        rule: TossUpRule | None = None,
        features: NDArray[np.floating] | None = None,
    ) -> None:
        self.rule = rule or TossUpRule()
        self.group_size = group_size
        n = len(attempts)
        prior: Prior = TagPrior(tags, n) if features is None else FeaturePrior(features)
        self.belief = Belief(attempts, correct, prior, group_size, self.rule.belief)
        self.calibration = Calibration(KINDS)
        self.lengths = Lengths(number_tags(tags, n))
        self.watch = Watch(n)
        self.steps = Steps(seed)

    def __len__(self) -> int:
        return len(self.belief)

    def choose(self, n: int, step: int) -> list[Draw]:
        """The floor, then the best by value, then the Thompson draws; see the top of the file."""
        rng = self.steps.enter(step)
        n = min(n, len(self) - len(self.steps.drawn))
        floor = np.zeros(0, np.intp)
        if self.steps.wave == 0:
            floor = rng.choice(len(self), min(n, _about(n * self.rule.uniform, rng)), replace=False)
            self.steps.took(floor)
            self.steps.floor = len(floor)
        pool = self._candidates(max(self.rule.candidates, 4 * n), rng)
        a, b = self.belief.posterior(pool, step)
        n_thompson = min(n - len(floor), _about(n * self.rule.thompson, rng))
        n_score = n - len(floor) - n_thompson
        weight = self._freshness(pool, step, n) * self.calibration.ratio(self.watch.last[pool]) / self._price(pool)
        value = expected_signal(a, b, self.group_size, self.rule.aim) * weight
        tie = 1e-12 * rng.random(len(pool))
        order = np.argsort(-(np.where(self.watch.parked(pool), 0.0, value) + tie), kind="stable")
        scored, rest = order[:n_score], order[n_score:]
        sampled = signal_at(rng.beta(a[rest], b[rest]), self.rule.aim) * weight[rest]
        explored = rest[best(sampled, n_thompson)]
        scored, explored = pool[scored], pool[explored]
        self.steps.took(np.concatenate([scored, explored]))
        named = ((floor, "uniform"), (scored, "score"), (explored, "thompson"))
        return [Draw(int(i), by) for indices, by in named for i in indices]

    def observe(self, step: int, seen: Sequence[Observation]) -> None:
        """Take in every group; those of fewer than two decided answers say nothing of the problem's rate."""
        later = list(seen)
        while later:  # a problem seen twice is taken in twice, in order
            first = list({o.index: o for o in reversed(later)}.values())[::-1]
            ids = {id(o) for o in first}
            later = [o for o in later if id(o) not in ids]
            self._observe_once(step, first)

    def rates(self, step: int) -> Floats:
        """The believed success rate of every problem."""
        a, b = self.belief.posterior(np.arange(len(self)), step)
        rates: Floats = a / (a + b)
        return rates

    def lists(self) -> dict[str, Indices]:
        """The parked and the stuck problems (see `watch`): indices by list."""
        return self.watch.lists()

    def state(self) -> State:
        """Everything that changes, as arrays."""
        return {f"{name}.{k}": v for name, part in self._parts().items() for k, v in part.state().items()}

    def restore(self, state: State) -> None:
        """Continue from `state`.

        Raises:
            ValueError: the state is of another pool or another grid of beliefs.
        """
        for name, part in self._parts().items():
            prefix = f"{name}."
            part.restore({k.removeprefix(prefix): v for k, v in state.items() if k.startswith(prefix)})

    def _parts(self) -> dict[str, Saved]:
        names = ("belief", "calibration", "lengths", "watch", "steps")
        return {name: getattr(self, name) for name in names}

    def _candidates(self, at_most: int, rng: np.random.Generator) -> Indices:
        considered = np.full(len(self), len(self) <= at_most)
        if len(self) > at_most:
            mixed = np.flatnonzero(self.watch.last == MIXED)
            if len(mixed) > at_most:
                mixed = rng.choice(mixed, at_most, replace=False)
            considered[mixed] = True
            considered[rng.choice(len(self), at_most, replace=False)] = True
        considered[self.steps.drawn] = False
        return np.flatnonzero(considered)

    def _freshness(self, index: Indices, step: int, n: int) -> Floats:
        """The part of their value that visited problems have back, when `n` are drawn a step."""
        rest = max(1.0, min(self.rule.rest, len(self) / (3 * n)) if n else 1.0)
        age = step - self.belief.last_step[index]
        freshness: Floats = np.where(self.watch.visits[index] > 0, np.minimum(age / rest, 1.0), 1.0)
        return freshness

    def _price(self, index: Indices) -> Floats:
        price: Floats = self.lengths.relative(index) * np.sqrt(1.0 + self.watch.stuck(index))
        return price

    def _observe_once(self, step: int, seen: Sequence[Observation]) -> None:
        index = np.array([o.index for o in seen], np.intp)
        correct = np.array([o.correct for o in seen], np.float64)
        decided = np.array([o.decided for o in seen], np.float64)
        length = np.array([o.mean_tokens for o in seen], np.float64)
        judged = decided >= 2
        if not judged.all():
            self.watch.see_unjudged(index[~judged])
        i, c, n = index[judged], correct[judged], decided[judged]
        if len(i):
            expected = expected_std(*self.belief.posterior(i, step), self.group_size)
            self.calibration.see(self.watch.last[i], expected, np.sqrt(c * (n - c)) / n)
            self.watch.see(i, c, n)
            blind = (i[:, None] == self.steps.drawn[: self.steps.floor]).any(axis=1)
            self.belief.visit(i, c, n, step, blind)
        self.lengths.see(index, length)


def best(values: Floats, n: int) -> Indices:
    """Where the `n` greatest values are, the greatest first and the earlier of equals first; the rest is not sorted."""
    at = len(values) - n
    among = np.flatnonzero(values >= np.partition(values, at)[at]) if 0 < at < len(values) else np.arange(len(values))
    return among[np.argsort(-values[among], kind="stable")[:n]]


def _about(x: float, rng: np.random.Generator) -> int:
    """`x` rounded up or down at random, so that its mean is x."""
    return int(x + rng.random())
