"""The audit's claims, one command each; every one prints a table and exits 1 where a target is missed.

    python -m benchmarks.audit reference FOLDER     every figure of reference_audit.json, to three decimals
    python -m benchmarks.audit predict FILE...      G = 16 and 32 from the first 8 answers, beside all answers
    python -m benchmarks.audit error                error of the fitted share on nine simulated pools
    python -m benchmarks.audit coverage             how often 90 % intervals hold the truth
    python -m benchmarks.audit speed ROWS           generate ROWS rollouts as Parquet, audit them, time and memory

Run from the root of the repository. CPU seconds are printed beside wall seconds, since machines are shared.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from tossup.curriculum import estimate, profile
from tossup.curriculum.audit import ALLOWANCE, PROFILE_GRID, SetAudit, audit, tail_of
from tossup.curriculum.estimate import Cells
from tossup.curriculum.history import history
from tossup.curriculum.rollouts import read_rollouts

TOLERANCE = 5e-4
SIZES = (2, 3, 4, 8, 10, 16, 32)
WALL_S, PEAK_GIB = 60.0, 2e9 / 2**30
"""What 100 million rows may take."""


def reference(folder: Path) -> bool:
    figures = json.loads((folder / "reference_audit.json").read_text())
    checked = missed = 0
    for name, wanted in figures.items():
        for what, ours, theirs in compared(folder / f"{name}.jsonl.gz", wanted):
            checked += 1
            if abs(ours - theirs) > TOLERANCE:
                missed += 1
                print(f"MISSED {name} {what}: {ours:.4f}, reference {theirs:.4f}")
    print(f"{checked} figures compared, {missed} off by more than {TOLERANCE}")
    return missed == 0


def compared(path: Path, wanted: dict[str, Any]) -> Iterator[tuple[str, float, float]]:
    if "first_visit" in wanted:
        yield from history_compared(path, wanted)
        return
    sets, overall = audit(read_rollouts([path]), SIZES)
    named = {"|".join(part): s for s in sets for part in (list(s.labels.values()), list(s.labels.values())[::-1])}
    by_policy, _ = audit(read_rollouts([path]), [3], ["policy"])
    named = {s.labels["policy"]: s for s in by_policy} | named | {"ALL": overall}
    for key, figures in ({"": wanted} if "mean" in wanted else wanted).items():
        yield from figures_of(named[key] if key else overall, figures, key)


def figures_of(one: SetAudit, figures: dict[str, Any], key: str) -> Iterator[tuple[str, float, float]]:
    plain = {"mean": one.mean, "acc": one.mean, "acc_full": one.mean, "wasted_equal_score": one.equal_reward}
    plain |= {"groups": float(one.units), "n": float(one.units)}
    for name, ours in plain.items():
        if name in figures:
            yield f"{key} {name}", ours, figures[name]
    for e in one.expected:
        if e.group_size == 3 and "wasted_binary" in figures:
            yield f"{key} wasted_binary", e.wasted.value, figures["wasted_binary"]
        for kind, theirs in figures.get(f"G{e.group_size}", {}).items():
            yield f"{key} G{e.group_size} {kind}", getattr(e, kind).value, theirs


def history_compared(path: Path, wanted: dict[str, Any]) -> Iterator[tuple[str, float, float]]:
    rollouts = read_rollouts([path], by=["level"])
    spans = {"first_visit": (1, 1), "visits_1_10": (1, 10), "visits_21_30": (21, 30), "visits_41_end": (41, None)}
    windows, persistence = history(rollouts, [*spans.values(), (1, None)], ["level"])
    found = {(w.first, w.last, w.labels.get("level")): w for w in windows}
    for name, (first, last) in spans.items():
        for kind, theirs in wanted[name].items():
            yield f"{name} {kind}", getattr(found[first, last, None], kind), theirs
    whole = found[1, None, None]
    for kind in ("problems", "groups", "wasted"):
        yield kind, getattr(whole, kind), wanted[kind]
    for level, figures in wanted["by_level"].items():
        yield f"level {level} first_mean", found[1, 1, level].mean, figures["first_mean"]
        yield f"level {level} v1_10", found[1, 10, level].wasted, figures["wasted_v1_10"]
        yield f"level {level} v41", found[41, None, level].wasted, figures["wasted_v41"]
    yield "after wasted", persistence.after_wasted or 0.0, wanted["P(wasted_next|wasted)"]
    yield "after mixed", persistence.after_mixed or 0.0, wanted["P(wasted_next|mixed)"]
    for length, theirs in wanted["P(wasted|streak k of wasted visits)"].items():
        yield f"after streak {length}", persistence.after_streak[int(length)], theirs


def predict(paths: list[Path]) -> bool:
    fine = True
    for path in paths:
        with gzip.open(path, "rt", encoding="utf-8", newline="\n") as file:
            rows = [json.loads(line) for line in file]
        with tempfile.TemporaryDirectory() as folder:
            short = Path(folder) / "first8.jsonl"
            short.write_text("".join(json.dumps({"id": r["id"], "correct": r["correct"][:8]}) + "\n" for r in rows))
            _, guess = audit(read_rollouts([short]), [16, 32])
            _, whole = audit(read_rollouts([path]), [16, 32])
        for e, full in zip(guess.expected, whole.expected, strict=True):
            off = 100 * (e.wasted.value - full.wasted.value)
            inside = e.wasted.low <= full.wasted.value <= e.wasted.high
            fine &= inside or abs(off) <= 2.0
            print(
                f"{path.name} G={e.group_size}: predicted {e.wasted.value:.3f} [{e.wasted.low:.3f}, {e.wasted.high:.3f}], "
                f"all answers {full.wasted.value:.3f}, off {off:+.1f} points, {'inside' if inside else 'outside'}"
            )
            errors = other_eights(rows, e.group_size, full.wasted.value)
            print(
                f"    any 8 of its answers, 30 times: off {errors.mean():+.1f} points on average, give or take "
                f"{errors.std():.1f}; within 2 points in {np.mean(np.abs(errors) <= 2):.0%}"
            )
    return fine


def other_eights(rows: list[dict[str, Any]], size: int, truth: float, draws: int = 30) -> np.ndarray:
    """Errors in points of the prediction from 8 answers that are drawn at random: what the first 8 owe to luck."""
    n = np.array([len(row["correct"]) for row in rows])
    c = np.array([int(sum(row["correct"])) for row in rows])
    rng = np.random.default_rng(0)
    errors = []
    for _ in range(draws):
        weights = np.bincount(rng.hypergeometric(c, n - c, 8), minlength=9).astype(float)
        cells = Cells(np.full(9, 8), np.arange(9))
        right, wrong = cells.values(size, cells.fit(weights[None]))
        errors.append(100 * (float((right + wrong)[0] @ weights) / len(rows) - truth))
    return np.array(errors)


def pools(size: int, rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Success rates of nine kinds of pools."""
    half, third = rng.random(size) < 0.5, rng.random(size)
    return {
        "U-shaped": rng.beta(0.25, 0.9, size),
        "even": rng.random(size),
        "easy": rng.beta(3.0, 0.6, size),
        "hard": rng.beta(0.4, 4.0, size),
        "40 % never, 30 % always": np.where(third < 0.4, 0.0, np.where(third < 0.7, 1.0, rng.beta(2, 2, size))),
        "logit-normal": 1 / (1 + np.exp(-rng.normal(-1, 2.5, size))),
        "wide logit-normal": 1 / (1 + np.exp(-rng.normal(1, 4, size))),
        "two spikes": np.where(half, 0.05, 0.9),
        "mass near 0": np.where(third < 0.6, rng.uniform(0, 0.05, size), rng.uniform(0.3, 1, size)),
    }


def counted(p: np.ndarray, n: int, rng: np.random.Generator) -> tuple[Cells, np.ndarray]:
    return Cells(np.full(n + 1, n), np.arange(n + 1)), np.bincount(rng.binomial(n, p), minlength=n + 1).astype(float)


def error(runs: int) -> bool:
    print("root mean square error of the wasted share in points: mean over nine pools of 1,000 problems (worst pool)")
    for n, size in ((4, 8), (8, 8), (8, 16), (8, 32), (16, 32)):
        squares: dict[str, list[float]] = {}
        for seed in range(runs):
            rng = np.random.default_rng(seed)
            for name, p in pools(1000, rng).items():
                cells, weights = counted(p, n, rng)
                right, wrong = cells.values(size, cells.fit(weights[None]) if size > n else None)
                found = float((right + wrong)[0] @ weights) / 1000
                squares.setdefault(name, []).append((found - float(np.mean(p**size + (1 - p) ** size))) ** 2)
        errors = [100 * np.sqrt(np.mean(values)) for values in squares.values()]
        print(f"  n={n:2d} G={size:2d}: {np.mean(errors):.1f} ({max(errors):.1f})", flush=True)
    return True


def coverage(runs: int) -> bool:
    """The truth is the share over the population from which the pool's problems were drawn."""
    population = pools(400_000, np.random.default_rng(2026))
    print("coverage of nominal 90 % intervals for the wasted share, mean over nine kinds of pools (lowest)")
    fine = True
    for problems, n, size in [(m, n, g) for m in (100, 1000) for n, g in ((8, 8), (4, 8), (8, 16), (16, 32), (8, 32))]:
        held: dict[str, list[bool]] = {}
        for seed in range(runs):
            rng = np.random.default_rng(seed)
            for name, p in pools(problems, rng).items():
                truth = float(np.mean(population[name] ** size + (1 - population[name]) ** size))
                low, high = interval(*counted(p, n, rng), size, rng)
                held.setdefault(name, []).append(low <= truth <= high)
        shares = [float(np.mean(values)) for values in held.values()]
        mean = float(np.mean(shares))
        fine &= mean >= 0.88 and (mean <= 0.95 or size > 2 * n)
        print(f"  {problems} problems, n={n:2d} G={size:2d}: {mean:.3f} ({min(shares):.2f})", flush=True)
    return fine


def interval(cells: Cells, weights: np.ndarray, size: int, rng: np.random.Generator) -> tuple[float, float]:
    if size <= cells.n[0]:
        right, wrong = cells.values(size, None)
        total = weights.sum()
        draws = rng.multinomial(int(total), weights / total, size=400) @ (right + wrong)[0] / total
        tail = tail_of(int(total))
        return float(np.quantile(draws, tail)), float(np.quantile(draws, 1.0 - tail))
    points = estimate.grid(PROFILE_GRID)
    like = estimate.likelihood_JK(cells.n, cells.c, points)
    low, high = profile.interval(like, weights, (points**size + (1 - points) ** size)[None], ALLOWANCE)
    return float(low[0]), float(high[0])


def speed(rows: int, folder: Path) -> bool:
    """Groups of 8 of random problems out of rows/100, in the order in which a run would have written them.

    Each shape is audited by the command in a process of its own, start-up and statistics included.
    """
    path = folder / f"rollouts-{rows}.parquet"
    ours = not path.exists()
    if ours:
        generate(path, rows)
    fine = True
    for what, options in (("problems", ["--map", "step=", "--map", "tokens="]), ("groups and tokens", [])):
        code = "import sys; from tossup.cli import main; main(sys.argv[1:])"
        command = [sys.executable, "-c", code, "audit", str(path), "--json", *options]
        started = time.monotonic()
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        _, status, used = os.wait4(process.pid, 0)
        wall, cpu, peak = time.monotonic() - started, used.ru_utime + used.ru_stime, used.ru_maxrss / 2**20
        fine &= status == 0 and wall < WALL_S and peak < PEAK_GIB
        print(f"{rows:,} rows by {what}: {wall:.1f} s wall, {cpu:.1f} CPU s, peak {peak:.2f} GiB", flush=True)
    if ours:
        path.unlink()
    return fine


def generate(path: Path, rows: int) -> None:
    rng = np.random.default_rng(0)
    problems = max(1, rows // 100)
    p = rng.beta(0.3, 0.8, problems)
    names = pl.Series([f"problem-{at:07d}" for at in range(problems)])
    parts = []
    for at, first in enumerate(range(0, rows, 2_000_000)):
        size = min(2_000_000, rows - first)
        index = np.repeat(rng.integers(0, problems, -(-size // 8)), 8)[:size]
        part = path.with_name(f"{path.stem}-{at}.part")
        pl.DataFrame(
            {
                "problem": names.gather(index),
                "dataset": np.array(["math", "code", "logic"])[index % 3],
                "step": (first + np.arange(size)) // 512,
                "reward": (rng.random(size) < p[index]).astype(np.float32),
                "response_tokens": rng.integers(50, 2000, size).astype(np.int32),
            }
        ).write_parquet(part)
        parts.append(part)
    pl.scan_parquet(parts).sink_parquet(path, row_group_size=500_000)
    for part in parts:
        part.unlink()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("claim", choices=["reference", "predict", "error", "coverage", "speed"])
    parser.add_argument("arguments", nargs="*")
    parser.add_argument("--runs", type=int, default=60, help="simulated pools of each kind")
    given = parser.parse_args()
    paths = [Path(argument) for argument in given.arguments]
    claims = {
        "reference": lambda: reference(paths[0]),
        "predict": lambda: predict(paths),
        "error": lambda: error(given.runs),
        "coverage": lambda: coverage(given.runs),
        "speed": lambda: speed(int(given.arguments[0]), Path(tempfile.gettempdir())),
    }
    sys.exit(0 if claims[given.claim]() else 1)


if __name__ == "__main__":
    main()
