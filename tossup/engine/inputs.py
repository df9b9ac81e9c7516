"""What a run rests on beside its settings: the content of its pools and of its model's folder, as fingerprints.

A path says where a pool or a model lies, not what lies there. A run that went on with another pool would pair the
curriculum's counts with other problems, and a measurement with another model would mix two; both compare fingerprints.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import NamedTuple

from tossup.curriculum.pool import Pool
from tossup.engine.config import TrainConfig
from tossup.engine.pools import check_prompts, open_pool, spread
from tossup.records import Problem

MODEL_FILES = {".json", ".safetensors", ".bin", ".model", ".txt", ".jinja"}
"""What weights, settings and tokenizers are kept in; a model card may change."""

BLOCKS, BLOCK_BYTES = 256, 1 << 16
"""How much of a large file is read: an update changes weights everywhere, so evenly spaced blocks show it."""


def of_pool(pool: Pool, counts: bool) -> str:
    """12 hex digits of the problems in their order; `counts` says whether what is known of their rates shapes the run."""
    left_out = {"undecided", "mean_tokens_correct", "mean_tokens_wrong", "policy", "measured_at"}
    left_out |= set() if counts else {"attempts", "correct"}
    rows = pool.frame.drop(left_out).write_ndjson()
    return hashlib.sha256(rows.encode()).hexdigest()[:12]


def of_model(name: str) -> dict[str, str]:
    """The fingerprint of a model's folder under its name; of a name on the Hub, none: there the name has to do."""
    from tossup.engine.policy import model_source  # here, so that a pool can be looked over without torch

    folder = Path(model_source(name))
    if not folder.is_dir():
        return {}
    state = hashlib.sha256()
    for path in sorted(path for path in folder.iterdir() if path.suffix in MODEL_FILES and path.is_file()):
        size = path.stat().st_size
        state.update(f"{path.name} {size}\n".encode())
        step = max(BLOCK_BYTES, size // BLOCKS)
        with path.open("rb") as file:
            for start in range(0, size, step):
                file.seek(start)
                state.update(file.read(BLOCK_BYTES))
    return {f"model {name}": state.hexdigest()[:12]}


class Problems(NamedTuple):
    """The problems of a training run."""

    pool: Pool
    held_out: list[Problem]
    fingerprints: dict[str, str]
    """Of both, by their names; the counts of the training pool are the curriculum's prior and belong to it."""

    @classmethod
    def of(cls, config: TrainConfig) -> Problems:
        """Read the pools that the configuration names.

        Raises:
            TossupError: one of them cannot be used.
        """
        pool = open_pool(config.pool, config.map, config.verifier)
        check_prompts(pool, config.pool)
        found = {f"pool {config.pool}": of_pool(pool, counts=True)}
        held_out: list[Problem] = []
        for name in config.eval_pool:
            measured = open_pool(name, config.eval.map, config.verifier)
            check_prompts(measured, name)
            found[f"eval_pool {name}"] = of_pool(measured, counts=False)
            held_out += spread(measured, config.eval.problems)
        return cls(pool, held_out, found)
