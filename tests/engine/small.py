"""A model that is real but takes milliseconds: Qwen3's shape at width 16, random weights, in float64."""

from __future__ import annotations

import pytest
import torch
from transformers import Qwen3Config, Qwen3ForCausalLM

from tossup.engine.distributed import Torchrun
from tossup.engine.policy import Policy
from tossup.records import Group, Problem, Rollout, Stop, correct, undecided, wrong

PAD, EOS, VOCABULARY = 0, 1, 12


def make_policy(seed: int = 0, dtype: torch.dtype = torch.float64, context: int = 64) -> Policy:
    torch.manual_seed(seed)
    config = Qwen3Config(
        vocab_size=VOCABULARY,
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=8,
        max_position_embeddings=context,
        initializer_range=0.5,
        pad_token_id=PAD,
        eos_token_id=EOS,
        bos_token_id=None,
    )
    model = Qwen3ForCausalLM(config).to(dtype).eval()
    return Policy(model, None, torch.device("cpu"), torch.float32, frozenset([EOS]), PAD)


VERDICTS = {"1": correct("right"), "0": wrong("not right"), "?": undecided("broken")}


def make_group(marks: str, lengths: list[int] | None = None, seed: int = 0, gid: int = 0) -> Group:
    """A group from marks such as "10?1": right, wrong, undecided, right; token ids drawn from a seed."""
    rng = torch.Generator().manual_seed(seed)
    lengths = lengths or [3 + i % 4 for i in range(len(marks))]
    prompt = tuple(torch.randint(2, VOCABULARY, (4 + seed % 3,), generator=rng).tolist())
    rollouts = []
    for mark, n in zip(marks, lengths, strict=True):
        ids = tuple(torch.randint(2, VOCABULARY, (n,), generator=rng).tolist())
        logps = tuple((-2.5 + 0.3 * torch.randn(n, generator=rng)).tolist())
        rollouts.append(Rollout(prompt, ids, logps, "", Stop.END, 0, VERDICTS[mark]))
    return Group(gid, Problem(f"p{gid}", "prompt", "1"), tuple(rollouts))


def lone_rank(device: str, monkeypatch: pytest.MonkeyPatch) -> Torchrun:
    """What torchrun makes of a process that is alone; whoever takes it has it leave."""
    lone = {"RANK": 0, "WORLD_SIZE": 1, "LOCAL_RANK": 0, "MASTER_ADDR": "127.0.0.1"}
    any_port = {"MASTER_PORT": 0}  # nobody else is to find it
    for name, value in (lone | any_port).items():
        monkeypatch.setenv(name, str(value))
    return Torchrun(device, 60.0)
