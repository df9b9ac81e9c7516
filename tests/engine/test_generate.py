"""Sampling: the log-probs are the trainer's, batches and padding change nothing, every answer ends for a reason."""

from __future__ import annotations

import collections
import dataclasses

import numpy as np
import pytest
import torch
from small import EOS, VOCABULARY, make_policy

from tossup.engine.config import SamplingConfig
from tossup.engine.generate import Sample, TransformersGenerator
from tossup.engine.generate.draws import answer_seeds, prompt_seeds, uniforms
from tossup.engine.generate.loop import cast_once
from tossup.engine.logps import token_logps
from tossup.engine.policy import Policy
from tossup.records import Stop, TossupError

PROMPTS = [(2, 3, 4), (5,), (6, 7, 8, 9, 10, 11, 2), (3, 3)]


def run(
    policy: Policy, prompts: list[tuple[int, ...]], seed: int = 0, group_size: int = 4, **changes: float
) -> list[list[Sample]]:
    settings = {"temperature": 0.8, "max_new_tokens": 10, "batch_size": 8} | changes
    sampling = SamplingConfig(**settings)  # type: ignore[arg-type]
    return TransformersGenerator(policy).generate(prompts, group_size, prompt_seeds(seed, 0, len(prompts)), sampling)


def test_sampled_log_probs_are_the_trainer_s(policy: Policy) -> None:
    for prompt, answers in zip(PROMPTS, run(policy, PROMPTS), strict=True):
        assert len(answers) == 4
        for answer in answers:
            ids = torch.tensor([prompt + answer.ids])
            logps = token_logps(policy, ids, torch.ones_like(ids), torch.ones_like(ids[:, 1:]).bool(), 0.8)[
                0, len(prompt) - 1 :
            ]
            assert logps.tolist() == pytest.approx(list(answer.logps), abs=1e-5)


def test_answers_end_with_the_end_token_or_at_the_limit(policy: Policy) -> None:
    answers = [a for group in run(policy, PROMPTS * 8) for a in group]
    assert {a.stop for a in answers} == {Stop.END, Stop.LENGTH}
    for answer in answers:
        assert 1 <= len(answer.ids) == len(answer.logps) <= 10
        assert EOS not in answer.ids[:-1]
        assert (answer.ids[-1] == EOS) == (answer.stop is Stop.END)
        assert answer.stop is Stop.END or len(answer.ids) == 10


def test_the_same_seed_gives_the_same_answers_and_another_seed_others(policy: Policy) -> None:
    def ids(seed: int) -> list[tuple[int, ...]]:
        return [a.ids for group in run(policy, PROMPTS, seed) for a in group]

    assert ids(3) == ids(3)
    assert ids(3) != ids(4)


def test_first_tokens_follow_the_model_s_distribution(policy: Policy) -> None:
    n = 4000
    (answers,) = run(policy, [PROMPTS[2]], group_size=n, batch_size=n, max_new_tokens=1)
    ids = torch.tensor([PROMPTS[2]])
    probs = (policy.model(ids).logits[0, -1].float() / 0.8).softmax(-1)
    seen = collections.Counter(a.ids[0] for a in answers)
    for token in range(VOCABULARY):
        p = probs[token].item()
        assert abs(seen[token] - n * p) < 5 * (n * p * (1 - p)) ** 0.5 + 5


def test_the_context_bounds_each_prompt_by_itself() -> None:
    policy = dataclasses.replace(make_policy(context=9), eos_ids=frozenset([VOCABULARY + 1]))
    short, long, full = run(policy, [(2,) * 3, (2,) * 8, (2,) * 9], max_new_tokens=50)
    assert all(len(a.ids) == 6 for a in short)
    assert all(len(a.ids) == 1 for a in long)
    assert all(a.ids == () and a.stop is Stop.LENGTH for a in full)


def test_an_answer_is_a_function_of_its_seed_and_prompt_however_the_batch_is_cut(policy: Policy) -> None:
    whole = run(policy, PROMPTS, batch_size=1000)
    small = run(policy, PROMPTS, batch_size=4)
    assert [[a.ids for a in group] for group in whole] == [[a.ids for a in group] for group in small]
    sampling = SamplingConfig(temperature=0.8, max_new_tokens=10)
    (alone,) = TransformersGenerator(policy).generate([PROMPTS[2]], 2, [*prompt_seeds(0, 2, 1)], sampling)
    assert [a.ids for a in alone] == [a.ids for a in whole[2][:2]]


def test_answers_are_handed_over_prompt_by_prompt(policy: Policy) -> None:
    handed: dict[int, list[Sample]] = {}
    prompts = [*PROMPTS, (2,) * 64]  # the last one fills the context
    sampling = SamplingConfig(max_new_tokens=4, batch_size=5)
    answers = TransformersGenerator(policy).generate(prompts, 3, prompt_seeds(0, 0, 5), sampling, handed.__setitem__)
    assert handed == dict(enumerate(answers))
    assert all(len(group) == 3 for group in answers)


def test_uniforms_are_uniform_and_apart() -> None:
    seeds = np.concatenate([answer_seeds(seed, 8) for seed in prompt_seeds(1, 0, 250)])
    assert len(set(seeds.tolist())) == 2000
    block = uniforms(seeds, 0, 50)
    assert np.array_equal(uniforms(seeds, 20, 30), block[20:])
    assert (block >= 0).all()
    assert (block < 1).all()
    counts = np.histogram(block, bins=100, range=(0, 1))[0]
    assert ((counts - 1000) ** 2 / 1000).sum() < 160  # chi-square with 99 degrees of freedom: p = 1e-4
    for other in (block[1:], block[:, 1:]):  # neighbours in time, and answers of one group
        assert abs(np.corrcoef(block[: len(other), : other.shape[1]].ravel(), other.ravel())[0, 1]) < 0.013


def test_mixed_precision_decodes_with_weights_that_are_cast_once() -> None:
    policy = dataclasses.replace(make_policy(dtype=torch.float32), compute=torch.bfloat16)
    before = {name: (p.data_ptr(), p.clone()) for name, p in policy.model.named_parameters()}
    ids = torch.tensor([PROMPTS[2]])
    with torch.no_grad(), policy.autocast():
        by_autocast = policy.model(ids).logits
        with cast_once(policy):
            assert policy.model.lm_head.weight.dtype is torch.bfloat16
            assert torch.equal(policy.model(ids).logits, by_autocast)
    for name, p in policy.model.named_parameters():
        assert (p.data_ptr(), p.requires_grad) == (before[name][0], True)
        assert torch.equal(p, before[name][1])


def test_damaged_weights_are_said_and_put_back() -> None:
    policy = dataclasses.replace(make_policy(dtype=torch.float32), compute=torch.bfloat16)
    policy.model.lm_head.weight.data[3, 0] = float("nan")
    with pytest.raises(TossupError, match="not finite"):
        run(policy, PROMPTS)
    assert policy.model.lm_head.weight.dtype is torch.float32
