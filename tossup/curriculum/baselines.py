"""What others do, behind the same interface, so that a comparison changes nothing but the rule.

    Uniform          every problem once an epoch
    dapo(groups)     DAPO's dynamic sampling (arXiv:2503.14476): uniform problems, waves until there are enough informative
                     groups, the rest thrown away. A `BatchRule`; use it with `Uniform`
    Greso            GRESO (arXiv:2506.02177): an epoch stream that skips a problem the likelier, the longer its run of
                     uniform groups is; made to be used with a refilling rule
    LastMeanPools    prime-rl's difficulty pools: a weight by whether the last group was all right, all wrong or mixed
    Mopps            MoPPS (arXiv:2507.04632): Thompson draws from fading Beta counts, those nearest to a target rate

Written from the papers and from the projects' own defaults. Left out: all of theirs that is not the choice of problems.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tossup.curriculum.batch import BatchRule
from tossup.curriculum.prior import Indices, State
from tossup.curriculum.sampler import Draw, Observation, Steps
from tossup.curriculum.value import Floats


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


def dapo(groups: int, max_waves: int = 10, thrifty: bool = False) -> BatchRule:
    """DAPO's rule for `groups` informative groups a step: full waves, surplus thrown away.

    `thrifty` is kinder than the original: waves are sized by what is missing, and surplus waits for the next step.
    """
    return BatchRule(groups, refill=True, max_waves=max_waves, by_yield=thrifty, max_age=int(thrifty))


class Greso:
    """Skips a problem with probability 1 - p^z, where z is its run of all-right or all-wrong groups.

    p is kept apart for easy and hard runs and, after the first epoch, moves by 0.01 a wave so that the shares of easy and
    hard groups come to a twelfth and a sixth. A skipped problem waits for the next epoch, and no skip is surer than 0.99.
    """

    def __init__(self, n_problems: int, seed: int) -> None:
        self.stream = Uniform(n_problems, seed)
        self.run = np.zeros(n_problems, np.int32)  # n > 0: n all-right groups in a row; n < 0: all-wrong ones
        self.keep = np.array([0.5, 0.5])  # p for easy and for hard runs

    def choose(self, n: int, step: int) -> list[Draw]:
        """The next problems of the epoch that are not skipped; where too few are left, the first of those skipped."""
        rng = self.stream.steps.enter(step)
        before = len(self.stream.steps.drawn)
        chosen: list[int] = []
        skipped: list[int] = []
        while len(chosen) < n:
            passing = np.array(self.stream.stream(n), np.intp)
            if len(passing) == 0:
                break
            run = self.run[passing]
            p = np.where(run > 0, self.keep[0], self.keep[1]) ** np.abs(run)
            kept = rng.random(len(passing)) < np.maximum(p, 0.01)
            chosen += passing[kept].tolist()
            skipped += passing[~kept].tolist()
        chosen = [*chosen, *skipped][:n]
        self.stream.steps.keep_only(chosen, before)
        return [Draw(i, "greso") for i in chosen]

    def observe(self, step: int, seen: Sequence[Observation]) -> None:
        """Lengthen or end the runs, and move the two probabilities."""
        judged = [o for o in seen if o.decided >= 2]
        for o in judged:
            run = int(self.run[o.index])
            if o.correct == o.decided:
                self.run[o.index] = max(run, 0) + 1
            elif o.correct == 0:
                self.run[o.index] = min(run, 0) - 1
            else:
                self.run[o.index] = 0
        if judged and self.stream.position >= self.stream.n_problems:
            shares = np.array(
                [np.mean([o.correct == o.decided for o in judged]), np.mean([o.correct == 0 for o in judged])]
            )
            self.keep = np.clip(self.keep + np.where(shares >= np.array([0.25 / 3, 0.5 / 3]), -0.01, 0.01), 0.05, 0.95)

    def state(self) -> State:
        """The runs, the probabilities and the stream."""
        return {"run": self.run.copy(), "keep": self.keep.copy()} | self.stream.state()

    def restore(self, state: State) -> None:
        """Continue from `state`."""
        self.run[:] = state["run"]
        self.keep = np.array(state["keep"], np.float64)
        self.stream.restore(state)


class LastMeanPools:
    """Draws by weight: `easy` where the last group was all right, `hard` where it was all wrong, otherwise 1."""

    def __init__(self, n_problems: int, seed: int, easy: float = 0.1, hard: float = 0.1) -> None:
        self.steps = Steps(seed)
        self.weights = np.array([1.0, hard, 1.0, easy])  # by pool: unseen, hard, middling, easy
        self.pool = np.zeros(n_problems, np.int8)

    def choose(self, n: int, step: int) -> list[Draw]:
        """Without replacement, with the odds of the pools' weights."""
        rng = self.steps.enter(step)
        with np.errstate(divide="ignore"):
            keys = np.log(self.weights)[self.pool] + rng.gumbel(size=len(self.pool))
        return [Draw(i, "pools") for i in _best(keys, n, self.steps)]

    def observe(self, step: int, seen: Sequence[Observation]) -> None:
        """Move each problem into the pool of its latest group."""
        for o in seen:
            if o.decided >= 2:
                self.pool[o.index] = 1 if o.correct == 0 else 3 if o.correct == o.decided else 2

    def state(self) -> State:
        """The pools and the step."""
        return {"pool": self.pool.copy()} | self.steps.state()

    def restore(self, state: State) -> None:
        """Continue from `state`."""
        self.pool[:] = state["pool"]
        self.steps.restore(state)


class Mopps:
    """Thompson draws from Beta counts that fade toward Beta(1, 1) by half at each visit; the nearest to `target`."""

    def __init__(
        self, n_problems: int, seed: int, target: float = 0.5, fade: float = 0.5, candidates: int = 16
    ) -> None:
        self.steps = Steps(seed)
        self.target, self.fade, self.candidates = target, fade, candidates
        self.ab = np.ones((2, n_problems))

    def choose(self, n: int, step: int) -> list[Draw]:
        """The draws nearest to the target, of `candidates` x n problems picked at random."""
        rng = self.steps.enter(step)
        size = self.ab.shape[1]
        keys = -np.abs(rng.beta(self.ab[0], self.ab[1]) - self.target)
        if size > self.candidates * n:
            keys[rng.permutation(size)[self.candidates * n :]] -= 1.0
        return [Draw(i, "mopps") for i in _best(keys, n, self.steps)]

    def observe(self, step: int, seen: Sequence[Observation]) -> None:
        """Fade and add."""
        for o in seen:
            counts = np.array([o.correct, o.decided - o.correct])
            self.ab[:, o.index] = self.fade * self.ab[:, o.index] + (1.0 - self.fade) + counts

    def state(self) -> State:
        """The counts and the step."""
        return {"ab": self.ab.copy()} | self.steps.state()

    def restore(self, state: State) -> None:
        """Continue from `state`."""
        self.ab[:] = state["ab"]
        self.steps.restore(state)


def _best(keys: Floats, n: int, steps: Steps) -> list[int]:
    """The indices of the greatest keys among the problems that this step has not drawn yet, noted as drawn."""
    free = np.ones(len(keys), bool)
    free[steps.drawn] = False
    open_: Indices = np.flatnonzero(free)
    chosen = open_[np.argsort(-keys[open_], kind="stable")[:n]]
    steps.took(chosen)
    return [int(i) for i in chosen]
