"""One GRPO update on one screen. Shapes are in `batch`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from tossup.engine import lora
from tossup.engine.batch import MicroBatch, micro_batches
from tossup.engine.config import TrainConfig
from tossup.engine.distributed import ALONE, World
from tossup.engine.logps import recomputed, token_logps
from tossup.engine.objective import SURROGATES, LossParts, Mismatch, mismatch, policy_loss, truncated_weights
from tossup.engine.policy import Policy
from tossup.engine.update_config import UpdateConfig
from tossup.records import Group, TossupError

MICRO_BATCH_TOKENS = {True: 2048, False: 16384}
"""On a CPU (True), where small batches stay in the cache, and elsewhere."""


def make_optimizer(policy: Policy, config: UpdateConfig) -> torch.optim.Optimizer:
    """AdamW over what can be trained. Weights and moments are float32 whatever the compute type: small steps add up."""
    return torch.optim.AdamW(
        policy.trainable().values(),
        lr=config.lr,
        betas=(config.beta1, config.beta2),
        weight_decay=config.weight_decay,
        fused=True,
    )


def update(
    policy: Policy,
    optimizer: torch.optim.Optimizer,
    groups: Sequence[Group],
    config: TrainConfig,
    ref: Policy | None,
    world: World = ALONE,
) -> dict[str, float]:
    """Take `config.update.epochs` optimizer steps on the kept groups and return the figures for the log.

    `ref` is the start model, needed only where the KL term is on and all weights are trained: beside an adapter, the start
    model is the same one with the adapter off. Every figure is over the tokens of the first epoch, where the importance
    ratio still compares the sampler with the model that sampled. The model stays in eval mode: with dropout the trainer's
    log-probs would be those of another distribution than the sampler's. In a `world` of several processes each passes its
    share of the rows through the model; gradients and figures are sums over all.

    Raises:
        TossupError: the loss, its gradient or a figure is not finite; the optimizer has not stepped on it.
    """
    cfg = config.update
    packed = packs_rows(policy, cfg.packing)
    batches = micro_batches(
        groups,
        std_norm=cfg.std_norm,
        aggregate=cfg.aggregate,
        max_new_tokens=config.rollout.max_new_tokens,
        token_budget=cfg.micro_batch_tokens or MICRO_BATCH_TOKENS[policy.device.type == "cpu"],
        pad_id=policy.pad_id,
        device=policy.device,
        overlong=cfg.overlong,
        packed=packed,
        rank=world.rank,
        ranks=world.size,
    )
    figures: dict[str, float] = {}
    own: list[Tensor | None] = [None] * len(batches)
    for epoch in range(cfg.epochs if batches else 0):
        optimizer.zero_grad(set_to_none=True)
        with recomputed(policy.model, cfg.gradient_checkpointing):
            passes = [_pass(policy, mb, own_BT, config, ref, packed) for mb, own_BT in zip(batches, own, strict=True)]
        own = [p.own_BT for p in passes]
        norm = torch.nn.utils.clip_grad_norm_(policy.trainable().values(), cfg.max_grad_norm)
        found = _figures(passes, world) | {
            "update/grad_norm": float(getattr(norm, "full_tensor", lambda norm=norm: norm)())
        }
        _check_finite(found)
        optimizer.step()
        if epoch == 0:
            figures = found
    return figures


def packs_rows(policy: Policy, packing: str) -> bool:
    """Whether the update packs its rows: by `update.packing`, and by itself where attention skips what lies between rows.

    Raises:
        TossupError: it was asked for and the model cannot keep packed rows apart.
    """
    if packing == "packed" and not policy.packs:
        raise TossupError(f"{type(policy.model).__name__} does not keep packed rows apart: --packing padded or auto")
    attention = str(getattr(policy.model.config, "_attn_implementation", ""))
    return packing == "packed" or (packing == "auto" and policy.packs and "flash" in attention)


class Pass(NamedTuple):
    """What one forward and backward pass found."""

    parts: LossParts
    apart: Mismatch
    own_BT: Tensor
    """The trainer's own log-probs at the weights that sampled: those of the first epoch, before anything was updated."""


def _pass(
    policy: Policy, mb: MicroBatch, own_BT: Tensor | None, config: TrainConfig, ref: Policy | None, packed: bool
) -> Pass:
    """Forward and backward of one micro-batch: its share of the gradient is added to the parameters'."""
    cfg = config.update
    ref_logps_BT = _reference_logps(policy, mb, config, ref, packed) if cfg.kl_beta > 0 else None
    logps_BT = _logps(policy, mb, config, packed)
    own_BT = logps_BT.detach() if own_BT is None else own_BT
    corrected = cfg.tis_cap > 0
    parts = policy_loss(
        SURROGATES[cfg.objective],
        logps_BT,
        own_BT if corrected else mb.old_logps_BT,
        mb.advantages_B,
        mb.weights_B,
        mb.mask_BT,
        cfg.clip_low,
        cfg.clip_high,
        cfg.kl_beta,
        ref_logps_BT,
        truncated_weights(own_BT, mb.old_logps_BT, mb.mask_BT, cfg.tis_cap) if corrected else None,
    )
    parts.loss.backward()  # type: ignore[no-untyped-call]
    apart = mismatch(own_BT, mb.old_logps_BT, mb.mask_BT & mb.fresh_B[:, None])
    return Pass(parts._replace(loss=parts.loss.detach()), apart, own_BT)


def _logps(policy: Policy, mb: MicroBatch, config: TrainConfig, packed: bool) -> Tensor:
    temperature = config.rollout.temperature
    return token_logps(policy, mb.ids_BT1, mb.attention_BT1, mb.mask_BT, temperature, packed=packed)


@torch.no_grad()
def _reference_logps(policy: Policy, mb: MicroBatch, config: TrainConfig, ref: Policy | None, packed: bool) -> Tensor:
    if lora.attached(policy.model):
        with lora.detached(policy.model):
            return _logps(policy, mb, config, packed)
    if ref is None:
        raise ValueError("a KL term needs the start model")
    return _logps(ref, mb, config, packed)


def _figures(passes: Sequence[Pass], world: World) -> dict[str, float]:
    """What the log shows of one epoch, over the micro-batches of all processes.

    `mismatch/…` compares the sampler's log-probs with the trainer's at the same weights, over the answers of the newest
    policy: in older ones the policy's own movement would count.
    """
    parts, apart = [p.parts for p in passes], [p.apart for p in passes]
    summed = [sum(getattr(p, name).item() for p in parts) for name in ("loss", "clipped", "kl", "tokens")]
    compared = [sum(getattr(a, name).item() for a in apart) for name in ("kl", "ratio", "tokens")]
    loss, clipped, kl, n, apart_kl, apart_ratio, fresh = world.sums([*summed, *compared])
    return {
        "update/loss": loss,
        "update/clip_ratio": clipped / n,
        "update/kl": kl / n,
        "update/max_ratio": max(world.gather(max(p.ratio_max.item() for p in parts))),
        "mismatch/kl": apart_kl / fresh,
        "mismatch/mean_ratio": apart_ratio / fresh,
        "mismatch/max_ratio": max(world.gather(max(a.ratio_max.item() for a in apart))),
    }


def _check_finite(figures: dict[str, float]) -> None:
    """Stop before a step that would spoil every weight for good."""
    if all(math.isfinite(value) for value in figures.values()):
        return
    said = ", ".join(f"{name} {value:.3g}" for name, value in figures.items())
    raise TossupError(
        f"training has diverged: the update is not finite ({said}). It was not taken, and the checkpoints hold the steps "
        "before it. Begin anew with a lower --lr and another --out"
    )
