"""Generated tokens to the same held-out accuracy: the curriculum beside what others do, on the built-in recipe.

    python -m benchmarks.sample_efficiency --target 0.68 --budget 400000 --lrs 1e-4,2e-4,4e-4 --tune-seeds 2 --seeds 5 --jobs 2

Every run is a `tossup train` from the same checkpoint, evaluated every few steps on the same held-out problems. First each
method tries every learning rate on `--tune-seeds` seeds (which are not among those that count) and keeps the one that reaches
the target with the fewest tokens; then it runs on `--seeds` fresh seeds. Tokens to the target are read off the evaluations by
linear interpolation; a run that never reaches it counts as its whole budget, and the table says how many did.

Methods: uniform; DAPO dynamic sampling (uniform draws, waves until the batch is full, surplus thrown away) and a thrifty
variant of it (waves sized by the yield, surplus kept a step); GRESO; prime-rl's last-mean pools; ours with either aim.
Finished runs under --out are not repeated.
"""

from __future__ import annotations

import argparse
import itertools
import json
import platform
import random
import statistics
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import date
from pathlib import Path

METHODS = {
    "uniform": ["--sampler", "uniform"],
    "dapo": ["--sampler", "uniform", "--refill", "--max-waves", "10", "--max-age", "0"],
    "dapo-thrifty": ["--sampler", "uniform", "--refill", "--max-waves", "10", "--max-age", "1"],
    "greso": ["--sampler", "greso", "--refill", "--max-waves", "10", "--max-age", "0"],
    "last-mean": ["--sampler", "last_mean"],
    "tossup": ["--sampler", "tossup", "--aim", "headroom"],
    "tossup-half": ["--sampler", "tossup", "--aim", "half"],
}


class Bench:
    """The settings of one benchmark, and its runs."""

    def __init__(self, args: argparse.Namespace) -> None:
        self.args = args

    def run(self, method: str, lr: str, seed: int) -> tuple[float, float, bool]:
        """(tokens, seconds) to the target and whether it was reached."""
        out: Path = self.args.out / f"{method}-{lr}-{seed}"
        if not (out / "summary.json").exists():
            command = [str(Path(sys.executable).with_name("tossup")), "train", "--json", *METHODS[method]]
            command += ["--lr", lr, "--seed", str(seed), "--steps", "1000000", "--token-budget", str(self.args.budget)]
            command += [
                "--eval-every",
                str(self.args.every),
                "--save-every",
                "50",
                "--out",
                str(out),
                *self.args.options,
            ]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode != 0:
                raise SystemExit(f"{' '.join(command)}\n{done.stderr}")
        before = json.loads((out / "summary.json").read_text())["accuracy_before"]
        lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
        curve = [(0.0, 0.0, before)]
        curve += [(m["tokens/total"], m["seconds"], m["eval/accuracy"]) for m in lines if "eval/accuracy" in m]
        return to_target(curve, self.args.target)

    def runs(self, cases: Sequence[tuple[str, str, int]]) -> list[tuple[float, float, bool]]:
        """Some runs at once; results in the order of the cases."""
        with ThreadPoolExecutor(self.args.jobs) as pool:
            return list(pool.map(lambda case: self.run(*case), cases))


def to_target(curve: Sequence[tuple[float, float, float]], target: float) -> tuple[float, float, bool]:
    """Where a curve of (tokens, seconds, accuracy) first crosses the target, by linear interpolation."""
    for (t0, s0, a0), (t1, s1, a1) in itertools.pairwise(curve):
        if a1 >= target:
            share = (target - a0) / (a1 - a0) if a1 > a0 else 1.0
            return t0 + share * (t1 - t0), s0 + share * (s1 - s0), True
    return curve[-1][0], curve[-1][1], False


def interval(ratios: list[float]) -> tuple[float, float]:
    """The middle 90 % of bootstrap values."""
    ratios = sorted(ratios)
    return ratios[int(0.05 * len(ratios))], ratios[int(0.95 * len(ratios))]


def ratio_interval(base: list[float], ours: list[float]) -> tuple[float, float]:
    """90 % bootstrap interval, over seeds, of mean(base) / mean(ours)."""
    rng = random.Random(0)

    def resampled(values: list[float]) -> float:
        return statistics.mean(rng.choices(values, k=len(values)))

    return interval([resampled(base) / resampled(ours) for _ in range(4000)])


def main() -> None:
    """Tune, run and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", type=float, default=0.68)
    parser.add_argument("--budget", type=int, default=400_000, help="generated tokens of a run")
    parser.add_argument("--every", type=int, default=20, help="steps between evaluations")
    parser.add_argument("--methods", default=",".join(METHODS))
    parser.add_argument("--lrs", default="1e-4,2e-4,4e-4")
    parser.add_argument("--tune-seeds", type=int, default=2)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--out", type=Path, default=Path("runs/sample-efficiency"))
    parser.add_argument("options", nargs="*", help="further options of tossup train, after --")
    args = parser.parse_args()
    bench, methods, lrs = Bench(args), args.methods.split(","), args.lrs.split(",")
    tuning = [(m, lr, 1000 + s) for m in methods for lr in lrs for s in range(args.tune_seeds)]
    tokens: dict[tuple[str, str], list[float]] = {}
    for (m, lr, _), (spent, _, _) in zip(tuning, bench.runs(tuning), strict=True):
        tokens.setdefault((m, lr), []).append(spent)
    best = {m: min(lrs, key=lambda lr: statistics.mean(tokens.get((m, lr), [0]))) for m in methods}
    cases = [(m, best[m], s) for m in methods for s in range(args.seeds)]
    found: dict[str, list[tuple[float, float, bool]]] = {m: [] for m in methods}
    for (m, _, _), result in zip(cases, bench.runs(cases), strict=True):
        found[m].append(result)
    print(f"target {args.target}, budget {args.budget:,} tokens, {args.seeds} seeds, {args.jobs} runs at once")
    print(f"{platform.machine()}, Python {platform.python_version()}, {date.today()}\n")
    print(
        "| method | lr | reached | generated tokens | seconds | times fewer than uniform (90 %) |\n|---|---|---|---|---|---|"
    )
    for m in methods:
        spent = [t for t, _, _ in found[m]]
        seconds = statistics.mean(s for _, s, _ in found[m])
        base = [t for t, _, _ in found.get("uniform", found[m])]
        low, high = ratio_interval(base, spent)
        ratio = f"{statistics.mean(base) / statistics.mean(spent):.2f} ({low:.2f} to {high:.2f})"
        reached = f"{sum(r for *_, r in found[m])} of {args.seeds}"
        print(f"| {m} | {best[m]} | {reached} | {statistics.mean(spent):,.0f} | {seconds:.0f} | {ratio} |")


if __name__ == "__main__":
    main()
