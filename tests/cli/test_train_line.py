"""The line that `tossup train` prints of a step: why groups taught nothing, and whether answers were cut off."""

from __future__ import annotations

import pytest
from rich.progress import Progress

from tossup.cli.train import Look

METRICS = {
    "rollout/reward": 0.25,
    "rollout/effective": 0.5,
    "rollout/too_easy": 0.0,
    "rollout/too_hard": 0.5,
    "rollout/unjudged": 0.0,
    "rollout/truncated": 0.05,
    "tokens/generated": 100,
    "tokens/trained": 50,
    "time/generate": 1.0,
    "time/verify": 0.0,
    "time/update": 1.0,
}


def line(capsys: pytest.CaptureFixture[str], **changes: float) -> str:
    metrics = METRICS | {name.replace("__", "/"): value for name, value in changes.items()}
    Look(Progress(disable=True), 10).step(1, metrics)
    return capsys.readouterr().err


def test_a_step_says_what_was_not_judged_and_what_was_cut_off(capsys: pytest.CaptureFixture[str]) -> None:
    plain = line(capsys)
    assert "50% too hard  tokens: 100 generated, 50 trained" in plain
    odd = line(capsys, rollout__too_hard=0.02, rollout__unjudged=0.48, rollout__truncated=0.984)
    assert "2% too hard, 48% unjudged  tokens: 100 generated (98% of the answers cut off), 50 trained" in odd
