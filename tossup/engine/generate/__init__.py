"""Generators: transformers anywhere (`loop`), vLLM in a process of its own (`vllm_generator`). `open_generator` chooses."""

from __future__ import annotations

from collections.abc import Callable

from tossup.engine.config import SamplingConfig
from tossup.engine.generate.loop import TransformersGenerator
from tossup.engine.generate.vllm_generator import VllmGenerator
from tossup.engine.generate.words import Generator, OnGroup, Sample
from tossup.engine.policy import Policy

__all__ = ["Generator", "OnGroup", "Sample", "TransformersGenerator", "VllmGenerator", "open_generator"]


def open_generator(policy: Policy, sampling: SamplingConfig, note: Callable[[str], None]) -> Generator:
    """The generator that `sampling.generator` names. Push the policy's weights before it is asked, and close it.

    `note` hears what a person should know, such as a restart.

    Raises:
        TossupError: vLLM was asked for and is not here, or it did not start.
    """
    if sampling.generator == "transformers":
        return TransformersGenerator(policy)
    return VllmGenerator(policy, sampling, note=note)
