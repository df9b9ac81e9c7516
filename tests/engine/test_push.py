"""What is pushed to vLLM: the names and shapes of the model's checkpoint on the Hub."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from small import make_policy
from transformers import Qwen3MoeConfig, Qwen3MoeForCausalLM

from tossup.engine import lora
from tossup.engine.config import LoraConfig
from tossup.engine.generate.hub import hub_weights


@pytest.mark.parametrize("adapter", [False, True])
def test_a_plain_model_is_pushed_one_tensor_at_a_time(adapter: bool) -> None:
    policy = make_policy()
    own = {name for name, _ in policy.model.named_parameters()}
    if adapter:
        lora.attach(policy.model, "base", LoraConfig(rank=2), seed=0)
    names, tied, weights = hub_weights(policy)
    assert set(names) == own
    assert tied == []
    assert iter(weights) is weights  # nothing is merged before it is its turn
    assert {name for name, _ in weights} == own


def test_a_tied_head_is_known_as_such() -> None:
    policy = make_policy()
    policy.model.config.tie_word_embeddings = True
    policy.model.tie_weights()
    names, tied, _ = hub_weights(policy)
    assert tied == ["lm_head.weight"]
    assert {"lm_head.weight", "model.embed_tokens.weight"} <= set(names)


def test_a_mixture_of_experts_is_pushed_as_its_checkpoint_names_it() -> None:
    config = Qwen3MoeConfig(
        vocab_size=12,
        hidden_size=16,
        intermediate_size=32,
        moe_intermediate_size=8,
        num_experts=2,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=8,
    )
    policy = replace(make_policy(), model=Qwen3MoeForCausalLM(config))
    names, _, weights = hub_weights(policy)
    pushed = dict(weights)
    assert set(names) == set(pushed)
    fused = dict(policy.weights())["model.layers.0.mlp.experts.gate_up_proj"]
    assert torch.equal(pushed["model.layers.0.mlp.experts.1.gate_proj.weight"], fused[1, :8])
    assert torch.equal(pushed["model.layers.0.mlp.experts.1.up_proj.weight"], fused[1, 8:])
    assert not any("gate_up_proj" in name for name in pushed)
