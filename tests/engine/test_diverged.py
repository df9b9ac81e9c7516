"""Training that diverges stops before it spoils anything, says so, and writes no NaN."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import make_group, make_policy

from tossup.engine import checkpoint
from tossup.engine.config import SamplingConfig, TrainConfig, load
from tossup.engine.generate import TransformersGenerator
from tossup.engine.step import update
from tossup.engine.train import train
from tossup.records import TossupError


class Silent:
    def note(self, text: str) -> None:
        pass

    def generated(self, answers: int) -> None:
        pass

    def step(self, step: int, metrics: object) -> None:
        pass


@pytest.mark.parametrize("objective", ["grpo", "gspo", "cispo"])
def test_an_update_that_is_not_finite_is_not_taken(objective: str) -> None:
    policy = make_policy()
    group = make_group("1001", [2, 9, 4, 3], seed=1)
    impossible = dataclasses.replace(group.rollouts[1], response_logps=(-1e4,) * 9)
    group = dataclasses.replace(group, rollouts=(group.rollouts[0], impossible, *group.rollouts[2:]))
    before = {name: w.clone() for name, w in policy.model.state_dict().items()}
    optimizer = torch.optim.AdamW(policy.model.parameters(), lr=0.1)
    with pytest.raises(TossupError, match=r"diverged.*lower --lr"):
        update(policy, optimizer, [group], load(TrainConfig, None, {"update.objective": objective}), None)
    assert all(torch.equal(w, before[name]) for name, w in policy.model.state_dict().items())


@pytest.mark.parametrize(("weight", "temperature"), [(float("nan"), 1.0), (0.5, 1e-320)])
def test_logits_that_are_not_finite_are_not_sampled_from(weight: float, temperature: float) -> None:
    policy = make_policy()
    with torch.no_grad():
        policy.model.get_output_embeddings().weight[3, 3] = weight
    sampling = SamplingConfig(temperature=temperature, max_new_tokens=4)
    with pytest.raises(TossupError, match="are not finite"):
        TransformersGenerator(policy).generate([(2, 3)], 2, [0], sampling)


def test_a_run_that_diverges_says_so_and_keeps_its_last_good_state(tmp_path: Path) -> None:
    wild: dict[str, Any] = {"update.lr": 10.0, "update.kl_beta": 1.0, "update.epochs": 3, "rollout.max_new_tokens": 8}
    small = {"steps": 6, "rollout.problems_per_step": 4, "rollout.group_size": 4, "threads": 1, "out": str(tmp_path)}
    config = load(TrainConfig, None, wild | small)
    for _ in range(2):
        with pytest.raises(TossupError, match=r"diverged.*lower --lr|not finite.*lower --lr"):
            train(config, Silent())
    for line in (tmp_path / "metrics.jsonl").read_text().splitlines() if (tmp_path / "metrics.jsonl").exists() else ():
        json.loads(line, parse_constant=pytest.fail)
    newest = checkpoint.latest(tmp_path / "checkpoints")
    if newest is not None:
        assert all(w.isfinite().all() for w in checkpoint.read_state(newest)["tensors"].values())
    assert not (tmp_path / "model").exists()
