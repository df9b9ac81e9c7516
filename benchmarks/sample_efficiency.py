"""Generated tokens to the same held-out accuracy: the curriculum beside what others do, on the built-in recipe.

    python -m benchmarks.sample_efficiency --targets 0.74,0.77 --seeds 5 --out runs/sample-efficiency
    python -m benchmarks.sample_efficiency --poisoned --methods uniform,tossup --targets 0.72 --out runs/poisoned

Every run is a training of its own from the same checkpoint, evaluated about every `--every` generated tokens on the same
held-out problems. First each method tries every learning rate (and those that refill also a smaller batch, which is then
as full as the others' are) on `--tune-seeds` seeds that are not among those that count, and keeps what needs the fewest
tokens to the last target; a setting that does not get there comes behind, by its best accuracy. Then it runs on `--seeds`
fresh seeds. A run ends at the last target or at `--budget` tokens.

The accuracy of a moment is the mean of two neighbouring evaluations, which halves their noise; where it crosses a target
is read off by linear interpolation. A run that does not get there counts with all the tokens that it used, which favours
it, and the table says how many did. Seconds are CPU seconds of training, evaluations apart.

Methods: uniform; DAPO dynamic sampling (uniform draws, full waves until the batch is full, surplus thrown away) and a
thrifty variant of it (waves sized by the yield, surplus kept a step); GRESO; prime-rl's last-mean pools; ours, with
either aim. Finished runs under --out are not repeated.

`--poisoned` spoils the pool: 5 % wrong keys, 10 % coin flips, 10 % copies, and a verifier that fails one time in five.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import multiprocessing
import os
import platform
import random
import statistics
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path
from typing import Any

from tossup.records import Problem, Verdict, undecided

os.environ.setdefault("OMP_NUM_THREADS", "1")

REFILLED = {"curriculum.refill": True, "curriculum.max_waves": 10}
METHODS: dict[str, dict[str, Any]] = {
    "uniform": {"curriculum.sampler": "uniform"},
    "dapo": {"curriculum.sampler": "uniform", **REFILLED, "curriculum.full_waves": True, "curriculum.max_age": 0},
    "dapo-thrifty": {"curriculum.sampler": "uniform", **REFILLED},
    "greso": {"curriculum.sampler": "greso", **REFILLED, "curriculum.max_age": 0},
    "last-mean": {"curriculum.sampler": "last_mean"},
    "tossup": {"curriculum.sampler": "tossup"},
    "tossup-half": {"curriculum.sampler": "tossup", "curriculum.aim": "half"},
}
Point = tuple[float, float, float]
"""Generated tokens, CPU seconds, held-out accuracy."""


@dataclass(frozen=True, slots=True)
class Case:
    """One run: a method at a learning rate, with so many problems a step."""

    method: str
    lr: str
    groups: int
    seed: int

    @property
    def name(self) -> str:
        return f"{self.method}-{self.lr}-{self.groups}-{self.seed}"


class ReachedError(Exception):
    """The run has reached its target."""


class Until:
    """Watches a run: notes tokens, CPU seconds and accuracy, and ends it once the target is reached."""

    def __init__(self, target: float) -> None:
        self.target = target
        self.points: list[Point] = []
        self.cpu, self.at, self.step_cpu = 0.0, time.process_time(), 0.0

    def note(self, text: str) -> None:
        """Nothing."""

    def generated(self, answers: int) -> None:
        """Nothing."""

    def step(self, step: int, metrics: Mapping[str, float]) -> None:
        """A step with an evaluation counts with the CPU time of the step before it."""
        now = time.process_time()
        evaluated = "eval/accuracy" in metrics
        self.step_cpu = self.step_cpu if evaluated else now - self.at
        self.cpu, self.at = self.cpu + self.step_cpu, now
        if evaluated:
            self.points.append((metrics["tokens/total"], self.cpu, metrics["eval/accuracy"]))
            if smooth(self.points)[-1][2] >= self.target:
                raise ReachedError


def smooth(points: Sequence[Point]) -> list[Point]:
    """The means of neighbours."""
    return [tuple((x + y) / 2 for x, y in zip(a, b, strict=True)) for a, b in itertools.pairwise(points)] or [*points]  # type: ignore[misc]


def run(case: Case, target: float, budget: int, every: int, pool: str, out: Path) -> list[Point]:
    """The curve of one run. Evaluations are spaced in steps, by what a step of the method is expected to generate."""
    from tossup.engine.arithmetic import recipe_path
    from tossup.engine.config import TrainConfig, load
    from tossup.engine.train import train

    folder = out / case.name
    curve = folder / "curve.json"
    if not curve.exists():
        overrides = METHODS[case.method] | {"update.lr": float(case.lr), "seed": case.seed}
        overrides |= {"rollout.problems_per_step": case.groups, "steps": 10**6, "token_budget": budget}
        waves = 3.0 if overrides.get("curriculum.refill") else 1.0
        overrides |= {"eval.every": max(1, round(every / (72 * case.groups * waves))), "save_every": 10**6}
        overrides |= {"out": str(folder)} | ({"pool": pool} if pool else {})
        watcher = Until(target)
        with contextlib.suppress(ReachedError):
            train(load(TrainConfig, recipe_path(), overrides), watcher)
        curve.write_text(json.dumps(watcher.points))
    return [tuple(point) for point in json.loads(curve.read_text())]


def to_target(points: Sequence[Point], target: float) -> tuple[float, float, bool]:
    """(tokens, seconds) at which a curve first crosses the target, and whether it does."""
    for (t0, s0, a0), (t1, s1, a1) in itertools.pairwise([(0.0, 0.0, 0.0), *smooth(points)]):
        if a1 >= target:
            share = (target - a0) / (a1 - a0) if t0 else 1.0
            return t0 + share * (t1 - t0), s0 + share * (s1 - s0), True
    return points[-1][0], points[-1][1], False


def ratio_interval(base: Sequence[float], ours: Sequence[float]) -> tuple[float, float]:
    """90 % bootstrap interval, over seeds, of mean(base) / mean(ours)."""
    rng = random.Random(0)

    def resampled(values: Sequence[float]) -> float:
        return statistics.mean(rng.choices(values, k=len(values)))

    ratios = sorted(resampled(base) / resampled(ours) for _ in range(4000))
    return ratios[200], ratios[3800]


COIN, FAILING = "coin flip", 0.2


def write_poisoned(path: Path) -> None:
    """Write a pool of 2,000 built-in problems with 5 % wrong keys, 10 % coin flips and 10 % copies, for `failing` to judge."""
    from tossup.curriculum.pool import Pool
    from tossup.engine.arithmetic import pool

    rng = random.Random(0)
    sound = [p for p in pool() if not p.meta]
    problems = []
    for i in range(2000):
        kind = rng.choices(["sound", "wrong key", COIN, "copy"], [75, 5, 10, 10])[0]
        problem = sound[i % len(sound)] if kind != "copy" else rng.choice(sound)
        digit = (int(problem.reference[-1]) + 1) % 10
        reference = f"{problem.reference[:-1]}{digit}" if kind == "wrong key" else problem.reference
        verifier = "benchmarks.sample_efficiency:failing"
        problems.append(replace(problem, id=f"{i:05d}", reference=reference, verifier=verifier, meta={"kind": kind}))
    path.parent.mkdir(parents=True, exist_ok=True)
    Pool.of(problems).write(path)


_chance = random.SystemRandom()


def failing(problem: Problem, response: str) -> Verdict | bool:
    """The verifier of the poisoned pool: fails one time in five, tosses a coin for coin flips. It cannot be repeated."""
    if _chance.random() < FAILING:
        return undecided("failed")
    return _chance.random() < 0.5 if problem.meta["kind"] == COIN else response.strip() == problem.reference


def tuned(args: argparse.Namespace, pool: str) -> dict[str, Case]:
    """The best setting of each method, as its first case that counts."""
    last = args.targets[-1]
    fixed = dict(entry.split("=") for entry in args.fixed.split(",") if entry)
    best: dict[str, Case] = {}
    for method in args.methods.split(","):
        if method in fixed:
            lr, groups = fixed[method].split("/")
            best[method] = Case(method, lr, int(groups), 0)
            continue
        sizes = (16, 6) if METHODS[method].get("curriculum.refill") else (16,)
        grid = [Case(method, lr, groups, 0) for lr in args.lrs.split(",") for groups in sizes]
        trials = [replace(case, seed=1000 + s) for case in grid for s in range(args.tune_seeds)]
        curves = dict(zip(trials, runs(trials, args, pool), strict=True))

        def rank(case: Case, curves: dict[Case, list[Point]] = curves) -> tuple[float, float]:
            mine = [curve for trial, curve in curves.items() if replace(trial, seed=0) == case]
            short = sum(not to_target(curve, last)[2] for curve in mine)
            tokens = statistics.mean(to_target(curve, last)[0] for curve in mine)
            accuracy = statistics.mean(max(a for _, _, a in smooth(curve)) for curve in mine)
            return (short, -accuracy if short else tokens)

        best[method] = min(grid, key=rank)
    return best


def runs(cases: Sequence[Case], args: argparse.Namespace, pool: str) -> list[list[Point]]:
    """The curves of some runs, `--jobs` at once, each worker a fresh process."""
    fresh = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(args.jobs, mp_context=fresh) as workers:
        jobs = [workers.submit(run, c, args.targets[-1], args.budget, args.every, pool, args.out) for c in cases]
        return [job.result() for job in jobs]


def main() -> None:
    """Tune, run and print a table for each target."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--targets", type=lambda text: sorted(map(float, text.split(","))), default=[0.74, 0.77])
    parser.add_argument("--budget", type=int, default=600_000, help="generated tokens of a run")
    parser.add_argument("--every", type=int, default=24_000, help="generated tokens between evaluations")
    parser.add_argument("--methods", default=",".join(METHODS))
    parser.add_argument("--lrs", default="1e-4,2e-4,4e-4")
    parser.add_argument("--fixed", default="", help="settings not to be tuned, METHOD=LR/GROUPS, with commas between")
    parser.add_argument("--tune-seeds", type=int, default=1)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--poisoned", action="store_true", help="spoil the pool and the verifier")
    parser.add_argument("--jobs", type=int, default=1, help="runs at once")
    parser.add_argument("--out", type=Path, default=Path("runs/sample-efficiency"))
    args = parser.parse_args()
    pool = ""
    if args.poisoned:
        pool = str(args.out / "pool.jsonl")
        write_poisoned(Path(pool))
    best = tuned(args, pool)
    cases = [replace(case, seed=s) for case in best.values() for s in range(args.seeds)]
    curves = dict(zip(cases, runs(cases, args, pool), strict=True))
    print(f"{args.seeds} seeds, tuned on {args.tune_seeds}; {args.jobs} runs at once; at most {args.budget:,} tokens")
    print(f"{platform.machine()}, Python {platform.python_version()}, {date.today()}")
    for target in args.targets:
        print_table(target, best, curves)


def print_table(target: float, best: Mapping[str, Case], curves: Mapping[Case, list[Point]]) -> None:
    """One row a method: its setting, and tokens and CPU seconds to the target, beside uniform sampling's."""
    found = {m: [to_target(curve, target) for case, curve in curves.items() if case.method == m] for m in best}
    base = found.get("uniform", next(iter(found.values())))
    print(
        f"\nto {target}:\n\n| method | lr | groups | reached | generated tokens | CPU s | times fewer than uniform (90 %) |"
    )
    print("|---|---|---|---|---|---|---|")
    for method, rows in found.items():
        tokens, seconds = ([row[i] for row in rows] for i in (0, 1))
        uniform = [row[0] for row in base]
        low, high = ratio_interval(uniform, tokens)
        ratio = f"{statistics.mean(uniform) / statistics.mean(tokens):.2f} ({low:.2f} to {high:.2f})"
        reached = f"{sum(row[2] for row in rows)} of {len(rows)}"
        case = best[method]
        figures = f"{statistics.mean(tokens):,.0f} | {statistics.mean(seconds):.0f} | {ratio}"
        print(f"| {method} | {case.lr} | {case.groups} | {reached} | {figures} |")


if __name__ == "__main__":
    main()
