"""The objectives beside TRL's, on the same numbers: value of the loss and its gradient, in float64 and float32.

    PYTHONPATH=. ENV/bin/python -m benchmarks.objectives          ENV: an environment with trl==1.16.0 and torch
    PYTHONPATH=. ENV/bin/python -m benchmarks.objectives --constants tests/engine/trl_losses.json

The second writes TRL's values in float64 to a file, with which `tests/engine/test_trl_losses.py` compares ours without TRL.

TRL's side is TRL's own code: a `GRPOTrainer` of its own for every row, whose `_compute_loss` is called; only the method
that would run the model is replaced, by one that returns the given log-probabilities. The batch is 4 groups of 4 with lengths
between 1 and 12, log-ratios of deviation 0.4, so that both clips bite, and advantages of mixed groups.

A second table shows what differs by definition: the advantages that TRL gives to known rewards (its own
`_generate_and_score_completions`, on a tiny model), and the loss where a group is degenerate.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from tossup.engine.objective import SURROGATES, advantages, overlong_penalty, policy_loss, sequence_weights

GROUPS, SIZE, LIMIT = 4, 4, 12


class Case(NamedTuple):
    """One objective in both vocabularies."""

    name: str
    surrogate: str
    aggregate: str
    low: float
    high: float
    beta: float
    trl: dict[str, Any]
    dual: float = 0.0


SEQUENCE = {"loss_type": "grpo", "importance_sampling_level": "sequence"}
K3 = {"beta": 0.04, "use_bias_correction_kl": False}

CASES = [
    Case("GRPO", "grpo", "sequence", 0.2, 0.2, 0.0, {"loss_type": "grpo"}),
    Case("GRPO, k3 KL", "grpo", "sequence", 0.2, 0.2, 0.04, {"loss_type": "grpo"} | K3),
    Case("clip-higher", "grpo", "sequence", 0.2, 0.28, 0.0, {"loss_type": "grpo", "epsilon_high": 0.28}),
    Case("dual clip", "grpo", "sequence", 0.2, 0.2, 0.0, {"loss_type": "grpo", "delta": 1.5}, 1.5),
    Case("mean over tokens", "grpo", "token", 0.2, 0.2, 0.0, {"loss_type": "bnpo"}),
    Case("mean over tokens, k3 KL", "grpo", "token", 0.2, 0.2, 0.04, {"loss_type": "bnpo"} | K3),
    Case("Dr. GRPO", "grpo", "constant", 0.2, 0.2, 0.0, {"loss_type": "dr_grpo"}),
    Case("Dr. GRPO, k3 KL", "grpo", "constant", 0.2, 0.2, 0.04, {"loss_type": "dr_grpo"} | K3),
    Case("DAPO", "grpo", "token", 0.2, 0.28, 0.0, {"loss_type": "dapo", "epsilon_high": 0.28}),
    Case("GSPO", "gspo", "sequence", 3e-4, 4e-4, 0.0, SEQUENCE | {"epsilon": 3e-4, "epsilon_high": 4e-4}),
    Case(
        "GSPO, wide, k3 KL", "gspo", "sequence", 0.1, 0.2, 0.04, SEQUENCE | {"epsilon": 0.1, "epsilon_high": 0.2} | K3
    ),
    Case("CISPO", "cispo", "token", 1.0, 4.0, 0.0, {"loss_type": "cispo", "epsilon_high": 5.0}),
    Case("CISPO, tight bound", "cispo", "token", 1.0, 0.2, 0.0, {"loss_type": "cispo", "epsilon_high": 1.2}),
    Case("GRPO, TRL's own KL", "grpo", "sequence", 0.2, 0.2, 0.04, {"loss_type": "grpo", "beta": 0.04}),
]
"""CISPO's bound: TRL's `epsilon_high` is the largest weight itself, ours is what it may exceed 1 by. By default TRL multiplies
the KL term by the importance ratio, which the paper's equation does not: the last row shows what that comes to."""


class Numbers(NamedTuple):
    """The same for both sides."""

    logps_BT: Tensor
    old_BT: Tensor
    ref_BT: Tensor
    mask_BT: Tensor
    advantages_B: Tensor
    lengths: list[int]


def numbers(dtype: torch.dtype) -> Numbers:
    """Log-probs of a policy that has moved since sampling, and of the start model."""
    g = torch.Generator().manual_seed(0)
    rows = GROUPS * SIZE
    logps = -2 + torch.randn(rows, LIMIT, generator=g, dtype=torch.float64)
    old = logps + 0.4 * torch.randn(rows, LIMIT, generator=g, dtype=torch.float64)
    ref = logps + 0.4 * torch.randn(rows, LIMIT, generator=g, dtype=torch.float64)
    lengths = torch.randint(1, LIMIT + 1, (rows,), generator=g)
    mask = torch.arange(LIMIT)[None] < lengths[:, None]
    rewards = ([1, 0, 0, 1], [1, 1, 1, 0], [0, 0, 0, 1], [1, 0, 1, 0])
    adv = torch.tensor([a for group in rewards for a in advantages([float(r) for r in group])], dtype=torch.float64)
    return Numbers(logps.to(dtype), old.to(dtype), ref.to(dtype), mask, adv.to(dtype), lengths.tolist())


def ours(case: Case, n: Numbers) -> tuple[Tensor, Tensor]:
    """Value and gradient by our code."""
    x = n.logps_BT.clone().requires_grad_()
    weights_B = torch.tensor(sequence_weights(n.lengths, case.aggregate, LIMIT), dtype=x.dtype)
    loss = policy_loss(
        SURROGATES[case.surrogate],
        x,
        n.old_BT,
        n.advantages_B,
        weights_B,
        n.mask_BT,
        case.low,
        case.high,
        case.beta,
        n.ref_BT,
        clip_dual=case.dual,
    ).loss
    loss.backward()
    assert x.grad is not None
    return loss.detach(), x.grad


def trainer(folder: Path, reward: Any, **settings: Any) -> Any:
    """A GRPOTrainer over a tiny model."""
    from datasets import Dataset
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from trl import GRPOConfig, GRPOTrainer

    config = GRPOConfig(
        output_dir=str(folder / "out"),
        per_device_train_batch_size=GROUPS * SIZE,
        num_generations=SIZE,
        max_completion_length=LIMIT,
        use_cpu=True,
        bf16=False,
        gradient_checkpointing=False,
        report_to="none",
        disable_tqdm=True,
        **settings,
    )
    tokenizer = AutoTokenizer.from_pretrained(folder)
    tokenizer.padding_side = "left"
    return GRPOTrainer(
        model=AutoModelForCausalLM.from_pretrained(folder),
        reward_funcs=reward,
        args=config,
        train_dataset=Dataset.from_list([{"prompt": f"problem {i} ="} for i in range(GROUPS)]),
        processing_class=tokenizer,
    )


def theirs(case: Case, n: Numbers, folder: Path) -> tuple[Tensor, Tensor]:
    """Value and gradient by TRL's `_compute_loss`."""
    t = trainer(folder, lambda completions, **_: [0.0] * len(completions), **case.trl)
    x = n.logps_BT.clone().requires_grad_()
    t._get_per_token_logps_and_entropies = lambda *_, **__: (x, torch.zeros_like(x), None)
    t.current_gradient_accumulation_steps = 1
    t.model.train()
    mask = n.mask_BT.long()
    loss = t._compute_loss(
        t.model,
        {
            "prompt_ids": torch.ones(len(x), 2, dtype=torch.long),
            "prompt_mask": torch.ones(len(x), 2, dtype=torch.long),
            "completion_ids": mask,
            "completion_mask": mask,
            "advantages": n.advantages_B,
            "old_per_token_logps": n.old_BT,
            "ref_per_token_logps": n.ref_BT,
            "num_items_in_batch": mask.sum(),
        },
    )
    loss.backward()
    assert x.grad is not None
    return loss.detach(), x.grad


def trl_advantages(rewards: list[float], folder: Path, **settings: Any) -> list[float]:
    """What TRL makes of these rewards: GROUPS * SIZE of them, group after group."""
    t = trainer(folder, lambda completions, **_: rewards, **settings)
    inputs = [{"prompt": f"problem {i} ="} for i in range(GROUPS) for _ in range(SIZE)]
    t.model.train()
    out = t._generate_and_score_completions(inputs)
    return [float(a) for a in out["advantages"]]


def by_definition(folder: Path) -> None:
    """Print what is meant to differ."""
    groups = [[1.0, 0.0, 0.0, 1.0], [1.0, 1.0, 1.0, 0.0], [0.0, 0.0, 0.0, 1.0], [1.0, 1.0, 1.0, 1.0]]
    flat = [r for g in groups for r in g]
    normed, plain = trl_advantages(flat, folder), trl_advantages(flat, folder, scale_rewards="none")
    print("| rewards of the group | TRL, std on | ours, std on | TRL, std off | ours, std off |\n|---|---|---|---|---|")
    for i, group in enumerate(groups):
        part = slice(i * SIZE, (i + 1) * SIZE)
        mixed = max(group) > min(group)
        own = [str([round(a, 4) for a in advantages(group, on)]) if mixed else "dropped" for on in (True, False)]
        other = [str([round(a, 4) for a in found[part]]) for found in (normed, plain)]
        print(f"| {[int(r) for r in group]} | {other[0]} | {own[0]} | {other[1]} | {own[1]} |")


def overlong() -> None:
    """Print how far our overlong penalty is from TRL's `get_soft_overlong_punishment`, over all lengths."""
    from trl.rewards import get_soft_overlong_punishment

    for limit, cache in ((20, 4), (20_480, 4_096)):
        punish = get_soft_overlong_punishment(max_completion_len=limit, soft_punish_cache=cache)
        lengths = range(1, limit + 2, max(1, limit // 500))
        lost = [-p for p in punish(completion_ids=[[0] * length for length in lengths])]
        apart = max(abs(a - overlong_penalty(n, limit, cache / limit)) for a, n in zip(lost, lengths, strict=True))
        print(f"overlong punishment, limit {limit:,}, last {cache:,}: at most {apart:.1e} apart")


def constants(folder: Path) -> str:
    """TRL's loss, and the length of its gradient, for every case, with all that goes in; as JSON of a line each.

    Log-probs are rounded, and those of a row end with its answer, so that the file stays small.
    """
    from importlib.metadata import version

    n = numbers(torch.float64)
    logps, old, ref = (t.mul(1000).round().div(1000) for t in (n.logps_BT, n.old_BT, n.ref_BT))
    n = n._replace(logps_BT=logps, old_BT=old, ref_BT=ref)
    ragged = {
        name: [row[:length] for row, length in zip(tensor.tolist(), n.lengths, strict=True)]
        for name, tensor in (("logps", logps), ("old_logps", old), ("ref_logps", ref))
    }
    command = "python -m benchmarks.objectives --constants FILE"
    about = f"made by `{command}`: GRPOTrainer._compute_loss of trl {version('trl')} in float64, for every case"
    cases = []
    for case in CASES:
        loss, gradient = theirs(case, n, folder)
        found = {"trl_loss": loss.item(), "trl_gradient_norm": gradient.norm().item()}
        cases.append(case._asdict() | found)
    given = {"about": about, "max_new_tokens": LIMIT, "advantages": n.advantages_B.tolist()} | ragged
    lines = [f" {json.dumps(name)}: {json.dumps(value)}," for name, value in given.items()]
    rows = ",\n".join(f"  {json.dumps(case)}" for case in cases)
    return "\n".join(["{", *lines, ' "cases": [', rows, " ]", "}", ""])


def main() -> None:
    """Print the tables, or write TRL's values to a file."""
    from transformers.utils import logging

    from benchmarks.engine import build_wide_model

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--constants", type=Path, help="write TRL's values to this file, and print nothing")
    into: Path | None = parser.parse_args().constants
    logging.disable_progress_bar()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        build_wide_model(folder)
        if into is not None:
            into.write_text(constants(folder), encoding="utf-8")
            return
        print("| objective | TRL's settings | loss | float64: difference | of gradient | float32 | of gradient |")
        print("|---|---|---|---|---|---|---|")
        for case in CASES:
            cells = []
            for dtype in (torch.float64, torch.float32):
                n = numbers(dtype)
                (a, grad_a), (b, grad_b) = ours(case, n), theirs(case, n, folder)
                cells += [f"{(a - b).abs().item():.1e}", f"{(grad_a - grad_b).abs().max().item():.1e}"]
                value = a.item()
            settings = ", ".join(f"{k}={v}" for k, v in case.trl.items())
            print(f"| {case.name} | {settings} | {value:+.4f} | " + " | ".join(cells) + " |", flush=True)
        print()
        by_definition(folder)
        print()
        overlong()


if __name__ == "__main__":
    main()
