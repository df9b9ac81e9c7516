"""The model that is trained: what the engine knows of it, loading it, writing it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from torch import Tensor

from tossup.engine import arithmetic, lora
from tossup.engine.config import LoraConfig
from tossup.engine.probe import probe
from tossup.records import TossupError

TINY_PARAMETERS = 5_000_000
"""Below this, one CPU thread beats many: the time goes into starting operations."""


@dataclass(frozen=True)
class Policy:
    """A causal language model with its tokenizer, on one device, weights in float32."""

    model: Any
    tokenizer: Any
    device: torch.device
    compute: torch.dtype
    eos_ids: frozenset[int]
    pad_id: int
    plain_head: bool = True
    """Whether the logits are the output head of the last hidden states and nothing more (no soft cap, no scale)."""
    packs: bool = False
    """Whether sequences that stand end to end in one row do not see each other."""
    pads: bool = True
    """Whether prompts of different lengths can be decoded as one left-padded batch."""
    cache_fault: str = ""
    """What is wrong with the logits over the model's cache, so that no answer can be sampled; empty where nothing is."""

    def autocast(self, cast_once: bool = True) -> AbstractContextManager[object]:
        """The compute type for forward passes: float32 as it is, or automatic mixed precision.

        `cast_once` casts a weight that is used several times once, and sums its gradient in the compute type.
        """
        if self.compute is torch.float32:
            return nullcontext()
        return torch.autocast(self.device.type, dtype=self.compute, cache_enabled=cast_once)

    def decode(self, ids: tuple[int, ...]) -> str:
        """The text of response tokens, without special tokens."""
        return str(self.tokenizer.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False))

    def trainable(self) -> dict[str, torch.nn.Parameter]:
        """The parameters that an update changes: all of them, or the adapter's."""
        return {name: p for name, p in self.model.named_parameters() if p.requires_grad}

    def weights(self) -> Iterator[tuple[str, Tensor]]:
        """What a generator of another make is given: all weights under the model's own names, an adapter merged in.

        A head that is tied to the embedding comes under both names.
        """
        if lora.attached(self.model):
            return lora.merged(self.model)
        return ((name, p.detach()) for name, p in self.model.named_parameters(remove_duplicate=False))

    @property
    def context(self) -> int:
        """How many tokens fit, prompt and answer together.

        Models with LongRoPE are used within their first training's length: beyond it the longest row of a batch changes the
        frequencies of all, so that a token's log-prob would depend on its neighbours.
        """
        config = self.model.config.get_text_config()
        fits = int(getattr(config, "max_position_embeddings", None) or 1 << 30)
        rope = getattr(config, "rope_parameters", None) or {}
        if rope.get("rope_type") == "longrope":
            return min(fits, int(rope["original_max_position_embeddings"]))
        return fits


def load(
    name: str,
    device: str = "auto",
    dtype: str = "auto",
    *,
    attention: str = "",
    adapter: LoraConfig | None = None,
    seed: int = 0,
) -> Policy:
    """Load a model by Hugging Face name, folder, or `builtin:arithmetic`; a folder with a LoRA adapter is merged on loading.

    `attention` names an attention implementation of transformers. With an `adapter` of rank above 0 the weights are frozen
    and a new adapter, begun from `seed`, is what can be trained.

    Raises:
        TossupError: there is no such model here, it is no causal language model, or there is no such device.
    """
    from transformers.utils import logging

    logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    place = _device(device)
    source = model_source(name)
    try:
        model, tokenizer = _read(source, attention)
    except (OSError, ValueError, RuntimeError, KeyError, ImportError, SafetensorError) as e:
        first_line = f"{type(e).__name__}: {e}".strip().splitlines()[0]
        raise TossupError(
            f"model {name!r} cannot be loaded: {first_line}. Give a folder with config.json, weights and tokenizer, "
            "or a Hugging Face name that is cached here or can be downloaded"
        ) from e
    if adapter is not None and adapter.rank:
        lora.attach(model, source, adapter, seed)
    model.to(place).eval()
    compute = compute_type(dtype, place)
    if compute is torch.float32 and "flash" in str(model.config._attn_implementation):
        raise TossupError(
            f"{model.config._attn_implementation} computes in 16 bits only: --dtype bfloat16, or another --attention than it"
        )
    eos = model.generation_config.eos_token_id
    eos_ids = frozenset([eos] if isinstance(eos, int) else eos or []) | (
        {tokenizer.eos_token_id} if tokenizer.eos_token_id is not None else frozenset()
    )
    if not eos_ids:
        raise TossupError(f"model {name!r} names no end-of-sequence token, so no answer could ever end")
    pad_id = tokenizer.pad_token_id if tokenizer.pad_token_id is not None else min(eos_ids)
    policy = Policy(model, tokenizer, place, compute, eos_ids, pad_id)
    return probe(policy)


def _read(source: str, attention: str) -> tuple[Any, Any]:
    """Model, in float32, and tokenizer."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    chosen = {"attn_implementation": attention} if attention else {}
    tokenizer = AutoTokenizer.from_pretrained(source)
    if lora.is_saved(Path(source)):
        model = AutoModelForCausalLM.from_pretrained(lora.base_of(Path(source)), dtype=torch.float32, **chosen)
        lora.merge_saved(model, Path(source))
        return model, tokenizer
    return AutoModelForCausalLM.from_pretrained(source, dtype=torch.float32, **chosen), tokenizer


def model_source(name: str) -> str:
    """Where a model lies: the folder of a built-in one, the trained model of a run folder, any other folder, or a Hub name.

    Raises:
        TossupError: there is no such folder or built-in model, or the run has not written its model yet.
    """
    if name == "builtin:arithmetic":
        return str(arithmetic.checkpoint_path())
    if name.startswith("builtin:"):
        raise TossupError(f"there is no built-in model {name!r}: the one that ships is builtin:arithmetic")
    folder = Path(name).expanduser()
    if name.startswith((".", "/", "~")) and not folder.is_dir():
        raise TossupError(f"there is no model folder {folder}")
    if (folder / "model" / "config.json").is_file() or lora.is_saved(folder / "model"):
        return str(folder / "model")
    if (folder / "config.toml").is_file() and not (folder / "config.json").exists():
        raise TossupError(f"{folder} is a run that has not written its model yet: let its command run to the end first")
    return str(folder) if folder.is_dir() else name


def export(policy: Policy, folder: Path, state: dict[str, Tensor] | None = None) -> None:
    """Write a Hugging Face folder of the model and its tokenizer; of a model with an adapter, the adapter alone.

    `state` are the whole weights where the model itself holds only a shard of them.

    Raises:
        TossupError: the disk refused.
    """
    try:
        if lora.attached(policy.model):
            lora.save(policy.model, folder, state)
        else:
            policy.model.save_pretrained(folder, state_dict=state)
        policy.tokenizer.save_pretrained(folder)
    except (OSError, SafetensorError) as e:
        raise TossupError(
            f"{folder} could not be written ({e}); every step is saved: free what is missing and run the same command"
        ) from e


def compute_type(dtype: str, device: torch.device) -> torch.dtype:
    """What a policy computes in by its setting: "float32", "bfloat16", or "auto", which goes by the device."""
    named = {"float32": torch.float32, "bfloat16": torch.bfloat16}.get(dtype)
    return named or (torch.bfloat16 if device.type == "cuda" else torch.float32)


def _device(name: str) -> torch.device:
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError:
        raise TossupError(f"unknown device {name!r}: auto, cpu, cuda or cuda:N") from None
    if device.type not in ("cpu", "cuda"):
        raise TossupError(f"device {name!r} is not supported: auto, cpu, cuda or cuda:N")
    there = torch.cuda.device_count()
    if device.type == "cuda" and there == 0:
        raise TossupError(f"device {name!r} was asked for, but torch sees no CUDA device here: use --device cpu")
    if device.type == "cuda" and (device.index or 0) >= there:
        raise TossupError(f"device {name!r} was asked for, but the last CUDA device here is cuda:{there - 1}")
    return device


def set_threads(policy: Policy, threads: int) -> None:
    """Set torch's CPU threads; 0 chooses one for a tiny model and leaves torch's choice otherwise."""
    if threads:
        torch.set_num_threads(threads)
    elif sum(p.numel() for p in policy.model.parameters()) < TINY_PARAMETERS:
        torch.set_num_threads(1)
