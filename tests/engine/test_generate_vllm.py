"""vLLM for real, on the built-in model (tied head, float32): its log-probs are the trainer's, before and after a push."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from dataclasses import replace

import pytest
import torch
from torch import Tensor
from vllm_here import needs_vllm, worker

from tossup.engine import lora
from tossup.engine.config import LoraConfig, SamplingConfig
from tossup.engine.generate import Sample, VllmGenerator
from tossup.engine.generate.draws import prompt_seeds
from tossup.engine.logps import token_logps
from tossup.engine.policy import Policy, load
from tossup.records import Stop, TossupError

pytestmark = needs_vllm

TEXTS = ["a7b4+a8b5=", "a1+a2=", "a3b1c4+a1b5c9=", "+".join(["a1b2c3d4"] * 12) + "="]
"""The last prompt is longer than two blocks of the prefix cache."""


class Bench:
    """A policy, vLLM with its weights, and what it was heard to say."""

    def __init__(self) -> None:
        torch.set_num_threads(1)
        self.policy, self.version, self.notes = load("builtin:arithmetic"), 0, list[str]()
        self.generator = VllmGenerator(self.policy, SamplingConfig(), note=self.notes.append)
        self.generator.push(self.policy, 0)
        self.prompts = [tuple(self.policy.tokenizer(text)["input_ids"]) for text in TEXTS]

    def sample(self, temperature: float = 1.0) -> list[list[Sample]]:
        sampling = SamplingConfig(temperature=temperature, max_new_tokens=12)
        return self.generator.generate(self.prompts, 8, prompt_seeds(7, 0, len(self.prompts)), sampling)

    def worst(self, temperature: float = 1.0, policy: Policy | None = None) -> float:
        """The largest difference between vLLM's log-probs and the trainer's."""
        policy = policy or self.policy
        return max(
            (self.trainers(policy, prompt, answer.ids, temperature) - torch.tensor(answer.logps)).abs().max().item()
            for prompt, answers in zip(self.prompts, self.sample(temperature), strict=True)
            for answer in answers
        )

    @torch.no_grad()
    def trainers(self, policy: Policy, prompt: tuple[int, ...], answer: tuple[int, ...], temperature: float) -> Tensor:
        ids = torch.tensor([prompt + answer])
        everywhere = torch.ones_like(ids[:, 1:]).bool()
        return token_logps(policy, ids, torch.ones_like(ids), everywhere, temperature)[0, len(prompt) - 1 :]

    def perturb(self, policy: Policy | None = None) -> None:
        generator = torch.Generator().manual_seed(self.version)
        with torch.no_grad():
            for weight in (policy or self.policy).trainable().values():
                weight.add_(0.05 * torch.randn(weight.shape, generator=generator))

    def push(self, policy: Policy | None = None) -> None:
        self.version += 1
        self.generator.push(policy or self.policy, self.version)


@pytest.fixture(scope="module")
def bench() -> Iterator[Bench]:
    bench = Bench()
    yield bench
    bench.generator.close()


@pytest.mark.parametrize("temperature", [1.0, 0.6])
def test_log_probs_are_the_trainer_s_at_the_sampling_temperature(bench: Bench, temperature: float) -> None:
    assert bench.worst(temperature) < 1e-4


def test_weights_are_replaced_in_place_and_nothing_of_the_old_ones_stays(bench: Bench) -> None:
    assert bench.policy.model.config.tie_word_embeddings
    for _ in range(2):
        bench.perturb()
        assert bench.worst() > 1  # the old weights, as a push that was forgotten would leave them
        bench.push()
        assert bench.worst() < 1e-4


@pytest.mark.parametrize(
    ("left_out", "missed"),
    [
        ("layers.0.mlp.down_proj", "model.layers.0.mlp.down_proj.weight"),
        ("layers.1.self_attn.k_proj", "model.layers.1.self_attn.k_proj.weight"),  # one of three that vLLM holds as one
        ("lm_head", "lm_head.weight"),
        (
            "layers.1.mlp",
            "model.layers.1.mlp.gate_up_proj.weight",
        ),  # the name that vLLM gives to two that it found unfilled
    ],
)
def test_a_push_that_leaves_a_tensor_out_is_refused_by_its_name(bench: Bench, left_out: str, missed: str) -> None:
    class Forgetful(Policy):
        def weights(self) -> Iterator[tuple[str, Tensor]]:
            return ((name, tensor) for name, tensor in super().weights() if left_out not in name)

    bench.perturb()
    with pytest.raises(TossupError, match=f"left out.*{missed}"):
        bench.push(Forgetful(**vars(bench.policy)))
    with pytest.raises(ValueError, match="from the weights of step -1"):
        bench.sample()
    bench.push()
    assert bench.worst() < 1e-4


def test_an_adapter_arrives_merged(bench: Bench) -> None:
    policy = load("builtin:arithmetic", adapter=LoraConfig(rank=4, alpha=8))
    bench.perturb(policy)
    bench.push(policy)
    assert bench.worst(policy=policy) < 1e-4
    with lora.detached(policy.model):
        assert bench.worst(policy=policy) > 0.1  # the adapter is what was pushed
    bench.push()
    assert bench.worst() < 1e-4


def test_an_answer_ends_with_any_of_several_end_tokens(bench: Bench) -> None:
    digits = {bench.policy.tokenizer.convert_tokens_to_ids(digit) for digit in "579"}
    several = replace(bench.policy, eos_ids=bench.policy.eos_ids | digits)
    bench.push(several)
    answers = [a for group in bench.sample() for a in group]
    assert {a.ids[-1] for a in answers if a.stop is Stop.END} > digits
    assert not any(set(a.ids[:-1]) & several.eos_ids for a in answers)
    bench.push()


def test_answers_follow_from_their_seeds_and_end_as_they_should(bench: Bench) -> None:
    first, again = bench.sample(), bench.sample()
    assert [[a.ids for a in group] for group in first] == [[a.ids for a in group] for group in again]
    answers = [a for group in first for a in group]
    assert {a.stop for a in answers} == {Stop.END, Stop.LENGTH}
    for answer in answers:
        ended = answer.ids[-1] in bench.policy.eos_ids
        assert (answer.stop is Stop.END) == ended
        assert ended or len(answer.ids) == 12
        assert not set(answer.ids[:-1]) & bench.policy.eos_ids


def test_a_context_that_is_nearly_full_bounds_the_answer(bench: Bench) -> None:
    nearly = bench.prompts[0][:1] * (bench.policy.context - 3)
    (answers,) = bench.generator.generate([nearly], 8, [1], SamplingConfig(max_new_tokens=12))
    assert max(len(a.ids) for a in answers) <= 3
    assert all(a.stop is Stop.END or len(a.ids) == 3 for a in answers)


def test_a_worker_that_is_killed_comes_back_with_the_current_weights(bench: Bench) -> None:
    bench.perturb()
    bench.push()
    os.kill(worker(), signal.SIGKILL)
    assert bench.worst() < 1e-4
    assert len(bench.notes) == 1
    assert "SIGKILL" in bench.notes[0]
