"""CPU seconds a step and peak memory, ours and TRL's GRPOTrainer, on the same model, prompts, group size and batch.

    python -m benchmarks.engine --trl-python PATH/OF/AN/ENVIRONMENT/WITH/trl/bin/python [--steps 12] [--case recipe,wide]

recipe  the built-in model and pool, 32 problems x 8 answers of at most 16 tokens, uniform draws, exact-match reward
wide    a random model of 0.87 million parameters, 32 x 8 answers of 64 tokens; half of the groups are made degenerate

Two further cases print tables of their own, see `benchmarks/learning.py` and `benchmarks/vocabulary.py`:

    python -m benchmarks.engine --case learning --trl-python … [--steps 100] [--seeds 3]
    python -m benchmarks.engine --case vocabulary [--tokens 8192]

Both take one optimizer step a batch, on policy, one thread, float32, no KL. Each case runs in a process of its own, one after
the other; CPU time is the process's own (time.process_time), the median over steps after two steps of warm-up. TRL runs from
its own environment: `pip install torch==2.13.0 trl==1.16.0`.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from datetime import date
from pathlib import Path
from typing import Any

PROBLEMS, GROUP, WARM_UP = 32, 8, 2
ALPHABET = "0123456789abcdefghijklmnopqrstuvwxyz+-*/= "


def build_wide_model(folder: Path) -> None:
    """Save a random model of 0.87 million parameters with a character tokenizer."""
    import torch
    from tokenizers import Regex, Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

    vocabulary = {"<pad>": 0, "<eos>": 1, "<unk>": 2} | {c: i + 3 for i, c in enumerate(ALPHABET)}
    core = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    core.pre_tokenizer = pre_tokenizers.Split(Regex("."), "isolated")
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=core, pad_token="<pad>", eos_token="<eos>", unk_token="<unk>", padding_side="left"
    )
    torch.manual_seed(0)
    config = Qwen3Config(
        vocab_size=len(vocabulary),
        hidden_size=128,
        intermediate_size=512,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=4,
        head_dim=32,
        max_position_embeddings=512,
        tie_word_embeddings=True,
        eos_token_id=1,
        pad_token_id=0,
        bos_token_id=None,
    )
    Qwen3ForCausalLM(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def wide_rows() -> list[dict[str, Any]]:
    """Prompts of 24 characters; every second problem is beyond the model whatever it says."""
    return [{"prompt": f"problem {i:04d} of the wide case ="[:24], "mixed": i % 2 == 0} for i in range(400 * PROBLEMS)]


def wide_reward(text: str, mixed: bool) -> float:
    """A coin that the text decides, or 0."""
    return float(mixed and sum(map(ord, text)) % 2)


def measure(step: Any, steps: int) -> dict[str, float]:
    """Call `step(i)` for each step; CPU seconds of the median one and the process's peak memory."""
    seconds = []
    for i in range(steps + WARM_UP):
        begun = time.process_time()
        step(i)
        seconds.append(time.process_time() - begun)
    return result(seconds)


def result(seconds: list[float]) -> dict[str, float]:
    """What a child prints."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {"cpu_s": statistics.median(seconds[WARM_UP:]), "peak_mb": peak}


def ours(case: str, steps: int, model: str, rows: list[dict[str, Any]]) -> dict[str, float]:
    """Our step: draw, generate, judge, update on the informative groups, ledger and checkpoint left out on both sides."""
    import torch

    from tossup.curriculum.gate import informative
    from tossup.engine.config import RolloutConfig, TrainConfig
    from tossup.engine.policy import load
    from tossup.engine.rollouts import sample_groups
    from tossup.engine.step import update
    from tossup.engine.update_config import UpdateConfig
    from tossup.records import Problem

    torch.set_num_threads(1)
    limit = 16 if case == "recipe" else 64
    config = TrainConfig(
        rollout=RolloutConfig(max_new_tokens=limit, batch_size=PROBLEMS * GROUP), update=UpdateConfig(lr=1e-4)
    )
    policy = load(model)
    optimizer = torch.optim.AdamW(policy.model.parameters(), lr=1e-4, weight_decay=0.0, fused=True)
    verifier = "exact" if case == "recipe" else "benchmarks.engine:judge_wide"
    problems = [
        Problem(str(i), row["prompt"], row.get("reference", str(int(row.get("mixed", False)))), verifier)
        for i, row in enumerate(rows)
    ]

    def step(i: int) -> None:
        drawn = problems[i * PROBLEMS : (i + 1) * PROBLEMS]
        groups, _ = sample_groups(policy, drawn, config.rollout, group_size=GROUP, seed=i)
        kept = informative(groups)
        if kept:
            update(policy, optimizer, kept, config, None)

    return measure(step, steps)


def trl(case: str, steps: int, model: str, rows: list[dict[str, Any]]) -> dict[str, float]:
    """TRL's step, timed by its own callbacks."""
    import torch
    from datasets import Dataset
    from transformers import AutoModelForCausalLM, AutoTokenizer, TrainerCallback
    from trl import GRPOConfig, GRPOTrainer

    torch.set_num_threads(1)

    def reward(completions: list[str], **columns: list[Any]) -> list[float]:
        if case == "recipe":
            return [float(c.strip() == r) for c, r in zip(completions, columns["reference"], strict=True)]
        return [wide_reward(c, m) for c, m in zip(completions, columns["mixed"], strict=True)]

    class Clock(TrainerCallback):
        seconds: list[float] = []  # noqa: RUF012 -- one trainer a process

        def on_step_begin(self, *args: Any, **kwargs: Any) -> None:
            self.begun = time.process_time()

        def on_step_end(self, *args: Any, **kwargs: Any) -> None:
            self.seconds.append(time.process_time() - self.begun)

    tokenizer = AutoTokenizer.from_pretrained(model)
    tokenizer.padding_side = "left"
    with tempfile.TemporaryDirectory() as out:
        settings = GRPOConfig(
            output_dir=out,
            max_steps=steps + WARM_UP,
            per_device_train_batch_size=PROBLEMS * GROUP,
            num_generations=GROUP,
            max_completion_length=16 if case == "recipe" else 64,
            learning_rate=1e-4,
            temperature=1.0,
            beta=0.0,
            loss_type="grpo",
            use_cpu=True,
            bf16=False,
            gradient_checkpointing=False,
            shuffle_dataset=False,
            report_to="none",
            save_strategy="no",
            logging_steps=1000,
            disable_tqdm=True,
        )
        trainer = GRPOTrainer(
            model=AutoModelForCausalLM.from_pretrained(model),
            reward_funcs=reward,
            args=settings,
            train_dataset=Dataset.from_list(rows),
            processing_class=tokenizer,
            callbacks=[Clock()],
        )
        trainer.train()
    return result(Clock.seconds)


def judge_wide(problem: Any, response: str) -> bool:
    """The wide case's reward as a verifier; the reference says whether the problem is mixed."""
    return wide_reward(response, problem.reference == "1") == 1.0


def child(side: str, case: str, steps: int, folder: Path) -> None:
    """Run one side of one case in this process and print its figures as the last line."""
    rows = json.loads((folder / f"{case}.json").read_text())
    measured = {"ours": ours, "trl": trl}[side](case, steps, str(folder / case), rows)
    print(json.dumps(measured))


def prepare(case: str, folder: Path) -> None:
    """Write the model and the prompts that both sides use."""
    if case == "wide":
        build_wide_model(folder / case)
        rows = wide_rows()
    else:
        import shutil

        from tossup.engine.arithmetic import checkpoint_path, pool

        shutil.copytree(checkpoint_path(), folder / case)
        problems = pool()
        rows = [{"prompt": p.prompt, "reference": p.reference} for p in problems] * 20
    (folder / f"{case}.json").write_text(json.dumps(rows[: 100 * PROBLEMS]))


def main() -> None:
    """Run the cases and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trl-python", help="the Python of an environment with TRL; without it, ours alone")
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--case", default="recipe,wide")
    parser.add_argument("--tokens", type=int, default=8192, help="of the case vocabulary")
    parser.add_argument("--seeds", type=int, default=3, help="of the case learning")
    parser.add_argument("--child", nargs=2, metavar=("SIDE", "FOLDER"), help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        child(args.child[0], args.case, args.steps, Path(args.child[1]))
        return
    if args.case == "learning":
        from benchmarks import learning

        learning.report(args.trl_python, args.steps, args.seeds)
        return
    if args.case == "vocabulary":
        from benchmarks import vocabulary

        vocabulary.report(args.tokens)
        return
    sides = {"ours": sys.executable} | ({"trl": args.trl_python} if args.trl_python else {})
    print(f"{platform.machine()}, Python {platform.python_version()}, one thread, {date.today()}\n")
    print("| case | side | CPU s a step | peak MB | ratio of CPU | ratio of memory |\n|---|---|---|---|---|---|")
    environment = os.environ | {"OMP_NUM_THREADS": "1", "TRANSFORMERS_VERBOSITY": "error", "HF_HUB_OFFLINE": "1"}
    for case in args.case.split(","):
        with tempfile.TemporaryDirectory() as folder:
            prepare(case, Path(folder))
            found: dict[str, dict[str, float]] = {}
            for side, python in sides.items():
                command = [python, __file__, "--case", case, "--steps", str(args.steps), "--child", side, folder]
                paths = {"PYTHONPATH": str(Path(__file__).parent.parent)} if side == "ours" else {}
                done = subprocess.run(command, env=environment | paths, capture_output=True, text=True, check=False)
                if done.returncode != 0:
                    raise SystemExit(done.stderr)
                found[side] = json.loads(done.stdout.splitlines()[-1])
        for side, figures in found.items():
            ratios = "| |"
            if side == "ours" and "trl" in found:
                ratios = "|".join(f" {figures[key] / found['trl'][key]:.2f} " for key in ("cpu_s", "peak_mb")) + "|"
            print(f"| {case} | {side} | {figures['cpu_s']:.3f} | {figures['peak_mb']:.0f} |{ratios}", flush=True)


if __name__ == "__main__":
    main()
