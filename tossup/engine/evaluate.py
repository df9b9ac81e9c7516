"""Accuracy on problems that are not trained on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from tossup.engine.config import TrainConfig
from tossup.engine.policy import Policy
from tossup.engine.rollouts import sample_groups, stream
from tossup.records import Problem, TossupError, tokens

EVAL_STREAM = 2
"""Keeps the seeds of evaluation apart from those of training (`train.WAVE_STREAM`)."""


class Accuracy(NamedTuple):
    """Mean success rate over problems."""

    mean: float
    stderr: float
    """Standard error over problems: answers to one problem are not independent."""
    tokens: int
    """Generated tokens that the evaluation cost; they are not part of the ledger."""
    undecided: int
    """Answers that the verifier could not judge; they count neither as right nor as wrong."""


def accuracy(policy: Policy, problems: Sequence[Problem], config: TrainConfig) -> Accuracy:
    """Mean success rate over the problems of `config.eval.samples` sampled answers each, at the training temperature.

    The same seed every time, so that two evaluations differ by the policy alone.

    Raises:
        TossupError: no answer to any problem could be judged.
    """
    samples = config.eval.samples
    groups, _ = sample_groups(
        policy, problems, config.rollout, group_size=samples, seed=stream(config.seed, EVAL_STREAM)
    )
    rates = np.array([np.mean(group.rewards) for group in groups if group.rewards])
    if not len(rates):
        reason = groups[0].rollouts[0].verdict.reason if groups and groups[0].rollouts[0].verdict else "no problems"
        raise TossupError(f"no held-out answer could be judged; the first one: {reason}")
    return Accuracy(
        mean=float(rates.mean()),
        stderr=float(rates.std(ddof=1) / len(rates) ** 0.5) if len(rates) > 1 else 0.0,
        tokens=sum(tokens(group.rollouts) for group in groups),
        undecided=sum(len(group.rollouts) - len(group.decided) for group in groups),
    )
