"""Several optimizer steps a batch: every group once, each step its own denominator, and what is measured stays what it was."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file
from small import make_group, make_policy
from test_mismatch import sampled

from tossup.engine.arithmetic import recipe_path
from tossup.engine.batch import mini_batches
from tossup.engine.config import TrainConfig, load
from tossup.engine.distributed import World
from tossup.engine.logps import logps_and_entropy
from tossup.engine.policy import Policy
from tossup.engine.progress import Silent
from tossup.engine.rollouts import stream
from tossup.engine.step import UPDATE_STREAM, update
from tossup.engine.train import train
from tossup.records import Group, TossupError

GROUPS = [make_group(marks, seed=i, gid=i) for i, marks in enumerate(["1001", "10?1", "0111", "1000", "0011"])]


def config(**changes: Any) -> TrainConfig:
    base = {"rollout.temperature": 0.8, "rollout.max_new_tokens": 12, "update.max_grad_norm": 1e9, "seed": 5}
    return load(TrainConfig, None, base | {f"update.{name}": value for name, value in changes.items()})


def take(groups: list[Group], lr: float = 0.1, step: int = 3, **changes: Any) -> tuple[dict[str, float], torch.Tensor]:
    """The figures of an update and the weights after it."""
    policy = make_policy()
    optimizer = torch.optim.SGD(policy.model.parameters(), lr=lr)
    figures = update(policy, optimizer, groups, config(**changes), None, step=step)
    return figures, weights(policy)


def weights(policy: Policy) -> torch.Tensor:
    return torch.cat([p.detach().flatten() for p in policy.model.parameters()])


@given(st.integers(1, 40), st.integers(1, 12), st.integers(0, 1 << 62))
def test_every_group_is_in_one_part_and_parts_are_alike(n: int, parts: int, seed: int) -> None:
    groups = [replace(GROUPS[0], id=i) for i in range(n)]
    cut = mini_batches(groups, parts, seed)
    assert len(cut) == min(parts, n)
    assert sorted(g.id for part in cut for g in part) == list(range(n))
    sizes = [len(part) for part in cut]
    assert max(sizes) - min(sizes) <= 1
    assert cut == mini_batches(groups, parts, seed)


def test_the_cut_is_another_at_every_step() -> None:
    cuts = {tuple(g.id for g in mini_batches(GROUPS, 2, stream(5, UPDATE_STREAM, step))[0]) for step in range(20)}
    assert len(cuts) > 5


@pytest.mark.parametrize("aggregate", ["sequence", "token", "constant"])
def test_mini_batches_are_updates_one_after_the_other(aggregate: str) -> None:
    """Each with its own denominator: the weights after two parts are those of an update on the first, then on the second."""
    policy = make_policy()
    optimizer = torch.optim.SGD(policy.model.parameters(), lr=0.1)
    for part in mini_batches(GROUPS, 2, stream(5, UPDATE_STREAM, 3)):
        update(policy, optimizer, part, config(aggregate=aggregate), None)
    figures, together = take(GROUPS, mini_batches=2, aggregate=aggregate)
    torch.testing.assert_close(together, weights(policy), rtol=1e-12, atol=1e-14)
    assert figures["update/optimizer_steps"] == 2
    _, once = take(GROUPS, aggregate=aggregate)
    assert (together - once).abs().max() > 1e-4


def test_more_parts_than_groups_are_as_many_as_groups_and_epochs_repeat_them() -> None:
    figures, _ = take(GROUPS, mini_batches=64, epochs=2)
    assert figures["update/optimizer_steps"] == 10


def test_a_part_that_the_punishment_levels_takes_no_step() -> None:
    level = make_group("10", [12, 6], seed=3, gid=9)  # right at the limit, wrong within it: both earn 0
    figures, moved = take([level, GROUPS[0]], mini_batches=2, overlong=0.4)
    assert figures["update/optimizer_steps"] == 1
    torch.testing.assert_close(moved, take([GROUPS[0]], overlong=0.4)[1])


def test_after_the_first_step_the_ratio_really_clips() -> None:
    groups = sampled(make_policy())
    one, _ = take(groups, lr=20.0)
    assert one["update/clip_ratio"] == 0
    assert one["update/max_ratio"] == pytest.approx(1, abs=1e-4)
    assert one["update/approx_kl"] < 1e-8
    two, _ = take(groups, lr=20.0, mini_batches=2)
    assert two["update/clip_ratio"] > 0
    assert two["update/clip_ratio"] == pytest.approx(two["update/clip_ratio_low"] + two["update/clip_ratio_high"])
    assert two["update/max_ratio"] > 1.2
    assert two["update/approx_kl"] > 1e-4


def test_the_mismatch_is_measured_before_the_first_step() -> None:
    figures, _ = take(sampled(make_policy()), lr=20.0, mini_batches=2, epochs=2)
    assert figures["mismatch/max_ratio"] == pytest.approx(1, abs=1e-4)
    assert figures["mismatch/kl"] < 1e-8


def test_where_the_first_part_is_all_of_an_older_policy_no_mismatch_is_said() -> None:
    groups = sampled(make_policy())
    (first,), (second,) = mini_batches(groups, 2, stream(5, UPDATE_STREAM, 3))
    newer = replace(second, rollouts=tuple(replace(r, policy_step=1) for r in second.rollouts))
    figures, _ = take([newer if g is second else first for g in groups], mini_batches=2)
    assert "mismatch/kl" not in figures
    assert figures["update/optimizer_steps"] == 2


def test_the_correction_compares_with_the_weights_that_sampled() -> None:
    """Without a mismatch it corrects nothing, though the second part is seen after an update."""
    groups = sampled(make_policy())
    (a, plain), (b, corrected) = (take(groups, lr=5.0, mini_batches=2, tis_cap=cap) for cap in (0.0, 2.0))
    torch.testing.assert_close(plain, corrected, rtol=0, atol=1e-5)
    assert a["update/clip_ratio"] > 0.1  # the second part's ratios are to the weights before the first step
    assert b["update/clip_ratio"] == pytest.approx(a["update/clip_ratio"])
    assert b["update/max_ratio"] == pytest.approx(a["update/max_ratio"], rel=1e-4)


class OneOf(World):
    """A rank whose sums are those of a world in which the others have nothing."""

    def __init__(self, rank: int, size: int) -> None:
        self.rank, self.size = rank, size

    def sums(self, values: Any) -> list[float]:
        return [value or 1.0 for value in values]


def test_ranks_cut_alike_and_their_gradients_add_up() -> None:
    def last_gradient(world: World) -> list[torch.Tensor]:
        policy = make_policy()
        optimizer = torch.optim.SGD(policy.model.parameters(), lr=0.0)
        update(policy, optimizer, GROUPS, config(mini_batches=2), None, world, step=3)
        return [p.grad.clone() for p in policy.model.parameters() if p.grad is not None]

    ranks = [last_gradient(OneOf(rank, 3)) for rank in range(3)]
    for whole, *shares in zip(last_gradient(World()), *ranks, strict=True):
        torch.testing.assert_close(whole, sum(shares), rtol=1e-9, atol=1e-12)


def test_the_logged_entropy_is_the_mean_over_response_tokens() -> None:
    figures, _ = take(GROUPS, micro_batch_tokens=16)
    policy, total, n = make_policy(), 0.0, 0
    for rollout in (r for group in GROUPS for r in group.decided):
        ids = torch.tensor([[*rollout.prompt_ids, *rollout.response_ids]])
        mask = torch.arange(1, ids.shape[1])[None] >= len(rollout.prompt_ids)
        with torch.no_grad():
            total += logps_and_entropy(policy, ids, torch.ones_like(ids), mask, 0.8)[1].item()
        n += len(rollout.response_ids)
    assert figures["update/entropy"] == pytest.approx(total / n, rel=1e-9)
    assert 0 < figures["update/entropy"] < math.log(12)


def test_a_resumed_run_takes_the_same_mini_batches(tmp_path: Path) -> None:
    def run(name: str, steps: int) -> tuple[list[dict[str, float]], dict[str, torch.Tensor]]:
        small = {
            "eval_pool": "",
            "rollout.problems_per_step": 8,
            "rollout.group_size": 4,
            "threads": 1,
            "save_every": 1,
        }
        settings = small | {"update.mini_batches": 3, "steps": steps, "out": str(tmp_path / name)}
        train(load(TrainConfig, recipe_path(), settings), Silent())
        lines = [json.loads(line) for line in (tmp_path / name / "metrics.jsonl").read_text().splitlines()]
        figures = [{k: v for k, v in line.items() if k.startswith(("update/", "mismatch/"))} for line in lines]
        return figures, load_file(tmp_path / name / "model" / "model.safetensors")

    whole, weights = run("whole", 4)
    run("parts", 2)
    parts, resumed = run("parts", 4)
    assert max(line.get("update/optimizer_steps", 0) for line in whole) > 1
    assert whole == parts
    assert all(torch.equal(weights[name], resumed[name]) for name in weights)


@pytest.mark.parametrize("changes", [{"clip_dual": 1.1}, {"clip_dual": 3.0, "objective": "cispo"}])
def test_a_dual_clip_that_makes_no_sense_is_an_error(changes: dict[str, Any]) -> None:
    with pytest.raises(TossupError, match=r"update.*clip_dual has to be more than 1 \+ clip_high \(1\.2\)"):
        config(**changes)
