"""Which rule foresees best whether a problem's next group will be informative?

    python -m benchmarks.forecast PATH        PATH: a real run's history, JSONL (.gz), one problem a line with
                                              `correct_of_8` (or `correct` and `G`), one count a visit in order, and `level`

Replays the run visit by visit: before each visit every rule says how likely the group is to be mixed, then the outcome is
shown to it. AUC ranks the visits by what the rule says. Log loss (nats) is given twice: of the rule's own probability where
it has one, and after a calibration that every rule gets alike: the share of mixed groups among earlier rounds' visits with
a like score, learned as the replay goes on. That is kind to the rules that only sort (last-mean pools, GRESO). The last
column is the share of informative groups among the third of each round that the rule ranks highest: what it would have
trained on, had it chosen (ties at random; every problem was visited in every round, so nothing is extrapolated).

Rules: `running mean` counts all visits alike; `MoPPS` halves old counts at a visit; `last-mean pools` know the last group
only (prime-rl); `GRESO` knows the run of uniform groups. Visits are epochs here, so a step is taken as the visit times
--steps-per-visit (the run that ships with the data: 500 steps for about 53 visits).
"""

from __future__ import annotations

import argparse
import gzip
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tossup.curriculum.baselines import Greso, LastMeanPools, Mopps
from tossup.curriculum.belief import Belief, BeliefRule
from tossup.curriculum.prior import TagPrior
from tossup.curriculum.sampler import Observation
from tossup.curriculum.value import informative_chance

Floats: TypeAlias = NDArray[np.float64]
Ints: TypeAlias = NDArray[np.intp]
BINS = 25


class Forecaster(Protocol):
    def forecast(self, index: Ints, step: int) -> Floats: ...

    def see(self, index: Ints, correct: Floats, step: int) -> None: ...


class Ours:
    def __init__(self, n: int, group_size: int, tags: list[str] | None, rule: BeliefRule) -> None:
        self.group_size = group_size
        self.belief = Belief([0] * n, [0] * n, TagPrior(tags, n), group_size, rule)

    def forecast(self, index: Ints, step: int) -> Floats:
        return informative_chance(*self.belief.posterior(index, step), self.group_size)

    def see(self, index: Ints, correct: Floats, step: int) -> None:
        for part in np.array_split(np.arange(len(index)), max(1, len(index) // 128)):
            self.belief.visit(index[part], correct[part], np.full(len(part), float(self.group_size)), step)


class Mean:
    """All visits count alike: Beta(1 + right, 1 + wrong)."""

    def __init__(self, n: int, group_size: int) -> None:
        self.group_size, self.ab = group_size, np.ones((2, n))

    def forecast(self, index: Ints, step: int) -> Floats:
        return informative_chance(self.ab[0, index], self.ab[1, index], self.group_size)

    def see(self, index: Ints, correct: Floats, step: int) -> None:
        self.ab[:, index] += np.array([correct, self.group_size - correct])


class Peer:
    """Reads a peer's own state: Beta counts of MoPPS, the pool of the last mean, GRESO's chance of not being skipped."""

    def __init__(self, sampler: Mopps | LastMeanPools | Greso, group_size: int) -> None:
        self.sampler, self.group_size = sampler, group_size

    def forecast(self, index: Ints, step: int) -> Floats:
        s = self.sampler
        if isinstance(s, Mopps):
            return informative_chance(s.ab[0, index], s.ab[1, index], self.group_size)
        if isinstance(
            s, LastMeanPools
        ):  # unseen, hard, middling, easy: any order of scores will do, bins tell them apart
            pools: Floats = np.array([0.8, 0.2, 0.95, 0.1])[s.pool[index]]
            return pools
        kept: Floats = np.where(s.run[index] > 0, s.keep[0], s.keep[1]) ** np.abs(s.run[index])
        return kept

    def see(self, index: Ints, correct: Floats, step: int) -> None:
        if isinstance(self.sampler, Greso):
            self.sampler.stream.position += len(index)  # its adaptation starts with the second epoch
        pairs = zip(index, correct, strict=True)
        self.sampler.observe(step, [Observation(int(i), int(c), self.group_size, 1.0) for i, c in pairs])


def read_history(path: Path) -> tuple[NDArray[np.int64], int, list[str]]:
    """Counts of shape (problems, visits), -1 after a problem's last visit; the group size; the levels as tags."""
    raw = path.read_bytes()
    text = (gzip.decompress(raw) if path.suffix == ".gz" else raw).decode()
    rows = [json.loads(line) for line in text.split("\n") if line]
    histories = [row.get("correct_of_8") or row["correct"] for row in rows]
    counts = np.full((len(rows), max(map(len, histories))), -1)
    for row, history in zip(counts, histories, strict=True):
        row[: len(history)] = history
    return counts, int(rows[0].get("G", 8)), [str(row.get("level")) for row in rows]


def replay(rule: Forecaster, counts: NDArray[np.int64], steps_per_visit: float) -> Iterator[Floats]:
    """The forecasts of each round of visits."""
    for visit in range(counts.shape[1]):
        index = np.flatnonzero(counts[:, visit] >= 0)
        step = int(visit * steps_per_visit)
        yield rule.forecast(index, step)
        rule.see(index, counts[index, visit].astype(float), step)


def calibrated(rounds: list[Floats], outcomes: list[NDArray[np.bool_]]) -> Floats:
    """Each score's share of mixed groups in the rounds before, by bins of the score."""
    mixed, seen, out = np.ones(BINS), np.full(BINS, 2.0), []
    for scores, truth in zip(rounds, outcomes, strict=True):
        bins = np.minimum((scores * BINS).astype(int), BINS - 1)
        out.append(mixed[bins] / seen[bins])
        mixed += np.bincount(bins, truth, BINS)
        seen += np.bincount(bins, minlength=BINS)
    return np.concatenate(out)


def log_loss(p: Floats, truth: NDArray[np.bool_]) -> float:
    p = np.clip(p, 1e-3, 1 - 1e-3)
    return float(-np.mean(np.where(truth, np.log(p), np.log(1 - p))))


def auc(scores: Floats, truth: NDArray[np.bool_]) -> float:
    """The chance that a mixed group was scored above a uniform one, ties at a half."""
    _, inverse, count = np.unique(scores, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(count) - (count - 1) / 2)[inverse]
    n = int(truth.sum())
    return float((ranks[truth].sum() - n * (n + 1) / 2) / (n * (len(truth) - n)))


def best_third(rounds: list[Floats], outcomes: list[NDArray[np.bool_]]) -> float:
    """The informative share of the groups that the rule would have chosen, the first round apart."""
    rng, mixed, chosen = np.random.default_rng(0), 0, 0
    for scores, truth in zip(rounds[1:], outcomes[1:], strict=True):
        order = np.lexsort((rng.random(len(scores)), -scores))[: len(scores) // 3]
        mixed, chosen = mixed + int(truth[order].sum()), chosen + len(order)
    return mixed / chosen


def rules(n: int, g: int, levels: list[str]) -> dict[str, Forecaster]:
    grid = BeliefRule((0.3, 0.6, 0.9), (0.4, 1.0, 2.5))
    return {
        "tossup": Ours(n, g, levels, BeliefRule()),
        "tossup, without tags": Ours(n, g, None, BeliefRule()),
        "tossup, decay 0.6 alone": Ours(n, g, levels, BeliefRule((0.6,), (1.0,))),
        "tossup, decay 0.85 alone": Ours(n, g, levels, BeliefRule((0.85,), (1.0,))),
        "tossup, a grid of nine": Ours(n, g, levels, grid),
        "running mean": Mean(n, g),
        "MoPPS": Peer(Mopps(n, 0), g),
        "last-mean pools (prime-rl)": Peer(LastMeanPools(n, 0), g),
        "GRESO": Peer(Greso(n, 0), g),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("path", type=Path)
    parser.add_argument("--steps-per-visit", type=float, default=9.4)
    options = parser.parse_args()
    counts, g, levels = read_history(options.path)
    outcomes = [(c > 0) & (c < g) for c in (column[column >= 0] for column in counts.T)]
    truth = np.concatenate(outcomes)
    print(f"{len(counts)} problems, {len(truth)} groups of {g}, {100 * truth.mean():.1f} % of them informative\n")
    print("| rule | log loss | log loss, calibrated | AUC | informative in its best third | CPU s |")
    print("|---|---|---|---|---|---|")
    for name, rule in rules(len(counts), g, levels).items():
        start = time.process_time()
        rounds = list(replay(rule, counts, options.steps_per_visit))
        seconds = time.process_time() - start
        scores = np.concatenate(rounds)
        own = "" if "pools" in name or name == "GRESO" else f"{log_loss(scores, truth):.4f}"
        fitted = log_loss(calibrated(rounds, outcomes), truth)
        third = 100 * best_third(rounds, outcomes)
        print(f"| {name} | {own} | {fitted:.4f} | {auc(scores, truth):.4f} | {third:.1f} % | {seconds:.1f} |")


if __name__ == "__main__":
    main()
