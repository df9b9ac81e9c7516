"""What a training run would be, before it costs anything: `tossup train --dry-run`.

Settings and pools are read and checked as a run does it; of the model only configuration and tokenizer are. Its memory is
counted on a skeleton whose tensors have shapes and no data (see `footprint`), so a model of any size is planned on any
machine in seconds.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from resource import RUSAGE_SELF, getrusage
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from tossup import verifiers
from tossup.engine import checkpoint, lora
from tossup.engine.config import TrainConfig
from tossup.engine.folder import RunFolder, default_root
from tossup.engine.footprint import has_plain_head, of_generation, of_update
from tossup.engine.inputs import Problems, of_model
from tossup.engine.policy import Policy, compute_type, model_source
from tossup.engine.pools import spread
from tossup.engine.probe import REFUSALS
from tossup.engine.prompts import encode_prompt
from tossup.engine.step import packs_rows, token_budget
from tossup.records import Problem, TossupError

PURPOSES = ("always", "update", "generation")

FIRST_USE, KEPT_FREE = 64 << 20, 384 << 20
"""On a CPU, on top of what the plan has loaded: what torch's first real operations take, and the most that glibc keeps of freed
blocks between others; of a small model, whose blocks are small, no more than its weights. Seen were 50 to 430 MiB together,
see `benchmarks/dry_run.py`."""

PROMPTS = 1000
"""At most so many prompts, evenly spaced over the pool, are tokenized for the longest."""


def plan(config: TrainConfig) -> dict[str, Any]:
    """Facts of the run: folder, problems, prompts, steps and memory, in bytes, as one rank alone needs it.

    Raises:
        TossupError: as `train` before its first step: settings, pools, run folder or model cannot be used together; and a
            verifier that does not exist, or does not load in a worker.
    """
    problems = Problems.of(config)
    _check_verifiers(problems)
    folder = RunFolder(Path(config.out) if config.out else default_root(config))
    folder.check(config, problems.fingerprints | of_model(config.model))
    newest = checkpoint.latest(folder.checkpoints)
    policy = skeleton(config)
    sampled = spread(problems.pool, PROMPTS)
    said = (config.rollout.instruction, config.rollout.template)
    prompts = [encode_prompt(policy, problem, *said) for problem in sampled]
    longest = max(map(len, prompts))
    answers = config.rollout.group_size * min(config.rollout.problems_per_step, len(problems.pool))
    return {
        "run": str(folder.root),
        "steps_done": int(newest.name.removeprefix("step-")) if newest is not None else 0,
        "steps": config.steps,
        "answers_per_step": answers,
        "tokens_per_step_at_most": answers * config.rollout.max_new_tokens,
        "problems": len(problems.pool),
        "measured": int((problems.pool.attempts > 0).sum()),
        "verifiers": dict(Counter(problems.pool.frame["verifier"])),
        "held_out": dict(Counter(problem.dataset for problem in problems.held_out)),
        "context": policy.context,
        "longest_prompt": longest,
        "without_room": sum(len(ids) + config.rollout.max_new_tokens > policy.context for ids in prompts)
        / len(prompts),
        "example": _example(policy, sampled[0], prompts[0]),
        "parameters": sum(p.numel() for p in policy.model.parameters()),
        "trainable": sum(p.numel() for p in policy.trainable().values()),
        "memory": (found := memory(policy, config, longest)),
        "memory_at_most": at_most(found),
        "device_memory": _device_memory(policy.device),
    }


def _check_verifiers(problems: Problems) -> None:
    """Ask for every verifier that the run will need; a function of the user's judges one empty answer, for it loads late.

    Raises:
        TossupError: there is no such verifier, or the function does not load.
    """
    pool = problems.pool
    firsts = pool.frame.with_row_index("row").group_by("verifier", maintain_order=True).first()["row"]
    by_name = {p.verifier: p for p in [*problems.held_out, *(pool[row] for row in firsts)]}
    for name, problem in by_name.items():
        if ":" in name:
            verifiers.verify(problem, "")
        else:
            verifiers.get(name)


def skeleton(config: TrainConfig) -> Policy:
    """The model with its tokenizer, and with the adapter if there is to be one, without any data in its tensors.

    Raises:
        TossupError: there is no such model here.
    """
    from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

    source = model_source(config.model)
    try:
        base = lora.base_of(Path(source)) if lora.is_saved(Path(source)) else source
        tokenizer = AutoTokenizer.from_pretrained(source)
        with torch.device("meta"):
            chosen = {"attn_implementation": config.attention} if config.attention else {}
            settings = AutoConfig.from_pretrained(base)
            model = AutoModelForCausalLM.from_config(settings, dtype=torch.float32, **chosen)  # type: ignore[no-untyped-call]
            model.eval()
            if config.lora.rank:
                lora.attach(model, source, config.lora, config.seed)
        _fake(model)
    except (OSError, *REFUSALS, ImportError) as e:
        first_line = f"{type(e).__name__}: {e}".strip().splitlines()[0]
        raise TossupError(f"model {config.model!r} cannot be planned with: {first_line}") from e
    cuda = config.device.startswith("cuda") or (config.device == "auto" and torch.cuda.is_available())
    device = torch.device("cuda" if cuda else "cpu")
    compute = compute_type(config.dtype, device)
    policy = Policy(model, tokenizer, device, compute, frozenset({tokenizer.eos_token_id} - {None}), 0)
    return replace(policy, plain_head=has_plain_head(policy))


def _fake(model: Any) -> None:
    """Turn what is on the meta device into fake tensors on the CPU: they take part in autocast and in attention as there."""
    fakes: dict[torch.Tensor, torch.Tensor] = {}  # a tied weight stays one
    with FakeTensorMode():
        for module in model.modules():
            for name, p in module._parameters.items():
                if p is not None and p not in fakes:
                    fakes[p] = torch.nn.Parameter(torch.empty(p.shape, dtype=p.dtype), p.requires_grad)
                module._parameters[name] = fakes.get(p)
            for name, buffer in module._buffers.items():
                module._buffers[name] = None if buffer is None else torch.empty(buffer.shape, dtype=buffer.dtype)


def memory(policy: Policy, config: TrainConfig, longest_prompt: int) -> dict[str, int | None]:
    """Bytes by purpose; None where a model's passes cannot be followed without data.

    "always" is there all the time, "update" and "generation" in turns.
    Left out: the CUDA context, and what an allocator cannot use.
    """
    weights = sum(p.numel() for p in policy.model.parameters()) * 4
    trained = sum(p.numel() for p in policy.trainable().values()) * 4
    cpu = policy.device.type == "cpu"
    found: dict[str, int | None] = {
        "always: program and libraries": getrusage(RUSAGE_SELF).ru_maxrss * 1024 + FIRST_USE if cpu else 0,
        "always: freed but kept by glibc": min(KEPT_FREE, weights) if cpu else 0,
        "always: weights": weights,
        "always: moments of AdamW": 2 * trained,
        "always: start model": weights if config.update.kl_beta > 0 and not config.lora.rank else 0,
        "update: gradients": trained,
    }
    width = min(policy.context, longest_prompt + config.rollout.max_new_tokens)
    found |= _of_update(policy, config, width) | _of_generation(policy, config, longest_prompt, width)
    return {name: count for name, count in found.items() if count != 0}


def at_most(found: Mapping[str, int | None]) -> int:
    """Bytes at the worst moment, of what `memory` gives: what is there always, and an update or a generation."""
    parts = by_purpose(found)
    return parts["always"] + max(parts["update"], parts["generation"])


def by_purpose(found: Mapping[str, int | None]) -> dict[str, int]:
    """Bytes of what `memory` gives, summed over each of "always", "update" and "generation"."""
    return {p: sum(n or 0 for name, n in found.items() if name.startswith(f"{p}:")) for p in PURPOSES}


def _of_update(policy: Policy, config: TrainConfig, width: int) -> dict[str, int | None]:
    cfg = config.update
    rows = max(1, token_budget(cfg, policy.device) // width)
    packed = packs_rows(replace(policy, packs=True), cfg.packing)
    found = of_update(policy, rows, width, config.rollout.temperature, cfg.gradient_checkpointing, packed)
    return {
        "update: activations": found and found.activations,
        "update: working memory": found and found.passing,
    }


def _of_generation(policy: Policy, config: TrainConfig, longest: int, width: int) -> dict[str, int | None]:
    cfg = config.rollout
    if cfg.generator == "vllm":
        return {"generation: vLLM": int(cfg.generator_memory * (_device_memory(policy.device) or 0))}
    prompts = max(1, cfg.batch_size // cfg.group_size)
    if not config.eval_pool:
        prompts = min(prompts, cfg.problems_per_step)
    found = of_generation(policy, prompts, min(longest, width - 1), cfg.group_size, width, cfg.temperature)
    return {
        "generation: weights in 16 bits": found and found.copies,
        "generation: cache": found and found.cache,
        "generation: working memory": found and found.passing,
    }


def _device_memory(device: torch.device) -> int | None:
    """Of the GPU; None for a CPU, which shares the machine's."""
    return torch.cuda.mem_get_info(device)[1] if device.type == "cuda" and torch.cuda.is_available() else None


def _example(policy: Policy, problem: Problem, ids: Sequence[int]) -> dict[str, Any]:
    """The first problem as the model sees it, special tokens included."""
    return {
        "id": problem.id,
        "tokens": len(ids),
        "text": policy.tokenizer.decode(ids, skip_special_tokens=False),
        "reference": problem.reference,
        "verifier": problem.verifier,
    }
