"""Sampling answers with transformers: a decoding loop over a key-value cache, on any device.

Theory of operation. Prompts are sorted by length, cut into batches and left-padded. Each prompt is read once; its cache is
then repeated for the G answers. From there all rows step together; a row that has ended keeps its place until half of the
rows have ended, then the batch is compacted. Answers come back in the order of the prompts.

Sampling is at the given temperature over the whole vocabulary: no top_p, top_k or min_p, which would make the
importance ratio wrong. The log-probabilities returned are those of the distribution that was sampled from.

Shapes: B rows of a batch (prompt-major, G to a prompt), V vocabulary.
"""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from tossup.engine.policy import Policy
from tossup.records import Stop, TossupError

Progress = Callable[[int], None]
"""Called with the number of answers that have just been finished."""


class Sample(NamedTuple):
    """One sampled answer, before it is judged."""

    ids: tuple[int, ...]
    logps: tuple[float, ...]
    stop: Stop
    seconds: float
    """This answer's share of its batch's wall time."""


def generate(
    policy: Policy,
    prompts: Sequence[tuple[int, ...]],
    group_size: int,
    *,
    temperature: float,
    max_new_tokens: int,
    batch_size: int,
    seed: int,
    progress: Progress | None = None,
) -> list[list[Sample]]:
    """Sample `group_size` answers to each prompt (token ids, none empty).

    The result is a function of the policy and these arguments: `seed` starts a generator of its own for every batch. An
    answer ends with an end token, which is part of it, or at `max_new_tokens`, or where the model's context is full. A
    prompt that leaves no room in the context gets answers without a token.

    Raises:
        TossupError: the model's logits are NaN or infinite.
    """
    answers: list[list[Sample]] = [
        [Sample((), (), Stop.LENGTH, 0.0)] * group_size if len(prompt) >= policy.context else [] for prompt in prompts
    ]
    order = sorted((i for i, done in enumerate(answers) if not done), key=lambda i: len(prompts[i]))
    for number, rows in enumerate(_batches(order, max(1, batch_size // group_size))):
        start = time.perf_counter()
        rng = torch.Generator(policy.device).manual_seed((seed * 1_000_003 + number) % (1 << 63))
        batch = [prompts[i] for i in rows]
        sampled = _decode(policy, batch, group_size, temperature, max_new_tokens, rng)
        seconds = (time.perf_counter() - start) / len(sampled)
        for k, (ids, logps, stop) in enumerate(sampled):
            answers[rows[k // group_size]].append(Sample(ids, logps, stop, seconds))
        if progress is not None:
            progress(len(sampled))
    return answers


def _batches(order: Sequence[int], size: int) -> Iterator[Sequence[int]]:
    for start in range(0, len(order), size):
        yield order[start : start + size]


@torch.inference_mode()
def _decode(
    policy: Policy,
    prompts: Sequence[tuple[int, ...]],
    group_size: int,
    temperature: float,
    max_new_tokens: int,
    rng: torch.Generator,
) -> list[tuple[tuple[int, ...], tuple[float, ...], Stop]]:
    """Decode one batch: G answers to each prompt, prompt-major."""
    from transformers import DynamicCache

    width = max(len(p) for p in prompts)
    rows = len(prompts) * group_size
    limits = [min(max_new_tokens, policy.context - len(p)) for p in prompts for _ in range(group_size)]
    cache = DynamicCache(config=policy.model.config)
    cache_name = "cache" if "cache" in inspect.signature(policy.model.forward).parameters else "past_key_values"
    attention = torch.tensor([[0] * (width - len(p)) + [1] * len(p) for p in prompts], device=policy.device)
    ids = torch.tensor([[policy.pad_id] * (width - len(p)) + list(p) for p in prompts], device=policy.device)

    def forward(ids: Tensor, positions: Tensor) -> Tensor:
        with policy.autocast():
            out = policy.model(
                input_ids=ids,
                attention_mask=attention,
                position_ids=positions,
                use_cache=True,
                logits_to_keep=1,
                **{cache_name: cache},
            )
        return out.logits[:, -1].float() / temperature  # type: ignore[no-any-return]

    logits_BV = forward(ids, (attention.cumsum(1) - 1).clamp(min=0)).repeat_interleave(group_size, dim=0)
    cache.batch_repeat_interleave(group_size)
    attention = attention.repeat_interleave(group_size, dim=0)
    position_B = attention.sum(1)

    eos = torch.tensor(sorted(policy.eos_ids), device=policy.device)
    limit_B = torch.tensor(limits, device=policy.device)
    sampled_ids = torch.full((max(limits), rows), policy.pad_id, device=policy.device)
    sampled_logps = torch.zeros((max(limits), rows), device=policy.device)
    length_B = torch.zeros(rows, dtype=torch.long, device=policy.device)  # 0 while the answer runs
    ended_B = torch.zeros(rows, dtype=torch.bool, device=policy.device)
    live = torch.arange(rows, device=policy.device)  # which answer each row of the running batch is
    for step in range(max(limits)):
        if not logits_BV.amax().isfinite():
            raise TossupError(
                f"the model's logits at temperature {temperature:g} are not finite: its weights are damaged (training that "
                "diverged; begin anew with a lower --lr and another --out), or the temperature is too extreme"
            )
        logps_BV = logits_BV.log_softmax(dim=-1)
        token_B = torch.multinomial(logps_BV.exp(), 1, generator=rng)[:, 0]
        sampled_ids[step, live] = token_B
        sampled_logps[step, live] = logps_BV.gather(1, token_B[:, None])[:, 0]
        end = torch.isin(token_B, eos)
        now = (end | (step + 1 >= limit_B[live])) & (length_B[live] == 0)
        length_B[live[now]] = step + 1
        ended_B[live[now & end]] = True
        running = (length_B[live] == 0).nonzero()[:, 0]
        if len(running) == 0:
            break
        if 2 * len(running) <= len(live):
            cache.batch_select_indices(running)
            live, token_B = live[running], token_B[running]
            attention, position_B = attention[running], position_B[running]
        attention = torch.cat([attention, attention.new_ones(len(live), 1)], dim=1)
        logits_BV = forward(token_B[:, None], position_B[:, None])
        position_B = position_B + 1

    all_ids, all_logps = sampled_ids.T.tolist(), sampled_logps.T.tolist()
    return [
        (tuple(all_ids[b][:n]), tuple(all_logps[b][:n]), Stop.END if ended else Stop.LENGTH)
        for b, (n, ended) in enumerate(zip(length_B.tolist(), ended_B.tolist(), strict=True))
    ]
