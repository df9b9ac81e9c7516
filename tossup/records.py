"""The words: what every part of tossup passes to every other part.

    Problem   one checkable task; its reference answer is for the verifier only
    Verdict   what a verifier says of one response: CORRECT, WRONG or UNDECIDED
    Rollout   one sampled response with its tokens, log-probabilities and verdict
    Group     the G rollouts of one problem, which GRPO compares with each other
    Fate      what became of a rollout's tokens

Plain frozen data and the standard library only, so that every part can import this file and this file imports none.
A verdict has three values, not two: a verifier that breaks has not shown the answer to be wrong. `bool(verdict)` and
the reward of an undecided verdict raise, so that no caller can count a broken check as a failure by accident.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

Message = Mapping[str, str]
"""One chat message, e.g. `{"role": "user", "content": "What is 23 * 47?"}`."""

Prompt = str | tuple[Message, ...]
"""Plain text for a base model, or chat messages for an instruct model."""


def prompt_text(prompt: Prompt) -> str:
    """A prompt as one text for a reader: a chat turn by turn, each under its role."""
    return prompt if isinstance(prompt, str) else "\n\n".join(f"{turn['role']}: {turn['content']}" for turn in prompt)


def counted(number: int, noun: str) -> str:
    """A number with its thousands apart, and its noun to match: `1 problem`, `2,000 problems`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


class TossupError(Exception):
    """Something the user can put right. The message names the thing, what was got, what was expected and what to do."""


class Ruling(StrEnum):
    """The three things that a verifier can say."""

    CORRECT = "correct"
    WRONG = "wrong"
    UNDECIDED = "undecided"


class Stop(StrEnum):
    """Why generation of a response ended."""

    END = "end"
    """The model ended it."""
    LENGTH = "length"
    """The token limit ended it."""


class Fate(StrEnum):
    """What became of the tokens of one rollout. Every generated token has exactly one fate, and the fates add up."""

    TRAINED = "trained"
    """In a group that gave a gradient."""
    MEASURED = "measured"
    """In an informative group that was sampled to measure a pool, not to train."""
    ALL_CORRECT = "all_correct"
    """In a degenerate group: every decided rollout was right."""
    ALL_WRONG = "all_wrong"
    """In a group that earned nothing: every decided rollout was wrong, or overlong answers were punished and all right ones
    lost their reward to that."""
    UNDECIDED = "undecided"
    """The verifier could not judge it, or it was the only judged rollout of its group."""
    TRUNCATED = "truncated"
    """Cut off by the token limit and, by the policy `exclude`, left out of its group."""
    SURPLUS = "surplus"
    """In an informative group for which no batch had room before the run ended."""
    STALE = "stale"
    """In an informative group that waited too long for a batch: the policy had moved on."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One checkable task.

    `id` is stable across runs: the source's own, or `content_id(...)` when it gives none. `reference` is the answer key
    (or the tests, as JSON text, for code) and never reaches the policy. `verifier` names who judges: `math`, `exact`,
    `code`, or a dotted path `package.module:function`. `meta` holds whatever else the source said (level, subject).
    """

    id: str
    prompt: Prompt
    reference: str
    verifier: str = "math"
    dataset: str = ""
    meta: Mapping[str, Any] = field(default_factory=dict)


def content_id(prompt: Prompt, reference: str) -> str:
    """A stable id for a problem whose source has none: 16 hex digits of a SHA-256 over prompt and reference."""
    content = json.dumps([prompt, reference], ensure_ascii=False, sort_keys=True, default=dict)
    return hashlib.sha256(content.encode()).hexdigest()[:16]


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a verifier says of one response.

    `reason` is one line for a person ("boxed 1081 equals the reference", "no final answer", "timeout after 1.0 s").
    `answer` is the final answer that was found in the response, as text; None when there was none. `seconds` is wall
    time.
    """

    ruling: Ruling
    reason: str
    answer: str | None = None
    seconds: float = 0.0

    @property
    def decided(self) -> bool:
        """Whether there is a reward at all."""
        return self.ruling is not Ruling.UNDECIDED

    @property
    def reward(self) -> float:
        """1.0 for CORRECT, 0.0 for WRONG.

        Raises:
            ValueError: the verdict is UNDECIDED; leave such a rollout out instead of inventing a reward for it.
        """
        if self.ruling is Ruling.UNDECIDED:
            raise ValueError(f"an undecided verdict has no reward (reason: {self.reason}); test `.decided` first")
        return 1.0 if self.ruling is Ruling.CORRECT else 0.0

    def __bool__(self) -> bool:
        raise TypeError("a Verdict has three values and no truth: compare `.ruling`, or use `.decided` and `.reward`")


def correct(reason: str, answer: str | None = None) -> Verdict:
    """Shorthand for a CORRECT verdict."""
    return Verdict(Ruling.CORRECT, reason, answer)


def wrong(reason: str, answer: str | None = None) -> Verdict:
    """Shorthand for a WRONG verdict."""
    return Verdict(Ruling.WRONG, reason, answer)


def undecided(reason: str, answer: str | None = None) -> Verdict:
    """Shorthand for an UNDECIDED verdict."""
    return Verdict(Ruling.UNDECIDED, reason, answer)


@dataclass(frozen=True, slots=True)
class Rollout:
    """One sampled response.

    `response_ids` include the end token when the model gave one (`stop` is END). `response_logps` has one value per
    response id: the log-probability in nats under the policy that sampled it, at the sampling temperature.
    `policy_step` counts the updates which that policy had seen. `generate_seconds` is this rollout's share of its
    batch's wall time. The advantage is not a field: it belongs to the group.
    """

    prompt_ids: tuple[int, ...]
    response_ids: tuple[int, ...]
    response_logps: tuple[float, ...]
    text: str
    stop: Stop
    policy_step: int
    verdict: Verdict | None = None
    generate_seconds: float = 0.0

    def judged(self, verdict: Verdict) -> Rollout:
        """This rollout with its verdict; as `replace` would make it, only faster."""
        return Rollout(
            self.prompt_ids,
            self.response_ids,
            self.response_logps,
            self.text,
            self.stop,
            self.policy_step,
            verdict,
            self.generate_seconds,
        )

    @property
    def decided(self) -> bool:
        """Whether a verifier has given it a reward."""
        return self.verdict is not None and self.verdict.decided


@dataclass(frozen=True, slots=True)
class Group:
    """The rollouts of one problem that GRPO compares with each other.

    `drawn_by` says which rule chose the problem (see `tossup.curriculum`); the groups drawn uniformly are the control
    arm from which a run reads what uniform sampling would have wasted.
    """

    id: int
    problem: Problem
    rollouts: tuple[Rollout, ...]
    drawn_by: str = "uniform"
    rewards: tuple[float, ...] = field(init=False, repr=False, compare=False)
    """The rewards of the decided rollouts, in order. Kept, because a step asks for them a dozen times."""

    def __post_init__(self) -> None:
        rewards = tuple(r.verdict.reward for r in self.rollouts if r.verdict is not None and r.verdict.decided)
        object.__setattr__(self, "rewards", rewards)

    @property
    def decided(self) -> tuple[Rollout, ...]:
        """The rollouts with a reward; the others leave the group before its mean is taken."""
        return tuple(r for r in self.rollouts if r.decided)

    @property
    def degenerate(self) -> bool:
        """Whether the group teaches nothing: all decided rewards equal, or fewer than two of them.

        Read off the raw verdicts, never off the standard deviation that normalises advantages.
        """
        return len(self.rewards) < 2 or max(self.rewards) == min(self.rewards)


def tokens(rollouts: Sequence[Rollout]) -> int:
    """The number of generated tokens in these rollouts."""
    return sum(len(r.response_ids) for r in rollouts)
