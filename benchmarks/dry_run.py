"""What `tossup train --dry-run` says of memory, beside what real passes of the same settings take.

    python -m benchmarks.dry_run [--cases qwen2,llama] [--json]          (about 8 GB for the largest case, qwen2)

Models of random weights, none of them fetched: Qwen2's 0.5B shape and smaller ones of other kinds. For each, one generation and
one update (two micro-batches, after a small one that brings AdamW's moments into being) run on the CPU, each in a process of
its own.

state        weights and moments, estimated and found: resident memory above that of the process before it had a model
update       the peak of an update above the state: gradients, activations, working memory
generation   the peak of decoding above the weights
             (measured, both hold what glibc keeps of freed blocks too; the estimate has it in all)
in all       the estimate's last line, and the peak of the process (VmHWM), program and libraries included

The exit status says whether every estimate in all lies within the band.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import json
import multiprocessing
import random
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.vocabulary import resident_mb

BAND = (-0.10, 0.30)
"""How far an estimate in all may lie from what is measured: it has to err high."""
PROMPT, ANSWER, ROWS = 16, 80, 10
"""Tokens of a prompt and of an answer, and the rows of a micro-batch."""
MIB = 1 << 20


@dataclass(frozen=True)
class Case:
    """A model and the settings of its passes."""

    kind: str
    shape: dict[str, Any]
    settings: dict[str, Any] = field(default_factory=dict)


def _sizes(width: int, layers: int, heads: int, kv_heads: int, feed_forward: int, vocabulary: int) -> dict[str, Any]:
    return {
        "hidden_size": width,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "intermediate_size": feed_forward,
        "vocab_size": vocabulary,
    }


QWEN2 = _sizes(896, 24, 14, 2, 4864, 151_936) | {"tie_word_embeddings": True}
LLAMA = _sizes(512, 8, 8, 4, 1408, 32_000)
GEMMA3 = _sizes(512, 8, 4, 1, 2048, 100_000) | {"head_dim": 128}
GEMMA2 = _sizes(384, 6, 4, 2, 1536, 50_000) | {"head_dim": 96}
MIXTRAL = _sizes(384, 6, 6, 2, 768, 32_000) | {"num_local_experts": 8, "num_experts_per_tok": 2}
HALF = {"dtype": "bfloat16"}
ADAPTER = {"lora.rank": 16}
AGAIN = {"update.gradient_checkpointing": True}
PACKED = {"update.packing": "packed"}
CASES = {
    "llama": Case("llama", LLAMA),
    "llama, bf16, packed": Case("llama", LLAMA, HALF | PACKED),
    "llama, recomputed": Case("llama", LLAMA, AGAIN),
    "mixtral": Case("mixtral", MIXTRAL),
    "mixtral, bf16, LoRA": Case("mixtral", MIXTRAL, HALF | ADAPTER),
    "gemma3, LoRA, recomputed": Case("gemma3_text", GEMMA3, ADAPTER | AGAIN),
    "gemma3": Case("gemma3_text", GEMMA3),
    "gemma2, capped logits": Case("gemma2", GEMMA2),
    "gpt2, packed": Case("gpt2", {}, PACKED),
    "gpt2, bf16, recomputed": Case("gpt2", {}, HALF | AGAIN),
    "qwen2, bf16, LoRA, recomputed": Case("qwen2", QWEN2, HALF | ADAPTER | AGAIN),
    "qwen2": Case("qwen2", QWEN2),
}


def write_folder(case: Case, folder: Path) -> int:
    """Configuration and tokenizer, a word a token; returns the size of the vocabulary."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import AutoConfig, PreTrainedTokenizerFast

    ends = {"eos_token_id": 1, "pad_token_id": 0, "bos_token_id": None}
    config = AutoConfig.for_model(case.kind, **ends | case.shape)
    config.save_pretrained(folder)
    words = {"<pad>": 0, "<eos>": 1} | {f"w{i}": i for i in range(2, 1000)}
    core = Tokenizer(models.WordLevel(words, unk_token="<pad>"))
    core.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    PreTrainedTokenizerFast(tokenizer_object=core, pad_token="<pad>", eos_token="<eos>").save_pretrained(folder)
    return int(config.vocab_size)


def settings_of(case: Case, folder: Path) -> Any:
    """The run's configuration: a step is two micro-batches of full rows, decoded at once."""
    from tossup.engine.config import TrainConfig, load

    chosen = {
        "model": str(folder),
        "device": "cpu",
        "update.lr": 1e-9,
        "update.micro_batch_tokens": ROWS * (PROMPT + ANSWER),
        "rollout.max_new_tokens": ANSWER,
        "rollout.group_size": ROWS,
        "rollout.problems_per_step": 2,
        "rollout.batch_size": 2 * ROWS,
    }
    return load(TrainConfig, None, chosen | case.settings)


def real_policy(config: Any) -> Any:
    """The model with random weights, as the engine would have loaded it."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    from tossup.engine import lora
    from tossup.engine.policy import Policy, compute_type
    from tossup.engine.probe import probe

    torch.manual_seed(0)
    settings = AutoConfig.from_pretrained(config.model)
    model: Any = AutoModelForCausalLM.from_config(settings, dtype=torch.float32).eval()
    if config.lora.rank:
        lora.attach(model, config.model, config.lora, config.seed)
    device = torch.device("cpu")
    never = frozenset({settings.vocab_size})  # so that every answer has all its tokens
    return probe(Policy(model, None, device, compute_type(config.dtype, device), never, 0))


def held() -> int:
    """Resident bytes, after what can be given back was."""
    gc.collect()
    ctypes.CDLL("libc.so.6").malloc_trim(0)
    return int(resident_mb("VmRSS") * MIB)


def groups(vocabulary: int, answer: int, rows: int) -> list[Any]:
    """Two groups of full rows, half of the answers right."""
    from tossup.records import Group, Problem, Rollout, Stop, correct, wrong

    rng = random.Random(0)

    def rollout(i: int) -> Rollout:
        ids = [rng.randrange(2, vocabulary) for _ in range(PROMPT + answer)]
        verdict = (correct if i % 2 else wrong)("")
        return Rollout(tuple(ids[:PROMPT]), tuple(ids[PROMPT:]), (-9.0,) * answer, "", Stop.END, 0, verdict)

    return [Group(g, Problem(f"p{g}", "", ""), tuple(rollout(i) for i in range(rows))) for g in range(2)]


def _warm_up() -> None:
    """A pass of the tiny model: what libraries take into use for their first operations is theirs, not the model's."""
    from tossup.engine.config import TrainConfig
    from tossup.engine.policy import load
    from tossup.engine.step import make_optimizer, update

    policy = load("builtin:arithmetic", "cpu")
    update(policy, make_optimizer(policy, TrainConfig().update), groups(8, 2, 2), TrainConfig(), None)


def measure(phase: str, config: Any, vocabulary: int) -> dict[str, int]:
    """Of a process that has no model yet: the bytes of the state, and of the peak above it and in all."""
    from tossup.engine.config import SamplingConfig
    from tossup.engine.generate import TransformersGenerator
    from tossup.engine.step import make_optimizer, update

    _warm_up()
    before = held()
    policy = real_policy(config)
    if phase == "update":
        optimizer = make_optimizer(policy, config.update)
        update(policy, optimizer, groups(vocabulary, 2, 2), config, None)
        optimizer.zero_grad(set_to_none=True)
        full = groups(vocabulary, ANSWER, ROWS)
        work = lambda: update(policy, optimizer, full, config, None)  # noqa: E731 -- one of two
    else:
        generator = TransformersGenerator(policy)
        prompts = [tuple(range(2, 2 + PROMPT))] * 2
        generator.generate(prompts, 1, [1, 2], SamplingConfig(max_new_tokens=1))
        work = lambda: generator.generate(prompts, ROWS, [1, 2], config.rollout)  # type: ignore[assignment, return-value]  # noqa: E731
    state = held()
    Path("/proc/self/clear_refs").write_text("5")  # VmHWM starts again from here
    work()
    most = int(resident_mb("VmHWM") * MIB)
    return {"state": state - before, "peak": most - state, "whole": most}


def estimate(config: Any) -> dict[str, int]:
    """What the dry run says, by the same parts."""
    from tossup.engine.plan import at_most, by_purpose, memory, skeleton

    found = memory(skeleton(config), config, PROMPT)
    parts = by_purpose(found)
    program = sum(found[name] or 0 for name in ("always: program and libraries", "always: freed but kept by glibc"))
    return parts | {"state": parts["always"] - program, "whole": at_most(found)}


def _answer(pipe: Any, work: Any, args: tuple[Any, ...]) -> None:
    pipe.send(work(*args))


def apart(work: Any, *args: Any) -> dict[str, int]:
    """Do it in a process that begins as this one is: with the libraries, without a model.

    Raises:
        SystemExit: it died.
    """
    fork = multiprocessing.get_context("fork")
    ours, theirs = fork.Pipe(duplex=False)
    process = fork.Process(target=_answer, args=(theirs, work, args))
    process.start()
    theirs.close()
    try:
        found: dict[str, int] = ours.recv()
    except EOFError:
        process.join()
        raise SystemExit(f"a process ended with {process.exitcode} before it had an answer") from None
    process.join()
    return found


def compare(name: str) -> dict[str, Any]:
    """A row of the table: MiB, estimated and measured."""
    case = CASES[name]
    with tempfile.TemporaryDirectory(prefix="tossup-dry-run-") as path:
        vocabulary = write_folder(case, Path(path))
        config = settings_of(case, Path(path))
        said = apart(estimate, config)
        update, generation = (apart(measure, phase, config, vocabulary) for phase in ("update", "generation"))
    pairs = {
        "state": (said["state"], update["state"]),
        "update": (said["update"], update["peak"]),
        "generation": (said["generation"], generation["peak"]),
        "in all": (said["whole"], max(update["whole"], generation["whole"])),
    }
    return {"case": name} | {part: (round(a / MIB), round(b / MIB)) for part, (a, b) in pairs.items()}


def off(pair: tuple[int, int]) -> float:
    """How far the estimate lies above what was measured, as a share of that."""
    return pair[0] / max(1, pair[1]) - 1


def main() -> None:
    """Print a line a case as it is done."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", default="", help="beginnings of their names, separated by commas")
    parser.add_argument("--json", action="store_true", help="print a JSON object a line instead of a table")
    args = parser.parse_args()
    import torch
    import transformers.models.auto.modeling_auto  # noqa: F401 -- the processes begin with the libraries

    import tossup.engine.train  # noqa: F401

    torch.set_num_threads(1)
    wanted = tuple(args.cases.split(","))
    parts = ("state", "update", "generation", "in all")
    if not args.json:
        print("| MiB estimated / measured | " + " | ".join(parts) + " |\n|---|" + "---|" * len(parts))
    good = True
    for name in (name for name in CASES if name.startswith(wanted)):
        row = compare(name)
        good = good and BAND[0] <= off(row["in all"]) <= BAND[1]
        if args.json:
            print(json.dumps(row), flush=True)
        else:
            cells = [f"{a:,} / {b:,} ({off((a, b)):+.0%})" for a, b in (row[part] for part in parts)]
            print(f"| {name} | " + " | ".join(cells) + " |", flush=True)
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
