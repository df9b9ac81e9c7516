"""Where the time of a training step goes, and how much of it is neither generation nor update.

    python -m benchmarks.split [--steps 200] [--case recipe,wide]
    python -m benchmarks.split RUN...                               runs of `tossup train` that are there already

recipe  `tossup train` as it is: the built-in model, pool and settings, without evaluations
wide    a random model of 0.87 million parameters, 32 x 8 answers of at most 64 tokens; half of the problems are beyond it

Each case is a `tossup train` of its own, and every figure is from its metrics.jsonl: wall time, every second of which is in one
part or another (see `Clock`). Evaluations are left out of all sums, and so is the first step, in which the run starts up; "with
the start" counts it.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
from datetime import date
from pathlib import Path

PARTS = ("generate", "update", "verify", "curriculum", "ledger", "save", "other")
WORK = ("generate", "update")


def prepare_wide(folder: Path) -> list[str]:
    """The options of the wide case; its model and pool are written to the folder."""
    from benchmarks.engine import GROUP, PROBLEMS, build_wide_model, wide_rows

    build_wide_model(folder / "model")
    with (folder / "pool.jsonl").open("w") as file:
        for i, row in enumerate(wide_rows()):
            problem = {"id": str(i), "prompt": row["prompt"], "reference": str(int(row["mixed"]))}
            file.write(json.dumps(problem | {"verifier": "benchmarks.engine:judge_wide"}) + "\n")
    return [
        *(f"--model={folder / 'model'}", f"--pool={folder / 'pool.jsonl'}", "--sampler=uniform", "--save-every=10"),
        *(f"--problems-per-step={PROBLEMS}", f"--group-size={GROUP}", "--max-new-tokens=64", "--lr=1e-4"),
    ]


def train(case: str, steps: int, folder: Path) -> Path:
    """Run a case, and return the run's folder."""
    options = prepare_wide(folder) if case == "wide" else ["--eval-pool="]
    command = [
        sys.executable,
        "-m",
        "tossup",
        "train",
        "--json",
        f"--steps={steps}",
        f"--out={folder / case}",
        *options,
    ]
    root = str(Path(__file__).parent.parent)
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": root}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(done.stderr)
    return folder / case


def report(name: str, run: Path) -> None:
    """One row a part, then the share of what is outside."""
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    seconds = {part: [line.get(f"time/{part}", 0.0) for line in lines] for part in PARTS}
    steady = {part: values[1:] for part, values in seconds.items()}
    total, n = sum(map(sum, steady.values())), len(lines) - 1
    print(f"\n{name}: {n} steps\n\n| part | ms a step, mean | median | share |\n|---|---|---|---|")
    for part, values in steady.items():
        mean, median = 1000 * sum(values) / n, 1000 * statistics.median(values)
        print(f"| {part} | {mean:.2f} | {median:.2f} | {sum(values) / total:.1%} |")
    print(f"| step | {1000 * total / n:.2f} | | |")
    shares = [1 - sum(sum(s[part]) for part in WORK) / sum(map(sum, s.values())) for s in (steady, seconds)]
    median = statistics.median(line["time/outside_share"] for line in lines[1:])
    print(f"\noutside: {shares[0]:.2%} of all time, {median:.2%} of the median step; with the start {shares[1]:.2%}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="*", type=Path)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--case", default="recipe,wide")
    args = parser.parse_args()
    for run in args.runs:
        report(str(run), run)
    if args.runs:
        return
    print(
        f"{platform.machine()}, Python {platform.python_version()}, one thread, {date.today()}, load {os.getloadavg()[0]:.1f}"
    )
    for case in args.case.split(","):
        with tempfile.TemporaryDirectory() as folder:
            report(case, train(case, args.steps, Path(folder)))


if __name__ == "__main__":
    main()
