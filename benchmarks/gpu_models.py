"""Models of Qwen3's shapes with random weights, how the cases of `benchmarks/gpu.py` measure time and memory, and the ceilings.

Nothing is fetched. A model of random weights never ends an answer by itself, so every answer has all the tokens it may have.
"""

from __future__ import annotations

import gc
import random
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from benchmarks.vocabulary import resident_mb

GIB = 1 << 30
Figures = dict[str, Any]


@dataclass(frozen=True)
class Shape:
    """A decoder of Qwen3's kind."""

    width: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    feed_forward: int
    vocabulary: int

    def update_flops(self, tokens: int, squares: int, predicted: int) -> float:
        """What forward and backward must compute for rows of `tokens` in all, the sum of whose squared lengths is `squares`,
        with `predicted` positions under the head. Computing activations a second time does not count.
        """
        attention = self.width * self.head_dim * (2 * self.heads + 2 * self.kv_heads)
        layer = 6 * tokens * (attention + 3 * self.width * self.feed_forward) + 6 * squares * self.heads * self.head_dim
        return float(self.layers * layer + 6 * predicted * self.width * self.vocabulary)


SHAPES = {
    "0.6B": Shape(1024, 28, 16, 8, 128, 3072, 151_936),
    "1.7B": Shape(2048, 28, 16, 8, 128, 6144, 151_936),
    "tiny": Shape(64, 2, 4, 2, 16, 128, 600),
}


@dataclass(frozen=True)
class Setting:
    """Where and how large."""

    device: str
    tiny: bool
    work: Path
    """Models and run folders lie here."""
    deadline: float
    """time.time() after which no case begins."""

    @property
    def shapes(self) -> tuple[str, ...]:
        """The smallest first."""
        return ("tiny",) if self.tiny else ("0.6B", "1.7B")

    @property
    def sizes(self) -> tuple[int, int, int, int]:
        """Problems, answers to each, tokens of a prompt, tokens of an answer."""
        return (4, 4, 8, 16) if self.tiny else (64, 8, 128, 512)


def folder(setting: Setting, name: str) -> Path:
    """A folder with a model of this shape and a tokenizer of one word a token."""
    import torch
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

    path, shape = setting.work / name, SHAPES[name]
    if (path / "done").exists():
        return path
    words = {"<pad>": 0, "<eos>": 1} | {f"w{i}": i for i in range(2, shape.vocabulary)}
    core = Tokenizer(models.WordLevel(words, unk_token="<pad>"))
    core.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    PreTrainedTokenizerFast(tokenizer_object=core, pad_token="<pad>", eos_token="<eos>").save_pretrained(path)
    torch.manual_seed(0)
    config = Qwen3Config(
        vocab_size=shape.vocabulary,
        hidden_size=shape.width,
        intermediate_size=shape.feed_forward,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.kv_heads,
        head_dim=shape.head_dim,
        max_position_embeddings=4096,
        tie_word_embeddings=True,
        eos_token_id=1,
        pad_token_id=0,
        bos_token_id=None,
    )
    with torch.device(setting.device):
        model: Any = Qwen3ForCausalLM(config)
        model.to(torch.bfloat16).save_pretrained(path)
    (path / "done").touch()
    return path


@lru_cache(maxsize=1)
def policy(setting: Setting, name: str, attention: str = "") -> Any:
    """The model as the engine loads it, computing in bfloat16."""
    from tossup.engine.policy import load

    return load(str(folder(setting, name)), setting.device, "bfloat16", attention=attention)


def free() -> None:
    """Let go of what earlier cases held."""
    import torch

    policy.cache_clear()
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def wait(device: str) -> None:
    """Until the device has done what it was asked for."""
    import torch

    if device != "cpu":
        torch.cuda.synchronize()


@contextmanager
def measured(device: str, figures: Figures) -> Iterator[None]:
    """Note wall seconds, the peak of memory, and what was held before; of the device, or of the process on a CPU."""
    import torch

    wait(device)
    if device == "cpu":
        Path("/proc/self/clear_refs").write_text("5")  # VmHWM starts again from here
        held = resident_mb("VmRSS") * (1 << 20)
    else:
        torch.cuda.reset_peak_memory_stats()
        held = torch.cuda.memory_allocated()
    begun = time.perf_counter()
    yield
    wait(device)
    figures["seconds"] = time.perf_counter() - begun
    peak = resident_mb("VmHWM") * (1 << 20) if device == "cpu" else torch.cuda.max_memory_allocated()
    figures |= {"state_gib": held / GIB, "peak_gib": peak / GIB}


def median_seconds(work: Callable[[], Any], device: str, repeats: int) -> float:
    """Of one call, after one to warm up."""
    seconds = []
    for _ in range(repeats + 1):
        wait(device)
        begun = time.perf_counter()
        work()
        wait(device)
        seconds.append(time.perf_counter() - begun)
    return statistics.median(seconds[1:])


def machine_cases(setting: Setting) -> list[str]:
    """What the others are compared with."""
    return ["versions", "bfloat16 matmul", "copy"]


def machine(setting: Setting, case: str) -> Figures:
    """Versions, and the two ceilings: a large matrix product and a large copy, both of random numbers."""
    import platform

    import torch
    import transformers

    if case == "versions":
        name = torch.cuda.get_device_name() if setting.device != "cpu" else platform.machine()
        kernels = ", ".join(k for k in ("flash_attn", "kernels", "liger_kernel", "vllm", "trl") if find_spec(k))
        said = f"{name}, Python {platform.python_version()}, torch {torch.__version__}"
        return {"note": f"{said}, transformers {transformers.__version__}; also there: {kernels or 'none'}"}
    n = 256 if setting.tiny else 8192
    a = torch.randn(n, n, device=setting.device, dtype=torch.bfloat16)
    if case == "copy":
        a = a.repeat(4, 4)
        b = torch.empty_like(a)
        seconds = median_seconds(lambda: b.copy_(a), setting.device, 10)
        return {"seconds": seconds, "note": f"{2 * a.nbytes / seconds / 1e12:.3g} TB/s read and written"}
    seconds = median_seconds(lambda: a @ a, setting.device, 20)
    flops = 2 * n**3 / seconds
    return {
        "seconds": seconds,
        "flops_per_s": flops,
        "note": f"{flops / 1e12:.3g} TFLOP/s at {n}^3, the ceiling of MFU",
    }


def groups(setting: Setting, name: str, tokens: int) -> list[Any]:
    """Answers of mixed lengths, half of them right, of `tokens` in all with their prompts."""
    from tossup.records import Group, Problem, Rollout, Stop, correct, wrong

    _, size, n_prompt, limit = setting.sizes
    rng = random.Random(0)

    def ids(n: int) -> tuple[int, ...]:
        return tuple(rng.randrange(2, SHAPES[name].vocabulary) for _ in range(n))

    made: list[Any] = []
    left = tokens
    while left > 0:
        prompt, rollouts = ids(n_prompt), []
        for i in range(size):
            n = rng.randrange(limit // 4, limit * 2) if left > 0 else 1
            left -= n_prompt + n
            verdict = (correct if i % 2 else wrong)("")
            rollouts.append(Rollout(prompt, ids(n), (-12.0,) * n, "", Stop.END, 0, verdict))
        made.append(Group(len(made), Problem(f"p{len(made)}", "", ""), tuple(rollouts)))
    return made
