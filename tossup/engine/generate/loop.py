"""Sampling answers with transformers: a decoding loop over a key-value cache, on any device.

Theory of operation. Prompts are sorted by length, cut into batches and left-padded. Each prompt is read once; its cache is
then repeated for the G answers. From there all rows step together; a row that has ended keeps its place until half of the
rows have ended, then the batch is compacted. Answers come back in the order of the prompts.

A token is the inverse of the distribution's cumulative sum at a number that belongs to the answer and the position alone
(`draws`), so how the batch was cut changes nothing but the rounding of its logits.

Shapes: B rows of a batch (prompt-major, G to a prompt), S positions in an answer, V vocabulary.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import groupby

import numpy as np
import torch
from torch import Tensor, nn

from tossup.engine.cached import Cached
from tossup.engine.config import SamplingConfig
from tossup.engine.generate.draws import Seeds, answer_seeds, uniforms
from tossup.engine.generate.words import OnGroup, Sample
from tossup.engine.policy import Policy
from tossup.records import Stop, TossupError

BLOCK = 64
"""Positions whose random numbers are made at once."""


class TransformersGenerator:
    """Samples from the policy's own weights, so there is nothing to push but the version.

    Raises:
        TossupError: the model's cache does not give the model's own logits.
    """

    def __init__(self, policy: Policy, version: int = 0) -> None:
        if policy.cache_fault:
            raise TossupError(f"{policy.cache_fault}; --generator vllm may know the model")
        self.policy, self.version = policy, version

    def generate(
        self,
        prompts: Sequence[tuple[int, ...]],
        group_size: int,
        seeds: Sequence[int],
        sampling: SamplingConfig,
        on_group: OnGroup | None = None,
    ) -> list[list[Sample]]:
        """See `Generator`. `sampling.batch_size` answers are decoded at once."""
        context = self.policy.context
        answers: list[list[Sample]] = [[] for _ in prompts]
        order = sorted(range(len(prompts)), key=lambda i: len(prompts[i]))
        fitting = [i for i in order if len(prompts[i]) < context]
        at_once = max(1, sampling.batch_size // group_size)
        batches = list(_batches(fitting, at_once, [len(prompt) for prompt in prompts], self.policy.pads))
        with cast_once(self.policy):
            for rows in batches:
                start = time.perf_counter()
                row_seeds = np.concatenate([answer_seeds(seeds[i], group_size) for i in rows])
                sampled = _decode(self.policy, [prompts[i] for i in rows], group_size, row_seeds, sampling)
                seconds = (time.perf_counter() - start) / len(sampled)
                for k, i in enumerate(rows):
                    of_prompt = sampled[k * group_size : (k + 1) * group_size]
                    answers[i] = [Sample(ids, logps, stop, seconds) for ids, logps, stop in of_prompt]
                    if on_group is not None:
                        on_group(i, answers[i])
        for i in order[len(fitting) :]:
            answers[i] = [Sample((), (), Stop.LENGTH, 0.0)] * group_size
            if on_group is not None:
                on_group(i, answers[i])
        return answers

    def push(self, policy: Policy, version: int) -> None:
        """See `Generator`; the policy's weights are the generator's."""
        self.policy, self.version = policy, version

    def sleep(self) -> None:
        """See `Generator`; between calls nothing is held."""

    def wake(self) -> None:
        """See `Generator`."""

    def close(self) -> None:
        """See `Generator`."""


def _batches(order: Sequence[int], size: int, lengths: Sequence[int], pads: bool) -> Iterator[Sequence[int]]:
    """Cut `order`, which is by length; where the model `pads` not, a batch holds prompts of one length only."""
    for _, same in groupby(order, key=lambda i: 0 if pads else lengths[i]):
        run = list(same)
        for start in range(0, len(run), size):
            yield run[start : start + size]


@contextmanager
def cast_once(policy: Policy) -> Iterator[None]:
    """Hold the linear layers' weights in the compute type, instead of letting autocast cast them anew for every token.

    The values are those that autocast would compute with, in the trainer's forward pass too, so the log-probs stay
    comparable. The float32 weights are put back at the end, however it ends.
    """
    linears = [] if policy.compute is torch.float32 else [m for m in policy.model.modules() if isinstance(m, nn.Linear)]
    own = [(m, m.weight) for m in linears if m.weight.dtype is torch.float32]
    cast: dict[Tensor, nn.Parameter] = {}
    try:
        for module, weight in own:
            if weight not in cast:
                cast[weight] = nn.Parameter(weight.detach().to(policy.compute), requires_grad=False)
            module.weight = cast[weight]
        yield
    finally:
        for module, weight in own:
            module.weight = weight


@torch.inference_mode()
def _decode(
    policy: Policy,
    prompts: Sequence[tuple[int, ...]],
    group_size: int,
    seeds: Seeds,
    sampling: SamplingConfig,
) -> list[tuple[tuple[int, ...], tuple[float, ...], Stop]]:
    """Decode one batch: G answers to each prompt, prompt-major; `seeds` has one seed an answer."""
    temperature = sampling.temperature
    width = max(len(p) for p in prompts)
    limits = [min(sampling.max_new_tokens, policy.context - len(p)) for p in prompts for _ in range(group_size)]
    batch = Cached(policy.model)
    attention = torch.tensor([[0] * (width - len(p)) + [1] * len(p) for p in prompts], device=policy.device)
    ids = torch.tensor([[policy.pad_id] * (width - len(p)) + list(p) for p in prompts], device=policy.device)

    def forward(ids: Tensor, positions: Tensor) -> Tensor:
        with policy.autocast():
            return batch.logits(ids, attention, positions).float() / temperature

    logits_BV = forward(ids, (attention.cumsum(1) - 1).clamp(min=0)).repeat_interleave(group_size, dim=0)
    batch.take(torch.arange(len(prompts), device=policy.device).repeat_interleave(group_size))
    attention = attention.repeat_interleave(group_size, dim=0)
    position_B = attention.sum(1)

    answers = _Answers(limits, policy)
    live = torch.arange(len(limits), device=policy.device)  # which answer each row of the running batch is
    for step in range(max(limits)):
        if step % BLOCK == 0:
            uniform_SB = torch.from_numpy(uniforms(seeds, step, BLOCK)).to(policy.device)
        token_B, logp_B = pick(logits_BV, uniform_SB[step % BLOCK, live], temperature)
        running = answers.add(step, live, token_B, logp_B)
        if len(running) == 0:
            break
        if 2 * len(running) <= len(live):
            batch.take(running)
            live, token_B = live[running], token_B[running]
            attention, position_B = attention[running], position_B[running]
        attention = torch.cat([attention, attention.new_ones(len(live), 1)], dim=1)
        logits_BV = forward(token_B[:, None], position_B[:, None])
        # A row that has ended may fill its context while others run; its next tokens are nobody's.
        position_B = (position_B + 1).clamp(max=policy.context - 1)
    return answers.all()


class _Answers:
    """The tokens of a batch's answers as they come, and where each answer ends: by an end token, or at its limit."""

    def __init__(self, limits: Sequence[int], policy: Policy) -> None:
        device, rows, steps = policy.device, len(limits), max(limits)
        self.end_ids = torch.tensor(sorted(policy.eos_ids), device=device)
        self.limit_B = torch.tensor(limits, device=device)
        self.ids_SB = torch.full((steps, rows), policy.pad_id, device=device)
        self.logps_SB = torch.zeros((steps, rows), device=device)
        self.length_B = torch.zeros(rows, dtype=torch.long, device=device)  # 0 while the answer runs
        self.ended_B = torch.zeros(rows, dtype=torch.bool, device=device)

    def add(self, step: int, live: Tensor, token_B: Tensor, logp_B: Tensor) -> Tensor:
        """Take the tokens of this step, of the answers `live`; returns the places in `live` of those that go on."""
        self.ids_SB[step, live] = token_B
        self.logps_SB[step, live] = logp_B
        end = torch.isin(token_B, self.end_ids)
        now = (end | (step + 1 >= self.limit_B[live])) & (self.length_B[live] == 0)
        self.length_B[live[now]] = step + 1
        self.ended_B[live[now & end]] = True
        return (self.length_B[live] == 0).nonzero()[:, 0]

    def all(self) -> list[tuple[tuple[int, ...], tuple[float, ...], Stop]]:
        """Of each answer its tokens, their log-probabilities, and why it stopped."""
        ids, logps = self.ids_SB.T.tolist(), self.logps_SB.T.tolist()
        return [
            (tuple(ids[b][:n]), tuple(logps[b][:n]), Stop.END if ended else Stop.LENGTH)
            for b, (n, ended) in enumerate(zip(self.length_B.tolist(), self.ended_B.tolist(), strict=True))
        ]


def pick(logits_BV: Tensor, uniform_B: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
    """The token of each row at its number in [0, 1), and the token's log-probability."""
    if not logits_BV.amax().isfinite():
        raise TossupError(not_finite(temperature))
    logps_BV = logits_BV.log_softmax(dim=-1)
    cumulative_BV = logps_BV.exp().cumsum(dim=-1, dtype=torch.float64)
    target_B1 = uniform_B[:, None] * cumulative_BV[:, -1:]
    token_B1 = torch.searchsorted(cumulative_BV, target_B1, right=True).clamp(max=logits_BV.shape[-1] - 1)
    return token_B1[:, 0], logps_BV.gather(1, token_B1)[:, 0]


def not_finite(temperature: float) -> str:
    """What to say of logits that are NaN or infinite."""
    return (
        f"the model's logits at temperature {temperature:g} are not finite: its weights are damaged (training that "
        "diverged; begin anew with a lower --lr and another --out), or the temperature is too extreme"
    )
