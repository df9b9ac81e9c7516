"""The learning rate of a step: a pure function of its number, so that a resumed run needs no state of a scheduler.

lr |        ________
   |      /         \\__            warm-up, then constant, or a decay to lr_min_ratio of it
   |    /              \\___
   |  /                    \\____
   +----------------------------- step
    warmup_steps          decay_steps
"""

from __future__ import annotations

import math

from tossup.engine.config import TrainConfig


def learning_rate(config: TrainConfig, step: int) -> float:
    """The rate of the update after `step` steps; it is the same for all optimizer steps of that update.

    Warm-up is linear and its first step already moves. The decay has the values of transformers' `get_linear_schedule_…` and
    `get_cosine_schedule_with_warmup` with `config.decay_steps` training steps, and stays at its end beyond them.
    """
    cfg = config.update
    warm_up = min(1.0, (step + 1) / (cfg.warmup_steps + 1))
    done = (step - cfg.warmup_steps) / max(1, config.decay_steps - cfg.warmup_steps)
    done = min(1.0, max(0.0, done))
    left = {"constant": 1.0, "linear": 1 - done, "cosine": (1 + math.cos(math.pi * done)) / 2}[cfg.lr_schedule]
    return cfg.lr * warm_up * (cfg.lr_min_ratio + (1 - cfg.lr_min_ratio) * left)
