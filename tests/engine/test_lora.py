"""LoRA: only the adapter moves, the start model is the same model with it off, and peft reads what is saved."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from small import make_group, make_policy

pytest.importorskip("peft")

from tossup.engine import lora
from tossup.engine.config import LoraConfig, TrainConfig
from tossup.engine.policy import Policy, export, load
from tossup.engine.step import make_optimizer, update
from tossup.records import TossupError

GROUPS = [make_group("1001", [2, 9, 4, 3], seed=1), make_group("10?1", [5, 1, 7, 2], seed=2, gid=1)]
IDS = torch.arange(2, 10)[None]


def adapted(targets: str = "all-linear", rank: int = 3) -> Policy:
    """The tiny model with an adapter that has moved."""
    policy = make_policy()
    lora.attach(policy.model, "base", LoraConfig(rank=rank, alpha=6, targets=targets), seed=0)
    g = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for name, p in policy.model.named_parameters():
            if ".lora_B." in name:
                p.copy_(0.3 * torch.randn(p.shape, generator=g, dtype=p.dtype))
    return policy


def logits(model: Any) -> torch.Tensor:
    with torch.no_grad():
        return model(input_ids=IDS).logits


def config(**changes: Any) -> TrainConfig:
    settings: Mapping[str, Any] = {"rollout": {"max_new_tokens": 12}, "update": {"max_grad_norm": 1e9} | changes}
    return TrainConfig.model_validate(settings)


def test_beginning_an_adapter_takes_no_gpu_into_use(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a node of many, each process would take up memory on all of them."""
    asked: list[object] = []
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 8)
    monkeypatch.setattr(torch.cuda, "get_rng_state", lambda device: asked.append(device))
    lora.attach(make_policy().model, "base", LoraConfig(rank=2), 0)
    assert asked == []


def test_a_new_adapter_changes_nothing_and_follows_from_its_seed() -> None:
    a, b, c = (make_policy() for _ in range(3))
    state = torch.random.get_rng_state()
    for policy, seed in ((a, 0), (b, 0), (c, 1)):
        lora.attach(policy.model, "base", LoraConfig(rank=2), seed)
    assert torch.equal(torch.random.get_rng_state(), state)
    torch.testing.assert_close(logits(a.model), logits(make_policy().model), rtol=0, atol=0)
    same = [torch.equal(x, y) for x, y in zip(a.trainable().values(), b.trainable().values(), strict=True)]
    other = [torch.equal(x, y) for x, y in zip(a.trainable().values(), c.trainable().values(), strict=True)]
    assert all(same)
    assert not all(other)


def test_only_the_adapter_is_trained() -> None:
    policy = adapted("q_proj,v_proj")
    assert {name.split(".")[-4] for name in policy.trainable()} == {"q_proj", "v_proj"}
    before = {name: p.detach().clone() for name, p in policy.model.named_parameters()}
    optimizer = make_optimizer(policy, config(lr=0.1).update)
    update(policy, optimizer, GROUPS, config(lr=0.1), None)
    moved = {name for name, p in policy.model.named_parameters() if not torch.equal(p, before[name])}
    assert moved == set(policy.trainable())
    assert len(optimizer.state) == len(moved)


def test_the_gradient_is_that_of_the_whole_weights_through_the_product() -> None:
    """d loss / dB = scale * d loss / dW A^T, with d loss / dW from a plain model of the merged weights."""
    policy, plain = adapted(), make_policy()
    plain.model.load_state_dict(dict(policy.weights()))
    torch.testing.assert_close(logits(policy.model), logits(plain.model))
    for p in (policy, plain):
        update(p, torch.optim.SGD(p.trainable().values(), lr=0.0), GROUPS, config(), None)
    whole = {name: p.grad for name, p in plain.model.named_parameters()}
    adapter = policy.trainable()
    pairs = [name for name in adapter if ".lora_B." in name]
    assert len(pairs) == 14
    for name in pairs:
        a = adapter[name.replace("lora_B", "lora_A")]
        dw = whole[name.split(".lora_B.")[0] + ".weight"]
        assert dw is not None
        torch.testing.assert_close(adapter[name].grad, 2.0 * dw @ a.T)
        torch.testing.assert_close(a.grad, 2.0 * adapter[name].T @ dw)


def test_the_start_model_is_the_same_one_with_the_adapter_off() -> None:
    policy, start = adapted(), make_policy()
    with lora.detached(policy.model):
        torch.testing.assert_close(logits(policy.model), logits(start.model), rtol=0, atol=0)
    assert (logits(policy.model) - logits(start.model)).abs().max() > 0.01
    for kl in ("off", "on"):
        beta = 0.0 if kl == "off" else 0.5
        alone = update(policy, torch.optim.SGD(policy.trainable().values(), lr=0.0), GROUPS, config(kl_beta=beta), None)
        gradient = [p.grad.clone() for p in policy.trainable().values()]
        plain = make_policy()
        plain.model.load_state_dict(dict(policy.weights()))
        two = update(plain, torch.optim.SGD(plain.model.parameters(), lr=0.0), GROUPS, config(kl_beta=beta), start)
        assert alone["update/kl"] == pytest.approx(two["update/kl"], rel=1e-9)
        assert alone["update/loss"] == pytest.approx(two["update/loss"], rel=1e-9)
        assert (alone["update/kl"] > 0.001) == (kl == "on")
        assert all(g.abs().sum() > 0 for g in gradient)


def test_recomputing_and_packing_work_beside_an_adapter() -> None:
    plain, other = adapted(), dataclasses.replace(adapted(), packs=True)
    a = update(plain, torch.optim.SGD(plain.trainable().values(), lr=0.1), GROUPS, config(kl_beta=0.1), None)
    settings = config(kl_beta=0.1, gradient_checkpointing=True, packing="packed", micro_batch_tokens=30)
    b = update(other, torch.optim.SGD(other.trainable().values(), lr=0.1), GROUPS, settings, None)
    assert a == pytest.approx(b, rel=1e-9)
    for x, y in zip(plain.trainable().values(), other.trainable().values(), strict=True):
        torch.testing.assert_close(x, y, rtol=1e-9, atol=1e-12)


def test_weights_for_a_push_are_those_of_a_plain_model() -> None:
    policy, plain = adapted(), make_policy()
    names = dict(policy.weights())
    assert list(names) == list(plain.model.state_dict())
    assert dict(plain.weights()).keys() == names.keys()


@pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing. is deprecated:FutureWarning")  # peft asks for it
def test_an_adapter_is_saved_for_peft_and_loads_merged(tmp_path: Path) -> None:
    from peft import PeftModel
    from transformers import AutoModelForCausalLM

    from tossup.engine.arithmetic import checkpoint_path

    policy = load("builtin:arithmetic", "cpu", adapter=LoraConfig(rank=4), seed=3)
    with torch.no_grad():
        for name, p in policy.trainable().items():
            if ".lora_B." in name:
                p.add_(0.05 * torch.randn(p.shape, generator=torch.Generator().manual_seed(0)))
    export(policy, tmp_path / "a")
    files = {path.name for path in (tmp_path / "a").iterdir()}
    assert {"adapter_config.json", "adapter_model.safetensors", "tokenizer.json"} <= files
    assert "model.safetensors" not in files
    base = AutoModelForCausalLM.from_pretrained(checkpoint_path(), dtype=torch.float32)
    start = logits(base)
    by_peft = PeftModel.from_pretrained(base, tmp_path / "a")
    torch.testing.assert_close(logits(by_peft), logits(policy.model))
    ours = load(str(tmp_path / "a"), "cpu")
    assert not lora.attached(ours.model)
    torch.testing.assert_close(logits(ours.model), logits(policy.model), rtol=1e-4, atol=1e-4)
    assert (logits(ours.model) - start).abs().max() > 0.01


def test_layers_that_are_not_there_are_named() -> None:
    with pytest.raises(TossupError, match="nonesuch"):
        lora.attach(make_policy().model, "base", LoraConfig(rank=2, targets="nonesuch"), seed=0)
