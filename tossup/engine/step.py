"""One GRPO update on one screen. Shapes are in `batch`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from tossup.engine import lora
from tossup.engine.batch import MicroBatch, micro_batches, mini_batches
from tossup.engine.config import TrainConfig
from tossup.engine.distributed import ALONE, World
from tossup.engine.logps import logps_and_entropy, recomputed, token_logps
from tossup.engine.objective import SURROGATES, LossParts, mismatch, policy_loss, truncated_weights
from tossup.engine.policy import Policy
from tossup.engine.rollouts import stream
from tossup.engine.update_config import UpdateConfig
from tossup.records import Group, TossupError

MICRO_BATCH_TOKENS = {"cpu": 2048, "cuda": 16384}
"""By the kind of device: on a CPU small batches stay in the cache."""

UPDATE_STREAM = 4
"""Keeps the seeds of the cut into mini-batches apart from those of sampling, see `train.WAVE_STREAM`."""


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
    step: int = 0,
) -> dict[str, float]:
    """Take `config.update.epochs` times `mini_batches` optimizer steps on the kept groups; returns the figures for the log.

    `ref` is the start model, needed only where the KL term is on and all weights are trained: beside an adapter, the start
    model is the same one with the adapter off. `step`, the number of updates before, gives with the seed the cut into mini-
    batches. The model stays in eval mode: with dropout the trainer's log-probs would be those of another distribution than
    the sampler's. In a `world` of several processes each passes its share of the rows through the model; gradients and
    figures are sums over all.

    Raises:
        TossupError: the loss, its gradient or a figure is not finite; the optimizer has not stepped on it.
    """
    cfg = config.update
    packed = packs_rows(policy, cfg.packing)
    parts = _parts(policy, groups, config, packed, world, step)
    own = _own_logps(policy, parts, config, packed)
    figures: dict[str, float] = {}
    taken: list[dict[str, float]] = []
    for _ in range(cfg.epochs):
        for i, part in enumerate(parts):
            optimizer.zero_grad(set_to_none=True)
            with recomputed(policy.model, cfg.gradient_checkpointing):
                passes = [
                    _pass(policy, mb, own_BT, config, ref, packed) for mb, own_BT in zip(part, own[i], strict=True)
                ]
            own[i] = [p.own_BT for p in passes]
            norm = torch.nn.utils.clip_grad_norm_(policy.trainable().values(), cfg.max_grad_norm)
            sums = _totals([p.parts._asdict() | {"entropy": p.entropy} for p in passes], world)
            sums |= {"grad_norm": float(getattr(norm, "full_tensor", lambda norm=norm: norm)())}
            if not taken:
                figures = _mismatch(part, own[i], world)
            _check_finite(figures | _figures([sums]))
            taken.append(sums)
            optimizer.step()
    return figures | _figures(taken)


def token_budget(cfg: UpdateConfig, device: torch.device) -> int:
    """The most tokens of a micro-batch: as set, or by the kind of device."""
    return cfg.micro_batch_tokens or MICRO_BATCH_TOKENS[device.type]


def _parts(
    policy: Policy, groups: Sequence[Group], config: TrainConfig, packed: bool, world: World, step: int
) -> list[list[MicroBatch]]:
    """This rank's micro-batches of each mini-batch. A mini-batch in which nothing is left to train is left out."""
    cfg = config.update
    newest = max((r.policy_step for group in groups for r in group.rollouts), default=0)
    parts = (
        micro_batches(
            part,
            std_norm=cfg.std_norm,
            aggregate=cfg.aggregate,
            max_new_tokens=config.rollout.max_new_tokens,
            token_budget=token_budget(cfg, policy.device),
            pad_id=policy.pad_id,
            device=policy.device,
            overlong=cfg.overlong,
            packed=packed,
            newest=newest,
            rank=world.rank,
            ranks=world.size,
        )
        for part in mini_batches(groups, cfg.mini_batches, stream(config.seed, UPDATE_STREAM, step))
    )
    return [part for part in parts if part]


def packs_rows(policy: Policy, packing: str) -> bool:
    """Whether the update packs its rows: by `update.packing`, and by itself where attention skips what lies between rows.

    Raises:
        TossupError: it was asked for and the model cannot keep packed rows apart.
    """
    if packing == "packed" and not policy.packs:
        raise TossupError(f"{type(policy.model).__name__} does not keep packed rows apart: --packing padded or auto")
    attention = str(getattr(policy.model.config, "_attn_implementation", ""))
    return packing == "packed" or (packing == "auto" and policy.packs and "flash" in attention)


Own = list[list[Tensor | None]]
"""For each micro-batch of each mini-batch the trainer's own log-probs at the weights that sampled; None: not known yet."""


def _own_logps(policy: Policy, parts: Sequence[Sequence[MicroBatch]], config: TrainConfig, packed: bool) -> Own:
    """The first mini-batch finds its own on the way. The others come after an update, and need them only for the correction."""
    own: Own = [[None for _ in part] for part in parts]
    if config.update.tis_cap > 0:
        with torch.no_grad():
            own[1:] = [[_logps(policy, mb, config, packed) for mb in part] for part in parts[1:]]
    return own


class Pass(NamedTuple):
    """What one forward and backward pass found."""

    parts: LossParts
    entropy: Tensor
    """Sum over the response tokens."""
    own_BT: Tensor
    """The trainer's log-probs when this pass was first made; in the first mini-batch, at the weights that sampled."""


def _pass(
    policy: Policy, mb: MicroBatch, own_BT: Tensor | None, config: TrainConfig, ref: Policy | None, packed: bool
) -> Pass:
    """Forward and backward of one micro-batch: its share of the gradient is added to the parameters'."""
    cfg = config.update
    ref_logps_BT = _reference_logps(policy, mb, config, ref, packed) if cfg.kl_beta > 0 else None
    temperature = config.rollout.temperature
    logps_BT, entropy = logps_and_entropy(policy, mb.ids_BT1, mb.attention_BT1, mb.mask_BT, temperature, packed=packed)
    own_BT = logps_BT.detach() if own_BT is None else own_BT
    corrected = cfg.tis_cap > 0
    parts = policy_loss(
        SURROGATES[cfg.objective],
        logps_BT,
        own_BT if corrected else mb.old_logps_BT,
        mb.advantages_B,
        mb.weights_B,
        mb.mask_BT,
        clip_low=cfg.clip_low,
        clip_high=cfg.clip_high,
        clip_dual=cfg.clip_dual,
        kl_beta=cfg.kl_beta,
        ref_logps_BT=ref_logps_BT,
        trust_BT=truncated_weights(own_BT, mb.old_logps_BT, mb.mask_BT, cfg.tis_cap) if corrected else None,
    )
    parts.loss.backward()  # type: ignore[no-untyped-call]
    return Pass(parts._replace(loss=parts.loss.detach()), entropy, own_BT)


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


def _totals(found: Sequence[dict[str, Tensor]], world: World) -> dict[str, float]:
    """Over the micro-batches of all processes: sums over tokens, and of "ratio_max" the largest.

    They are read off the device at once, since every read waits until it has done all that it was asked.
    """
    table = torch.stack([torch.stack([value.double() for value in parts.values()]) for parts in found])
    sums, largest = torch.stack([table.sum(0), table.amax(0)]).tolist()
    totals = dict(zip(found[0], world.sums(sums), strict=True))
    return totals | {"ratio_max": max(world.gather(largest[list(found[0]).index("ratio_max")]))}


def _figures(taken: Sequence[dict[str, float]]) -> dict[str, float]:
    """What the log shows of these optimizer steps: means over them or over their tokens, and the largest ratio."""
    if not taken:
        return {}
    total = {name: sum(sums[name] for sums in taken) for name in taken[0]}
    n = total["tokens"]
    return {
        "update/loss": total["loss"] / len(taken),
        "update/grad_norm": total["grad_norm"] / len(taken),
        "update/entropy": total["entropy"] / n,
        "update/clip_ratio": (total["low"] + total["high"]) / n,
        "update/clip_ratio_low": total["low"] / n,
        "update/clip_ratio_high": total["high"] / n,
        "update/kl": total["kl"] / n,
        "update/approx_kl": total["moved"] / n,
        "update/max_ratio": max(sums["ratio_max"] for sums in taken),
        "update/optimizer_steps": len(taken),
    }


def _mismatch(part: Sequence[MicroBatch], own: Sequence[Tensor | None], world: World) -> dict[str, float]:
    """The sampler's log-probs against the trainer's at the same weights, so over the first mini-batch, before any step.

    It is over the answers of the newest policy: in older ones the policy's own movement would count. A mini-batch may have
    none of them; then nothing can be said.
    """
    found = [
        mismatch(own_BT, mb.old_logps_BT, mb.mask_BT & mb.fresh_B[:, None])
        for own_BT, mb in zip(own, part, strict=True)
        if own_BT is not None
    ]
    totals = _totals([m._asdict() for m in found], world)
    n = totals["tokens"]
    if n == 0:
        return {}
    return {
        "mismatch/kl": totals["kl"] / n,
        "mismatch/mean_ratio": totals["ratio"] / n,
        "mismatch/max_ratio": totals["ratio_max"],
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
