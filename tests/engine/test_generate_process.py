"""What surrounds vLLM, with a stand-in worker: one that dies, hangs or will not start takes nothing along."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from small import make_policy

from tossup.engine import lora
from tossup.engine.config import LoraConfig, SamplingConfig
from tossup.engine.generate import Sample, VllmGenerator, open_generator
from tossup.engine.generate.draws import answer_seeds
from tossup.engine.generate.vllm_generator import PYTHON, Limits
from tossup.engine.policy import Policy
from tossup.records import Stop, TossupError

COMMAND = [sys.executable, str(Path(__file__).with_name("stand_in_worker.py"))]
PROMPTS = [(2, 3), (4,), (5, 6, 7)]
SEEDS = [11, 22, 33]
SAMPLING = SamplingConfig(max_new_tokens=8)


class Bench:
    """A generator over the stand-in, and what both sides said."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.log, self.notes, self.patch = folder / "log", list[str](), monkeypatch
        self.policy: Policy = make_policy(dtype=torch.float32, context=16)
        monkeypatch.setenv("STAND_IN_LOG", str(self.log))
        self.opened: list[VllmGenerator] = []

    def open(self, fault: str = "", times: int = 0) -> VllmGenerator:
        self.patch.setenv("STAND_IN_FAULT", fault)
        self.log.with_suffix(".times").write_text(str(times))
        limits = Limits(start_s=300.0, silence_s=300.0)
        generator = VllmGenerator(self.policy, SAMPLING, note=self.notes.append, command=COMMAND, limits=limits)
        self.opened.append(generator)
        return generator

    def order(self) -> list[str]:
        return [json.loads(line)["did"] for line in self.log.read_text().splitlines()]

    def said(self, did: str) -> list[dict[str, Any]]:
        return [entry for entry in map(json.loads, self.log.read_text().splitlines()) if entry["did"] == did]


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    bench = Bench(tmp_path, monkeypatch)
    yield bench
    for generator in bench.opened:
        generator.close()


def expected(version: int) -> list[list[Sample]]:
    return [
        [
            Sample((version + 2, (int(s) >> 1) % 7 + 2, 1), (-0.5, -1.5, -0.25), Stop.END, 0.0)
            for s in answer_seeds(seed, 2)
        ]
        for seed in SEEDS
    ]


def asked(generator: VllmGenerator, handed: dict[int, list[Sample]] | None = None) -> list[list[Sample]]:
    on_group = None if handed is None else handed.__setitem__
    answers = generator.generate(PROMPTS, 2, SEEDS, SAMPLING, on_group)
    return [[a._replace(seconds=0.0) for a in group] for group in answers]


def test_answers_come_with_the_weights_that_were_pushed_last(bench: Bench) -> None:
    generator = bench.open()
    for version in (0, 3):
        generator.push(bench.policy, version)
        assert generator.version == version
        assert asked(generator) == expected(version)
    pushed = bench.said("push")
    assert [p["version"] for p in pushed] == [0, 3]
    assert set(pushed[0]["names"]) == set(bench.policy.model.state_dict())
    assert len(bench.said("start")) == 1


def test_a_tied_head_is_pushed_under_its_own_name(bench: Bench) -> None:
    bench.policy.model.config.tie_word_embeddings = True
    bench.policy.model.tie_weights()
    assert bench.policy.model.lm_head.weight is bench.policy.model.model.embed_tokens.weight
    bench.open().push(bench.policy, 0)
    assert {"lm_head.weight", "model.embed_tokens.weight"} <= set(bench.said("push")[0]["names"])


def test_a_prompt_that_fills_the_context_is_not_asked_for(bench: Bench) -> None:
    generator = bench.open()
    generator.push(bench.policy, 0)
    handed: dict[int, list[Sample]] = {}
    answers = generator.generate([(2,) * 16, (2, 3)], 2, [1, 2], SAMPLING, handed.__setitem__)
    assert answers[0] == [Sample((), (), Stop.LENGTH, 0.0)] * 2
    assert handed == dict(enumerate(answers))
    assert bench.said("generate")[0]["prompts"] == [[2, 3]]


class Forgetful(Policy):
    """A policy that leaves out one tensor of its own."""

    def weights(self) -> Iterator[tuple[str, torch.Tensor]]:
        return ((name, tensor) for name, tensor in super().weights() if "layers.0.self_attn.k_proj" not in name)


def test_a_push_that_leaves_a_tensor_out_is_refused_by_its_name(bench: Bench) -> None:
    generator = bench.open()
    forgetful = Forgetful(**vars(bench.policy))
    for policy, version in ((forgetful, 0), (bench.policy, 1), (forgetful, 2)):  # the first push, and a later one
        if policy is bench.policy:
            generator.push(policy, version)
            assert asked(generator) == expected(version)
        else:
            with pytest.raises(TossupError, match=r"left out.*: model\.layers\.0\.self_attn\.k_proj\.weight\."):
                generator.push(policy, version)


def test_experts_are_refused_on_a_cpu_where_vllm_would_keep_the_old_ones(bench: Bench) -> None:
    layer = bench.policy.model.model.layers[0].mlp
    layer.experts = torch.nn.ModuleList([torch.nn.Linear(2, 2)])
    with pytest.raises(TossupError, match="experts once"):
        bench.open().push(bench.policy, 0)
    assert not bench.said("push")


@pytest.mark.parametrize("tied", [False, True])
def test_an_adapter_is_pushed_merged_and_whole(bench: Bench, tied: bool) -> None:
    if tied:
        bench.policy.model.config.tie_word_embeddings = True
        bench.policy.model.tie_weights()
    names = {name for name, _ in bench.policy.weights()}
    lora.attach(bench.policy.model, "base", LoraConfig(rank=2), seed=0)
    bench.open().push(bench.policy, 0)
    assert set(bench.said("push")[0]["names"]) == names


def test_room_that_does_not_suffice_is_said_before_anything_is_asked(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STAND_IN_ROOM", "10")  # the longest prompt has 3 tokens, its answer up to 8
    generator = bench.open()
    generator.push(bench.policy, 0)
    with pytest.raises(TossupError, match=r"room for 10 tokens .* up to 11 .*--generator-memory"):
        asked(generator)
    assert not bench.said("generate")


def test_the_process_hears_nothing_of_torchrun(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    outer = {"RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "1", "MASTER_ADDR": "x", "TORCHELASTIC_RUN_ID": "y"}
    for name, value in outer.items():
        monkeypatch.setenv(name, value)
    bench.open()
    (start,) = bench.said("start")
    assert not outer.keys() & start["environment"].keys()
    assert "STAND_IN_LOG" in start["environment"]


@pytest.fixture
def on_gpu(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> Bench:
    """As on the second of two GPUs; the weights stay where they are, and the stand-in computes nothing."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,GPU-5f")
    bench.policy = replace(bench.policy, device=torch.device("cuda", 1))
    return bench


def test_on_a_gpu_it_has_that_one_alone_and_sleeps_between_waves(on_gpu: Bench) -> None:
    generator = on_gpu.open()
    generator.push(on_gpu.policy, 0)
    asked(generator)
    generator.sleep()
    generator.sleep()
    generator.push(on_gpu.policy, 1)
    generator.wake()
    assert asked(generator) == expected(1)
    assert on_gpu.order() == ["start", "push", "generate", "sleep", "wake", "push", "generate"]
    (start,) = on_gpu.said("start")
    assert start["environment"]["CUDA_VISIBLE_DEVICES"] == "GPU-5f"
    assert start["settings"]["enable_sleep_mode"]
    assert start["settings"]["gpu_memory_utilization"] == SAMPLING.generator_memory
    assert not start["settings"].keys() & {"enforce_eager", "block_size", "kv_cache_memory_bytes"}


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


def test_the_architecture_is_the_class_that_the_policy_is(bench: Bench) -> None:
    model = bench.policy.model
    model.config.architectures = ["SomethingForConditionalGeneration"]  # of the checkpoint that it was taken out of
    bench.open()
    model.__class__ = type("FSDPQwen3ForCausalLM", (type(model),), {})  # what fully_shard does
    bench.open()
    assert [start["architectures"] for start in bench.said("start")] == [["Qwen3ForCausalLM"]] * 2


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


def runs(pid: int) -> bool:
    """Whether a process is there and has not ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in ("Z", "X")
    except OSError:
        return False


def test_without_vllm_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    vllm = SamplingConfig(generator="vllm")
    monkeypatch.setenv(PYTHON, "/nowhere/python")
    with pytest.raises(TossupError, match="TOSSUP_VLLM_PYTHON names no file"):
        open_generator(make_policy(), vllm, print)
    monkeypatch.delenv(PYTHON)
    monkeypatch.setattr("tossup.engine.generate.vllm_generator.find_spec", lambda name: None)
    with pytest.raises(TossupError, match=r"pip install 'tossup\[vllm\]'"):
        open_generator(make_policy(), vllm, print)


def test_temperatures_that_vllm_would_raise_are_refused(bench: Bench) -> None:
    with pytest.raises(TossupError, match="--temperature"):
        bench.open().generate(PROMPTS, 2, SEEDS, SamplingConfig(temperature=0.001))
