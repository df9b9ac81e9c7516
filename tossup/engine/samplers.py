"""The samplers by the names of `curriculum.sampler`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tossup.curriculum.baselines import Greso, LastMeanPools, Mopps, Uniform
from tossup.curriculum.sampler import Sampler, TossUp, TossUpRule
from tossup.curriculum.value import Aim
from tossup.engine.config import TrainConfig


def make_sampler(config: TrainConfig, attempts: Any, correct: Any, tags: list[str]) -> Sampler:
    """The sampler that the configuration names, over a pool of these counts and tags."""
    cfg, n, seed = config.curriculum, len(tags), config.seed
    rule = TossUpRule(Aim(cfg.aim), uniform=cfg.uniform_share, thompson=cfg.thompson_share, rest=cfg.rest)
    makers: dict[str, Callable[[], Sampler]] = {
        "tossup": lambda: TossUp(attempts, correct, tags, config.rollout.group_size, seed, rule),
        "uniform": lambda: Uniform(n, seed),
        "greso": lambda: Greso(n, seed),
        "last_mean": lambda: LastMeanPools(n, seed),
        "mopps": lambda: Mopps(n, seed),
    }
    return makers[cfg.sampler]()


def watched(sampler: Sampler, ids: Sequence[str]) -> dict[str, list[str]]:
    """The ids of the problems that the sampler watches: parked easy and hard, unjudged, stuck. Others watch none."""
    if not isinstance(sampler, TossUp):
        return {}
    return {name: [ids[i] for i in indices] for name, indices in sampler.lists().items()}
