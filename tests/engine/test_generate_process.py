"""What surrounds vLLM, with a stand-in worker: what it is given, and what comes back."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from small import make_policy
from stand_in import PROMPTS, SAMPLING, SEEDS, Bench, asked, expected

from tossup.engine import lora
from tossup.engine.config import LoraConfig, SamplingConfig
from tossup.engine.generate import Sample, open_generator
from tossup.engine.generate.vllm_generator import PYTHON
from tossup.engine.policy import Policy
from tossup.records import Stop, TossupError


def test_answers_come_with_the_weights_that_were_pushed_last(bench: Bench) -> None:
    generator = bench.open()
    for version in (0, 3):
        generator.push(bench.policy, version)
        assert generator.version == version
        assert asked(generator) == expected(version)
    pushed = bench.said("push")
    assert [p["version"] for p in pushed] == [0, 3]
    assert set(pushed[0]["names"]) == set(bench.policy.model.state_dict())
    assert len(bench.said("start")) == 1


def test_a_tied_head_is_pushed_under_its_own_name(bench: Bench) -> None:
    bench.policy.model.config.tie_word_embeddings = True
    bench.policy.model.tie_weights()
    assert bench.policy.model.lm_head.weight is bench.policy.model.model.embed_tokens.weight
    bench.open().push(bench.policy, 0)
    assert {"lm_head.weight", "model.embed_tokens.weight"} <= set(bench.said("push")[0]["names"])


def test_a_prompt_that_fills_the_context_is_not_asked_for(bench: Bench) -> None:
    generator = bench.open()
    generator.push(bench.policy, 0)
    handed: dict[int, list[Sample]] = {}
    answers = generator.generate([(2,) * 16, (2, 3)], 2, [1, 2], SAMPLING, handed.__setitem__)
    assert answers[0] == [Sample((), (), Stop.LENGTH, 0.0)] * 2
    assert handed == dict(enumerate(answers))
    assert bench.said("generate")[0]["prompts"] == [[2, 3]]


class Forgetful(Policy):
    """A policy that leaves out one tensor of its own."""

    def weights(self) -> Iterator[tuple[str, torch.Tensor]]:
        return ((name, tensor) for name, tensor in super().weights() if "layers.0.self_attn.k_proj" not in name)


def test_a_push_that_leaves_a_tensor_out_is_refused_by_its_name(bench: Bench) -> None:
    generator = bench.open()
    forgetful = Forgetful(**vars(bench.policy))
    for policy, version in ((forgetful, 0), (bench.policy, 1), (forgetful, 2)):  # the first push, and a later one
        if policy is bench.policy:
            generator.push(policy, version)
            assert asked(generator) == expected(version)
        else:
            with pytest.raises(TossupError, match=r"left out.*: model\.layers\.0\.self_attn\.k_proj\.weight\."):
                generator.push(policy, version)


def test_experts_are_refused_on_a_cpu_where_vllm_would_keep_the_old_ones(bench: Bench) -> None:
    layer = bench.policy.model.model.layers[0].mlp
    layer.experts = torch.nn.ModuleList([torch.nn.Linear(2, 2)])
    with pytest.raises(TossupError, match="experts once"):
        bench.open().push(bench.policy, 0)
    assert not bench.said("push")


@pytest.mark.parametrize("tied", [False, True])
def test_an_adapter_is_pushed_merged_and_whole(bench: Bench, tied: bool) -> None:
    if tied:
        bench.policy.model.config.tie_word_embeddings = True
        bench.policy.model.tie_weights()
    names = {name for name, _ in bench.policy.weights()}
    lora.attach(bench.policy.model, "base", LoraConfig(rank=2), seed=0)
    bench.open().push(bench.policy, 0)
    assert set(bench.said("push")[0]["names"]) == names


def test_room_that_does_not_suffice_is_said_before_anything_is_asked(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STAND_IN_ROOM", "10")  # the longest prompt has 3 tokens, its answer up to 8
    generator = bench.open()
    generator.push(bench.policy, 0)
    with pytest.raises(TossupError, match=r"room for 10 tokens .* up to 11 .*--generator-memory"):
        asked(generator)
    assert not bench.said("generate")


def test_the_process_hears_nothing_of_torchrun(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    outer = {"RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "1", "MASTER_ADDR": "x", "TORCHELASTIC_RUN_ID": "y"}
    for name, value in outer.items():
        monkeypatch.setenv(name, value)
    bench.open()
    (start,) = bench.said("start")
    assert not outer.keys() & start["environment"].keys()
    assert "STAND_IN_LOG" in start["environment"]


def test_on_a_gpu_it_has_that_one_alone_and_sleeps_between_waves(on_gpu: Bench) -> None:
    generator = on_gpu.open()
    generator.push(on_gpu.policy, 0)
    asked(generator)
    generator.sleep()
    generator.sleep()
    generator.push(on_gpu.policy, 1)
    generator.wake()
    assert asked(generator) == expected(1)
    assert on_gpu.order() == ["start", "push", "generate", "sleep", "wake", "push", "generate"]
    (start,) = on_gpu.said("start")
    assert start["environment"]["CUDA_VISIBLE_DEVICES"] == "GPU-5f"
    assert start["settings"]["enable_sleep_mode"]
    assert start["settings"]["gpu_memory_utilization"] == SAMPLING.generator_memory
    assert not start["settings"].keys() & {"enforce_eager", "block_size", "kv_cache_memory_bytes"}


def test_the_architecture_is_the_class_that_the_policy_is(bench: Bench) -> None:
    model = bench.policy.model
    model.config.architectures = ["SomethingForConditionalGeneration"]  # of the checkpoint that it was taken out of
    bench.open()
    model.__class__ = type("FSDPQwen3ForCausalLM", (type(model),), {})  # what fully_shard does
    bench.open()
    assert [start["architectures"] for start in bench.said("start")] == [["Qwen3ForCausalLM"]] * 2


def test_without_vllm_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    vllm = SamplingConfig(generator="vllm")
    monkeypatch.setenv(PYTHON, "/nowhere/python")
    with pytest.raises(TossupError, match="TOSSUP_VLLM_PYTHON names no file"):
        open_generator(make_policy(), vllm, print)
    monkeypatch.delenv(PYTHON)
    monkeypatch.setattr("tossup.engine.generate.vllm_generator.find_spec", lambda name: None)
    with pytest.raises(TossupError, match=r"pip install 'tossup\[vllm\]'"):
        open_generator(make_policy(), vllm, print)


def test_temperatures_that_vllm_would_raise_are_refused(bench: Bench) -> None:
    with pytest.raises(TossupError, match="--temperature"):
        bench.open().generate(PROMPTS, 2, SEEDS, SamplingConfig(temperature=0.001))
