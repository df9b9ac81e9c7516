"""SIGTERM, as a scheduler sends it before it takes the machine: nothing that was computed is lost."""

from __future__ import annotations

import json
import os
import signal
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tossup.engine.config import TrainConfig, load
from tossup.engine.progress import Silent
from tossup.engine.stopping import stop_asked
from tossup.engine.train import train

SETTINGS = {
    "rollout.problems_per_step": 4,
    "rollout.group_size": 4,
    "rollout.max_new_tokens": 6,
    "update.lr": 1e-3,
    "save_every": 100,
    "threads": 1,
}


def config(out: Path, steps: int) -> TrainConfig:
    return load(TrainConfig, None, SETTINGS | {"steps": steps, "out": str(out)})


class Scheduler(Silent):
    """Wants the machine after this many steps."""

    def __init__(self, after: int) -> None:
        self.after = after
        self.said: list[str] = []

    def note(self, text: str) -> None:
        self.said.append(text)

    def step(self, step: int, metrics: Mapping[str, float]) -> None:
        if step == self.after:
            signal.raise_signal(signal.SIGTERM)


def figures(run: Path) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [{k: v for k, v in line.items() if not k.startswith(("time/", "seconds"))} for line in lines]


def test_the_step_under_way_is_saved_and_the_run_goes_on_as_if_never_stopped(tmp_path: Path) -> None:
    scheduler = Scheduler(after=2)
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(KeyboardInterrupt):
        train(config(tmp_path / "stopped", 4), scheduler)
    assert signal.getsignal(signal.SIGTERM) == before
    assert [path.name for path in (tmp_path / "stopped" / "checkpoints").iterdir()] == ["step-00000002"]
    assert scheduler.said[-1] == "told to stop (SIGTERM): saved after step 2"
    train(config(tmp_path / "stopped", 4), Silent())
    train(config(tmp_path / "whole", 4), Silent())
    assert figures(tmp_path / "stopped") == figures(tmp_path / "whole")


def test_a_run_that_is_told_at_its_end_comes_to_it(tmp_path: Path) -> None:
    assert train(config(tmp_path, 2), Scheduler(after=2))["steps"] == 2
    assert (tmp_path / "summary.json").exists()


def test_a_second_signal_does_what_it_did_before() -> None:
    heard: list[int] = []
    old = signal.signal(signal.SIGTERM, lambda number, _: heard.append(number))
    try:
        with stop_asked(True) as asked:
            assert not asked()
            os.kill(os.getpid(), signal.SIGTERM)
            assert asked()
            assert not heard
            os.kill(os.getpid(), signal.SIGTERM)
        assert heard == [signal.SIGTERM]
    finally:
        signal.signal(signal.SIGTERM, old)


def test_off_and_in_a_thread_the_signal_is_left_alone() -> None:
    before = signal.getsignal(signal.SIGTERM)
    seen: list[Any] = []

    def look(on: bool) -> None:
        with stop_asked(on):
            seen.append(signal.getsignal(signal.SIGTERM))

    look(False)
    thread = threading.Thread(target=look, args=[True])
    thread.start()
    thread.join()
    assert seen == [before, before]
