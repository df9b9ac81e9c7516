"""The settings of the update, and published variants of it by name."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, model_validator

from tossup.engine.section import Section


class UpdateConfig(Section):
    """The GRPO update. The defaults are the paper's (arXiv:2402.03300, section 4.1), with the KL term off."""

    lr: float = Field(1e-6, gt=0, description="learning rate of AdamW")
    beta1: float = Field(0.9, ge=0, lt=1, description="AdamW beta1")
    beta2: float = Field(0.999, ge=0, lt=1, description="AdamW beta2")
    weight_decay: float = Field(0.0, ge=0, description="AdamW weight decay")
    warmup_steps: int = Field(0, ge=0, description="steps of linear learning-rate warm-up")
    lr_schedule: Literal["constant", "linear", "cosine"] = Field(
        "constant", description="how the learning rate goes on after the warm-up"
    )
    decay_steps: int = Field(
        0, ge=0, description="the step at which a decaying learning rate is at its end; 0: --steps"
    )
    lr_min_ratio: float = Field(0.0, ge=0, le=1, description="share of the learning rate that a decay leaves")
    objective: Literal["grpo", "gspo", "cispo"] = Field("grpo", description="the surrogate; see also --preset")
    clip_low: float = Field(0.2, gt=0, description="the ratio is clipped below 1 - clip_low")
    clip_high: float = Field(0.2, gt=0, description="the ratio is clipped above 1 + clip_high")
    clip_dual: float = Field(
        0.0, ge=0, description="bound of the ratio where the advantage is negative, such as 3; 0: none. Not for cispo"
    )
    kl_beta: float = Field(0.0, ge=0, description="weight of the k3 KL to the start model")
    tis_cap: float = Field(
        0.0, ge=0, description="correct for the sampler's own log-probs by weights up to this, such as 2; 0: do not"
    )
    std_norm: bool = Field(True, description="divide advantages by the group's standard deviation")
    aggregate: Literal["sequence", "token", "constant"] = Field(
        "sequence", description="mean over each answer then answers (GRPO), over tokens (DAPO), or / max_new_tokens"
    )
    overlong: float = Field(
        0.0, ge=0, le=1, description="last share of max_new_tokens in which a longer answer loses up to 1 of its reward"
    )
    mini_batches: int = Field(1, ge=1, description="optimizer steps on each batch, each on a random part of its groups")
    epochs: int = Field(1, ge=1, description="times that each batch is gone through")
    micro_batch_tokens: int = Field(
        0, ge=0, description="tokens with padding in one forward and backward pass; 0: 2,048 on a CPU, 16,384 on a GPU"
    )
    packing: Literal["auto", "padded", "packed"] = Field(
        "auto", description="answers end to end in one row instead of padded; auto: where attention is flash attention"
    )
    gradient_checkpointing: bool = Field(
        False, description="keep no activations within a layer, compute them again: a third more time, far less memory"
    )
    max_grad_norm: float = Field(1.0, gt=0, description="gradient clipping norm")

    @model_validator(mode="after")
    def _clips_fit(self) -> UpdateConfig:
        if self.clip_dual and (self.objective == "cispo" or self.clip_dual <= 1 + self.clip_high):
            raise ValueError(
                f"clip_dual has to be more than 1 + clip_high ({1 + self.clip_high:g}), and is not for cispo, whose weights "
                "are bounded already"
            )
        return self


PRESETS: dict[str, dict[str, Any]] = {
    "dr_grpo": {"update.std_norm": False, "update.aggregate": "constant"},
    "dapo": {
        "update.clip_high": 0.28,
        "update.aggregate": "token",
        "update.overlong": 0.2,
        "rollout.truncated": "exclude",
        "curriculum.refill": True,
    },
    "gspo": {"update.objective": "gspo", "update.clip_low": 3e-4, "update.clip_high": 4e-4},
    "cispo": {
        "update.objective": "cispo",
        "update.aggregate": "token",
        "update.clip_low": 1.0,
        "update.clip_high": 4.0,
    },
}
"""Published variants, as what they change in the defaults. A recipe or an option still wins over its preset.

dr_grpo  arXiv:2503.20783: no division by the standard deviation, a constant length
dapo     arXiv:2503.14476: clip-higher, token level, truncated answers left out and overlong ones punished, refilled batches
gspo     arXiv:2507.18071: one ratio a sequence
cispo    arXiv:2506.13585: bounded weights instead of clipped tokens; bounded only from above
"""
