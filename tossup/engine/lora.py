"""LoRA through peft: a few low-rank matrices are trained beside frozen weights (Hu et al., arXiv:2106.09685).

The adapter's layers are put into the Hugging Face model in place, so the model keeps its class, its forward and its parts, and
nothing else in the engine has to know. What is different: few parameters are trainable, the start model is the same model
with the adapter off (no second copy for the KL term), and the plain weights are the frozen ones plus B A times alpha / rank.

The adapter is saved in peft's own format: `PeftModel.from_pretrained(base, folder)` reads it.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from tossup.engine.config import LoraConfig
from tossup.records import TossupError

ADAPTER = "default"
PREFIX = "base_model.model."
"""What peft puts before the names of an adapter's tensors in a file."""


def attach(model: Any, base: str, section: LoraConfig, seed: int) -> None:
    """Freeze the model's weights and put a new adapter, which changes nothing yet, beside its linear layers.

    `base` is what the adapter's folder will name as its base model. The start of the matrices A follows from `seed` alone.

    Raises:
        TossupError: peft is not installed, or the model has no layers of these names.
    """
    from transformers.pytorch_utils import Conv1D

    peft = _peft()
    targets = section.targets if section.targets == "all-linear" else section.targets.split(",")
    config = peft.LoraConfig(
        r=section.rank,
        lora_alpha=section.alpha,
        lora_dropout=0.0,  # dropout would make the trainer's distribution another than the sampler's
        target_modules=targets,
        exclude_modules=_unfit(model) if targets == "all-linear" else None,
        fan_in_fan_out=any(isinstance(module, Conv1D) for module in model.modules()),
        task_type="CAUSAL_LM",
        base_model_name_or_path=base,
    )
    with torch.random.fork_rng(devices=[]):  # the model is on the CPU still, and no GPU need be taken into use
        torch.manual_seed(seed)
        try:
            _inject(config, model)
        except ValueError as e:
            raise TossupError(f"lora.targets {section.targets!r} do not fit the model: {e}") from e
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(_is_adapter(name))


def attached(model: Any) -> bool:
    """Whether the model carries an adapter."""
    return hasattr(model, "peft_config")


@contextmanager
def detached(model: Any) -> Iterator[None]:
    """Within it, the model computes as it did before training. What can be trained stays so."""
    layers = _layers(model).values()
    trained = [p for p in model.parameters() if p.requires_grad]
    for layer in layers:
        layer.enable_adapters(False)
    for p in trained:  # peft freezes the adapter with it, and FSDP2 takes its dtypes from what it first sees trainable
        p.requires_grad_(True)
    try:
        yield
    finally:
        for layer in layers:
            layer.enable_adapters(True)


@torch.no_grad()
def merged(model: Any) -> Iterator[tuple[str, Tensor]]:
    """The weights of the plain model that computes the same, one after the other, under the plain model's names."""
    layers = _layers(model)
    for name, tensor in model.named_parameters(remove_duplicate=False):
        if _is_adapter(name):
            continue
        plain = name.replace(".base_layer", "")
        owner, _, leaf = plain.rpartition(".")
        for layer in _wrapped(layers, owner):
            if getattr(layer, "parameter_name", "weight") == leaf:
                tensor = tensor + layer.get_delta_weight(ADAPTER).to(tensor.dtype)
        yield plain, tensor


def _wrapped(layers: dict[str, Any], name: str) -> Iterator[Any]:
    """The adapter's layers around the module of this plain name: one, or of a block of experts one a parameter."""
    while name in layers:
        yield layers[name]
        name += ".base_layer"


def save(model: Any, folder: Path, weights: dict[str, Tensor] | None = None) -> None:
    """Write `adapter_config.json` and `adapter_model.safetensors`, from `weights` where the model holds only a shard."""
    from safetensors.torch import save_file

    state = _peft().get_peft_model_state_dict(model, state_dict=weights, adapter_name=ADAPTER)
    folder.mkdir(parents=True, exist_ok=True)
    prefixed = {PREFIX + name: tensor.detach().cpu().contiguous() for name, tensor in state.items()}
    save_file(prefixed, folder / "adapter_model.safetensors", metadata={"format": "pt"})
    config = model.peft_config[ADAPTER]
    # peft keeps a set, which would be written in another order each time.
    config.target_modules = sorted(config.target_modules)
    config.save_pretrained(folder)


def is_saved(folder: Path) -> bool:
    """Whether the folder holds an adapter rather than a whole model."""
    return (folder / "adapter_config.json").is_file()


def base_of(folder: Path) -> str:
    """The base model that an adapter's folder names."""
    return str(_peft().PeftConfig.from_pretrained(folder).base_model_name_or_path)


def merge_saved(model: Any, folder: Path) -> None:
    """Add the adapter of this folder to the weights of its base `model`, which stays a plain model."""
    from safetensors.torch import load_file

    peft = _peft()
    _inject(peft.PeftConfig.from_pretrained(folder), model)
    state = {name.removeprefix(PREFIX): t for name, t in load_file(folder / "adapter_model.safetensors").items()}
    peft.set_peft_model_state_dict(model, state, ADAPTER)
    layers = _layers(model)
    for layer in reversed(layers.values()):  # the inner ones first
        layer.merge()
    for name, layer in layers.items():
        if not name.endswith(".base_layer"):
            owner, _, leaf = name.rpartition(".")
            setattr(model.get_submodule(owner), leaf, layer.get_base_layer())
    del model.peft_config


def _layers(model: Any) -> dict[str, Any]:
    from peft.tuners.tuners_utils import BaseTunerLayer

    return {name: module for name, module in model.named_modules() if isinstance(module, BaseTunerLayer)}


def _inject(config: Any, model: Any) -> None:
    with warnings.catch_warnings():
        # Said of patterns that peft itself adds for the experts of a mixture.
        warnings.filterwarnings("ignore", "The following (rank|alpha)_pattern keys", RuntimeWarning)
        _peft().inject_adapter_in_model(config, model, ADAPTER)


def _unfit(model: Any) -> list[str]:
    """Linear layers that no adapter can stand beside: routers that return more than one tensor, fused state-space layers."""
    fused = {"falcon_h1", "mamba", "mamba2", "falcon_mamba", "nemotron_h"}  # peft's list
    leaves = {"out_proj", "conv1d"} if model.config.model_type in fused else set()
    return [
        name
        for name, module in model.named_modules()
        if name.rpartition(".")[2] in leaves
        or (isinstance(module, torch.nn.Linear) and type(module).forward is not torch.nn.Linear.forward)
    ]


def _is_adapter(name: str) -> bool:
    return ".lora_" in name


def _peft() -> Any:
    try:
        import peft
    except ModuleNotFoundError:
        raise TossupError("LoRA needs peft: pip install 'tossup[lora]'") from None
    return peft
