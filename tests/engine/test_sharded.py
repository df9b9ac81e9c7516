"""Sharded over two processes: adapters, recomputed layers, packed rows and bfloat16 give what a process alone gives."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

pytest.importorskip("peft")

from test_distributed import assert_same_training, copied, done, figures
from two_ranks import BF16, VARIANTS, Outcome, Variant, outcome, run

from tossup.engine import lora
from tossup.engine.distributed import ALONE
from tossup.engine.export import export_run
from tossup.engine.policy import load

pytestmark = pytest.mark.skipif(
    not (dist.is_available() and dist.is_gloo_available()), reason="this torch has no gloo for processes on CPUs"
)

EXACT = [name for name, variant in VARIANTS.items() if variant.compute is torch.float64]
ROUNDED = [name for name, variant in VARIANTS.items() if variant.compute is BF16]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where two processes have been: the outcomes of all variants, a run of theirs, and one that began alone."""
    folder = tmp_path_factory.mktemp("sharded")
    run(folder / "one", 3)
    copied(folder / "one", folder / "from-one")
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    command = [*launch, str(Path(__file__).with_name("two_ranks.py")), str(folder)]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    done(subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment))
    return folder


def by_two(folder: Path, name: str) -> Outcome:
    return Outcome(*torch.load(folder / "outcomes.pt")[name])


@pytest.mark.parametrize("name", EXACT)
def test_an_update_by_two_is_the_update_by_one(folder: Path, name: str) -> None:
    ours, alone = by_two(folder, name), outcome(VARIANTS[name], ALONE)
    assert ours.figures == pytest.approx(alone.figures, rel=1e-9, abs=1e-12)
    assert alone.figures["update/kl"] > 0.1
    torch.testing.assert_close(ours.gradient, alone.gradient, rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(ours.moved, alone.moved, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", ROUNDED)
def test_in_bfloat16_two_are_as_near_the_exact_gradient_as_one(folder: Path, name: str) -> None:
    variant = VARIANTS[name]
    exact = outcome(Variant(variant.adapter), ALONE)
    ours, alone = by_two(folder, name), outcome(variant, ALONE)
    assert distance(ours, exact) < 1.5 * distance(alone, exact) < 0.2
    assert ours.figures["update/loss"] == pytest.approx(exact.figures["update/loss"], rel=0.05)
    assert ours.gathered == {BF16}  # half the memory, and what is sent between processes
    assert {tensor.dtype for tensor in ours.moved.values()} == {torch.float32}


def distance(a: Outcome, b: Outcome) -> float:
    """Of the two gradients, relative to the second's length."""
    x, y = (torch.cat([t.flatten().double() for t in one.gradient.values()]) for one in (a, b))
    return float((x - y).norm() / y.norm())


def test_two_processes_train_an_adapter_as_one_does(folder: Path) -> None:
    assert_same_training(folder / "one", folder / "two")
    assert sum("update/loss" in line for line in figures(folder / "one")) >= 2
    assert figures(folder / "one")[-1]["update/kl"] > 0


def test_a_run_with_an_adapter_goes_on_with_another_number_of_processes(folder: Path, tmp_path: Path) -> None:
    assert list(folder.glob("two/checkpoints/step-*/shards/*.distcp"))
    from_two = copied(folder / "two", tmp_path / "from-two")
    for out in (from_two, copied(folder / "one", tmp_path / "whole")):
        run(out, 5)
    assert_same_training(tmp_path / "whole", from_two)
    assert_same_training(tmp_path / "whole", folder / "from-one")


def test_the_adapter_of_two_processes_is_exported_as_a_plain_model(folder: Path, tmp_path: Path) -> None:
    from transformers import AutoModelForCausalLM

    export_run(folder / "two", tmp_path / "plain")
    assert not lora.is_saved(tmp_path / "plain")
    ids = torch.arange(2, 12)[None]
    with torch.no_grad():
        plain = AutoModelForCausalLM.from_pretrained(tmp_path / "plain", dtype=torch.float32)(ids).logits
        start, trained = (load(name, "cpu").model(ids).logits for name in ("builtin:arithmetic", str(folder / "one")))
    torch.testing.assert_close(plain, trained, rtol=1e-4, atol=1e-4)
    assert (plain - start).abs().max() > 0.01
