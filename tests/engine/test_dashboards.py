"""The dashboards that install here receive every figure of every step; a resumed run goes on in the same one."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from test_train import Silent, config

from tossup.engine.dashboards import DASHBOARDS, open_dashboard
from tossup.engine.train import train
from tossup.records import TossupError

FIGURE = "rollout/effective"


def expected(run: Path) -> dict[int, float]:
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return {line["step"]: line[FIGURE] for line in lines}


def test_tensorboard_shows_what_metrics_jsonl_holds(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    run = tmp_path / "run"
    train(config(run, steps=2, eval_pool="", log="tensorboard"), Silent())
    train(config(run, steps=4, eval_pool="", log="tensorboard"), Silent())
    events = EventAccumulator(str(run / "tensorboard"))
    events.Reload()
    seen = {event.step: event.value for event in events.Scalars(FIGURE)}
    assert seen == pytest.approx(expected(run))
    assert len(seen) == 4


def test_wandb_writes_offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    run = tmp_path / "run"
    train(config(run, steps=2, eval_pool="", log="wandb"), Silent())
    (recorded,) = run.glob("wandb/offline-run-*/run-run.wandb")
    content = b""
    for _ in range(600):  # wandb's own process flushes the file; how soon is its business
        content = recorded.read_bytes()
        if b"update/loss" in content:
            break
        time.sleep(0.1)
    assert FIGURE.encode() in content
    assert b"update/loss" in content


def test_a_dashboard_that_is_not_installed_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "trackio", None)
    with pytest.raises(TossupError, match=r"tossup\[trackio\]"):
        open_dashboard("trackio", "p", tmp_path, {}, 0)
    assert set(DASHBOARDS) == {"tensorboard", "wandb", "trackio"}
