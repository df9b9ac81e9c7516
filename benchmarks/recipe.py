"""The built-in recipe: held-out accuracy of the curriculum and of uniform sampling at the same generated tokens.

    python -m benchmarks.recipe --seeds 3 --out runs/recipe [--tokens 400000] [--jobs 2] [-- further options of tossup train]

Each run is a `tossup train` of its own, started from the same checkpoint; a seed decides draws and answers. Both samplers stop
at the same number of generated tokens. The table gives each seed, then mean and standard error over seeds.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from datetime import date
from pathlib import Path
from typing import Any

COLUMNS = ("accuracy_before", "accuracy_after", "wasted_share", "tokens_generated", "seconds")


def run(sampler: str, seed: int, tokens: int, out: Path, options: list[str]) -> dict[str, Any]:
    """One run; its summary."""
    command = [
        str(Path(sys.executable).with_name("tossup")),
        "train",
        "--json",
        "--sampler",
        sampler,
        "--seed",
        str(seed),
    ]
    command += ["--steps", "1000000", "--token-budget", str(tokens), "--out", str(out / f"{sampler}-{seed}"), *options]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(command)}\n{done.stderr}")
    summary: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return {"sampler": sampler, "seed": seed} | summary


def main() -> None:
    """Run all seeds of both samplers and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--tokens", type=int, default=400_000)
    parser.add_argument("--jobs", type=int, default=2, help="runs at once")
    parser.add_argument("--out", type=Path, default=Path("runs/recipe"))
    parser.add_argument("options", nargs="*", help="further options of tossup train, after --")
    args = parser.parse_args()
    cases = [(sampler, seed) for seed in range(args.seeds) for sampler in ("tossup", "uniform")]
    with ThreadPoolExecutor(args.jobs) as pool:
        results = list(pool.map(lambda case: run(case[0], case[1], args.tokens, args.out, args.options), cases))
    print(f"{platform.machine()}, Python {platform.python_version()}, {args.jobs} runs at once, {date.today()}\n")
    print(
        "| sampler | seed | before | after | wasted groups | generated tokens | seconds |\n|---|---|---|---|---|---|---|"
    )
    for sampler in ("tossup", "uniform"):
        print_rows(sampler, sorted((r for r in results if r["sampler"] == sampler), key=lambda r: r["seed"]))


def print_rows(sampler: str, rows: list[dict[str, Any]]) -> None:
    """One row a seed, then their mean with its standard error."""
    for r in rows:
        before, after, wasted, tokens, seconds = (r[name] for name in COLUMNS)
        figures = f"{before:.3f} | {after:.3f} | {wasted:.1%} | {tokens:,} | {seconds:.0f}"
        print(f"| {sampler} | {r['seed']} | {figures} |")
    after = [r["accuracy_after"] for r in rows]
    error = statistics.stdev(after) / len(after) ** 0.5 if len(after) > 1 else float("nan")
    wasted = statistics.mean(r["wasted_share"] for r in rows)
    print(f"| **{sampler}** | mean | | **{statistics.mean(after):.3f} ± {error:.3f}** | {wasted:.1%} | | |")


if __name__ == "__main__":
    main()
