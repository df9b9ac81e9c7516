"""Does GRPO here learn what TRL's GRPOTrainer learns from the same settings? The built-in recipe's model, prompts and reward.

    python -m benchmarks.engine --case learning --trl-python ENV/bin/python [--steps 100] [--seeds 3]

Both sides: 16 problems x 8 answers of at most 16 tokens a step, drawn uniformly, none twice before the pool is
through, temperature 1, GRPO's loss (mean over each answer, then over answers), clip 0.2, no KL, one update a batch, AdamW with
lr 2e-4, betas 0.9 and 0.99, no decay, 10 steps of warm-up, gradient norm 1, float32. A seed is another order of the problems
and other samples. Accuracy is then measured by one and the same code: 500 held-out problems, 4 answers each, the same seed.
Two differences are left, both TRL's own: it divides by the sample's deviation of a group, not the population's, and groups in
which all rewards are equal stay in its mean. AdamW feels neither but through the clipped norm. The row "with the curriculum" is
ours with all settings the same but who chooses the problems; it is no part of the check.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

PROBLEMS, GROUP, LIMIT, LR = 16, 8, 16, 2e-4
HELD_OUT, SAMPLES = 500, 4


def train_ours(sampler: str, seed: int, steps: int, out: Path) -> None:
    """A run of `tossup train`; its model lies in `out`/model."""
    from tossup.engine.arithmetic import recipe_path
    from tossup.engine.config import TrainConfig, load
    from tossup.engine.progress import Silent
    from tossup.engine.train import train

    settings = {
        "out": str(out),
        "seed": seed,
        "steps": steps,
        "eval_pool": "",
        "threads": 1,
        "save_every": steps,
        "rollout.problems_per_step": PROBLEMS,
        "rollout.group_size": GROUP,
        "rollout.max_new_tokens": LIMIT,
        "curriculum.sampler": sampler,
        "update.lr": LR,
        "update.aggregate": "sequence",
    }
    train(load(TrainConfig, recipe_path(), settings), Silent())


def train_trl(seed: int, steps: int, out: Path) -> None:
    """The same with TRL, from its own environment; the model goes to `out`/model."""
    import torch
    from datasets import Dataset
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from trl import GRPOConfig, GRPOTrainer

    torch.set_num_threads(1)
    start = str(out / "start")
    tokenizer = AutoTokenizer.from_pretrained(start)
    tokenizer.padding_side = "left"

    def reward(completions: list[str], **columns: list[Any]) -> list[float]:
        return [float(c.strip() == r) for c, r in zip(completions, columns["reference"], strict=True)]

    settings = GRPOConfig(
        output_dir=str(out / "trl"),
        seed=seed,
        max_steps=steps,
        per_device_train_batch_size=PROBLEMS * GROUP,
        num_generations=GROUP,
        max_completion_length=LIMIT,
        learning_rate=LR,
        lr_scheduler_type="constant_with_warmup",
        warmup_steps=10,
        adam_beta1=0.9,
        adam_beta2=0.99,
        weight_decay=0.0,
        max_grad_norm=1.0,
        temperature=1.0,
        top_p=1.0,
        top_k=0,
        beta=0.0,
        epsilon=0.2,
        loss_type="grpo",
        use_cpu=True,
        bf16=False,
        gradient_checkpointing=False,
        report_to="none",
        save_strategy="no",
        logging_steps=1000,
        disable_tqdm=True,
    )
    trainer = GRPOTrainer(
        model=AutoModelForCausalLM.from_pretrained(start),
        reward_funcs=reward,
        args=settings,
        train_dataset=Dataset.from_list(json.loads((out / "rows.json").read_text())),
        processing_class=tokenizer,
    )
    trainer.train()
    trainer.model.save_pretrained(out / "model")
    tokenizer.save_pretrained(out / "model")


def accuracy(model: Path) -> float:
    """The share of right answers on the held-out problems."""
    from tossup.engine.arithmetic import heldout
    from tossup.engine.config import SamplingConfig
    from tossup.engine.policy import load, set_threads
    from tossup.engine.rollouts import sample_groups

    policy = load(str(model), "cpu")
    set_threads(policy, 1)
    groups, _ = sample_groups(
        policy, heldout()[:HELD_OUT], SamplingConfig(max_new_tokens=LIMIT), group_size=SAMPLES, seed=1
    )
    return statistics.fmean(reward for group in groups for reward in group.rewards)


def trained(side: str, python: str, seed: int, steps: int) -> float:
    """Train one side in a process of its own; the accuracy of its model."""
    from tossup.engine.arithmetic import checkpoint_path, pool

    environment = os.environ | {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "TRANSFORMERS_VERBOSITY": "error"}
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder)
        shutil.copytree(checkpoint_path(), out / "start")
        (out / "rows.json").write_text(json.dumps([{"prompt": p.prompt, "reference": p.reference} for p in pool()]))
        command = [python, __file__, side, str(seed), str(steps), str(out)]
        paths = {} if side == "trl" else {"PYTHONPATH": str(Path(__file__).parent.parent)}
        done = subprocess.run(command, env=environment | paths, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise SystemExit(done.stderr)
        return accuracy(out / "model")


def report(trl_python: str, steps: int, seeds: int) -> None:
    """Print the table: accuracy after training by side and seed, and whether ours lies within TRL's spread."""
    from tossup.engine.arithmetic import checkpoint_path

    if seeds < 2:
        raise SystemExit("--seeds: a spread needs at least 2")
    sides = {"trl": trl_python, "uniform": sys.executable, "tossup": sys.executable}
    names = {"trl": "TRL", "uniform": "ours, the same settings", "tossup": "ours, with the curriculum"}
    print(f"start model {accuracy(checkpoint_path()):.3f}; {steps} steps of {PROBLEMS} x {GROUP}\n")
    print("| side | " + " | ".join(f"seed {s}" for s in range(seeds)) + " | mean | deviation |")
    print("|---" * (seeds + 3) + "|")
    found: dict[str, list[float]] = {}
    for side, python in sides.items():
        found[side] = [trained(side, python, seed, steps) for seed in range(seeds)]
        cells = [f"{a:.3f}" for a in found[side]]
        cells += [f"{statistics.fmean(found[side]):.3f}", f"{statistics.stdev(found[side]):.3f}"]
        print(f"| {names[side]} | " + " | ".join(cells) + " |", flush=True)
    apart = statistics.fmean(found["uniform"]) - statistics.fmean(found["trl"])
    error = (sum(statistics.variance(found[side]) / seeds for side in ("uniform", "trl"))) ** 0.5
    print(f"\nours, the same settings, minus TRL: {apart:+.3f} (standard error over seeds {error:.3f})")


if __name__ == "__main__":
    side, seed, steps, out = sys.argv[1:]
    if side == "trl":
        train_trl(int(seed), int(steps), Path(out))
    else:
        train_ours(side, int(seed), int(steps), Path(out))
