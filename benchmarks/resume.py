"""Kill a training run at random instants, resume it until it is through, and compare it with the run that was never stopped.

    python -m benchmarks.resume --kills 100

The run is the built-in recipe made small, with refilled batches (so that informative groups wait from one step to the next),
evaluations on the way and the best model kept. Each life of a run is a fork of a process that has torch loaded already, so
that a life costs a second; it is ended by SIGKILL. Half of the kills come at an instant drawn uniformly over the length of a
whole life, start-up included; the other half a few milliseconds into a phase drawn at random (the run's own clock says which
phase it is in), so that short ones such as the writing of a checkpoint are hit too.

After every kill each checkpoint that has a name must load. After every run these must be equal, bit for bit: the ledger, the
metrics (without wall times), the exported weights, the newest checkpoint: weights, optimizer, curriculum, waiting groups,
counters.
"""

from __future__ import annotations

import argparse
import json
import mmap
import os
import random
import shutil
import signal
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from tossup.engine import checkpoint, metrics
from tossup.engine.arithmetic import recipe_path
from tossup.engine.config import TrainConfig, load
from tossup.engine.progress import Silent
from tossup.engine.train import train

PHASES = ["start", "other", "curriculum", "generate", "update", "ledger", "evaluate", "save"]
"""What the run's clock tells apart; "start" until it runs, "other" between the others and while the end is written."""

SMALL = {
    "steps": 8,
    "rollout.problems_per_step": 5,
    "rollout.group_size": 4,
    "curriculum.refill": True,
    "curriculum.max_waves": 3,
    "eval.problems": 10,
    "eval.samples": 2,
    "eval.every": 3,
    "threads": 1,
    "save_text": True,
}
WALL_TIMES = {"seconds", "seconds_generate", "seconds_verify", "seconds_update", "generate_seconds"}


def life(out: Path, save_every: int, phase: mmap.mmap) -> None:
    """Run, or go on with the run, and say in `phase[0]` where it is."""
    plain = metrics.Clock.__call__

    @contextmanager
    def seen(self: metrics.Clock, part: str) -> Iterator[None]:
        before = phase[0]
        phase[0] = PHASES.index(part)
        with plain(self, part):
            yield
        phase[0] = max(before, 1)

    metrics.Clock.__call__ = seen  # type: ignore[method-assign]
    train(load(TrainConfig, recipe_path(), SMALL | {"out": str(out), "save_every": save_every}), Silent())


def fork(function: Callable[..., object], *args: Any) -> int:
    """Run a function in a child; its exit status says whether it returned."""
    child = os.fork()
    if child:
        return child
    status = 1
    try:
        function(*args)
        status = 0
    finally:
        if status:
            traceback.print_exc()
        os._exit(status)


def ended(child: int) -> bool:
    return os.waitpid(child, os.WNOHANG)[0] == child


def kill_at_some_instant(child: int, phase: mmap.mmap, rng: random.Random, seconds: float) -> str | None:
    """SIGKILL the child and return the phase that it was in; None where it was through before."""
    if rng.random() < 0.5:
        wanted, until = None, time.monotonic() + rng.uniform(0, seconds)
    else:
        wanted, until = rng.randrange(1, len(PHASES)), time.monotonic() + 2 * seconds
    visits = rng.randrange(3)
    before = -1
    while time.monotonic() < until:
        if os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None:
            break
        now = phase[0]
        if wanted is not None and now == wanted != before:
            visits -= 1
            if visits < 0:
                time.sleep(rng.uniform(0, 0.02))
                break
        before = now
        time.sleep(0.0005)
    was = PHASES[phase[0]]
    os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        return was
    if status:
        raise SystemExit("a life of the run failed: see above")
    return None


def all_load(folder: Path) -> None:
    """Every checkpoint that has a name is whole."""
    for path in sorted(folder.glob("step-*")):
        checkpoint.read_state(path)


def differences(a: Path, b: Path) -> list[str]:
    """In what two finished runs differ."""
    from safetensors.torch import load_file

    from tossup.curriculum.ledger import scan_ledger, scan_texts

    found = []
    for name, scan in (("ledger", scan_ledger), ("texts", scan_texts)):
        times = ["run", "generate_seconds", "verify_seconds"]
        frames = [scan(run / "ledger").drop(times, strict=False).collect().sort("group", "sample") for run in (a, b)]
        found += [] if frames[0].equals(frames[1]) else [name]
    lines = [[_timeless(json.loads(line)) for line in (run / "metrics.jsonl").open()] for run in (a, b)]
    found += [] if lines[0] == lines[1] else ["metrics"]
    for folder in ("model", "best"):
        there = [(run / folder / "model.safetensors").exists() for run in (a, b)]
        weights = [load_file(run / folder / "model.safetensors") for run in (a, b)] if all(there) else []
        if there[0] != there[1] or (weights and not _same(weights[0], weights[1])):
            found.append(folder)
    newest = [checkpoint.latest(run / "checkpoints") for run in (a, b)]
    states = [checkpoint.read_state(path) for path in newest if path is not None]
    for name in states[0].keys() | states[1].keys():
        parts = [state[name] for state in states]
        if isinstance(parts[0], str):
            parts = [_timeless(json.loads(part)) for part in parts]
            found += [] if parts[0] == parts[1] else [f"checkpoint: {name}"]
        elif not _same(parts[0], parts[1]):
            found.append(f"checkpoint: {name}")
    return found


def _same(a: Mapping[str, torch.Tensor | float], b: Mapping[str, torch.Tensor | float]) -> bool:
    return a.keys() == b.keys() and all(torch.equal(torch.as_tensor(a[k]), torch.as_tensor(b[k])) for k in a)


def _timeless(value: Any) -> Any:
    """Without wall times, at any depth."""
    if isinstance(value, dict):
        return {k: _timeless(v) for k, v in value.items() if k not in WALL_TIMES and not k.startswith("time/")}
    return [_timeless(v) for v in value] if isinstance(value, list) else value


def compare(a: Path, b: Path) -> None:
    """Say in what they differ, and fail if they do."""
    found = differences(a, b)
    if found:
        raise SystemExit(f"{b} differs from {a} in {', '.join(found)}")


def in_child(function: Callable[..., object], *args: Any) -> None:
    """Polars has threads, which a process that goes on to fork must not have: whatever uses it runs in a child."""
    _, status = os.waitpid(fork(function, *args), 0)
    if status:
        raise SystemExit(1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    torch.set_num_threads(1)
    rng = random.Random(args.seed)
    phase = mmap.mmap(-1, 1)
    hit: Counter[str] = Counter()
    runs = 0
    with tempfile.TemporaryDirectory(prefix="resume-") as name:
        folder = Path(name)
        begun = time.monotonic()
        in_child(life, folder / "whole", 1, phase)
        seconds = time.monotonic() - begun
        print(f"an uninterrupted run takes {seconds:.1f} s", flush=True)
        while hit.total() < args.kills:
            out, save_every, through = folder / f"run-{runs}", rng.choice([1, 1, 3]), False
            while not through:
                phase[0] = 0
                child = fork(life, out, save_every, phase)
                if hit.total() < args.kills:
                    was = kill_at_some_instant(child, phase, rng, seconds)
                else:
                    was = None if os.waitpid(child, 0)[1] == 0 else "failed"
                if was == "failed":
                    raise SystemExit("a life of the run failed: see above")
                hit.update([was] if was else [])
                through = was is None
                all_load(out / "checkpoints")
            in_child(compare, folder / "whole", out)
            shutil.rmtree(out)
            runs += 1
            print(f"{hit.total()} kills, {runs} runs, each equal to the uninterrupted one", flush=True)
    print(f"\n{hit.total()} kills over {runs} runs: no run differs, no named checkpoint was torn\n")
    print("| killed in | times |\n|---|---|")
    for part in PHASES:
        print(f"| {part} | {hit[part]} |")


if __name__ == "__main__":
    main()
