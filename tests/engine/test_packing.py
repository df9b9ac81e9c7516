"""Packed rows, recomputed layers, bfloat16 and several ranks: other ways to the same gradient."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from small import VOCABULARY, make_group, make_policy

from tossup.engine.batch import MicroBatch, micro_batches
from tossup.engine.config import TrainConfig
from tossup.engine.distributed import World
from tossup.engine.logps import recomputed, token_logps
from tossup.engine.policy import Policy
from tossup.engine.policy import load as load_policy
from tossup.engine.probe import probe
from tossup.engine.step import make_optimizer, packs_rows, update
from tossup.records import TossupError

GROUPS = [make_group("1001", [2, 9, 4, 3], seed=1), make_group("10?1", [5, 1, 7, 2], seed=2, gid=1)]
CPU = torch.device("cpu")


def config(**changes: Any) -> TrainConfig:
    return TrainConfig.model_validate(
        {"rollout": {"temperature": 0.7, "max_new_tokens": 12}, "update": {"max_grad_norm": 1e9} | changes}
    )


def gradient(policy: Policy, **changes: Any) -> tuple[dict[str, float], list[torch.Tensor]]:
    """Figures and gradient of one update that does not move the weights."""
    figures = update(policy, torch.optim.SGD(policy.model.parameters(), lr=0.0), GROUPS, config(**changes), None)
    return figures, [p.grad.clone() for p in policy.model.parameters()]


def assert_same(a: tuple[dict[str, float], list[torch.Tensor]], b: tuple[dict[str, float], list[torch.Tensor]]) -> None:
    for name, value in a[0].items():
        assert b[0][name] == pytest.approx(value, rel=1e-9), name
    for x, y in zip(a[1], b[1], strict=True):
        torch.testing.assert_close(x, y, rtol=1e-9, atol=1e-12)


@pytest.fixture
def packing() -> Policy:
    return dataclasses.replace(make_policy(), packs=True)


@pytest.mark.parametrize("budget", [10_000, 40, 16, 1])
@pytest.mark.parametrize("objective", ["grpo", "gspo", "cispo"])
def test_packed_and_padded_rows_give_the_same_gradient(packing: Policy, budget: int, objective: str) -> None:
    settings = {"objective": objective, "micro_batch_tokens": budget}
    padded = gradient(packing, packing="padded", **settings)
    assert_same(padded, gradient(packing, packing="packed", **settings))


def test_packed_rows_see_no_padding_and_fill_the_budget() -> None:
    def cut(packed: bool) -> list[MicroBatch]:
        return micro_batches(
            GROUPS,
            std_norm=True,
            aggregate="token",
            max_new_tokens=12,
            token_budget=30,
            pad_id=0,
            device=CPU,
            packed=packed,
        )

    real = [int(mb.attention_BT1.sum()) for mb in cut(packed=True)]
    assert len(real) <= len(cut(packed=False))
    assert all(tokens <= 30 for tokens in real)
    assert sum(real) == sum(len(r.prompt_ids) + len(r.response_ids) for g in GROUPS for r in g.decided)


def test_a_packed_row_depends_on_no_other(packing: Policy) -> None:
    g = torch.Generator().manual_seed(0)
    ids = torch.randint(2, VOCABULARY, (3, 9), generator=g)
    attention = torch.tensor([[1] * 9, [1] * 7 + [0] * 2, [1] * 5 + [0] * 4])
    mask = attention[:, 1:].bool()
    together = token_logps(packing, ids, attention, mask, 0.7, packed=True)
    changed = ids.clone()
    changed[0] = torch.randint(2, VOCABULARY, (9,), generator=g)
    torch.testing.assert_close(together[1:], token_logps(packing, changed, attention, mask, 0.7, packed=True)[1:])
    for row in range(3):
        n = int(attention[row].sum())
        alone = token_logps(
            packing, ids[row : row + 1, :n], attention[row : row + 1, :n], mask[row : row + 1, : n - 1], 0.7
        )
        torch.testing.assert_close(together[row : row + 1, : n - 1], alone)


def test_a_model_that_mixes_packed_rows_is_found_out() -> None:
    """Without positions the rows are one text to it, as to a recurrent layer."""
    policy = make_policy()
    assert probe(policy).packs
    forward = policy.model.base_model.forward
    policy.model.base_model.forward = lambda input_ids, position_ids=None, **kw: forward(input_ids=input_ids, **kw)
    assert not probe(policy).packs
    assert not packs_rows(policy, "auto")
    with pytest.raises(TossupError, match="packing padded"):
        packs_rows(policy, "packed")


def test_packing_is_chosen_by_the_attention(packing: Policy) -> None:
    assert not packs_rows(packing, "auto")
    assert packs_rows(packing, "packed")
    packing.model.config._attn_implementation = "flash_attention_2"
    assert packs_rows(packing, "auto")
    assert not packs_rows(packing, "padded")


def test_flash_attention_is_not_given_float32(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would say so itself, but only in the first update, and by an error of its kernel."""
    model = make_policy().model
    model.config._attn_implementation = "flash_attention_2"
    monkeypatch.setattr("tossup.engine.policy._read", lambda *_: (model, None))
    with pytest.raises(TossupError, match="flash_attention_2 computes in 16 bits only"):
        load_policy("builtin:arithmetic", "cpu", "float32", attention="flash_attention_2")


def test_recomputed_layers_give_the_same_gradient_and_run_twice(policy: Policy) -> None:
    plain = gradient(policy)
    calls = []
    layer = policy.model.model.layers[0].input_layernorm
    handle = layer.register_forward_hook(lambda *_: calls.append(1))
    again = gradient(policy, gradient_checkpointing=True, micro_batch_tokens=10_000)
    handle.remove()
    assert len(calls) == 2
    assert "forward" not in policy.model.model.layers[0].__dict__
    assert_same(plain, again)


def test_recomputed_layers_keep_less_for_the_backward_pass(policy: Policy) -> None:
    ids = torch.ones(4, 40, dtype=torch.long)

    def kept(on: bool) -> int:
        sizes: list[int] = []

        def pack(tensor: torch.Tensor) -> torch.Tensor:
            sizes.append(tensor.numel())
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t), recomputed(policy.model, on):
            token_logps(policy, ids, torch.ones_like(ids), torch.ones(4, 39).bool(), 1.0)
        return sum(sizes)

    assert kept(True) < kept(False) / 3


def test_a_model_without_layers_of_its_own_kind_says_so() -> None:
    with pytest.raises(TossupError, match="gradient_checkpointing"), recomputed(torch.nn.Linear(2, 2)):
        pass


class OneOf(World):
    """A rank on its own: the test adds up the gradients. Its figures are its own, and no rank alone divides by zero."""

    def __init__(self, rank: int, size: int) -> None:
        self.rank, self.size = rank, size

    def sums(self, values: Sequence[float]) -> list[float]:
        return [value or 1.0 for value in values]


@pytest.mark.parametrize("ranks", [2, 3, 9])
def test_the_shares_of_all_ranks_add_up_to_the_gradient(policy: Policy, ranks: int) -> None:
    """Nine ranks for seven rows: two of them make an empty pass."""
    _, whole = gradient(policy)
    passes, total = [], [torch.zeros_like(p) for p in policy.model.parameters()]
    for rank in range(ranks):
        calls: list[int] = []
        handle = policy.model.model.register_forward_hook(lambda *_, calls=calls: calls.append(1))
        optimizer = torch.optim.SGD(policy.model.parameters(), lr=0.0)
        update(policy, optimizer, GROUPS, config(micro_batch_tokens=16), None, OneOf(rank, ranks))
        handle.remove()
        passes.append(len(calls))
        for sum_, p in zip(total, policy.model.parameters(), strict=True):
            sum_ += p.grad
    assert len(set(passes)) == 1
    for a, b in zip(whole, total, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-12)


def half(policy: Policy) -> Policy:
    return dataclasses.replace(policy, model=copy.deepcopy(policy.model), compute=torch.bfloat16)


def test_small_steps_are_not_lost_in_bfloat16() -> None:
    """A hundred AdamW steps of 1e-6 move weights of 0.5 by 1e-4; in bfloat16 their spacing is 2e-3, and none would move."""
    policy = half(make_policy(dtype=torch.float32))
    before = [p.detach().clone() for p in policy.model.parameters()]
    settings = config(lr=1e-6, clip_low=10, clip_high=10)
    optimizer = make_optimizer(policy, settings.update)
    for _ in range(100):
        update(policy, optimizer, GROUPS, settings, None)
    for old, p in zip(before, policy.model.parameters(), strict=True):
        assert p.dtype is torch.float32
        assert p.grad is not None
        moved = (p - old)[p.grad != 0].abs()
        assert moved.median() > 2e-5
        assert moved.max() < 2e-4
    assert all(state["exp_avg"].dtype is torch.float32 for state in optimizer.state.values())


def test_bfloat16_gives_the_gradient_up_to_its_rounding() -> None:
    policy = make_policy(dtype=torch.float32)
    settings = {"clip_low": 10, "clip_high": 10}
    figures, exact = gradient(policy, **settings)
    figures_half, rounded = gradient(half(policy), **settings)
    a, b = (torch.cat([g.flatten() for g in grads]) for grads in (exact, rounded))
    assert all(g.dtype is torch.float32 for g in rounded)
    assert torch.nn.functional.cosine_similarity(a, b, dim=0) > 0.99
    assert figures_half["update/loss"] != figures["update/loss"]
    assert figures_half["update/loss"] == pytest.approx(figures["update/loss"], abs=0.05)


def test_bfloat16_learns() -> None:
    policy = load_policy("builtin:arithmetic", "cpu", "bfloat16")
    _learns(policy, lr=1e-3)


def _learns(policy: Policy, lr: float) -> None:
    """A few updates on one group make its right answers likelier than its wrong ones."""
    group = make_group("1100", [4, 4, 4, 4], seed=5)
    settings = config(lr=lr, clip_low=10, clip_high=10)
    optimizer = make_optimizer(policy, settings.update)

    def margin() -> float:
        ids = torch.tensor([r.prompt_ids + r.response_ids for r in group.rollouts])
        mask = (torch.arange(1, ids.shape[1]) >= len(group.rollouts[0].prompt_ids)).expand(4, -1)
        with torch.no_grad():
            logps = token_logps(policy, ids, torch.ones_like(ids), mask, 1.0).sum(1)
        return float(logps[:2].mean() - logps[2:].mean())

    before = margin()
    for _ in range(5):
        update(policy, optimizer, [group], settings, None)
    assert margin() > before + 0.1
