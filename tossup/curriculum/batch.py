"""One step's groups: choose, generate, observe, admit, and, by option, refill.

By default a step is one wave: `rule.groups` groups are generated, the informative ones train, the others leave with
their fate. Refilling saves updates, not tokens: choosing before generating is what saves tokens.

With `refill` a step goes on until it has `rule.groups` informative groups: the groups that wait from the step before
come first, each further wave is as large as the missing groups and the expected yield ask for, and there is a last
wave. What is more than enough waits in `Pending` while it is fresh, and leaves as STALE or SURPLUS.

Nothing spins: a step without an informative group returns an empty batch, and once the groups since the last
informative one are evidence enough, the batch says which end has been reached (`Batch.nothing_left`). Whoever runs
the loop stops.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from tossup.curriculum.gate import Kind, fates, kind
from tossup.curriculum.ledger import Entry
from tossup.curriculum.sampler import Draw, Observation, Sampler
from tossup.records import Fate, Group, Problem, Rollout, Ruling, Stop, Verdict, tokens


class NothingLeft(StrEnum):
    """Why no problem gives an informative group any more."""

    ALL_SOLVED = "all solved"
    """Every group was all right."""
    ALL_IMPOSSIBLE = "all impossible"
    """Every group was all wrong."""
    SOLVED_OR_IMPOSSIBLE = "all solved or impossible"
    """Some groups were all right and the others all wrong."""
    VERIFIER_BROKEN = "verifier broken"
    """Most groups could not be judged."""


@dataclass(frozen=True, slots=True)
class BatchRule:
    """How many groups make a step."""

    groups: int
    """Groups generated in a step; with `refill`, informative groups wanted in it."""
    refill: bool = False
    """Generate further waves until there are `groups` informative ones."""
    max_waves: int = 4
    """The most waves of a step when refilling."""
    by_yield: bool = True
    """Refill waves are sized by what is missing over the expected yield; False: always `groups` (DAPO's way)."""
    max_age: int = 1
    """Surplus informative groups may wait this many steps; 0 discards them at once (DAPO's way)."""
    patience: int = 512
    """So many groups in a row without an informative one mean that nothing is left."""

    def __post_init__(self) -> None:
        for name, least in (("groups", 1), ("max_waves", 1), ("max_age", 0), ("patience", 1)):
            if getattr(self, name) < least:
                raise ValueError(f"BatchRule.{name} must be at least {least}, got {getattr(self, name)}")


@dataclass(frozen=True, slots=True)
class Batch:
    """What a step trains on and what became of everything else.

    `entries` are the groups whose fate this step settled, `kept` among them: groups that were generated in this step
    and wait for the next one are not in it yet, groups that waited are. Over a run, with `Pending.flush()` at its
    end, the entries hold every generated token exactly once.
    """

    step: int
    kept: tuple[Group, ...]
    entries: tuple[Entry, ...]
    generated_groups: int
    generated_tokens: int
    informative_groups: int
    """Informative groups among those generated in this step."""
    waves: int
    nothing_left: NothingLeft | None = None


class Pending:
    """What one step leaves to the next: surplus groups, the expected yield, and the run of fruitless groups."""

    def __init__(self) -> None:
        self.waiting: list[tuple[int, Group]] = []
        """(step of generation, group), oldest first."""
        self.expected_yield = 0.5
        self.dry: dict[str, int] = {k.value: 0 for k in (Kind.RIGHT, Kind.WRONG, Kind.UNJUDGED)}
        self.dry_problems: set[str] = set()

    def note(self, wave: Sequence[Group]) -> None:
        """Take in a wave: its yield, and whether the run of uninformative groups goes on."""
        kinds = [kind(g) for g in wave]
        share = kinds.count(Kind.MIXED) / max(1, len(kinds))
        self.expected_yield = 0.8 * self.expected_yield + 0.2 * share
        if Kind.MIXED in kinds:
            self.dry = dict.fromkeys(self.dry, 0)
            self.dry_problems = set()
            return
        for shown, group in zip(kinds, wave, strict=True):
            self.dry[shown.value] += 1
            self.dry_problems.add(group.problem.id)

    def nothing_left(self, patience: int) -> NothingLeft | None:
        """Which end has been reached: `patience` groups in a row taught nothing, or four a problem seen among them."""
        seen = sum(self.dry.values())
        if seen == 0 or seen < min(patience, 4 * len(self.dry_problems)):
            return None
        if self.dry["unjudged"] > seen / 2:
            return NothingLeft.VERIFIER_BROKEN
        if self.dry["wrong"] == 0:
            return NothingLeft.ALL_SOLVED
        if self.dry["right"] == 0:
            return NothingLeft.ALL_IMPOSSIBLE
        return NothingLeft.SOLVED_OR_IMPOSSIBLE

    def flush(self) -> tuple[Entry, ...]:
        """Let go of the waiting groups at the end of a run, as SURPLUS."""
        entries = tuple(_left(g, Fate.SURPLUS) for _, g in self.waiting)
        self.waiting = []
        return entries

    def state(self) -> dict[str, Any]:
        """All of it as JSON values."""
        return {
            "waiting": [[step, _group_to_json(g)] for step, g in self.waiting],
            "expected_yield": self.expected_yield,
            "dry": dict(self.dry),
            "dry_problems": sorted(self.dry_problems),
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Continue from `state`."""
        self.waiting = [(int(step), _group_from_json(g)) for step, g in state["waiting"]]
        self.expected_yield = float(state["expected_yield"])
        self.dry = {k: int(v) for k, v in state["dry"].items()}
        self.dry_problems = set(state["dry_problems"])


def collect(
    sampler: Sampler,
    run_wave: Callable[[list[Draw]], list[Group]],
    step: int,
    rule: BatchRule,
    pending: Pending | None = None,
) -> Batch:
    """Gather one step's groups.

    `run_wave` generates and judges one group for each draw, in order. Every group is observed, also those that will not
    train. `pending` carries what one step leaves to the next; without it surplus is let go at once.

    Raises:
        ValueError: `run_wave` did not return one group a draw.
    """
    carried = pending if pending is not None else Pending()
    ready, entries = _take_waiting(carried, step, rule)
    generated: list[Group] = []
    waves = informative = 0
    while waves < (rule.max_waves if rule.refill else 1) and (not rule.refill or len(ready) < rule.groups):
        draws = sampler.choose(_wave_size(rule, len(ready), carried.expected_yield), step)
        if not draws:
            break
        wave = _observed_wave(sampler, run_wave, draws, step)
        carried.note(wave)
        generated += wave
        waves += 1
        for group in wave:
            if kind(group) is Kind.MIXED:
                ready.append((step, group))
                informative += 1
            else:
                entries.append((group, fates(group)))
    room = rule.groups if rule.refill else len(ready)
    kept = tuple(g for _, g in ready[:room])
    if pending is not None and rule.max_age > 0:
        carried.waiting = ready[room:]
    else:
        entries += [_left(g, Fate.SURPLUS) for _, g in ready[room:]]
    return Batch(
        step=step,
        kept=kept,
        entries=(*((g, fates(g)) for g in kept), *entries),
        generated_groups=len(generated),
        generated_tokens=sum(tokens(g.rollouts) for g in generated),
        informative_groups=informative,
        waves=waves,
        nothing_left=None if kept else carried.nothing_left(rule.patience),
    )


def _wave_size(rule: BatchRule, ready: int, expected_yield: float) -> int:
    if not rule.refill or not rule.by_yield:
        return rule.groups
    return min(2 * rule.groups, math.ceil((rule.groups - ready) / max(expected_yield, 0.1)))


def _take_waiting(pending: Pending, step: int, rule: BatchRule) -> tuple[list[tuple[int, Group]], list[Entry]]:
    """The groups that are still fresh, and the entries of those that are not."""
    fresh = [(born, g) for born, g in pending.waiting if step - born <= rule.max_age]
    stale = [_left(g, Fate.STALE) for born, g in pending.waiting if step - born > rule.max_age]
    pending.waiting = []
    return fresh, stale


def _observed_wave(
    sampler: Sampler, run_wave: Callable[[list[Draw]], list[Group]], draws: list[Draw], step: int
) -> list[Group]:
    wave = run_wave(draws)
    if len(wave) != len(draws):
        raise ValueError(f"run_wave returned {len(wave)} groups for {len(draws)} draws; it must return one a draw")
    sampler.observe(step, [_observation(d, g) for d, g in zip(draws, wave, strict=True)])
    return wave


def _observation(draw: Draw, group: Group) -> Observation:
    rewards = group.rewards
    mean_tokens = tokens(group.rollouts) / max(1, len(group.rollouts))
    return Observation(draw.index, int(sum(rewards)), len(rewards), mean_tokens)


def _left(group: Group, fate: Fate) -> Entry:
    """The entry of an informative group that does not train: what would have trained has `fate`."""
    return group, tuple(fate if f is Fate.TRAINED else f for f in fates(group))


def _group_to_json(group: Group) -> dict[str, Any]:
    p = group.problem
    problem = {
        "id": p.id,
        "prompt": p.prompt if isinstance(p.prompt, str) else [dict(m) for m in p.prompt],
        "reference": p.reference,
        "verifier": p.verifier,
        "dataset": p.dataset,
        "meta": dict(p.meta),
    }
    rollouts = [_rollout_to_json(r) for r in group.rollouts]
    return {"id": group.id, "drawn_by": group.drawn_by, "problem": problem, "rollouts": rollouts}


def _rollout_to_json(rollout: Rollout) -> dict[str, Any]:
    v = rollout.verdict
    lists = {name: list(getattr(rollout, name)) for name in ("prompt_ids", "response_ids", "response_logps")}
    plain = {name: getattr(rollout, name) for name in ("text", "policy_step", "generate_seconds")}
    verdict = None
    if v is not None:
        verdict = {"ruling": v.ruling.value, "reason": v.reason, "answer": v.answer, "seconds": v.seconds}
    return lists | plain | {"stop": rollout.stop.value, "verdict": verdict}


def _group_from_json(value: dict[str, Any]) -> Group:
    p = value["problem"]
    prompt = p["prompt"] if isinstance(p["prompt"], str) else tuple(p["prompt"])
    rollouts = tuple(_rollout_from_json(r) for r in value["rollouts"])
    return Group(value["id"], Problem(**(p | {"prompt": prompt})), rollouts, value["drawn_by"])


def _rollout_from_json(value: dict[str, Any]) -> Rollout:
    lists = {name: tuple(value[name]) for name in ("prompt_ids", "response_ids", "response_logps")}
    v = value["verdict"]
    verdict = None if v is None else Verdict(**(v | {"ruling": Ruling(v["ruling"])}))
    return Rollout(**(value | lists | {"stop": Stop(value["stop"]), "verdict": verdict}))
