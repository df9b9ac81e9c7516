from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable

import numpy as np
import pytest

from tossup.curriculum.baselines import Uniform
from tossup.curriculum.batch import Batch, BatchRule, NothingLeft, Pending, collect
from tossup.curriculum.gate import TRUNCATED
from tossup.curriculum.ledger import Entry
from tossup.curriculum.sampler import Draw, Sampler, TossUp
from tossup.records import Fate, Group, Problem, Rollout, Stop, Verdict, correct, tokens, undecided, wrong

G = 4


class World:
    """Generates and judges for real, from fixed success rates: what an engine does, without a model."""

    def __init__(self, p: list[float], broken: float = 0.0) -> None:
        self.p, self.broken = p, broken
        self.made: list[Group] = []

    def waves(self, step: int) -> Callable[[list[Draw]], list[Group]]:
        rng = np.random.default_rng(step)

        def verdict(p: float) -> Verdict:
            if rng.random() < self.broken:
                return undecided(TRUNCATED if rng.random() < 0.5 else "timeout")
            return correct("equal", "1") if rng.random() < p else wrong("other")

        def run_wave(draws: list[Draw]) -> list[Group]:
            wave = []
            for d in draws:
                lengths = rng.integers(1, 9, G)
                rollouts = tuple(
                    Rollout(
                        (5,), tuple(range(n)), (-0.25,) * n, "é\u2028", Stop.END, step, verdict(self.p[d.index]), 0.5
                    )
                    for n in lengths
                )
                problem = Problem(f"p{d.index}", ({"role": "user", "content": "?"},), "1", meta={"level": 3})
                wave.append(Group(len(self.made) + len(wave), problem, rollouts, d.by))
            self.made += wave
            return wave

        return run_wave


def run(
    p: list[float], steps: int, rule: BatchRule, broken: float = 0.0, sampler: Sampler | None = None
) -> tuple[World, list[Batch], Pending]:
    world, pending = World(p, broken), Pending()
    sampler = sampler or Uniform(len(p), 0)
    batches = [collect(sampler, world.waves(step), step, rule, pending) for step in range(steps)]
    return world, batches, pending


RULES = {
    "one wave": BatchRule(6),
    "refill": BatchRule(6, refill=True, max_waves=3),
    "dapo": BatchRule(6, refill=True, max_waves=10, by_yield=False, max_age=0),
    "patient surplus": BatchRule(3, refill=True, by_yield=False, max_age=5),
}
MIXED_POOL = [0.0] * 10 + [0.5] * 10 + [1.0] * 10


@pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
def test_every_generated_token_has_exactly_one_fate(rule: BatchRule) -> None:
    world, batches, pending = run(MIXED_POOL, 12, rule, broken=0.2)
    entries: list[Entry] = [e for b in batches for e in b.entries] + list(pending.flush())
    assert sorted(g.id for g, _ in entries) == [g.id for g in world.made]
    generated = sum(tokens(g.rollouts) for g in world.made)
    by_fate = Counter()
    for group, fates in entries:
        assert len(fates) == len(group.rollouts)
        for rollout, fate in zip(group.rollouts, fates, strict=True):
            by_fate[fate] += len(rollout.response_ids)
    assert by_fate.total() == generated == sum(b.generated_tokens for b in batches)
    assert pending.flush() == ()


@pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
def test_what_trains_is_informative_and_marked_trained(rule: BatchRule) -> None:
    _, batches, _ = run(MIXED_POOL, 8, rule, broken=0.2)
    for batch in batches:
        assert not any(g.degenerate for g in batch.kept)
        trained = {g.id for g, fates in batch.entries if Fate.TRAINED in fates}
        assert trained == {g.id for g in batch.kept}


def test_one_wave_is_one_wave() -> None:
    _, batches, pending = run(MIXED_POOL, 8, RULES["one wave"])
    assert {(b.waves, b.generated_groups) for b in batches} == {(1, 6)}
    assert all(b.informative_groups == len(b.kept) for b in batches)
    assert pending.waiting == []


def test_refill_reaches_the_wanted_groups_and_has_a_last_wave() -> None:
    _, batches, _ = run([0.5] * 60, 5, RULES["refill"])
    assert all(len(b.kept) == 6 for b in batches)
    _, barren, _ = run([0.0] * 500, 5, RULES["refill"])
    assert all(b.waves == 3 and b.kept == () for b in barren)
    assert max(b.generated_groups for b in barren) <= 3 * 12


def test_refill_stops_when_a_step_has_drawn_the_whole_pool() -> None:
    _, (batch,), _ = run([0.0] * 8, 1, RULES["dapo"])
    assert (batch.waves, batch.generated_groups) == (2, 8)


def test_waves_shrink_with_what_is_missing_and_grow_as_the_yield_falls() -> None:
    rule = BatchRule(20, refill=True, max_waves=4)
    _, rich, _ = run([0.5] * 400, 10, rule)
    _, poor, _ = run(([0.0] * 9 + [0.5]) * 40, 10, rule)
    assert rich[-1].generated_groups < 30
    assert poor[-1].generated_groups > 60


def test_what_waited_trains_before_anything_new() -> None:
    world = World([0.5] * 60)
    batch = collect(Uniform(60, 0), world.waves(9), 9, BatchRule(3, refill=True), waiting(2, made_at=8))
    assert [g.id for g in batch.kept][:2] == [1000, 1001]
    assert len(batch.kept) == 3
    enough = collect(Uniform(60, 0), world.waves(9), 9, BatchRule(2, refill=True), waiting(2, made_at=8))
    assert (enough.waves, enough.generated_tokens) == (0, 0)


def waiting(n: int, made_at: int) -> Pending:
    world, pending = World([0.5]), Pending()
    while len(pending.waiting) < n:
        (group,) = world.waves(made_at + 100 * len(world.made))([Draw(0, "score")])
        if not group.degenerate:
            named = Group(1000 + len(pending.waiting), group.problem, group.rollouts, group.drawn_by)
            pending.waiting.append((made_at, named))
    return pending


def test_waiting_groups_expire_as_stale() -> None:
    batch = collect(Uniform(9, 0), World([0.5] * 9).waves(7), 7, BatchRule(2, refill=True, max_age=1), waiting(2, 5))
    stale = {g.id for g, fates in batch.entries if Fate.STALE in fates}
    assert stale == {1000, 1001}
    assert stale.isdisjoint(g.id for g in batch.kept)


def test_without_room_for_surplus_it_is_let_go_at_once() -> None:
    _, batches, pending = run([0.5] * 60, 10, RULES["dapo"])
    assert pending.waiting == []
    lost = sum(Fate.SURPLUS in fates for b in batches for _, fates in b.entries)
    assert lost == sum(b.informative_groups - len(b.kept) for b in batches) > 0


def test_every_group_is_observed_also_those_that_do_not_train() -> None:
    sampler = TossUp([0] * 30, [0] * 30, None, G, 0)
    world, _, _ = run(MIXED_POOL, 5, RULES["one wave"], sampler=sampler)
    assert sampler.watch.visits.sum() == len(world.made) == 30
    lengths = {g.problem.id: tokens(g.rollouts) / G for g in world.made}
    first = world.made[0].problem.id
    if [g.problem.id for g in world.made].count(first) == 1:
        assert sampler.tokens[int(first[1:])] == pytest.approx(lengths[first])


@pytest.mark.parametrize(
    ("p", "broken", "wanted"),
    [
        ([1.0] * 20, 0.0, NothingLeft.ALL_SOLVED),
        ([0.0] * 20, 0.0, NothingLeft.ALL_IMPOSSIBLE),
        ([0.0] * 10 + [1.0] * 10, 0.0, NothingLeft.SOLVED_OR_IMPOSSIBLE),
        ([0.5] * 20, 1.0, NothingLeft.VERIFIER_BROKEN),
    ],
)
@pytest.mark.parametrize("kind", ["uniform", "tossup"])
def test_a_pool_that_teaches_nothing_says_so(p: list[float], broken: float, wanted: NothingLeft, kind: str) -> None:
    sampler = Uniform(20, 0) if kind == "uniform" else TossUp([0] * 20, [0] * 20, None, G, 0)
    _, batches, _ = run(p, 20, RULES["one wave"], broken, sampler)
    said = [b.nothing_left for b in batches]
    assert said[0] is None  # one wave is no evidence
    assert said[-1] is wanted


def test_a_little_signal_is_not_the_end() -> None:
    _, batches, _ = run([0.0] * 15 + [0.5] * 5, 60, RULES["one wave"])
    assert {b.nothing_left for b in batches} == {None}


def test_the_pending_state_survives_json() -> None:
    pending = waiting(3, made_at=4)
    pending.note([World([0.0], broken=0.5).waves(0)([Draw(0, "score")])[0]])
    restored = Pending()
    restored.restore(json.loads(json.dumps(pending.state())))
    assert restored.waiting == pending.waiting
    assert restored.state() == pending.state()
    for group in (g for _, g in restored.waiting):
        assert isinstance(group.rollouts[0].stop, Stop)
        assert not group.degenerate


def test_a_resumed_run_collects_the_same_batches() -> None:
    rule = RULES["patient surplus"]

    def go(stop_at: int | None) -> list[tuple[list[int], list[tuple[str, tuple[Fate, ...]]]]]:
        world, pending, sampler = World(MIXED_POOL), Pending(), TossUp([0] * 30, [0] * 30, None, G, 3)
        seen = []
        for step in range(10):
            if step == stop_at:
                state, saved = sampler.state(), json.loads(json.dumps(pending.state()))
                sampler, pending = TossUp([0] * 30, [0] * 30, None, G, 3), Pending()
                sampler.restore(state)
                pending.restore(saved)
            batch = collect(sampler, world.waves(step), step, rule, pending)
            seen.append(([g.id for g in batch.kept], [(g.problem.id, fates) for g, fates in batch.entries]))
        return seen

    assert go(None) == go(5)


def test_a_wave_of_the_wrong_size_is_an_error() -> None:
    with pytest.raises(ValueError, match="one a draw"):
        collect(Uniform(9, 0), lambda draws: [], 0, BatchRule(3))


@pytest.mark.parametrize("change", [{"groups": 0}, {"max_waves": 0}, {"max_age": -1}, {"patience": 0}])
def test_impossible_rules_are_refused(change: dict[str, int]) -> None:
    with pytest.raises(ValueError, match=next(iter(change))):
        BatchRule(**({"groups": 4} | change))
