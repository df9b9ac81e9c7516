"""Memory of one update at a large vocabulary: log-probs in chunks against the naive way, each in a process of its own.

    python -m benchmarks.engine --case vocabulary [--tokens 8192]        (at 8,192 the naive side wants some 20 GB)

Qwen3's shape with a vocabulary of 150,000: width 128, 2 layers (39 million parameters, nearly all of them the embedding, tied
with the head); rows of 512 tokens, of which 64 are prompt, in one micro-batch; AdamW, float32. A first update
on a few tokens brings gradients and moments into being; what the process then holds is the model's own state. The table
shows how far the peak of a full update lies above that, by the kernel's count of resident memory (VmHWM).

naive: the whole batch's logits, `log_softmax`, `gather`, `backward`: three lines that one would write first.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

VOCABULARY, LENGTH, PROMPT = 150_000, 512, 64


def resident_mb(field: str) -> float:
    """VmRSS or VmHWM of this process."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1]) / 1024
    raise SystemExit(f"no {field} in /proc/self/status: this benchmark needs Linux")


def model() -> Any:
    """A random model whose head is by far its largest part."""
    import torch
    from transformers import Qwen3Config, Qwen3ForCausalLM

    torch.manual_seed(0)
    config = Qwen3Config(
        vocab_size=VOCABULARY,
        hidden_size=128,
        intermediate_size=256,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=4,
        head_dim=32,
        max_position_embeddings=LENGTH,
        tie_word_embeddings=True,
        eos_token_id=1,
        pad_token_id=0,
        bos_token_id=None,
    )
    return Qwen3ForCausalLM(config).eval()


def groups(rows: int, length: int) -> list[Any]:
    """Half of the answers right, half wrong; `length` tokens with the prompt."""
    import random

    from tossup.records import Group, Problem, Rollout, Stop, correct, wrong

    rng = random.Random(0)

    def ids(n: int) -> tuple[int, ...]:
        return tuple(rng.randrange(2, VOCABULARY) for _ in range(n))

    prompt = ids(PROMPT)
    answer = length - PROMPT
    rollouts = tuple(
        Rollout(prompt, ids(answer), (-11.9,) * answer, "", Stop.END, 0, (correct if i % 2 else wrong)(""))
        for i in range(rows)
    )
    return [Group(0, Problem("p", "", ""), rollouts)]


def ours() -> Any:
    """The engine's update."""
    import torch

    from tossup.engine.config import TrainConfig
    from tossup.engine.policy import Policy
    from tossup.engine.step import update

    policy = Policy(model(), None, torch.device("cpu"), torch.float32, frozenset([1]), 0)
    optimizer = torch.optim.AdamW(policy.model.parameters(), lr=1e-6, weight_decay=0.0, fused=True)
    config = TrainConfig.model_validate({"update": {"micro_batch_tokens": 1 << 20}})
    return lambda rows, length: update(policy, optimizer, groups(rows, length), config, None)["update/loss"]


def naive() -> Any:
    """The same loss from all logits at once."""
    import torch

    from tossup.engine.objective import advantages

    net = model()
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-6, weight_decay=0.0, fused=True)

    def step(rows: int, length: int) -> float:
        (group,) = groups(rows, length)
        ids = torch.tensor([r.prompt_ids + r.response_ids for r in group.rollouts])
        adv = torch.tensor(advantages(group.rewards))
        logps = net(input_ids=ids, use_cache=False).logits[:, :-1].log_softmax(-1).gather(-1, ids[:, 1:, None])[..., 0]
        ratio = (logps[:, PROMPT - 1 :] - torch.tensor([r.response_logps for r in group.rollouts])).exp()
        gain = torch.minimum(ratio * adv[:, None], ratio.clamp(0.8, 1.2) * adv[:, None])
        loss = -gain.mean(dim=1).mean()
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
        return loss.item()

    return step


def child(side: str, tokens: int) -> None:
    """One side in this process; its figures as the last line."""
    import torch

    torch.set_num_threads(1)
    Path("/proc/self/oom_score_adj").write_text("1000")  # where memory runs out, this process is the one to go
    step = {"ours": ours, "naive": naive}[side]()
    step(2, PROMPT + 4)
    state = resident_mb("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # VmHWM starts again from here
    begun = time.process_time()
    loss = step(tokens // LENGTH, LENGTH)
    cpu = time.process_time() - begun
    print(json.dumps({"loss": loss, "state_mb": state, "above_mb": resident_mb("VmHWM") - state, "cpu_s": cpu}))


def report(tokens: int) -> None:
    """Print the table, one side after the other."""
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(Path(__file__).parent.parent)}
    print(f"{tokens:,} tokens, vocabulary {VOCABULARY:,}\n")
    print("| side | state MB | peak above it MB | CPU s | loss |\n|---|---|---|---|---|")
    found = {}
    for side in ("ours", "naive"):
        done = subprocess.run(
            [sys.executable, __file__, side, str(tokens)], env=environment, capture_output=True, text=True, check=False
        )
        if done.returncode != 0:
            raise SystemExit(f"{side} ended with {done.returncode}: {done.stderr[-500:]}")
        f = found[side] = json.loads(done.stdout.splitlines()[-1])
        print(
            f"| {side} | {f['state_mb']:,.0f} | {f['above_mb']:,.0f} | {f['cpu_s']:.1f} | {f['loss']:.6f} |", flush=True
        )
    print(f"\nours / naive: {found['ours']['above_mb'] / found['naive']['above_mb']:.3f}")


if __name__ == "__main__":
    child(sys.argv[1], int(sys.argv[2]))
