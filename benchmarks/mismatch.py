"""How far each generator's log-probs are from the trainer's, over steps of the built-in recipe; and what casting once saves.

    [TOSSUP_VLLM_PYTHON=ENV/bin/python] python -m benchmarks.mismatch [--steps 10] [--generator transformers,vllm] [--cast]

The first table is of real runs of `train`, read from their metrics.jsonl: at the same weights, the k3 estimate of KL(sampler ||
trainer) a token, and the ratios trainer / sampler. In float32 both sides round differently and no more; in bfloat16 the
trainer computes by autocast (residual stream in float32), transformers samples with the same weights and types, and vLLM
computes all in bfloat16.

The second table (`--cast`) is the decoding of a random model under mixed precision, with the weights cast once a wave, as
`tossup.engine.generate` does, and cast by autocast in every forward pass; CPU seconds, one thread.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import tempfile
import time
from contextlib import nullcontext
from datetime import date
from pathlib import Path

import torch

from tossup.engine.arithmetic import recipe_path
from tossup.engine.config import SamplingConfig, TrainConfig, load
from tossup.engine.generate import TransformersGenerator, loop
from tossup.engine.policy import Policy
from tossup.engine.progress import Silent
from tossup.engine.train import train


def run(generator: str, dtype: str, steps: int) -> dict[str, float]:
    """The mismatch of one run, over its steps that trained."""
    with tempfile.TemporaryDirectory() as out:
        settings = {"steps": steps, "rollout.generator": generator, "dtype": dtype, "out": f"{out}/run"}
        train(load(TrainConfig, recipe_path(), settings | {"eval_pool": "", "threads": 1}), Silent())
        lines = [json.loads(line) for line in Path(out, "run", "metrics.jsonl").read_text().splitlines()]
    trained = [line for line in lines if "mismatch/kl" in line]
    return {
        "kl": statistics.mean(line["mismatch/kl"] for line in trained),
        "mean": statistics.mean(line["mismatch/mean_ratio"] for line in trained),
        "max": max(line["mismatch/max_ratio"] for line in trained),
        "tokens": sum(line["tokens/trained"] for line in trained),
        "generate": statistics.median(line["time/generate"] for line in lines),
    }


def random_policy(width: int, layers: int) -> Policy:
    """A model of Qwen3's shape with random weights that computes in bfloat16."""
    from transformers import Qwen3Config, Qwen3ForCausalLM

    torch.manual_seed(0)
    config = Qwen3Config(
        vocab_size=4096,
        hidden_size=width,
        intermediate_size=3 * width,
        num_hidden_layers=layers,
        num_attention_heads=width // 64,
        num_key_value_heads=width // 128,
        head_dim=64,
        max_position_embeddings=512,
        eos_token_id=1,
        pad_token_id=0,
        bos_token_id=None,
    )
    model = Qwen3ForCausalLM(config).eval()
    return Policy(model, None, torch.device("cpu"), torch.bfloat16, frozenset([4097]), 0)


def cast_table(rows: int, tokens: int) -> None:
    """CPU seconds of decoding, weights cast once and by autocast."""
    print("\n| parameters | rows x tokens | cast once, CPU s | cast by autocast, CPU s | ratio | same answers |")
    print("|---|---|---|---|---|---|")
    torch.set_num_threads(1)
    for width, layers in ((256, 4), (512, 8)):
        policy = random_policy(width, layers)
        sampling = SamplingConfig(max_new_tokens=tokens, batch_size=rows)
        taken: dict[str, list[float]] = {"once": [], "autocast": []}
        answers = {}
        for _ in range(3):
            for way, cast in (("once", loop.cast_once), ("autocast", lambda _: nullcontext())):
                own, loop.cast_once = loop.cast_once, cast  # type: ignore[assignment]
                begun = time.process_time()
                found = TransformersGenerator(policy).generate([(2, 3, 4)] * rows, 1, range(rows), sampling)
                taken[way].append(time.process_time() - begun)
                loop.cast_once = own
                answers[way] = [[(a.ids, a.logps) for a in group] for group in found]
        once, autocast = (min(taken[way]) for way in ("once", "autocast"))
        count = sum(p.numel() for p in policy.model.parameters())
        same = answers["once"] == answers["autocast"]
        size = f"{rows} x {tokens}"
        print(
            f"| {count / 1e6:.1f} M | {size} | {once:.2f} | {autocast:.2f} | {once / autocast:.2f} | {same} |",
            flush=True,
        )


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--generator", default="transformers,vllm")
    parser.add_argument("--dtype", default="float32,bfloat16")
    parser.add_argument("--cast", action="store_true", help="print the second table alone")
    args = parser.parse_args()
    print(f"{platform.machine()}, Python {platform.python_version()}, torch {torch.__version__}, {date.today()}\n")
    if args.cast:
        cast_table(rows=8, tokens=32)
        return
    print(
        "| generator | compute | KL a token | mean ratio | largest ratio | tokens | s a wave |\n|---|---|---|---|---|---|---|"
    )
    for generator in args.generator.split(","):
        for dtype in args.dtype.split(","):
            found = run(generator, dtype, args.steps)
            figures = f"{found['kl']:.2e} | {found['mean']:.6f} | {found['max']:.5f} | {found['tokens']:,.0f}"
            print(f"| {generator} | {dtype} | {figures} | {found['generate']:.2f} |", flush=True)


if __name__ == "__main__":
    main()
