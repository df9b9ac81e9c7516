"""Sampling: the log-probs are the trainer's, batches and padding change nothing, every answer ends for a reason."""

from __future__ import annotations

import collections
import dataclasses

import pytest
import torch
from conftest import EOS, VOCABULARY, make_policy

from tossup.engine.generate import Sample, generate
from tossup.engine.logps import token_logps
from tossup.engine.policy import Policy
from tossup.records import Stop

PROMPTS = [(2, 3, 4), (5,), (6, 7, 8, 9, 10, 11, 2), (3, 3)]


def run(policy: Policy, prompts: list[tuple[int, ...]], seed: int = 0, **changes: float) -> list[list[Sample]]:
    settings = {"group_size": 4, "temperature": 0.8, "max_new_tokens": 10, "batch_size": 8} | changes
    return generate(policy, prompts, seed=seed, **settings)  # type: ignore[arg-type]


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


def test_progress_counts_every_answer(policy: Policy) -> None:
    counts: list[int] = []
    generate(
        policy,
        PROMPTS,
        3,
        temperature=1.0,
        max_new_tokens=4,
        batch_size=5,
        seed=0,
        progress=counts.append,
    )
    assert sum(counts) == len(PROMPTS) * 3
