"""SIGTERM, as a scheduler sends it before it takes the machine, and Ctrl-C: nothing that was computed is lost."""

from __future__ import annotations

import json
import os
import signal
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from small import lone_rank

from tossup.engine.config import TrainConfig, load
from tossup.engine.distributed import World
from tossup.engine.progress import Silent
from tossup.engine.stopping import SIGNALS, listening
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
    """Wants the machine after this many steps, and says so with this signal."""

    def __init__(self, after: int, number: signal.Signals = signal.SIGTERM) -> None:
        self.after, self.number = after, number
        self.said: list[str] = []

    def note(self, text: str) -> None:
        self.said.append(text)

    def generated(self, answers: int) -> None:
        if self.after == 0:
            signal.raise_signal(self.number)
            self.after = -1

    def step(self, step: int, metrics: Mapping[str, float]) -> None:
        if step == self.after:
            signal.raise_signal(self.number)


def figures(run: Path) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [{k: v for k, v in line.items() if not k.startswith(("time/", "seconds"))} for line in lines]


def checkpoints(run: Path) -> list[str]:
    return sorted(path.name for path in (run / "checkpoints").iterdir())


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that was never stopped."""
    out = tmp_path_factory.mktemp("whole")
    train(config(out, 4), Silent())
    return out


@pytest.mark.parametrize(("number", "name"), [(signal.SIGTERM, "SIGTERM"), (signal.SIGINT, "Ctrl-C")])
def test_the_step_under_way_is_saved_and_the_run_goes_on_as_if_never_stopped(
    number: signal.Signals, name: str, whole: Path, tmp_path: Path
) -> None:
    scheduler = Scheduler(2, number)
    before = signal.getsignal(number)
    with pytest.raises(KeyboardInterrupt):
        train(config(tmp_path, 4), scheduler)
    assert signal.getsignal(number) == before
    assert checkpoints(tmp_path) == ["step-00000002"]
    assert scheduler.said[-1] == f"told to stop ({name}): saved after step 2"
    train(config(tmp_path, 4), Silent())
    assert figures(tmp_path) == figures(whole)


def test_told_while_the_start_model_is_measured_it_stops_before_the_first_step(tmp_path: Path) -> None:
    measured = {"eval_pool": ["builtin:arithmetic/heldout"], "eval.problems": 8, "eval.samples": 1}
    with pytest.raises(KeyboardInterrupt):
        train(load(TrainConfig, None, SETTINGS | measured | {"steps": 1, "out": str(tmp_path)}), Scheduler(0))
    assert checkpoints(tmp_path) == ["step-00000000"]
    assert not (tmp_path / "metrics.jsonl").exists()
    resumed = Scheduler(-1)
    summary = train(load(TrainConfig, None, SETTINGS | measured | {"steps": 1, "out": str(tmp_path)}), resumed)
    assert [evaluation["step"] for evaluation in summary["evaluations"]] == [0, 1]
    assert not any("accuracy before" in said for said in resumed.said)  # it is known


def test_a_run_that_is_told_at_its_end_comes_to_it(tmp_path: Path) -> None:
    assert train(config(tmp_path, 2), Scheduler(after=2))["steps"] == 2
    assert (tmp_path / "summary.json").exists()


@pytest.mark.parametrize("first", [signal.SIGTERM, signal.SIGINT])
def test_alone_a_second_signal_does_what_it_did_before(first: signal.Signals) -> None:
    heard: list[int] = []
    old = {number: signal.signal(number, lambda number, _: heard.append(number)) for number in SIGNALS}
    world = World()
    try:
        with listening(world):
            assert not world.told
            os.kill(os.getpid(), first)
            assert world.told == SIGNALS[first]
            assert not heard
            for number in SIGNALS:
                os.kill(os.getpid(), number)
        assert heard == list(SIGNALS)
    finally:
        for number, handler in old.items():
            signal.signal(number, handler)


def test_under_torchrun_further_signals_do_nothing_even_on_the_way_out() -> None:
    world = World()
    world.size = 2
    old = {number: signal.getsignal(number) for number in SIGNALS}

    def told_twice() -> None:
        with listening(world):
            for number in (*SIGNALS, *SIGNALS):
                signal.raise_signal(number)
            assert world.told
            raise KeyboardInterrupt("the way out")

    try:
        with pytest.raises(KeyboardInterrupt, match="the way out"):
            told_twice()
        for number in SIGNALS:
            signal.raise_signal(number)
    finally:
        for number, handler in old.items():
            signal.signal(number, handler)


def test_in_a_thread_the_signals_are_left_alone_and_so_is_one_that_is_ignored() -> None:
    seen: list[Any] = []

    def look() -> None:
        with listening(World()):
            seen.extend(signal.getsignal(number) for number in SIGNALS)

    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
    assert seen == [signal.getsignal(number) for number in SIGNALS]

    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        look()
        assert seen[-1] is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)


class Telling:
    """Sends this process a SIGTERM while it is handed to the other ranks."""

    def __reduce__(self) -> tuple[type[str], tuple[str]]:
        signal.raise_signal(signal.SIGTERM)
        return str, ("value",)


def test_what_is_told_in_the_middle_of_a_gathering_is_not_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """The word has been read and is on its way when the signal comes: it goes along the next time."""
    world = lone_rank("cpu", monkeypatch)
    try:
        with listening(world):
            assert world.gather(Telling()) == ["value"]
            assert world.told == "SIGTERM"
            world.gather(None)
            assert world.told == "SIGTERM"
    finally:
        world.leave()
