"""What a training run would be, before it costs anything: `tossup train --dry-run`.

Settings and pools are read and checked as a run does it; of the model only configuration and tokenizer are. Its memory is
counted on a skeleton whose tensors have shapes and no data, so a model of any size is planned on any machine in seconds.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch._subclasses.fake_tensor import DataDependentOutputException, DynamicOutputShapeException, FakeTensorMode

from tossup import verifiers
from tossup.engine import checkpoint, lora
from tossup.engine.config import TrainConfig
from tossup.engine.folder import RunFolder, default_root
from tossup.engine.inputs import Problems, of_model
from tossup.engine.logps import CHUNK_LOGITS, recomputed
from tossup.engine.policy import Policy, compute_type, model_source
from tossup.engine.pools import spread
from tossup.engine.probe import REFUSALS, decoder
from tossup.engine.prompts import encode_prompt
from tossup.engine.step import MICRO_BATCH_TOKENS
from tossup.records import Problem, TossupError

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
        "memory": memory(policy, config, longest),
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
    return Policy(model, tokenizer, device, compute, frozenset({tokenizer.eos_token_id} - {None}), 0)


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


def memory(policy: Policy, config: TrainConfig, longest_prompt: int) -> dict[str, int]:
    """Bytes by purpose. "always" is there all the time, "update" and "generation" in turns.

    Left out: what libraries, the CUDA context and fragmentation take. What cannot be known of a model is not named.
    """
    weights = sum(p.numel() for p in policy.model.parameters()) * 4
    trained = sum(p.numel() for p in policy.trainable().values()) * 4
    cpu = policy.device.type == "cpu"
    width = min(policy.context, longest_prompt + config.rollout.max_new_tokens)
    rows = max(1, (config.update.micro_batch_tokens or MICRO_BATCH_TOKENS[cpu]) // width)
    vocabulary = policy.model.get_input_embeddings().num_embeddings
    found = {
        "always: weights": weights,
        "always: moments of AdamW": 2 * trained,
        "always: start model": weights if config.update.kl_beta > 0 and not config.lora.rank else 0,
        "update: gradients": trained,
        "update: activations": activations(policy, rows, width, config.update.gradient_checkpointing),
        "update: logits of a chunk": 3 * 4 * min(CHUNK_LOGITS[cpu], rows * width * vocabulary),
        "generation: cache": _cache(policy, config.rollout.batch_size * width),
    }
    if config.rollout.generator == "vllm":
        found["generation: cache"] = int(config.rollout.generator_memory * (_device_memory(policy.device) or 0))
    return {name: count for name, count in found.items() if count}


def activations(policy: Policy, rows: int, width: int, again: bool) -> int:
    """Bytes that the decoder keeps of so many rows for the backward pass; 0 where its shapes depend on data.

    With a compute type of 16 bits its copy of the weights is among them.
    """
    own = {p.untyped_storage()._cdata for p in policy.model.parameters()}
    kept: dict[int, torch.UntypedStorage] = {}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        kept.setdefault(storage._cdata, storage)
        return tensor

    mode = next(policy.model.parameters()).fake_mode
    half = torch.autocast("cpu", dtype=torch.bfloat16, enabled=policy.compute is not torch.float32)
    try:
        with mode, half, recomputed(policy.model, again), torch.autograd.graph.saved_tensors_hooks(keep, lambda t: t):
            ids = torch.zeros(rows, width, dtype=torch.long)
            last = decoder(policy.model)(input_ids=ids, use_cache=False).last_hidden_state
    except (DataDependentOutputException, DynamicOutputShapeException):
        return 0
    del last  # until here, it holds what was kept
    return sum(storage.nbytes() for key, storage in kept.items() if key not in own)


def _cache(policy: Policy, tokens: int) -> int:
    """Keys and values of so many tokens, where the configuration tells of them; 0 where not."""
    settings = policy.model.config.get_text_config()
    attending = int(getattr(settings, "num_attention_heads", 0))
    heads = int(getattr(settings, "num_key_value_heads", None) or attending)
    width = int(getattr(settings, "head_dim", None) or settings.hidden_size // max(1, attending))
    return int(2 * tokens * settings.num_hidden_layers * heads * width * policy.compute.itemsize)


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
