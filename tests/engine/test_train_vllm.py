"""Training with a real vLLM: one death is outlived, two stop the run, and it goes on; two processes do as one does."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import polars as pl
import pytest
from vllm_here import needs_vllm, worker

from tossup.curriculum.ledger import scan_ledger, scan_texts
from tossup.engine.arithmetic import recipe_path
from tossup.engine.config import TrainConfig, load, to_toml
from tossup.engine.progress import Silent
from tossup.engine.train import train
from tossup.records import TossupError

pytestmark = needs_vllm

SMALL = {
    "save_every": 1,
    "save_text": True,
    "rollout.problems_per_step": 8,
    "rollout.group_size": 4,
    "rollout.generator": "vllm",
    "eval.problems": 8,
    "eval.samples": 1,
    "threads": 1,
    "timeout": 300,
}


def configuration(out: Path, steps: int, **changes: object) -> TrainConfig:
    return load(TrainConfig, recipe_path(), SMALL | {"out": str(out), "steps": steps} | changes)


class Killer(Silent):
    """Kills vLLM after each step."""

    def __init__(self) -> None:
        self.notes, self.steps = list[str](), 0

    def note(self, text: str) -> None:
        self.notes.append(text)

    def step(self, step: int, metrics: Mapping[str, float]) -> None:
        self.steps += 1
        os.kill(worker(), signal.SIGKILL)


def answers(run: Path) -> pl.DataFrame:
    """What was sampled and how it was judged, an answer a row."""
    rows, texts = scan_ledger(run / "ledger"), scan_texts(run / "ledger")
    joined = rows.join(texts, on=["step", "group", "sample"], suffix="_")
    return joined.select("step", "group", "sample", "problem", "text", "ruling").sort("group", "sample").collect()


def figures(run: Path) -> list[dict[str, float]]:
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


def test_a_run_outlives_one_death_stops_at_the_second_and_goes_on(tmp_path: Path) -> None:
    killed, one = tmp_path / "killed", tmp_path / "one"
    killer = Killer()
    with pytest.raises(TossupError, match=r"died twice.*same command"):
        train(configuration(killed, 4), killer)
    assert killer.steps == 2
    assert any("starting it once more" in note for note in killer.notes)

    torchrun(killed, 3)  # by two processes, each with a vLLM of its own
    train(configuration(one, 3), Silent())
    assert_the_same(answers(killed), answers(one))
    for line in [*figures(killed), *figures(one)]:
        if "mismatch/kl" in line:  # a step may have no group to train on
            assert line["mismatch/kl"] < 1e-6
            assert line["mismatch/max_ratio"] == pytest.approx(1, abs=1e-3)
            assert line["mismatch/mean_ratio"] == pytest.approx(1, abs=1e-4)
    assert any("mismatch/kl" in line for line in figures(killed)[2:])  # the last step's is of two processes

    summary = train(configuration(killed, 4, **{"rollout.generator": "transformers"}), Silent())
    assert summary["steps"] == 4
    assert [line["step"] for line in figures(killed)] == [0, 1, 2, 3]


def torchrun(out: Path, steps: int) -> None:
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    recipe = out.parent / "recipe.toml"
    recipe.write_text(to_toml(configuration(out, steps)))
    command = [*launch, "-m", "tossup", "train", str(recipe), "--json"]
    done = subprocess.run(command, capture_output=True, env=os.environ | {"OMP_NUM_THREADS": "1"}, check=False)
    assert done.returncode == 0, done.stderr.decode()
    assert json.loads(done.stdout)["steps"] == steps


def assert_the_same(a: pl.DataFrame, b: pl.DataFrame) -> None:
    """All but a few answers: what else is in vLLM's batch moves the last bits of its logits, and can turn a token."""
    assert a.height == b.height == 3 * 8 * 4
    assert a.select("group", "sample", "problem").equals(b.select("group", "sample", "problem"))
    same = a.hash_rows() == b.hash_rows()
    assert same.mean() >= 0.95
