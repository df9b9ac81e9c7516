"""The warm start: supervised training of the tiny policy from nothing, so that GRPO has something to sharpen.

It runs in two phases. In the first every example is right, and the policy learns the school method. In the second the
examples forget to carry (or to borrow) with probability `SLIP` at each place that has one, as people do. So the start
policy can add but is careless: a problem without a carry is solved, one with several is nearly hopeless, and those in
between are toss-ups. GRPO, which sees only right and wrong, has to teach it to carry every time.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator, Mapping
from functools import partial

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

from tossup.engine.arithmetic.problems import FAMILIES, draw, make_prompt, spell
from tossup.engine.arithmetic.tokenizer import build_tokenizer

SLIP: dict[str, float] = {"+": 0.35, "-": 0.55}
"""Operation -> the probability that an example of the second phase forgets a carry (or a borrow), at each one."""

CLEAN_STEPS = 1000
CARELESS_STEPS = 500
BATCH = 128
LEARNING_RATES = (3e-3, 2e-3)
"""Peak learning rate of each phase; it rises over 50 steps and then falls to zero as a cosine."""

IGNORED = -100
"""The label of a token that is not trained on."""


def build_model(seed: int, tokenizer: PreTrainedTokenizerFast) -> Qwen3ForCausalLM:
    """A Qwen3 of 0.13 million parameters with random weights, in float32."""
    torch.manual_seed(seed)
    config = Qwen3Config(
        vocab_size=len(tokenizer),
        hidden_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=2,
        head_dim=32,
        intermediate_size=256,
        max_position_embeddings=tokenizer.model_max_length,
        tie_word_embeddings=True,
        pad_token_id=tokenizer.pad_token_id,
        eos_token_id=tokenizer.eos_token_id,
        bos_token_id=None,
    )
    return Qwen3ForCausalLM(config)


def forgetful(operation: str, a: int, b: int, slip: float, rng: random.Random) -> int:
    """a + b, or a - b, digit by digit, each carry (or borrow) forgotten with probability `slip`."""
    sign = 1 if operation == "+" else -1
    result, carry, place = 0, 0, 1
    while place <= max(a, b):
        total = a // place % 10 + sign * (b // place % 10 + carry)
        carry = int(not 0 <= total <= 9 and rng.random() >= slip)
        result += total % 10 * place
        place *= 10
    return result + carry * place


def examples(phase: str, slips: Mapping[str, float], seed: int) -> Iterator[tuple[str, str]]:
    """An endless stream of (prompt, answer), never with a held-out prompt."""
    rng = random.Random(f"arithmetic warm start {phase} {seed}")
    shares = {family: family.warm_share for family in FAMILIES}
    for family, a, b in draw(rng, shares, held_out=False):
        answer = forgetful(family.operation, a, b, slips[family.operation], rng)
        yield make_prompt(family.operation, a, b), spell(answer)


def make_batch(pairs: list[tuple[str, str]], tokenizer: PreTrainedTokenizerFast) -> tuple[Tensor, Tensor]:
    """Token ids and labels, both [B, T], padded on the right; only the answer and its end are trained on."""
    rows = [(tokenizer.encode(prompt), [*tokenizer.encode(answer), tokenizer.eos_token_id]) for prompt, answer in pairs]
    T = max(len(prompt) + len(answer) for prompt, answer in rows)
    ids_BT = torch.full((len(rows), T), tokenizer.pad_token_id)
    labels_BT = torch.full((len(rows), T), IGNORED)
    for i, (prompt, answer) in enumerate(rows):
        end = len(prompt) + len(answer)
        ids_BT[i, :end] = torch.tensor(prompt + answer)
        labels_BT[i, len(prompt) : end] = torch.tensor(answer)
    return ids_BT, labels_BT


def train_phase(
    model: Qwen3ForCausalLM,
    tokenizer: PreTrainedTokenizerFast,
    stream: Iterator[tuple[str, str]],
    steps: int,
    peak_lr: float,
    report: Callable[[int, float], None],
) -> None:
    """Ordinary supervised training, in place; `report(step, loss)` is called after every step."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=peak_lr, betas=(0.9, 0.99), weight_decay=0.0)
    model.train()
    for step in range(steps):
        for group in optimizer.param_groups:
            group["lr"] = peak_lr * min(1.0, (step + 1) / 50) * (1 + math.cos(math.pi * step / steps)) / 2
        ids_BT, labels_BT = make_batch([next(stream) for _ in range(BATCH)], tokenizer)
        logits_BTV = model(ids_BT, attention_mask=(ids_BT != tokenizer.pad_token_id).long()).logits
        loss = cross_entropy(logits_BTV[:, :-1].flatten(0, 1), labels_BT[:, 1:].flatten(), ignore_index=IGNORED)
        optimizer.zero_grad()
        torch.autograd.backward(loss)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        report(step + 1, loss.item())


def warm_start(
    seed: int = 0,
    clean_steps: int = CLEAN_STEPS,
    careless_steps: int = CARELESS_STEPS,
    report: Callable[[str, int, float], None] = lambda phase, step, loss: None,
) -> tuple[Qwen3ForCausalLM, PreTrainedTokenizerFast]:
    """Train the start policy from random weights. The same seed on the same machine and torch gives the same weights."""
    tokenizer = build_tokenizer()
    model = build_model(seed, tokenizer)
    phases = (
        ("clean", dict.fromkeys(SLIP, 0.0), clean_steps, LEARNING_RATES[0]),
        ("careless", SLIP, careless_steps, LEARNING_RATES[1]),
    )
    for phase, slips, steps, peak_lr in phases:
        train_phase(model, tokenizer, examples(phase, slips, seed), steps, peak_lr, partial(report, phase))
    model.train(False)
    return model, tokenizer
