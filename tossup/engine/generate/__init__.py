"""Generators: transformers anywhere (`loop`), vLLM in a process of its own (`vllm`). `open_generator` chooses."""

from tossup.engine.generate.loop import TransformersGenerator
from tossup.engine.generate.words import Generator, OnGroup, Sample

__all__ = ["Generator", "OnGroup", "Sample", "TransformersGenerator"]
