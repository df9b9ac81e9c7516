"""What surrounds vLLM, with a stand-in worker: one that dies, hangs or will not start takes nothing along."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from stand_in import COMMAND, Bench, asked, expected, runs

from tossup.engine.generate import Sample
from tossup.records import TossupError


@pytest.mark.parametrize("asleep", [True, False])
def test_one_that_died_between_waves_comes_back_with_the_next_and_not_before(on_gpu: Bench, asleep: bool) -> None:
    generator = on_gpu.open()
    generator.push(on_gpu.policy, 4)
    if asleep:
        generator.sleep()
    os.kill(on_gpu.said("start")[0]["pid"], signal.SIGKILL)
    generator.sleep()
    assert len(on_gpu.said("start")) == 1
    assert asked(generator) == expected(4)
    assert on_gpu.order() == ["start", "push", *["sleep"] * asleep, "start", "push", "generate"]
    assert len(on_gpu.notes) == 1


def test_a_process_that_is_killed_is_started_once_more_and_asked_for_the_rest(bench: Bench) -> None:
    generator = bench.open("die", times=1)
    generator.push(bench.policy, 5)
    handed: dict[int, list[Sample]] = {}
    assert asked(generator, handed) == expected(5)
    assert len(handed) == 3
    assert [p["version"] for p in bench.said("push")] == [5, 5]
    assert [len(g["prompts"]) for g in bench.said("generate")] == [3, 2]
    assert len(bench.notes) == 1
    assert "SIGKILL" in bench.notes[0]


def test_what_a_scheduler_sends_to_all_processes_of_a_job_does_not_end_it(bench: Bench) -> None:
    generator = bench.open()
    generator.push(bench.policy, 1)
    os.kill(bench.said("start")[0]["pid"], signal.SIGTERM)
    assert asked(generator) == expected(1)
    assert bench.notes == []


def test_a_process_that_hangs_is_taken_for_dead_and_killed(bench: Bench) -> None:
    generator = bench.open("hang", times=1)
    generator.push(bench.policy, 1)
    assert generator._process is not None
    generator._process.silence_s = 3.0  # of this one; the next has as long as it needs
    assert asked(generator) == expected(1)
    assert "no sign of life for 3 s" in bench.notes[0]
    first, second = (entry["pid"] for entry in bench.said("start"))
    with pytest.raises(ProcessLookupError):
        os.kill(first, 0)
    os.kill(second, 0)


@pytest.mark.parametrize(("fault", "cause"), [("die", "SIGKILL"), ("crash", "the made-up engine is broken")])
def test_a_second_death_ends_it_with_what_to_do(bench: Bench, fault: str, cause: str) -> None:
    generator = bench.open(fault, times=2)
    generator.push(bench.policy, 1)
    with pytest.raises(TossupError, match=rf"died twice.*{cause}.*same command.*generator transformers"):
        asked(generator)


def test_a_death_between_two_requests_costs_one_restart(bench: Bench) -> None:
    generator = bench.open()
    generator.push(bench.policy, 1)
    os.kill(bench.said("start")[0]["pid"], signal.SIGKILL)
    generator.push(bench.policy, 2)
    assert asked(generator) == expected(2)
    assert [p["version"] for p in bench.said("push")] == [1, 2]
    os.kill(bench.said("start")[1]["pid"], signal.SIGKILL)
    with pytest.raises(TossupError, match="died twice"):
        asked(generator)


def test_one_that_does_not_start_says_why(bench: Bench) -> None:
    with pytest.raises(TossupError, match=r"did not start.*made-up engine is broken.*generator transformers"):
        bench.open("refuse", times=1)


def test_closing_ends_the_process(bench: Bench) -> None:
    generator = bench.open()
    (start,) = bench.said("start")
    generator.close()
    generator.close()
    with pytest.raises(ProcessLookupError):
        os.kill(start["pid"], 0)


def test_the_process_does_not_outlive_a_trainer_that_is_killed(bench: Bench, tmp_path: Path) -> None:
    script = tmp_path / "trainer.py"
    script.write_text(
        f"import sys, time; sys.path.insert(0, {str(Path(__file__).parent)!r})\n"
        "import torch; from small import make_policy\n"
        "from tossup.engine.generate import VllmGenerator; from tossup.engine.config import SamplingConfig\n"
        f"g = VllmGenerator(make_policy(dtype=torch.float32), SamplingConfig(), note=print, command={COMMAND!r})\n"
        "print('open', flush=True); time.sleep(600)\n"
    )
    with subprocess.Popen([sys.executable, script], stdout=subprocess.PIPE) as trainer:
        assert trainer.stdout is not None
        assert trainer.stdout.readline() == b"open\n"
        trainer.kill()
    pid = bench.said("start")[0]["pid"]
    end = time.monotonic() + 300
    while runs(pid):
        assert time.monotonic() < end, "the worker still runs"
        time.sleep(0.1)
