"""Training that diverges stops before it spoils anything, says so, and writes no NaN."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from small import make_group, make_policy

from tossup.engine import checkpoint
from tossup.engine.config import SamplingConfig, TrainConfig, load
from tossup.engine.generate import TransformersGenerator
from tossup.engine.progress import Progress
from tossup.engine.step import update
from tossup.engine.train import train
from tossup.records import TossupError


class Silent:
    def __init__(self) -> None:
        self.notes: list[str] = []

    def note(self, text: str) -> None:
        self.notes.append(text)

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


SMALL: dict[str, Any] = {
    "eval_pool": "",
    "rollout.problems_per_step": 4,
    "rollout.group_size": 4,
    "rollout.max_new_tokens": 8,
    "update.warmup_steps": 0,
    "threads": 1,
}


def test_weights_that_are_not_finite_are_not_saved(tmp_path: Path) -> None:
    config = load(TrainConfig, None, SMALL | {"steps": 6, "out": str(tmp_path), "update.lr": 1e30})
    with pytest.raises(TossupError, match=r"diverged: the update made weights that are not finite.*lower --lr"):
        train(config, Silent())
    newest = checkpoint.latest(tmp_path / "checkpoints")
    if newest is not None:  # the first steps may have had nothing to train on
        tensors = checkpoint.read_state(newest)["tensors"]
        assert all(w.isfinite().all() for w in tensors.values())


def test_a_policy_that_has_collapsed_is_not_called_done(tmp_path: Path) -> None:
    settings = SMALL | {"steps": 200, "out": str(tmp_path), "update.lr": 0.3, "curriculum.patience": 72}
    watcher = Silent()
    summary = train(load(TrainConfig, None, settings), watcher)
    assert summary["ended_by"].startswith("collapse: no answer is right any more, where ")
    assert [note for note in watcher.notes if "may have collapsed" in note]


def test_a_fall_is_said_once_and_a_hard_start_is_none() -> None:
    hard = Progress()
    assert [hard.take_level(reward) for reward in (0.0, 0.0, None, 0.1, 0.05, 0.1)] == [None] * 6
    falls = Progress()
    said = [falls.take_level(reward) for reward in [0.5] * 20 + [0.2] * 20 + [0.0] * 30]
    assert [step for step, text in enumerate(said) if text] == [48]
    assert "where it was 50.0%" in str(said[48])


def test_a_sampler_apart_from_the_trainer_is_said_once() -> None:
    """The made-up log-probs of a group are those of no policy; those that the policy gives are."""
    policy, config, progress = make_policy(), load(TrainConfig), Progress()
    optimizer = torch.optim.AdamW(policy.model.parameters(), lr=1e-9)
    group = make_group("1001", seed=1)
    rows = [torch.tensor([[*r.prompt_ids, *r.response_ids]]) for r in group.rollouts]
    with torch.no_grad():
        logps = [policy.model(ids).logits[0, :-1].log_softmax(-1).gather(-1, ids[0, 1:, None])[:, 0] for ids in rows]
    own = tuple(
        dataclasses.replace(r, response_logps=tuple(logp[-len(r.response_ids) :].tolist()))
        for r, logp in zip(group.rollouts, logps, strict=True)
    )
    assert progress.warnings(update(policy, optimizer, [dataclasses.replace(group, rollouts=own)], config, None)) == []
    apart = update(policy, optimizer, [group], config, None)
    (said,) = progress.warnings(apart)
    assert f"{apart['mismatch/kl']:.2g} nats a token apart" in said
    assert progress.warnings(apart) == []
