"""The measurements of `benchmarks/gpu.py`: each takes where it runs and the name of a case, and returns figures."""

from __future__ import annotations

import json
import random
import shutil
import statistics
import time
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

from benchmarks.gpu_models import (
    SHAPES,
    Figures,
    Setting,
    folder,
    free,
    groups,
    machine,
    machine_cases,
    measured,
    median_seconds,
    policy,
    wait,
)


def update_cases(setting: Setting) -> list[str]:
    """Shape, tokens a step, variant; what matters most comes first."""
    sizes = [300] if setting.tiny else [8192, 16384, 32768, 65536]
    variants = ["chunked", "chunked, checkpointed", "whole", "whole, checkpointed"]
    cases = [f"{name} {n} {v}" for name in setting.shapes for v in variants for n in sizes]
    attentions = ("sdpa", "eager", "flash_attention_2", "flex_attention")
    packed = [f"{setting.shapes[0]} {sizes[0]} packed {a}" for a in attentions]
    return cases + packed


def update(setting: Setting, case: str) -> Figures:
    """Tokens a second of the engine's update, and the device memory it takes above what the model and AdamW hold.

    chunked: the log-probs as the engine computes them; whole: all logits of a micro-batch at once. Packed rows are for flash
    attention; with the others their cost grows with the square of the row.
    """
    from tossup.engine import head
    from tossup.engine.config import TrainConfig
    from tossup.engine.step import make_optimizer, packs_rows
    from tossup.engine.step import update as engine_update

    name, size, variant = case.split(" ", 2)
    attention = variant.removeprefix("packed ") if variant.startswith("packed") else ""
    if attention == "flash_attention_2" and not find_spec("flash_attn"):
        return {"skipped": "flash_attn is not installed"}
    if attention == "flex_attention" and setting.device == "cpu":
        return {"skipped": "it is compiled anew for every shape, for minutes on a CPU"}
    model = policy(setting, name, attention)
    settings = {
        "gradient_checkpointing": "checkpointed" in variant,
        "packing": "packed" if attention else "padded",
        "micro_batch_tokens": 0 if not setting.tiny else 256,
        "lr": 1e-9,
    }
    config = TrainConfig.model_validate({"update": settings, "rollout": {"max_new_tokens": 2 * setting.sizes[3]}})
    assert packs_rows(model, config.update.packing) == bool(attention)
    optimizer = make_optimizer(model, config.update)
    kept = groups(setting, name, int(size))
    lengths = [len(r.prompt_ids) + len(r.response_ids) for g in kept for r in g.rollouts]
    blocks = dict(head.BLOCK_LOGITS)
    if setting.tiny:  # so that there is more than one
        head.BLOCK_LOGITS[setting.device] = 1 << 15
    if variant.startswith("whole"):
        head.BLOCK_LOGITS[setting.device] = 1 << 62
    figures: Figures = {}
    try:
        work = lambda: engine_update(model, optimizer, kept, config, None)  # noqa: E731 -- it is called in two ways
        work()  # brings the moments into being
        optimizer.zero_grad(set_to_none=True)
        with measured(setting.device, figures):
            work()
        figures["seconds"] = median_seconds(work, setting.device, 1 if setting.tiny else 3)
    finally:
        head.BLOCK_LOGITS.update(blocks)
        model.model.zero_grad(set_to_none=True)
    predicted = sum(len(r.response_ids) for g in kept for r in g.rollouts)
    flops = SHAPES[name].update_flops(sum(lengths), sum(n * n for n in lengths), predicted)
    return figures | {
        "tokens": sum(lengths),
        "tokens_per_s": sum(lengths) / figures["seconds"],
        "flops_per_s": flops / figures["seconds"],
    }


def generate_cases(setting: Setting) -> list[str]:
    """Who samples, and how many answers at once."""
    problems, group, _, _ = setting.sizes
    small, n = setting.shapes[0], problems * group
    ours = [f"{name} ours, {n} at once" for name in setting.shapes] + [f"{small} ours, {n // 2} at once"]
    return [*ours, f"{small} generate, {n} at once", f"{small} continuous batching"]


def generate(setting: Setting, case: str) -> Figures:
    """Tokens a second of sampling, and for ours how far the log-probs are from the trainer's."""
    problems, _, n_prompt, _ = setting.sizes
    name, _, how = case.partition(" ")
    if how == "continuous batching" and setting.device == "cpu":
        return {"skipped": "it takes most of the machine's memory for its cache"}
    rng = random.Random(0)
    prompts = [tuple(rng.randrange(2, SHAPES[name].vocabulary) for _ in range(n_prompt)) for _ in range(problems)]
    figures: Figures = {}
    if how.startswith("ours"):
        figures |= _ours(setting, name, prompts, int(how.split()[1]))
    else:
        figures |= _theirs(setting, name, prompts, how.startswith("continuous"))
    return figures | {"tokens_per_s": figures["tokens"] / figures["seconds"]}


def _ours(setting: Setting, name: str, prompts: list[tuple[int, ...]], at_once: int) -> Figures:
    import torch

    from tossup.engine.config import SamplingConfig
    from tossup.engine.generate import TransformersGenerator
    from tossup.engine.logps import token_logps
    from tossup.engine.objective import mismatch

    _, group, n_prompt, limit = setting.sizes
    model = policy(setting, name)
    generator, figures = TransformersGenerator(model), Figures()
    seeds = list(range(len(prompts)))
    generator.generate(prompts, group, seeds, SamplingConfig(max_new_tokens=8, batch_size=at_once))
    sampling = SamplingConfig(max_new_tokens=limit, batch_size=at_once)
    with measured(setting.device, figures):
        answers = generator.generate(prompts, group, seeds, sampling)
    of_one = answers[0]
    width = max(len(a.ids) for a in of_one)
    ids = torch.tensor([[*prompts[0], *a.ids] + [0] * (width - len(a.ids)) for a in of_one], device=model.device)
    there = torch.tensor(
        [[True] * (n_prompt + len(a.ids)) + [False] * (width - len(a.ids)) for a in of_one], device=model.device
    )
    mask = there[:, 1:] & (torch.arange(1, ids.shape[1], device=model.device) >= n_prompt)
    sampled = torch.tensor(
        [[0.0] * (n_prompt - 1) + [*a.logps] + [0.0] * (width - len(a.ids)) for a in of_one], device=model.device
    )
    with torch.no_grad():
        apart = mismatch(token_logps(model, ids, there.long(), mask, 1.0), sampled, mask)
    kl, largest = (apart.kl / apart.tokens).item(), apart.ratio_max.item()
    tokens = sum(len(a.ids) for of in answers for a in of)
    note = f"mismatch: KL {kl:.1e} a token, largest ratio {largest:.3f}"
    return figures | {"tokens": tokens, "mismatch_kl": kl, "mismatch_max_ratio": largest, "note": note}


def _theirs(setting: Setting, name: str, prompts: list[tuple[int, ...]], continuous: bool) -> Figures:
    import torch
    from transformers import AutoModelForCausalLM, GenerationConfig

    free()
    _, group, _, limit = setting.sizes
    path = folder(setting, name)
    model: Any = AutoModelForCausalLM.from_pretrained(path, dtype=torch.bfloat16)
    model.to(setting.device).eval()
    settings = GenerationConfig(
        max_new_tokens=limit, do_sample=True, top_k=0, top_p=1.0, eos_token_id=1, pad_token_id=0
    )
    rows = [list(p) for p in prompts for _ in range(group)]
    ids = torch.tensor(rows, device=setting.device)
    figures: Figures = {}
    if continuous:
        with measured(setting.device, figures):
            outputs = model.generate_batch(rows, generation_config=settings)
        return figures | {"tokens": sum(len(o.generated_tokens) for o in outputs.values()), "note": "transformers' own"}
    model.generate(ids, attention_mask=torch.ones_like(ids), generation_config=settings, max_new_tokens=8)
    with measured(setting.device, figures):
        made = model.generate(ids, attention_mask=torch.ones_like(ids), generation_config=settings)
    tokens = int((made[:, ids.shape[1] :] != 0).sum())
    return figures | {"tokens": tokens, "note": "transformers' own, bfloat16, no log-probs"}


def coin(problem: Any, response: str) -> bool:
    """A verifier: the text decides, where the problem is one that is now and then solved."""
    return problem.reference == "1" and sum(map(ord, response)) % 2 == 1


def pool_rows(setting: Setting, name: str) -> list[dict[str, str]]:
    """Prompts of words; every second problem is beyond the model whatever it says."""
    problems, _, n_prompt, _ = setting.sizes
    rng = random.Random(0)
    words = [
        " ".join(f"w{rng.randrange(2, SHAPES[name].vocabulary)}" for _ in range(n_prompt)) for _ in range(8 * problems)
    ]
    return [{"id": str(i), "prompt": text, "reference": str(i % 2)} for i, text in enumerate(words)]


def step_cases(setting: Setting) -> list[str]:
    """The small shape: a checkpoint of the large one is 20 GB."""
    return [setting.shapes[0]]


def step(setting: Setting, case: str) -> Figures:
    """Whole steps of `tossup train`: ledger, metrics, verification and all; of each figure the median step's."""
    from tossup.engine.config import TrainConfig, load
    from tossup.engine.progress import Silent
    from tossup.engine.train import train

    free()
    problems, group, _, limit = setting.sizes
    run, pool = setting.work / f"run-{case}-{time.time_ns()}", setting.work / f"{case}.jsonl"
    pool.write_text("".join(json.dumps(row) + "\n" for row in pool_rows(setting, case)))
    settings = {
        "model": str(folder(setting, case)),
        "pool": str(pool),
        "out": str(run),
        "verifier": "benchmarks.gpu_cases:coin",
        "device": setting.device,
        "dtype": "bfloat16",
        "steps": 3,
        "save_every": 3,  # what a checkpoint takes is the disk's figure
        "rollout.problems_per_step": problems,
        "rollout.group_size": group,
        "rollout.max_new_tokens": limit,
        "rollout.batch_size": problems * group,
    }
    figures: Figures = {}
    with measured(setting.device, figures):
        train(load(TrainConfig, None, settings), Silent())
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()][1:]
    shutil.rmtree(run)
    middle = {k: statistics.median(line[k] for line in lines) for k in lines[0] if all(k in line for line in lines)}
    parts = {k: middle[f"time/{k}"] for k in ("generate", "update")}
    shares = ", ".join(f"{k} {v / middle['time/step']:.1%}" for k, v in parts.items())
    note = f"{shares}, the rest {middle['time/outside_share']:.2%}; mismatch KL {middle['mismatch/kl']:.1e}"
    return figures | {
        "seconds": middle["time/step"],
        "tokens": middle["tokens/generated"],
        "tokens_per_s": middle["tokens/generated"] / middle["time/step"],
        "outside_share": middle["time/outside_share"],
        "metrics": middle,
        "note": note,
    }


def trl_cases(setting: Setting) -> list[str]:
    """The small shape."""
    return [setting.shapes[0]]


def trl(setting: Setting, case: str) -> Figures:
    """TRL's GRPOTrainer on the same model, prompts, rewards and batch, its steps timed by its own callbacks."""
    if not find_spec("trl"):
        return {"skipped": "trl is not installed"}
    import torch
    from datasets import Dataset
    from transformers import AutoModelForCausalLM, AutoTokenizer, TrainerCallback
    from trl import GRPOConfig, GRPOTrainer

    problems, group, _, limit = setting.sizes
    rows = pool_rows(setting, case)

    def reward(completions: list[str], reference: list[str], **_: Any) -> list[float]:
        return [float(r == "1" and sum(map(ord, c)) % 2) for c, r in zip(completions, reference, strict=True)]

    class Clock(TrainerCallback):
        def __init__(self) -> None:
            self.seconds: list[float] = []

        def on_step_begin(self, *_: Any, **__: Any) -> None:
            self.begun = time.perf_counter()

        def on_step_end(self, *_: Any, **__: Any) -> None:
            wait(setting.device)
            self.seconds.append(time.perf_counter() - self.begun)

    path = folder(setting, case)
    tokenizer = AutoTokenizer.from_pretrained(path)
    tokenizer.padding_side = "left"
    at_once = 4 if setting.tiny else 16
    settings = GRPOConfig(
        output_dir=str(setting.work / "trl"),
        max_steps=3,
        per_device_train_batch_size=at_once,
        gradient_accumulation_steps=problems * group // at_once,
        num_generations=group,
        max_completion_length=limit,
        learning_rate=1e-6,
        temperature=1.0,
        beta=0.0,
        loss_type="grpo",
        use_cpu=setting.device == "cpu",
        bf16=setting.device != "cpu",
        gradient_checkpointing=False,
        report_to="none",
        save_strategy="no",
        logging_steps=1000,
        disable_tqdm=True,
    )
    clock, figures = Clock(), Figures()
    trainer = GRPOTrainer(
        model=AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32),
        reward_funcs=reward,
        args=settings,
        train_dataset=Dataset.from_list(rows),
        processing_class=tokenizer,
        callbacks=[clock],
    )
    with measured(setting.device, figures):
        trainer.train()
    seconds = statistics.median(clock.seconds[1:])
    tokens = problems * group * limit
    note = f"TRL, micro-batches of {at_once} answers; tokens as generated by ours"
    return figures | {"seconds": seconds, "tokens": tokens, "tokens_per_s": tokens / seconds, "note": note}


PARTS: dict[str, tuple[Callable[[Setting], list[str]], Callable[[Setting, str], Figures]]] = {
    "machine": (machine_cases, machine),
    "step": (step_cases, step),
    "update": (update_cases, update),
    "generate": (generate_cases, generate),
    "trl": (trl_cases, trl),
}
