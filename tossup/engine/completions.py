"""The answers of a step as a table for the dashboards: what was asked, what came back, what it was worth and why.

Whole groups, evenly spaced over those of the step, so that a reader sees what was compared with what, wasted groups included.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from tossup.curriculum.ledger import Entry
from tossup.engine.objective import advantages
from tossup.records import Fate, Group, prompt_text

LONGEST = 4000
"""Characters of a prompt or an answer that the table shows; the middle of a longer one is left out."""


class Completion(NamedTuple):
    """One answer as a row of the table."""

    step: int
    problem: str
    dataset: str
    prompt: str
    completion: str
    reward: float | None
    """None where the answer is undecided."""
    advantage: float | None
    """None where the answer is in no update."""
    verdict: str
    reason: str
    fate: str
    tokens: int


COLUMNS = list(Completion._fields)


def completions(step: int, entries: Sequence[Entry], groups: int, std_norm: bool) -> list[Completion]:
    """The answers of at most `groups` of the groups whose fate this step settled; `entries` as of the step's batch."""
    shown = min(groups, len(entries))
    return [row for i in range(shown) for row in _rows(step, *entries[i * len(entries) // shown], std_norm)]


def _rows(step: int, group: Group, fates: Sequence[Fate], std_norm: bool) -> list[Completion]:
    trained = Fate.TRAINED in fates
    pushes = iter(advantages(group.rewards, std_norm) if trained else ())
    rows = []
    for rollout, fate in zip(group.rollouts, fates, strict=True):
        verdict = rollout.verdict
        if verdict is None:
            raise ValueError(f"an answer to problem {group.problem.id} has not been judged")
        rows.append(
            Completion(
                step=step,
                problem=group.problem.id,
                dataset=group.problem.dataset,
                prompt=_shortened(prompt_text(group.problem.prompt)),
                completion=_shortened(rollout.text),
                reward=verdict.reward if verdict.decided else None,
                advantage=next(pushes) if trained and verdict.decided else None,
                verdict=verdict.ruling.value,
                reason=verdict.reason,
                fate=fate.value,
                tokens=len(rollout.response_ids),
            )
        )
    return rows


def _shortened(text: str) -> str:
    if len(text) <= LONGEST:
        return text
    half = LONGEST // 2
    return f"{text[:half]} … {len(text) - 2 * half:,} characters left out … {text[-half:]}"
