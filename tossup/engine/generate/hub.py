"""A policy's weights as a checkpoint on the Hub has them: what a generator of another make is given."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import torch
from torch import Tensor

from tossup.engine.policy import Policy


class HubWeights(NamedTuple):
    """A policy's weights as a checkpoint on the Hub has them."""

    names: list[str]
    tied: list[str]
    """Those of the names that are another name for a tensor before them."""
    tensors: Iterable[tuple[str, Tensor]]


def hub_weights(policy: Policy) -> HubWeights:
    """The policy's weights under the names, and in the shapes, of a checkpoint on the Hub, which is what vLLM reads.

    The names come from the model alone, so that a weight which the policy leaves out is missed. transformers loads some models
    in another form (the experts of a mixture in one tensor) and knows the way back; the others' weights come one by one.
    """
    from transformers.core_model_loading import revert_weight_conversion

    first = {id(p): name for name, p in policy.model.named_parameters()}
    named = policy.model.named_parameters(remove_duplicate=False)
    tied = [name for name, p in named if first[id(p)] != name]
    own = {
        name.replace(".base_layer.", "."): torch.empty_like(p, device="meta")
        for name, p in policy.model.named_parameters(remove_duplicate=False)
        if ".lora_" not in name
    }
    hub: dict[str, Tensor] = revert_weight_conversion(policy.model, dict(own))
    if all(hub.get(name) is tensor for name, tensor in own.items()):
        return HubWeights(list(hub), tied, policy.weights())
    return HubWeights(list(hub), tied, revert_weight_conversion(policy.model, dict(policy.weights())).items())
