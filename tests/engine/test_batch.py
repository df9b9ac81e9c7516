"""Micro-batches: cutting a batch changes nothing, and dropped rollouts are nowhere."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch
from small import make_group, make_policy

from tossup.curriculum.batch import Batch
from tossup.curriculum.gate import fates
from tossup.engine.batch import MicroBatch, micro_batches, without_levelled
from tossup.engine.config import TrainConfig
from tossup.engine.logps import token_logps
from tossup.engine.objective import clipped_ratio, policy_loss
from tossup.engine.policy import Policy
from tossup.engine.step import update
from tossup.records import Fate, Group

GROUPS = [make_group("1001", [2, 9, 4, 3], seed=1), make_group("10?1", [5, 1, 7, 2], seed=2, gid=1)]


def cut(groups: Sequence[Group], budget: int, aggregate: str = "sequence") -> list[MicroBatch]:
    return micro_batches(
        groups,
        std_norm=True,
        aggregate=aggregate,
        max_new_tokens=12,
        token_budget=budget,
        pad_id=0,
        device=torch.device("cpu"),
    )


def gradients(policy: Policy, batches: list[MicroBatch]) -> tuple[float, list[torch.Tensor]]:
    policy.model.zero_grad()
    total = 0.0
    for mb in batches:
        logps = token_logps(policy, mb.ids_BT1, mb.attention_BT1, mb.mask_BT, 0.7)
        rest = (mb.old_logps_BT, mb.advantages_B, mb.weights_B, mb.mask_BT)
        loss = policy_loss(clipped_ratio, logps, *rest, 0.2, 0.2).loss
        loss.backward()  # type: ignore[no-untyped-call]
        total += loss.item()
    return total, [p.grad.clone() for p in policy.model.parameters()]


@pytest.mark.parametrize("aggregate", ["sequence", "token", "constant"])
def test_one_micro_batch_and_many_give_the_same_gradient(policy: Policy, aggregate: str) -> None:
    whole, many = cut(GROUPS, 10_000, aggregate), cut(GROUPS, 16, aggregate)
    assert len(whole) == 1
    assert len(many) > 2
    (loss_a, grad_a), (loss_b, grad_b) = gradients(policy, whole), gradients(policy, many)
    assert loss_a == pytest.approx(loss_b, rel=1e-6)
    for a, b in zip(grad_a, grad_b, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-8)


def test_the_budget_is_kept_and_every_decided_rollout_is_there_once() -> None:
    batches = cut(GROUPS, 30)
    assert all(mb.ids_BT1.numel() <= 30 or len(mb.ids_BT1) == 1 for mb in batches)
    decided = [r for g in GROUPS for r in g.decided]
    assert sum(len(mb.ids_BT1) for mb in batches) == len(decided) == 7
    assert sum(int(mb.mask_BT.sum()) for mb in batches) == sum(len(r.response_ids) for r in decided)


def test_a_mask_covers_exactly_the_predicted_response_tokens() -> None:
    (mb,) = cut([GROUPS[0]], 10_000)
    by_ids = {r.prompt_ids + r.response_ids: r for r in GROUPS[0].rollouts}
    for ids, attention, mask, old in zip(
        mb.ids_BT1.tolist(), mb.attention_BT1.tolist(), mb.mask_BT.tolist(), mb.old_logps_BT.tolist(), strict=True
    ):
        rollout = by_ids[tuple(ids[: sum(attention)])]
        assert tuple(t for t, m in zip(ids[1:], mask, strict=True) if m) == rollout.response_ids
        assert [x for x, m in zip(old, mask, strict=True) if m] == pytest.approx(list(rollout.response_logps))


def test_the_paper_s_denominator_counts_kept_rollouts_only() -> None:
    (mb,) = cut(GROUPS, 10_000)
    lengths = mb.mask_BT.sum(dim=1)
    assert (mb.weights_B * lengths).tolist() == pytest.approx([1 / 7] * 7)


def test_a_step_equals_plain_gradient_descent_on_the_loop() -> None:
    """`update` with SGD moves the weights by -lr times the gradient of the summed loss."""
    a, b = make_policy(), make_policy()
    config = TrainConfig.model_validate(
        {
            "rollout": {"temperature": 0.7, "max_new_tokens": 12},
            "update": {"micro_batch_tokens": 16, "max_grad_norm": 1e9},
        }
    )
    figures = update(a, torch.optim.SGD(a.model.parameters(), lr=0.1), GROUPS, config, None)
    loss, grads = gradients(b, cut(GROUPS, 10_000))
    assert figures["update/loss"] == pytest.approx(loss, rel=1e-6)
    for moved, start, grad in zip(a.model.parameters(), b.model.parameters(), grads, strict=True):
        torch.testing.assert_close(moved, start - 0.1 * grad, rtol=1e-5, atol=1e-7)


def test_a_right_answer_becomes_likelier_and_a_wrong_one_less_so() -> None:
    policy = make_policy()
    group = make_group("10", [5, 5], seed=3)

    def logp(i: int) -> float:
        r = group.rollouts[i]
        ids = torch.tensor([r.prompt_ids + r.response_ids])
        mask = torch.arange(1, ids.shape[1])[None] >= len(r.prompt_ids)
        with torch.no_grad():
            return token_logps(policy, ids, torch.ones_like(ids), mask, 1.0).sum().item()

    before = [logp(0), logp(1)]
    config = TrainConfig.model_validate({"update": {"clip_low": 10, "clip_high": 10}})
    update(policy, torch.optim.SGD(policy.model.parameters(), lr=0.05), [group], config, None)
    assert logp(0) > before[0]
    assert logp(1) < before[1]


def overlong(groups: Sequence[Group], share: float) -> list[MicroBatch]:
    return micro_batches(
        groups,
        std_norm=False,
        aggregate="token",
        max_new_tokens=10,
        token_budget=10_000,
        pad_id=0,
        device=torch.device("cpu"),
        overlong=share,
    )


def test_overlong_answers_lose_reward_within_their_group() -> None:
    """Right with 10 and 4 tokens, wrong with 9 and 4, limit 10, the last 4 punished: rewards 0, 1, -0.75, 0."""
    (mb,) = overlong([make_group("1100", [10, 4, 9, 4], seed=1)], 0.4)
    by_length = sorted(zip(mb.mask_BT.sum(dim=1).tolist(), mb.advantages_B.tolist(), strict=True))
    mean = 0.25 / 4
    assert [length for length, _ in by_length] == [4, 4, 9, 10]
    assert sorted(a for _, a in by_length[:2]) == pytest.approx([-mean, 1 - mean])
    assert [a for _, a in by_length[2:]] == pytest.approx([-0.75 - mean, -mean])
    assert mb.advantages_B.sum().item() == pytest.approx(0, abs=1e-6)


def test_a_group_that_the_punishment_levels_is_in_no_denominator() -> None:
    """Right at the limit and wrong at once earn the same; its tokens do not dilute the other group's."""
    level = make_group("10", [10, 4], seed=3, gid=9)
    assert not level.degenerate
    (alone,), (both,) = overlong([GROUPS[1]], 0.4), overlong([GROUPS[1], level], 0.4)
    assert torch.equal(alone.weights_B, both.weights_B)
    assert overlong([level], 0.4) == []
    policy = make_policy()
    config = TrainConfig.model_validate({"rollout": {"max_new_tokens": 10}, "update": {"overlong": 0.4}})
    before = [p.clone() for p in policy.model.parameters()]
    assert update(policy, torch.optim.SGD(policy.model.parameters(), lr=1.0), [level], config, None) == {}
    assert all(torch.equal(a, b) for a, b in zip(before, policy.model.parameters(), strict=True))


def test_a_levelled_group_counts_as_one_that_earned_nothing_and_does_not_train() -> None:
    level = make_group("10?", [10, 4, 5], seed=3, gid=9)
    other = make_group("10", [10, 9], seed=4, gid=10)
    wasted = make_group("00", [3, 3], seed=5, gid=11)
    entries = tuple((group, fates(group)) for group in (level, other, wasted))
    batch = Batch(0, (level, other), entries, 3, 43, 2, 1)
    assert without_levelled(batch, 10, 0.0) is batch
    assert without_levelled(batch, 11, 0.4) is batch  # a token short of the limit, something is left of the reward
    settled = without_levelled(batch, 10, 0.4)
    assert settled.kept == (other,)
    assert settled.entries == (
        (level, (Fate.ALL_WRONG, Fate.ALL_WRONG, Fate.UNDECIDED)),
        (other, (Fate.TRAINED, Fate.TRAINED)),
        (wasted, (Fate.ALL_WRONG, Fate.ALL_WRONG)),
    )
