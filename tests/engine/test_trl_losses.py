"""Every objective against TRL's own value, which `benchmarks/objectives.py` has written into `trl_losses.json`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from tossup.engine.objective import SURROGATES, policy_loss, sequence_weights
from tossup.engine.update_config import PRESETS

GIVEN: dict[str, Any] = json.loads(Path(__file__).with_name("trl_losses.json").read_text(encoding="utf-8"))
CASES: dict[str, dict[str, Any]] = {case["name"]: case for case in GIVEN["cases"]}
OWN_KL = "GRPO, TRL's own KL"
"""By default TRL multiplies the KL term by the ratio; the paper does not (equation 3), and neither do we."""


def padded(rows: Sequence[Sequence[float]]) -> torch.Tensor:
    width = max(len(row) for row in rows)
    return torch.tensor([[*row, *[-7.0] * (width - len(row))] for row in rows], dtype=torch.float64)


def ours(case: dict[str, Any]) -> tuple[float, float]:
    """Loss and length of its gradient."""
    lengths = [len(row) for row in GIVEN["logps"]]
    logps, old, ref = (padded(GIVEN[name]) for name in ("logps", "old_logps", "ref_logps"))
    weights = sequence_weights(lengths, case["aggregate"], GIVEN["max_new_tokens"])
    x = logps.requires_grad_()
    loss = policy_loss(
        SURROGATES[case["surrogate"]],
        x,
        old,
        torch.tensor(GIVEN["advantages"], dtype=torch.float64),
        torch.tensor(weights, dtype=torch.float64),
        torch.arange(logps.shape[1])[None] < torch.tensor(lengths)[:, None],
        clip_low=case["low"],
        clip_high=case["high"],
        kl_beta=case["beta"],
        ref_logps_BT=ref,
        clip_dual=case["dual"],
    ).loss
    (gradient,) = torch.autograd.grad(loss, x)
    return loss.item(), gradient.norm().item()


@pytest.mark.parametrize("name", sorted(CASES.keys() - {OWN_KL}))
def test_loss_and_gradient_are_trl_s(name: str) -> None:
    case = CASES[name]
    assert ours(case) == pytest.approx((case["trl_loss"], case["trl_gradient_norm"]), rel=1e-10)


def test_trl_s_own_kl_is_another_term() -> None:
    """So the table's other rows with a KL term say something: a KL of this size would be seen."""
    case = CASES[OWN_KL]
    loss, _ = ours(case)
    assert loss == pytest.approx(CASES["GRPO, k3 KL"]["trl_loss"], rel=1e-10)
    assert abs(loss - case["trl_loss"]) > 1e-5


@pytest.mark.parametrize("preset", sorted(PRESETS))
def test_a_preset_s_objective_is_among_them(preset: str) -> None:
    """With the very clips and the aggregation that the preset sets."""
    names = {"dr_grpo": "Dr. GRPO", "dapo": "DAPO", "gspo": "GSPO", "cispo": "CISPO"}
    case = CASES[names[preset]]
    as_set = {
        "update.objective": case["surrogate"],
        "update.aggregate": case["aggregate"],
        "update.clip_low": case["low"],
        "update.clip_high": case["high"],
    }
    defaults = {"update.objective": "grpo", "update.aggregate": "sequence", "update.clip_low": 0.2}
    assert as_set == defaults | {"update.clip_high": 0.2} | {k: v for k, v in PRESETS[preset].items() if k in as_set}
