"""Accuracy on problems that are not trained on: during a run, and `tossup eval`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
import polars as pl

from tossup.curriculum.estimate import subset_shares
from tossup.curriculum.ledger import Ledger
from tossup.engine.config import SamplingConfig, TrainConfig, digest
from tossup.engine.folder import RunFolder
from tossup.engine.measure import Watcher, measure, open_inputs
from tossup.engine.measure_config import EvaluateConfig
from tossup.engine.rollouts import Seconds, stream
from tossup.records import Group, Problem, TossupError, tokens

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
    parts: dict[str, float]
    """With several samples "pass@SAMPLES"; with several datasets the mean of each, as "accuracy/DATASET"."""

    @property
    def figures(self) -> dict[str, float]:
        """What the log shows of it."""
        parts = {f"eval/{name}": value for name, value in self.parts.items()}
        return {"eval/accuracy": self.mean, "eval/stderr": self.stderr} | parts


class Sampling(Protocol):
    """`sample_groups` with a policy, wherever it runs: `Learner.sample`."""

    def __call__(
        self, problems: Sequence[Problem], sampling: SamplingConfig, *, group_size: int, seed: int, policy_step: int
    ) -> tuple[list[Group], Seconds]:
        """Groups in the order of the problems."""


def accuracy(sample: Sampling, problems: Sequence[Problem], config: TrainConfig, policy_step: int) -> Accuracy:
    """Mean success rate over the problems of `config.eval.samples` sampled answers each, at the training temperature.

    The same seed every time, so that two evaluations differ by the policy alone.

    Raises:
        TossupError: no answer to any problem could be judged.
    """
    groups, _ = sample(
        problems,
        config.rollout,
        group_size=config.eval.samples,
        seed=stream(config.seed, EVAL_STREAM),
        policy_step=policy_step,
    )
    judged = [group for group in groups if group.rewards]
    if not judged:
        reasons = [r.verdict.reason for group in groups for r in group.rollouts if r.verdict is not None]
        raise TossupError(f"no held-out answer could be judged; the first one: {reasons[0] if reasons else 'none'}")
    rates = np.array([np.mean(group.rewards) for group in judged])
    return Accuracy(
        mean=float(rates.mean()),
        stderr=float(rates.std(ddof=1) / len(rates) ** 0.5) if len(rates) > 1 else 0.0,
        tokens=sum(tokens(group.rollouts) for group in groups),
        undecided=sum(len(group.rollouts) - len(group.rewards) for group in groups),
        parts=_pass_at(judged, config.eval.samples) | _by_dataset(judged, rates),
    )


def _pass_at(judged: Sequence[Group], k: int) -> dict[str, float]:
    """The share of problems with a right answer among k, over those of which all k could be judged."""
    whole = [max(group.rewards) for group in judged if len(group.rewards) == k]
    return {f"pass@{k}": float(np.mean(whole))} if k > 1 and whole else {}


def _by_dataset(judged: Sequence[Group], rates: Any) -> dict[str, float]:
    names = np.array([group.problem.dataset for group in judged])
    datasets = dict.fromkeys(names.tolist())
    return {f"accuracy/{name}": float(rates[names == name].mean()) for name in datasets} if len(datasets) > 1 else {}


RESAMPLES = 2000
"""Bootstrap resamples of the problems."""


def evaluate(config: EvaluateConfig, watcher: Watcher) -> dict[str, Any]:
    """Sample answers to every problem and report mean@n and pass@k, overall and by dataset; resumable.

    `config.model` may be a run folder: its trained model is taken. Without `config.out` the folder's name follows from the
    settings and from the content of pool and model, so that a model that was trained further is measured anew. pass@k is the
    unbiased estimate of Chen et al. (arXiv:2107.03374, equation 1) from the decided answers of each problem; problems with
    fewer than k of them are left out of it and counted. Intervals are 90 % percentile bootstraps over problems;
    where all have the same value, say none was solved, exact bounds.

    Raises:
        TossupError: the model or pool cannot be used, or a k is more than the number of samples.
    """
    ks = _ks(config)
    pool, inputs = open_inputs(config)
    name = config.model.removeprefix("builtin:").rstrip("/").removesuffix("/model").rsplit("/", 1)[-1]
    folder = RunFolder(Path(config.out) if config.out else Path("runs") / f"eval-{name}-{digest(config, inputs)}")
    with folder.held():
        folder.start_or_resume(config, inputs)
        ledger = Ledger(folder.ledger, folder.root.name, keep_text=config.save_text)
        seconds = measure(config, pool, ledger, watcher)
        problems = (
            ledger.scan()
            .filter(pl.col("problem").is_in(pool.ids))  # a call with a larger --limit may have measured more
            .group_by("problem", maintain_order=True)
            .agg(
                dataset=pl.col("dataset").first(),
                decided=pl.col("reward").count(),
                correct=pl.col("reward").sum(),
                undecided=pl.col("reward").null_count(),
                tokens=pl.col("response_tokens").sum(),
            )
            .collect()
        )
    datasets = {name: _scores(part, ks) for (name,), part in problems.group_by("dataset", maintain_order=True)}
    return _scores(problems, ks) | {
        "samples": config.samples,
        "tokens_generated": int(problems["tokens"].sum()),
        "datasets": datasets,
        "run": str(folder.root),
        "seconds": round(seconds, 3),
    }


def _ks(config: EvaluateConfig) -> list[int]:
    try:
        ks = [int(k) for k in config.k.split(",")] if config.k else [config.samples]
    except ValueError:
        raise TossupError(f"--k is a list of numbers such as 1,4,8; got {config.k!r}") from None
    if not all(1 <= k <= config.samples for k in ks):
        raise TossupError(f"pass@k from {config.samples} samples needs k from 1 to {config.samples}; got {config.k}")
    return ks


def _scores(problems: pl.DataFrame, ks: Sequence[int]) -> dict[str, Any]:
    """mean@n and pass@k of these problems, each as value, low and high."""
    n, c = problems["decided"].to_numpy(), problems["correct"].cast(pl.Int64).to_numpy()
    judged = n > 0
    scores: dict[str, Any] = {
        "problems": len(n),
        "judged": int(judged.sum()),
        "undecided_answers": int(problems["undecided"].sum()),
        "mean": _with_interval(c[judged] / n[judged]),
    }
    for k in ks:
        enough = n >= k
        all_wrong = subset_shares(n[enough], c[enough], k)[1]
        scores[f"pass@{k}"] = _with_interval(1.0 - all_wrong) | {"problems": int(enough.sum())}
    return scores


def _with_interval(values: Any) -> dict[str, float | None]:
    """The mean over problems with its 90 % interval; None where no problem could be judged."""
    n = len(values)
    if n == 0:
        return {"value": None, "low": None, "high": None}
    if values.min() == values.max():
        low, high = _around_equals(values[0], n)
    else:
        rng = np.random.default_rng(0)
        means = [values[rng.integers(n, size=n)].mean() for _ in range(RESAMPLES)]
        low, high = np.quantile(means, [0.05, 0.95])
    return {"value": round(float(values.mean()), 6), "low": round(float(low), 6), "high": round(float(high), 6)}


def _around_equals(value: float, n: int) -> tuple[float, float]:
    """A 90 % interval for the mean where all n problems have this value, from which resampling would make no other.

    Values are from 0 to 1. Were the mean above `high`, more than 1 - 0.05^(1/n) of all problems would have a higher value than
    this one, and a draw of n would have held one in 95 of 100 cases; below `low` alike. At 0 and 1 it is Clopper-Pearson's.
    """
    rare = 0.05 ** (1 / n)
    return value * rare, 1.0 - (1.0 - value) * rare
