"""The figures of a step and of a run. Names are the field's: rollout/…, tokens/…, update/…, mismatch/…, time/…, eval/…"""

from __future__ import annotations

import resource
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import polars as pl

from tossup.curriculum.batch import Batch
from tossup.curriculum.gate import Kind, kind
from tossup.curriculum.ledger import Ledger
from tossup.records import Fate, Group, Stop, TossupError

INFORMATIVE = [Fate.TRAINED.value, Fate.MEASURED.value, Fate.SURPLUS.value, Fate.STALE.value]
"""Fates that only rollouts of informative groups have."""

ADVICE = {
    Fate.ALL_CORRECT: "every answer to a problem was right: take a harder pool",
    Fate.ALL_WRONG: "no answer to a problem earned a reward: take an easier pool, or longer answers (--max-new-tokens)",
    Fate.TRUNCATED: "the answers were cut off: raise --max-new-tokens",
    Fate.UNDECIDED: "the verifier could not judge: undecided_reasons in summary.json says why",
}
"""What to do where tokens ended so. Those of informative groups (`INFORMATIVE`) only lacked a further step."""


class Clock:
    """Where the wall time of a step goes, in seconds; a part within another counts as itself only.

    From one `lap` to the next nothing escapes: what no part claims is "other".
    """

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._parts = ["other"]
        self._since = time.perf_counter()

    @contextmanager
    def __call__(self, part: str) -> Iterator[None]:
        """Within it, time is this part's."""
        self._charge()
        self._parts.append(part)
        try:
            yield
        finally:
            self._charge()
            self._parts.pop()

    def move(self, seconds: float, to: str) -> None:
        """Call so much of the part that is running another's."""
        self._charge()
        self.seconds[self._parts[-1]] -= seconds
        self.seconds[to] = self.seconds.get(to, 0.0) + seconds

    def lap(self) -> dict[str, float]:
        """The figures since the last one: each part, `time/step`, all of them, and `time/outside_share`, the share of
        what is neither generation nor update, evaluations left out of both; then begin anew.
        """
        self._charge()
        figures = {f"time/{part}": seconds for part, seconds in sorted(self.seconds.items())}
        total, step = sum(self.seconds.values()), sum(s for part, s in self.seconds.items() if part != "evaluate")
        work = self.seconds.get("generate", 0.0) + self.seconds.get("update", 0.0)
        self.seconds = {}
        return figures | {"time/step": total, "time/outside_share": 1 - work / step}

    def _charge(self) -> None:
        now = time.perf_counter()
        self.seconds[self._parts[-1]] = self.seconds.get(self._parts[-1], 0.0) + now - self._since
        self._since = now


def step_metrics(batch: Batch, groups: Sequence[Group]) -> dict[str, float]:
    """The figures of one step: shares are over all groups generated in it, `kept/…` over those that trained.

    effective + too_easy + too_hard + unjudged = 1, by groups.
    """
    figures: dict[str, float] = {"rollout/groups": len(groups), "rollout/kept_groups": len(batch.kept)}
    if groups:
        kinds = [kind(g) for g in groups]
        rewards = [x for g in groups for x in g.rewards]
        rollouts = [r for g in groups for r in g.rollouts]
        lengths = [len(r.response_ids) for r in rollouts]
        figures |= {
            "rollout/effective": kinds.count(Kind.MIXED) / len(groups),
            "rollout/too_easy": kinds.count(Kind.RIGHT) / len(groups),
            "rollout/too_hard": kinds.count(Kind.WRONG) / len(groups),
            "rollout/unjudged": kinds.count(Kind.UNJUDGED) / len(groups),
            "rollout/undecided": 1 - len(rewards) / len(rollouts),
            "rollout/truncated": [r.stop for r in rollouts].count(Stop.LENGTH) / len(rollouts),
            "rollout/mean_tokens": sum(lengths) / len(rollouts),
            "rollout/min_tokens": min(lengths),
            "rollout/max_tokens": max(lengths),
        }
        if rewards:
            figures["rollout/reward"] = sum(rewards) / len(rewards)
        control = [k for k, g in zip(kinds, groups, strict=True) if g.drawn_by == "uniform"]
        if control:
            figures["rollout/effective_uniform"] = control.count(Kind.MIXED) / len(control)
    kept_rewards = [x for g in batch.kept for x in g.rewards]
    if kept_rewards:
        figures["kept/reward"] = sum(kept_rewards) / len(kept_rewards)
    figures["tokens/generated"] = batch.generated_tokens
    spent = dict.fromkeys(Fate, 0)
    for group, fates in batch.entries:
        for rollout, fate in zip(group.rollouts, fates, strict=True):
            spent[fate] += len(rollout.response_ids)
    return figures | {f"tokens/{fate}": n for fate, n in spent.items()}


def wasted_share(ledger: pl.LazyFrame) -> tuple[float, int]:
    """The share of groups in the ledger that taught nothing, and the number of groups; 0 of 0 is 0."""
    groups = ledger.group_by("group").agg(informative=pl.col("fate").is_in(INFORMATIVE).any()).collect()
    if groups.height == 0:
        return 0.0, 0
    return 1.0 - float(groups["informative"].mean() or 0.0), groups.height  # type: ignore[arg-type]


def undecided_reasons(ledger: pl.LazyFrame) -> dict[str, int]:
    """The ten commonest reasons why answers could not be judged, with how many answers each."""
    undecided = ledger.filter(pl.col("ruling") == "undecided").group_by("reason").agg(answers=pl.len())
    return dict(undecided.sort("answers", "reason", descending=[True, False]).head(10).collect().iter_rows())


def check_tokens(ledger: Ledger, expected: int) -> None:
    """See that the ledger holds every token that was generated.

    Raises:
        TossupError: a part of it is damaged or gone.
    """
    what_to_do = "put it back as it was, or begin anew with another --out"
    try:
        held = sum(ledger.tokens_by_fate().values())
    except pl.exceptions.PolarsError as e:
        raise TossupError(f"{ledger.folder} has a damaged part ({e}): {what_to_do}") from e
    if held != expected:
        raise TossupError(
            f"{ledger.folder} holds {held:,} tokens where the checkpoint counts {expected:,}, so parts of it are missing or "
            f"changed: {what_to_do}"
        )


def summary(ledger: Ledger, progress: Mapping[str, Any], reason: str) -> dict[str, Any]:
    """What a run came to. Shares are folds over the ledger; the control arm is the groups that were drawn uniformly.

    `wasted_share_late` and `wasted_share_uniform_late` are over the last third of the steps, where the curriculum has
    seen the pool; both arms are from the same steps, so from the same policies.
    """
    scan = ledger.scan()
    late = pl.col("step") >= progress["step"] * 2 // 3
    uniform = pl.col("drawn_by") == "uniform"
    arms = {
        "wasted_share": scan,
        "wasted_share_uniform": scan.filter(uniform),
        "wasted_share_late": scan.filter(late),
        "wasted_share_uniform_late": scan.filter(uniform & late),
    }
    by_fate = ledger.tokens_by_fate()
    evaluations = progress["evaluations"]
    before, after = (evaluations[0], evaluations[-1]) if evaluations else ({}, {})
    shares = {name: wasted_share(rows) for name, rows in arms.items()}
    return {
        "accuracy_before": before.get("mean"),
        "accuracy_after": after.get("mean"),
        "accuracy_stderr": after.get("stderr"),
        "evaluations": evaluations,
        "best": max(evaluations, key=lambda e: float(e["mean"]), default=None),
        "tokens_generated": progress["tokens_generated"],
        "tokens_eval": progress["tokens_eval"],
        "tokens": {fate.value: count for fate, count in by_fate.items()},
        **{name: round(share, 6) for name, (share, _) in shares.items()},
        "groups": shares["wasted_share"][1],
        "groups_uniform": shares["wasted_share_uniform"][1],
        "groups_late": shares["wasted_share_late"][1],
        "groups_uniform_late": shares["wasted_share_uniform_late"][1],
        "undecided_reasons": undecided_reasons(scan),
        "steps": progress["step"],
        "ended_by": reason,
        "seconds": round(progress["seconds"], 3),
        "seconds_generate": round(progress["seconds_generate"], 3),
        "seconds_verify": round(progress["seconds_verify"], 3),
        "seconds_update": round(progress["seconds_update"], 3),
        "peak_memory_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
    }


def nothing_trained(by_fate: Mapping[str, int]) -> str | None:
    """What is to be said of a run that generated and trained on nothing, by its tokens of each fate; else None."""
    if by_fate[Fate.TRAINED.value] or not (total := sum(by_fate.values())):
        return None
    name, count = max(by_fate.items(), key=lambda item: item[1])
    advice = ADVICE.get(Fate(name), "they had no step left to train in: raise --steps")
    return f"warning: the model is unchanged, nothing was trained. Of {count / total:.0%} of the tokens, {advice}"
