"""The learning rate: transformers' values, a function of the step alone, and a run that resumes under the same one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import get_scheduler

from tossup.engine.arithmetic import recipe_path
from tossup.engine.config import TrainConfig, conflicts, digest, load
from tossup.engine.progress import Silent
from tossup.engine.schedule import learning_rate
from tossup.engine.train import train
from tossup.records import TossupError


def config(steps: int = 100, **update: Any) -> TrainConfig:
    return load(TrainConfig, None, {"steps": steps} | {f"update.{name}": value for name, value in update.items()})


@pytest.mark.parametrize("name", ["constant", "linear", "cosine"])
@pytest.mark.parametrize("warm_up", [0, 7])
def test_after_the_warm_up_the_rates_are_transformers_own(name: str, warm_up: int) -> None:
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=3e-4)
    kind = "constant_with_warmup" if name == "constant" else name
    theirs = get_scheduler(kind, optimizer, num_warmup_steps=warm_up, num_training_steps=40)
    ours = config(40, lr=3e-4, lr_schedule=name, warmup_steps=warm_up)
    for step in range(41):
        rate = learning_rate(ours, step)
        if step < warm_up:  # theirs begins with a step of rate 0, which is a step for nothing
            assert rate == pytest.approx(3e-4 * (step + 1) / (warm_up + 1))
        else:
            assert rate == pytest.approx(theirs.get_last_lr()[0], rel=1e-12, abs=1e-20)
        optimizer.step()
        theirs.step()


schedules = st.builds(
    config,
    st.integers(1, 50),
    lr_schedule=st.sampled_from(["linear", "cosine"]),
    warmup_steps=st.integers(0, 60),
    decay_steps=st.integers(0, 60),
    lr_min_ratio=st.floats(0, 1),
)


@given(schedules)
def test_a_rate_rises_then_falls_to_its_end_and_stays_there(config: TrainConfig) -> None:
    cfg = config.update
    rates = [learning_rate(config, step) for step in range(130)]
    top = cfg.warmup_steps
    assert rates[: top + 1] == sorted(rates[: top + 1])
    assert rates[top] == pytest.approx(cfg.lr)
    assert rates[top:] == sorted(rates[top:], reverse=True)
    assert all(rate == pytest.approx(cfg.lr * cfg.lr_min_ratio, abs=1e-18) for rate in rates[125:])
    assert all(rate > 0 for rate in rates[: max(config.decay_steps, top)])  # no step of the run is for nothing


def test_steps_stay_free_unless_the_decay_follows_them() -> None:
    assert conflicts(config(100), config(50)) == []
    assert conflicts(config(100, decay_steps=7), config(50)) == []  # nothing decays
    cosine = config(50, lr_schedule="cosine")
    (changed, advice) = conflicts(config(100, lr_schedule="cosine"), cosine)
    assert changed == "update.decay_steps: 100 here, 50 there"
    assert "--decay-steps 50" in advice
    further = config(100, lr_schedule="cosine", decay_steps=50)
    assert conflicts(further, cosine) == []
    assert digest(further) == digest(cosine) != digest(config(100, lr_schedule="cosine"))
    other = config(100, lr_schedule="cosine", decay_steps=60)
    assert conflicts(other, cosine) == ["update.decay_steps: 60 here, 50 there"]


def rates(run: Path) -> list[float | None]:
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [line.get("update/lr") for line in lines]


def test_a_decaying_run_that_goes_on_keeps_its_schedule(tmp_path: Path) -> None:
    def run(name: str, **changes: Any) -> None:
        small = {
            "eval_pool": "",
            "rollout.problems_per_step": 6,
            "rollout.group_size": 4,
            "threads": 1,
            "save_every": 1,
        }
        decay = {"update.lr_schedule": "linear", "update.warmup_steps": 1, "update.lr_min_ratio": 0.1}
        train(load(TrainConfig, recipe_path(), small | decay | {"out": str(tmp_path / name)} | changes), Silent())

    run("whole", steps=5, **{"update.decay_steps": 4})
    run("parts", steps=4)
    with pytest.raises(TossupError, match=r"other settings.*(\n.*)*go on with --decay-steps 4"):
        run("parts", steps=5)
    run("parts", steps=5, **{"update.decay_steps": 4})
    found = rates(tmp_path / "whole")
    assert found == rates(tmp_path / "parts")
    expected = [1e-4, 2e-4, 1.4e-4, 0.8e-4, 0.2e-4]
    trained = [
        (rate, due) for rate, due in zip(found, expected, strict=True) if rate is not None
    ]  # a step may have no group
    assert len(trained) > 2
    assert [rate for rate, _ in trained] == pytest.approx([due for _, due in trained])
