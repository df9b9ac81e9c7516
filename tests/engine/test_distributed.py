"""Two processes under torchrun, really run on gloo: one run with them, without them, and from one to the other."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import polars as pl
import pytest
import torch
import torch.distributed as dist
from safetensors.torch import load_file

from tossup.curriculum.ledger import scan_ledger
from tossup.engine.config import TrainConfig, load
from tossup.engine.distributed import Torchrun, World
from tossup.engine.progress import Silent
from tossup.engine.train import train
from tossup.records import TossupError

pytestmark = pytest.mark.skipif(
    not (dist.is_available() and dist.is_gloo_available()), reason="this torch has no gloo for processes on CPUs"
)

SMALL = {
    "rollout.problems_per_step": 5,
    "rollout.group_size": 4,
    "rollout.max_new_tokens": 8,
    "update.lr": 1e-3,
    "update.kl_beta": 0.1,
    "update.aggregate": "sequence",
    "update.micro_batch_tokens": 64,
    "update.mini_batches": 2,
    "update.lr_schedule": "cosine",
    "update.decay_steps": 6,
    "eval.every": 0,
    "threads": 1,
    "timeout": 120,
}


def alone(out: Path, steps: int) -> None:
    train(load(TrainConfig, None, SMALL | {"steps": steps, "out": str(out)}), Silent())


def torchrun(out: Path, steps: int, folder: Path, *options: str, ranks: int = 2) -> subprocess.Popen[bytes]:
    recipe = folder / "recipe.toml"
    recipe.write_text("\n".join(f"{name} = {json.dumps(value)}" for name, value in SMALL.items()))
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)]
    command = [*launch, "-m", "tossup", "train", str(recipe), f"--out={out}", f"--steps={steps}", "--json", *options]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment)


def ranks_of(process: subprocess.Popen[bytes]) -> list[int]:
    """The processes that torchrun has started."""
    return [int(child) for child in Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()]


def done(process: subprocess.Popen[bytes]) -> bytes:
    output, errors = process.communicate()
    assert process.returncode == 0, errors.decode()
    return output


def figures(run: Path) -> list[dict[str, float]]:
    """The lines that are whole: another may just be written."""
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().split("\n")[:-1]]


def rollouts(run: Path) -> pl.DataFrame:
    times = ("run", "generate_seconds", "verify_seconds")
    return scan_ledger(run / "ledger").drop(*times).collect().sort("group", "sample")


def assert_same_training(a: Path, b: Path) -> None:
    """The same rollouts, and losses, gradient norms and weights to 1e-5."""
    assert rollouts(a).equals(rollouts(b))
    assert len(figures(a)) == len(figures(b))
    for x, y in zip(figures(a), figures(b), strict=True):
        names = [name for name in x if name.startswith(("update/", "mismatch/", "rollout/", "tokens/"))]
        assert {n: y[n] for n in names} == pytest.approx({n: x[n] for n in names}, rel=1e-5, abs=1e-5)
    theirs, ours = ({path.name: load_file(path) for path in (run / "model").glob("*.safetensors")} for run in (a, b))
    torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5)


def copied(run: Path, to: Path) -> Path:
    """The run as it was before its last step was done with: checkpoint, ledger and metrics, but no result."""
    shutil.copytree(run, to)
    (to / "summary.json").unlink()
    return to


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A run of three steps by one process, and by two."""
    folder = tmp_path_factory.mktemp("runs")
    output = done(torchrun(folder / "two", 3, folder))
    assert json.loads(output)["steps"] == 3  # one result, by the process that leads
    alone(folder / "one", 3)
    return {"one": folder / "one", "two": folder / "two"}


def test_two_processes_train_as_one_does(runs: dict[str, Path]) -> None:
    assert_same_training(runs["one"], runs["two"])
    trained = [line for line in figures(runs["one"]) if "update/loss" in line]  # a step may have no group to train on
    assert any(abs(line["update/loss"]) > 1e-3 for line in trained)
    assert trained[-1]["update/kl"] > 0
    assert any(line["update/optimizer_steps"] == 2 for line in trained)


def test_a_run_goes_on_with_any_number_of_processes(runs: dict[str, Path], tmp_path: Path) -> None:
    shards = list(runs["two"].glob("checkpoints/step-*/shards/*.distcp"))
    assert {path.name[:3] for path in shards} == {"__0", "__1"}
    from_two, from_one = copied(runs["two"], tmp_path / "from-two"), copied(runs["one"], tmp_path / "from-one")
    two_by_three = copied(runs["two"], tmp_path / "two-by-three")
    alone(from_two, 5)
    done(torchrun(from_one, 5, tmp_path))
    done(torchrun(two_by_three, 5, tmp_path, ranks=3))  # its width of 64 leaves them unequal shards
    assert len(list(two_by_three.glob("checkpoints/step-00000005/shards/*.distcp"))) == 3
    alone(copied(runs["one"], tmp_path / "whole"), 5)
    for run in (from_two, from_one, two_by_three):
        assert_same_training(tmp_path / "whole", run)


def test_when_one_process_dies_all_end_and_the_run_goes_on(runs: dict[str, Path], tmp_path: Path) -> None:
    out = copied(runs["two"], tmp_path / "run")
    process = torchrun(out, 10_000, tmp_path)
    while len(figures(out)) < 5:
        assert process.poll() is None
        time.sleep(0.05)
    os.kill(ranks_of(process)[1], signal.SIGKILL)
    _, errors = process.communicate()
    assert process.returncode == 1
    assert re.search(rb"exitcode *: -9", errors)
    saved = max(int(path.name[5:]) for path in out.glob("checkpoints/step-*"))
    assert saved >= 4
    alone(out, saved + 1)
    assert json.loads((out / "summary.json").read_text())["steps"] == saved + 1


def test_told_to_stop_all_save_the_step_under_way_and_the_run_goes_on(tmp_path: Path) -> None:
    """By torchrun, which tells them all, and then by whoever takes one process: the others end with it."""
    out, done_before = tmp_path / "run", 0
    for told in ("torchrun", "one process"):
        process = torchrun(out, 10_000, tmp_path, "--save-every=1000")
        while not (out / "metrics.jsonl").exists() or len(figures(out)) <= done_before:
            assert process.poll() is None
            time.sleep(0.05)
        os.kill(process.pid if told == "torchrun" else ranks_of(process)[1], signal.SIGTERM)
        _, errors = process.communicate()
        steps = len(figures(out))
        assert f"told to stop (SIGTERM): saved after step {steps}\n".encode() in errors
        assert errors.splitlines().count(b"interrupted") == 2  # one each, perhaps one right after the other
        assert (out / "checkpoints" / f"step-{steps:08d}").is_dir()
        assert steps > done_before
        done_before = steps
    assert set(re.findall(rb"exitcode +: (\S+)", errors)) == {b"130"}  # in torchrun's account, of one or of both
    alone(out, done_before + 1)
    alone(tmp_path / "whole", done_before + 1)
    assert_same_training(tmp_path / "whole", out)


def test_shares_are_neighbours_and_cover_everything() -> None:
    for size in (1, 2, 3, 8):
        for n in (0, 1, 5, 64):
            worlds = [World() for _ in range(size)]
            for rank, world in enumerate(worlds):
                world.rank, world.size = rank, size
            assert [i for world in worlds for i in world.share(n)] == list(range(n))


def test_a_lost_peer_is_told_from_a_fault_of_one_s_own() -> None:
    """FSDP2 raises gloo's own error from within the update."""
    world = object.__new__(Torchrun)
    world.rank = 1
    lost = "[gloo/transport/tcp/pair.cc:553] Connection closed by peer [127.0.0.1]:21899"
    with pytest.raises(TossupError, match="rank 1 has lost the other processes"), world.together():
        raise RuntimeError(lost)
    with pytest.raises(RuntimeError, match="out of memory"), world.together():
        raise RuntimeError("CUDA out of memory")
