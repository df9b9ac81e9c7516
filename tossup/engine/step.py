"""One GRPO update on one screen. Shapes are in `batch`.

Left out, on purpose, until the engine needs it: packed sequences, several devices, LoRA.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from tossup.engine.batch import micro_batches
from tossup.engine.config import TrainConfig
from tossup.engine.logps import token_logps
from tossup.engine.objective import SURROGATES, policy_loss
from tossup.engine.policy import Policy
from tossup.records import Group, TossupError

MICRO_BATCH_TOKENS = {True: 2048, False: 16384}
"""On a CPU (True), where small batches stay in the cache, and elsewhere."""


def update(
    policy: Policy, optimizer: torch.optim.Optimizer, groups: Sequence[Group], config: TrainConfig, ref: Policy | None
) -> dict[str, float]:
    """Take `config.update.epochs` optimizer steps on the kept groups and return the figures for the log.

    `ref` is the start model, needed only where the KL term is on. Every figure is over the tokens of the first epoch,
    where the importance ratio still compares the sampler with the model that sampled. The model stays in eval mode:
    with dropout the trainer's log-probs would be those of another distribution than the sampler's.

    Raises:
        TossupError: the loss, its gradient or a figure is not finite; the optimizer has not stepped on it.
    """
    cfg, temperature = config.update, config.rollout.temperature
    batches = micro_batches(
        groups,
        std_norm=cfg.std_norm,
        aggregate=cfg.aggregate,
        max_new_tokens=config.rollout.max_new_tokens,
        token_budget=cfg.micro_batch_tokens or MICRO_BATCH_TOKENS[policy.device.type == "cpu"],
        pad_id=policy.pad_id,
        device=policy.device,
    )
    figures: dict[str, float] = {}
    for epoch in range(cfg.epochs):
        optimizer.zero_grad(set_to_none=True)
        loss = clipped = kl = mismatch = tokens = ratio_max = 0.0
        for mb in batches:
            logps_BT = token_logps(policy, mb.ids_BT1, mb.attention_BT1, mb.mask_BT, temperature)
            ref_logps_BT = None
            if ref is not None:
                with torch.no_grad():
                    ref_logps_BT = token_logps(ref, mb.ids_BT1, mb.attention_BT1, mb.mask_BT, temperature)
            parts = policy_loss(
                SURROGATES[cfg.objective],
                logps_BT,
                mb.old_logps_BT,
                mb.advantages_B,
                mb.weights_B,
                mb.mask_BT,
                cfg.clip_low,
                cfg.clip_high,
                cfg.kl_beta,
                ref_logps_BT,
            )
            parts.loss.backward()  # type: ignore[no-untyped-call]
            loss += parts.loss.item()
            clipped, kl, mismatch = (
                clipped + parts.clipped.item(),
                kl + parts.kl.item(),
                mismatch + parts.mismatch.item(),
            )
            ratio_max, tokens = max(ratio_max, parts.ratio_max.item()), tokens + mb.mask_BT.sum().item()
        norm = torch.nn.utils.clip_grad_norm_(policy.model.parameters(), cfg.max_grad_norm)
        found = {
            "update/loss": loss,
            "update/grad_norm": norm.item(),
            "update/clip_ratio": clipped / tokens,
            "update/kl": kl / tokens,
            "mismatch/kl": mismatch / tokens,
            "mismatch/max_ratio": ratio_max,
        }
        _check_finite(found)
        optimizer.step()
        if epoch == 0:
            figures = found
    return figures


def _check_finite(figures: dict[str, float]) -> None:
    """Stop before a step that would spoil every weight for good."""
    if all(math.isfinite(value) for value in figures.values()):
        return
    said = ", ".join(f"{name} {value:.3g}" for name, value in figures.items())
    raise TossupError(
        f"training has diverged: the update is not finite ({said}). It was not taken, and the checkpoints hold the steps "
        "before it. Begin anew with a lower --lr and another --out"
    )
