"""What the sampler does where the truth is known.

    python -m benchmarks.simulate scale             a million problems: time to choose and to observe, memory
    python -m benchmarks.simulate poisoned          wrong keys, coin flips, duplicates and a failing verifier: where the
                                                    draws go, and whether the lists find the poison
    python -m benchmarks.simulate score SCRIPT      score_curriculum.py with our sampler beside its own methods, and the
                                                    targets: at least 0.9 of its `tossup` row, never below 0.95 of uniform

`scale` and `score` measure; `poisoned` is a model in which every sound problem gets easier by the same rate whenever a
group is informative, which is enough to see what a sampler runs after, and says nothing of how much faster it learns.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from tossup.curriculum.baselines import Greso, LastMeanPools, Mopps, Uniform
from tossup.curriculum.sampler import Observation, Sampler, TossUp

G = 8


def scale(n: int = 1_000_000, wave: int = 64, steps: int = 200) -> None:
    """Times are CPU milliseconds; memory is what the sampler allocates (tracemalloc), tags apart."""
    tags = [f"set-{i % 20}" for i in range(n)]
    none = np.zeros(n, np.int64)
    tracemalloc.start()
    sampler = TossUp(none, none, tags, G, seed=0)
    held, peak = (x / 2**20 for x in tracemalloc.get_traced_memory())
    tracemalloc.stop()
    p = np.random.default_rng(0).beta(0.3, 0.3, n)
    choose, observe = [], []
    for step in range(steps):
        t0 = time.process_time()
        draws = sampler.choose(wave, step)
        t1 = time.process_time()
        rng = np.random.default_rng(step)
        seen = [Observation(d.index, int(rng.binomial(G, p[d.index])), G, 300.0) for d in draws]
        t2 = time.process_time()
        sampler.observe(step, seen)
        choose.append(1000 * (t1 - t0))
        observe.append(1000 * (time.process_time() - t2) / wave)
    state = sum(a.nbytes for a in sampler.state().values()) / 2**20
    print(f"{n:,} problems, waves of {wave}, {steps} steps, G = {G}\n")
    print("| | median | 95th percentile | worst | bar |\n|---|---|---|---|---|")
    for name, times, bar in ((f"choose {wave}, ms", choose, 10), ("observe a group, ms", observe, 1)):
        print(f"| {name} | {np.median(times):.3f} | {np.quantile(times, 0.95):.3f} | {max(times):.3f} | {bar} |")
    print(f"| memory held, MiB | {held:.0f} | | {peak:.0f} | 200 |")
    print(f"| saved state, MiB | {state:.0f} | | | |")


SAMPLERS: dict[str, Callable[[int, int], Sampler]] = {
    "uniform": lambda n, seed: Uniform(n, seed),
    "GRESO": lambda n, seed: Greso(n, seed),
    "last-mean pools": lambda n, seed: LastMeanPools(n, seed),
    "MoPPS": lambda n, seed: Mopps(n, seed),
    "tossup": lambda n, seed: TossUp([0] * n, [0] * n, None, G, seed),
}
SOUND, WRONG_KEY, COIN, COPY = range(4)


def poisoned(n: int = 2000, wave: int = 64, steps: int = 400, seeds: int = 3) -> None:
    """5 % wrong keys (never right), 10 % coin flips, 10 % copies of other problems, and 20 % of verdicts missing."""
    print(f"{n} problems, {steps} steps of {wave} groups of {G}, mean of {seeds} seeds; last half of the run\n")
    print(
        "| sampler | wasted | on wrong keys (5 %) | on coin flips (10 %) | on copies (10 %) | sound rate at the end |"
    )
    print("|---|---|---|---|---|---|")
    found = []
    for name, make in SAMPLERS.items():
        runs = [_poisoned_run(make(n, seed), n, wave, steps, seed) for seed in range(seeds)]
        share = np.mean([run["shares"] for run in runs], axis=0)
        waste, rate = (np.mean([run[k] for run in runs]) for k in ("waste", "rate"))
        cells = " | ".join(f"{100 * x:.1f} %" for x in (waste, share[WRONG_KEY], share[COIN], share[COPY]))
        print(f"| {name} | {cells} | {rate:.3f} |")
        found = [run["found"] for run in runs if "found" in run]
    print("\ntossup's lists, mean of the seeds:\n")
    print("| list | holds | of these poison | of all such poison listed |\n|---|---|---|---|")
    for kind in found[0]:
        size, precision, recall = np.mean([f[kind] for f in found], axis=0)
        print(f"| {kind} | {size:.0f} | {100 * precision:.0f} % | {100 * recall:.0f} % |")


def _poisoned_run(sampler: Sampler, n: int, wave: int, steps: int, seed: int) -> dict[str, Any]:
    rng = np.random.default_rng([seed, 1])
    kind = rng.choice(4, n, p=[0.75, 0.05, 0.10, 0.10])
    logit = rng.normal(-0.5, 3.0, n)
    sound = np.flatnonzero(kind == SOUND)
    copies = np.flatnonzero(kind == COPY)
    logit[copies] = logit[rng.choice(sound, len(copies))]
    counts, wasted = np.zeros(4), 0
    for step in range(steps):
        draws = sampler.choose(wave, step)
        seen, useful = [], 0
        for d in draws:
            k = kind[d.index]
            p = 0.0 if k == WRONG_KEY else 0.5 if k == COIN else 1 / (1 + np.exp(-logit[d.index]))
            decided = int(rng.binomial(G, 0.8))
            c = int(rng.binomial(decided, p))
            mixed = 0 < c < decided
            useful += mixed and k in (SOUND, COPY)
            if step >= steps // 2:
                counts[k] += 1
                wasted += not mixed
            seen.append(Observation(d.index, c, decided, 300.0))
        sampler.observe(step, seen)
        logit += 0.015 * useful / wave  # only sound informative groups teach, and they teach all problems
    result: dict[str, Any] = {
        "shares": counts / counts.sum(),
        "waste": wasted / counts.sum(),
        "rate": float(np.mean(1 / (1 + np.exp(-logit[sound])))),
    }
    if isinstance(sampler, TossUp):
        lists = sampler.lists()
        pairs = {"stuck (coin flips)": ("stuck", COIN), "parked as hard (wrong keys)": ("parked_hard", WRONG_KEY)}
        result["found"] = {
            label: (
                len(lists[name]),
                np.mean(kind[lists[name]] == poison) if len(lists[name]) else 0.0,
                np.isin(np.flatnonzero(kind == poison), lists[name]).mean(),
            )
            for label, (name, poison) in pairs.items()
        }
    return result


BAR_TOSSUP = ("ushape", "hard", "easy", "mid")
BAR_FEWER = ("ushape", "hard", "easy")
BAR_UNIFORM = ("small", "epoch1", "noisy", "coin", "drgrpo", "G4", "G16", "irt")


def score(script: Path, seeds: int, regimes: str, methods: str) -> None:
    """Run the script on every scenario that has a bar, and hold our row against it (generated tokens)."""
    adapter = f"{Path(__file__).with_name('adapters.py')}:make_curriculum"
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder, "table.json")
        scenarios = ",".join(BAR_TOSSUP + BAR_UNIFORM)
        command = [sys.executable, str(script), "--external", adapter, "--scen", scenarios, "--regime", regimes]
        command += ["--methods", methods, "--seeds", str(seeds), "--json", str(out)]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        rows = json.loads(out.read_text())
    print(f"times fewer generated tokens (rollouts) than uniform; {seeds} seeds\n")
    names = list(rows[0]["rows"])
    print("| scenario | step | " + " | ".join(names) + " | bar | met |\n|---" * 1 + "|---" * (len(names) + 3) + "|")
    for row in rows:
        name, regime, cells = row["scenario"], row["regime"], row["rows"]
        ours, theirs = cells["external"]["x_tok"], cells["tossup"]["x_tok"]
        if name in BAR_TOSSUP:
            bar = 0.9 * theirs
            if name in BAR_FEWER and regime == "adam":
                bar = max(bar, 1.9)
        else:
            bar = 0.95
        figures = " | ".join(f"{cells[m]['x_tok']:.2f} ({cells[m]['x_roll']:.2f})" for m in names)
        print(f"| {name} | {regime} | {figures} | {bar:.2f} | {'yes' if ours >= bar else 'NO'} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("scale")
    commands.add_parser("poisoned").add_argument("--steps", type=int, default=400)
    scoring = commands.add_parser("score")
    scoring.add_argument("script", type=Path)
    scoring.add_argument("--seeds", type=int, default=3)
    scoring.add_argument("--regimes", default="adam,sgd")
    scoring.add_argument("--methods", default="uniform,tossup")
    options = parser.parse_args()
    if options.command == "scale":
        scale()
    elif options.command == "poisoned":
        poisoned(steps=options.steps)
    else:
        score(options.script, options.seeds, options.regimes, options.methods)


if __name__ == "__main__":
    main()
