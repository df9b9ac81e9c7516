"""Which problems come next.

A sampler chooses problems for a wave of groups and sees what every group showed, also those that will not train:

    draws = sampler.choose(n, step)         without replacement within a step
    ...                                     generate and judge a group for each
    sampler.observe(step, observations)

`TossUp` draws, in this order: a uniform floor (10 %), the problems of the greatest value (70 %), and Thompson draws
(20 %), for which each problem's rate is sampled from its belief and the best at the sampled rates are taken. The
floor comes first and knows nothing of the rest, so that its groups are an exact uniform sample: the control arm, from
which a run reads at no cost what uniform sampling would have wasted. Further waves of one step draw no floor, to keep
that arm exact.

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
from tossup.curriculum.prior import FeaturePrior, Indices, Prior, State, TagPrior
from tossup.curriculum.value import Aim, Floats, expected_signal, price, signal_at
from tossup.curriculum.watch import MIXED, Watch


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


class Sampler(Protocol):
    """Chooses problems, sees every group, saves and restores itself."""

    def choose(self, n: int, step: int) -> list[Draw]:
        """At most `n` problems, none of them chosen before in this step; fewer when the pool has no more."""

    def observe(self, step: int, seen: Sequence[Observation]) -> None:
        """Take in what the groups of one wave showed."""

    def state(self) -> State:
        """Everything needed to continue bit for bit, as named arrays."""

    def restore(self, state: State) -> None:
        """Continue from a state of a sampler of the same pool, seed and options."""


class Steps:
    """The bookkeeping of a step: which wave of it this is and what was drawn in it. Shared by the samplers."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.step = -1
        self.wave = 0
        self.drawn = np.zeros(0, np.intp)

    def enter(self, step: int) -> np.random.Generator:
        """Begin a wave of `step`: the generator for it."""
        if step != self.step:
            self.step, self.wave, self.drawn = step, 0, np.zeros(0, np.intp)
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
        return {"at": np.array([self.step, self.wave]), "drawn": self.drawn.copy()}

    def restore(self, state: State) -> None:
        """Continue from `state`."""
        self.step, self.wave = (int(x) for x in state["at"])
        self.drawn = np.array(state["drawn"], np.intp)


class Uniform:
    """Every problem once an epoch, in a new order each epoch."""

    def __init__(self, n_problems: int, seed: int) -> None:
        self.n_problems, self.seed = n_problems, seed
        self.steps = Steps(seed)
        self.position = 0
        self._epoch, self._order = -1, np.zeros(0, np.intp)

    def choose(self, n: int, step: int) -> list[Draw]:
        """The next problems of the epoch, and of the one after it; those already drawn in this step wait."""
        self.steps.enter(step)
        return [Draw(i, "uniform") for i in self.stream(n)]

    def stream(self, n: int) -> list[int]:
        """The next indices, not drawn before in this step."""
        taken: set[int] = set(self.steps.drawn.tolist())
        out: list[int] = []
        n = min(n, self.n_problems - len(taken))
        while len(out) < n:
            epoch, offset = divmod(self.position, self.n_problems)
            if epoch != self._epoch:
                self._epoch, self._order = epoch, np.random.default_rng([self.seed, epoch]).permutation(self.n_problems)
            index = int(self._order[offset])
            self.position += 1
            if index not in taken:
                taken.add(index)
                out.append(index)
        self.steps.took(np.array(out, np.intp))
        return out

    def observe(self, step: int, seen: Sequence[Observation]) -> None:
        """Uniform sampling learns nothing."""

    def state(self) -> State:
        """The position in the stream of epochs."""
        return {"position": np.array(self.position)} | self.steps.state()

    def restore(self, state: State) -> None:
        """Continue from `state`."""
        self.position = int(state["position"])
        self.steps.restore(state)


@dataclass(frozen=True, slots=True)
class TossUpRule:
    """The options of `TossUp`. The defaults are what did best in simulation; see `docs/curriculum.md`."""

    aim: Aim = Aim.HEADROOM
    """`headroom` seeks rates of about 0.3, where the most is left to learn; `half` seeks 0.5 exactly."""
    uniform: float = 0.1
    """The share of a step's first wave that is drawn uniformly: the floor, and the control arm."""
    thompson: float = 0.2
    """The share drawn by sampled beliefs."""
    token_power: float = 0.5
    """The value is divided by the expected tokens to this power."""
    candidates: int = 4000
    """In larger pools a wave considers this many problems drawn at random, and as many whose last group was mixed."""
    rest: int = 10
    """So many steps after a visit a problem is drawn by the floor only, or where nothing else is left.

    A shared network that trains on the same few hundred toss-ups again and again loses on the rest. In a small pool the
    rest is shorter: never more than a twelfth of the pool rests at once.
    """
    belief: BeliefRule = field(default_factory=BeliefRule)


RESTING = 1e-6
"""What a resting problem's value is multiplied by: behind all others, before the parked."""


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
        self.watch = Watch(n)
        self.steps = Steps(seed)
        self.tokens = np.zeros(n, np.float32)
        self.typical_tokens = 0.0

    def __len__(self) -> int:
        return len(self.tokens)

    def choose(self, n: int, step: int) -> list[Draw]:
        """The floor, then the best by value, then the Thompson draws; see the top of the file."""
        rng = self.steps.enter(step)
        n = min(n, len(self) - len(self.steps.drawn))
        floor = np.zeros(0, np.intp)
        if self.steps.wave == 0:
            floor = rng.choice(len(self), min(n, _about(n * self.rule.uniform, rng)), replace=False)
            self.steps.took(floor)
        pool = self._candidates(max(self.rule.candidates, 4 * n), rng)
        a, b = self.belief.posterior(pool, step)
        n_thompson = min(n - len(floor), _about(n * self.rule.thompson, rng))
        n_score = n - len(floor) - n_thompson
        freshness = np.where(self._resting(pool, step, n), RESTING, 1.0)
        tie = 1e-12 * rng.random(len(pool))
        order = np.argsort(-(self.value(pool, a, b) * freshness + tie), kind="stable")
        scored, rest = pool[order[:n_score]], order[n_score:]
        sampled = signal_at(rng.beta(a[rest], b[rest]), self.rule.aim) * freshness[rest] / self._divisor(pool[rest])
        explored = pool[rest[np.argsort(-sampled, kind="stable")[:n_thompson]]]
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

    def value(self, index: Indices, a: Floats, b: Floats) -> Floats:
        """What a group for each of these problems is worth under Beta(a, b): 0 for the parked."""
        signal = expected_signal(a, b, self.group_size, self.rule.aim)
        worth: Floats = np.where(self.watch.parked(index), 0.0, signal / self._divisor(index))
        return worth

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
        parts = (("belief", self.belief.state()), ("watch", self.watch.state()), ("steps", self.steps.state()))
        nested = {f"{name}.{k}": v for name, part in parts for k, v in part.items()}
        return nested | {"tokens": self.tokens.copy(), "typical_tokens": np.array(self.typical_tokens)}

    def restore(self, state: State) -> None:
        """Continue from `state`.

        Raises:
            ValueError: the state is of another pool or another grid of beliefs.
        """
        for name, part in (("belief", self.belief), ("watch", self.watch), ("steps", self.steps)):
            prefix = f"{name}."
            part.restore({k.removeprefix(prefix): v for k, v in state.items() if k.startswith(prefix)})
        self.tokens[:] = state["tokens"]
        self.typical_tokens = float(state["typical_tokens"])

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

    def _resting(self, index: Indices, step: int, n: int) -> NDArray[np.bool_]:
        """Which of these problems were visited so lately that others come first, when `n` are drawn a step."""
        steps = min(self.rule.rest, len(self) // (12 * n)) if n else 0
        resting: NDArray[np.bool_] = (self.tokens[index] > 0) & (step - self.belief.last_step[index] <= steps)
        return resting

    def _divisor(self, index: Indices) -> Floats:
        cost = price(self.tokens[index].astype(np.float64), self.typical_tokens or 1.0, self.rule.token_power)
        divisor: Floats = cost * np.sqrt(1.0 + self.watch.stuck(index))
        return divisor

    def _observe_once(self, step: int, seen: Sequence[Observation]) -> None:
        index = np.array([o.index for o in seen], np.intp)
        correct = np.array([o.correct for o in seen], np.float64)
        decided = np.array([o.decided for o in seen], np.float64)
        length = np.array([o.mean_tokens for o in seen], np.float64)
        judged = decided >= 2
        self.watch.see_unjudged(index[~judged])
        i, c, n = index[judged], correct[judged], decided[judged]
        if len(i):
            self.watch.see(i, c, n)
            self.belief.visit(i, c, n, step)
        known = self.tokens[index] > 0
        self.tokens[index] = np.where(known, 0.5 * self.tokens[index] + 0.5 * length, length)
        mean = float(length.mean())
        self.typical_tokens = mean if self.typical_tokens == 0 else 0.95 * self.typical_tokens + 0.05 * mean


def _about(x: float, rng: np.random.Generator) -> int:
    """`x` rounded up or down at random, so that its mean is x."""
    return int(x + rng.random())
