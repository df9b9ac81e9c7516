from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tossup.curriculum.baselines import Mopps, Uniform
from tossup.curriculum.belief import BeliefRule
from tossup.curriculum.sampler import Draw, Observation, Sampler, TossUp, TossUpRule, best
from tossup.curriculum.value import Aim, Floats
from tossup.curriculum.watch import ALL_WRONG, MIXED

G = 8


def toss_up(n: int, seed: int = 0, rule: TossUpRule | None = None, tags: list[str] | None = None) -> TossUp:
    return TossUp([0] * n, [0] * n, tags, G, seed, rule)


def play(sampler: Sampler, p: Floats, steps: range, n: int = 16, decided: int = G) -> list[list[Draw]]:
    """Choose and observe with fixed success rates; the outcomes depend on the step alone."""
    drawn = []
    for step in steps:
        draws = sampler.choose(n, step)
        rng = np.random.default_rng([99, step])
        seen = [Observation(d.index, int(rng.binomial(decided, p[d.index])), decided, 100.0) for d in draws]
        sampler.observe(step, seen)
        drawn.append(draws)
    return drawn


def indices(draws: list[Draw], by: str | None = None) -> list[int]:
    return [d.index for d in draws if by is None or d.by == by]


@given(st.integers(1, 60), st.integers(1, 80), st.integers(0, 5))
def test_a_step_never_draws_a_problem_twice(n_problems: int, n: int, seed: int) -> None:
    for sampler in (toss_up(n_problems, seed), Uniform(n_problems, seed)):
        drawn = [i for _ in range(4) for i in indices(sampler.choose(n, 7))]
        assert len(drawn) == len(set(drawn)) == min(4 * n, n_problems)
        assert len(sampler.choose(n, 8)) == min(n, n_problems)


def test_an_empty_pool_gives_no_draws() -> None:
    assert toss_up(0).choose(8, 0) == []
    assert Uniform(0, 0).choose(8, 0) == []


def test_the_shares_of_the_three_rules() -> None:
    sampler = toss_up(500)
    by = Counter(d.by for step in range(200) for d in sampler.choose(50, step))
    assert by["uniform"] / 10_000 == pytest.approx(0.1, abs=0.01)
    assert by["thompson"] / 10_000 == pytest.approx(0.15, abs=0.01)
    assert by["score"] / 10_000 == pytest.approx(0.75, abs=0.02)


def test_the_floor_is_drawn_before_anything_is_looked_at() -> None:
    naive, wise = toss_up(200), toss_up(200)
    play(wise, np.linspace(0, 1, 200), range(50))
    for step in range(50, 80):
        assert indices(naive.choose(16, step), "uniform") == indices(wise.choose(16, step), "uniform")


def test_the_floor_is_uniform_over_the_pool() -> None:
    sampler = toss_up(20)
    play(sampler, np.linspace(0, 1, 20), range(30), n=6)
    seen = Counter(i for step in range(30, 3030) for i in indices(sampler.choose(6, step), "uniform"))
    expected = sum(seen.values()) / 20
    chi2 = sum((seen[i] - expected) ** 2 / expected for i in range(20))
    assert chi2 < 43.8  # the 0.999 quantile at 19 degrees of freedom


def test_later_waves_of_a_step_leave_the_control_arm_alone() -> None:
    sampler = toss_up(300)
    assert "uniform" in {d.by for d in sampler.choose(50, 0)}
    assert {d.by for d in sampler.choose(50, 0)} == {"score", "thompson"}


def waste(sampler: Sampler, p: Floats, aim_steps: range) -> float:
    chance = 1 - p**G - (1 - p) ** G
    draws = play(sampler, p, aim_steps)
    return float(1 - np.mean([chance[d.index] for step in draws for d in step]))


def test_it_finds_the_toss_ups() -> None:
    rng = np.random.default_rng(3)
    p = np.where(rng.random(600) < 0.7, rng.integers(0, 2, 600), rng.random(600)).astype(float)
    uniform = waste(Uniform(600, 0), p, range(100))
    assert uniform > 0.7
    assert waste(toss_up(600), p, range(100)) < 0.7 * uniform


def test_the_aim_moves_what_is_chosen() -> None:
    p = np.linspace(0, 1, 400)
    chosen = {}
    for aim in Aim:
        draws = play(toss_up(400, rule=TossUpRule(aim=aim)), p, range(120))
        chosen[aim] = np.mean([p[i] for step in draws[60:] for i in indices(step, "score")])
    assert chosen[Aim.HALF] == pytest.approx(0.5, abs=0.08)
    assert chosen[Aim.HEADROOM] == pytest.approx(0.3, abs=0.08)


def test_measured_counts_and_tags_steer_the_first_step() -> None:
    attempts, correct = np.full(100, 8), np.where(np.arange(100) < 50, 3, 8)
    sampler = TossUp(attempts, correct, None, G, 0)
    assert max(indices(sampler.choose(20, 0), "score")) < 50
    tagged = toss_up(100, tags=["solved"] * 50 + ["open"] * 50)
    play(tagged, np.where(np.arange(100) < 50, 1.0, 0.4), range(6), n=10)
    unseen = [i for i in indices(tagged.choose(20, 6), "score") if tagged.watch.visits[i] == 0]
    assert all(i >= 50 for i in unseen)


def test_short_problems_are_preferred_among_equals() -> None:
    sampler = toss_up(40)
    sampler.observe(0, [Observation(i, 3, G, 50.0 if i % 2 else 800.0) for i in range(40)])
    assert all(i % 2 for i in indices(sampler.choose(16, 1), "score"))


def test_three_uniform_groups_park_a_problem_and_a_mixed_one_brings_it_back() -> None:
    sampler = toss_up(30)
    for step in range(3):
        sampler.observe(step, [Observation(0, G, G, 10.0), Observation(1, 0, G, 10.0), Observation(2, 3, G, 10.0)])
    assert sampler.lists()["parked_easy"].tolist() == [0]
    assert sampler.lists()["parked_hard"].tolist() == [1]
    scored = {i for step in range(3, 200) for i in indices(sampler.choose(10, step), "score")}
    assert scored.isdisjoint({0, 1})
    others = {i for step in range(200, 800) for i in indices(sampler.choose(10, step))}
    assert {0, 1} <= others  # nothing is retired for good
    sampler.observe(800, [Observation(1, 2, G, 10.0)])
    assert sampler.lists()["parked_hard"].tolist() == []


def test_a_pool_of_parked_problems_is_still_drawn_from() -> None:
    sampler = toss_up(12)
    for step in range(3):
        sampler.observe(step, [Observation(i, 0, G, 10.0) for i in range(12)])
    assert len(sampler.choose(8, 3)) == 8


def test_unjudged_groups_say_nothing_of_the_rate_and_park() -> None:
    sampler = toss_up(5)
    before = sampler.rates(0)
    for step in range(3):
        sampler.observe(step, [Observation(4, 0, 0, 10.0), Observation(3, 1, 1, 10.0)])
    np.testing.assert_array_equal(sampler.rates(0), before)
    assert sampler.lists()["unjudged"].tolist() == [3, 4]


def test_a_problem_seen_twice_in_a_step_counts_twice() -> None:
    twice, one_by_one = toss_up(3), toss_up(3)
    twice.observe(0, [Observation(1, 8, G, 10.0), Observation(1, 0, G, 10.0)])
    one_by_one.observe(0, [Observation(1, 8, G, 10.0)])
    one_by_one.observe(0, [Observation(1, 0, G, 10.0)])
    assert twice.watch.visits[1] == 2
    np.testing.assert_allclose(twice.rates(1), one_by_one.rates(1))


def poisoned(sampler: Sampler, n: int, steps: int) -> tuple[Floats, list[list[int]]]:
    """A pool that gets easier by itself, with 5 % wrong keys, 10 % coin flips and a verifier that fails one time in five.

    Gives a number per problem (below 0.05: wrong key; from 0.05 to 0.15: coin flip) and the draws of each step.
    """
    rng = np.random.default_rng(5)
    kind, start = rng.random(n), rng.normal(-1, 2.5, n)
    drawn = []
    for step in range(steps):
        sound = 1 / (1 + np.exp(-(start + 0.01 * step)))
        p = np.where(kind < 0.05, 0.0, np.where(kind < 0.15, 0.5, sound))
        draws, noise, seen = sampler.choose(16, step), np.random.default_rng([1, step]), []
        for d in draws:
            decided = int(noise.binomial(G, 0.8))
            seen.append(Observation(d.index, int(noise.binomial(decided, p[d.index])), decided, 100.0))
        sampler.observe(step, seen)
        drawn.append(indices(draws))
    return kind, drawn


@pytest.mark.parametrize("aim", list(Aim))
def test_a_poisoned_pool_does_not_fixate_the_sampler_and_the_lists_find_the_poison(aim: Aim) -> None:
    sampler = toss_up(400, rule=TossUpRule(aim=aim))
    kind, drawn = poisoned(sampler, 400, 900)
    coins, wrong_keys = np.flatnonzero((kind >= 0.05) & (kind < 0.15)), np.flatnonzero(kind < 0.05)
    _, by_mopps = poisoned(Mopps(400, 0), 400, 600)

    def share(steps: list[list[int]]) -> float:
        return float(np.isin(np.concatenate(steps[200:600]), coins).mean())

    assert share(drawn) < 0.25
    assert share(drawn) < 0.6 * share(by_mopps)
    listed = sampler.lists()
    assert np.isin(listed["stuck"], coins).mean() > 0.7
    assert np.isin(coins, listed["stuck"]).mean() > 0.7
    assert np.isin(wrong_keys, listed["parked_hard"]).mean() > 0.7


RULES = [TossUpRule(), TossUpRule(belief=BeliefRule((0.3, 0.9), (0.4, 2.5)), candidates=40)]


def make(kind: str) -> Sampler:
    if kind == "uniform":
        return Uniform(60, 4)
    if kind == "features":
        x = np.random.default_rng(8).normal(size=(60, 3))
        return TossUp([0] * 60, [0] * 60, None, G, 4, features=x)
    return toss_up(60, 4, RULES[int(kind)], ["a", "b", "c"] * 20)


KINDS = ["uniform", "features", "0", "1"]


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_seed_gives_the_same_draws_and_another_seed_others(kind: str) -> None:
    p = np.linspace(0, 1, 60)
    assert play(make(kind), p, range(20)) == play(make(kind), p, range(20))
    assert toss_up(60, 1).choose(16, 0) != toss_up(60, 2).choose(16, 0)


@pytest.mark.parametrize("kind", KINDS)
def test_a_restored_sampler_goes_on_bit_for_bit(kind: str) -> None:
    p = np.linspace(0, 1, 60)
    whole, half = make(kind), make(kind)
    play(whole, p, range(15))
    play(half, p, range(15))
    assert whole.choose(5, 15) == half.choose(5, 15)  # saved in the middle of a step
    resumed = make(kind)
    resumed.restore(half.state())
    assert whole.choose(16, 15) == resumed.choose(16, 15)
    assert play(whole, p, range(16, 30)) == play(resumed, p, range(16, 30))
    assert whole.state().keys() == resumed.state().keys()
    for name, array in whole.state().items():
        np.testing.assert_array_equal(array, resumed.state()[name], strict=True)


def test_a_saved_state_is_a_copy() -> None:
    sampler = toss_up(30)
    state = sampler.state()
    saved = {k: v.copy() for k, v in state.items()}
    play(sampler, np.full(30, 0.5), range(5))
    for name, array in saved.items():
        np.testing.assert_array_equal(array, state[name])


def test_uniform_goes_through_the_pool_once_an_epoch() -> None:
    sampler = Uniform(50, 0)
    epoch = [i for step in range(5) for i in indices(sampler.choose(10, step))]
    assert sorted(epoch) == list(range(50))
    following = [i for step in range(5, 10) for i in indices(sampler.choose(10, step))]
    assert sorted(following) == list(range(50))
    assert following != epoch


def test_large_pools_are_drawn_from_widely() -> None:
    sampler = toss_up(20_000, rule=TossUpRule(candidates=500))
    drawn = {i for step in range(50) for i in indices(sampler.choose(16, step))}
    assert len(drawn) > 700
    assert max(drawn) > 18_000


def test_known_toss_ups_stay_candidates_in_a_large_pool() -> None:
    sampler = toss_up(50_000, rule=TossUpRule(candidates=100))
    known = list(range(0, 50_000, 1250))
    sampler.observe(0, [Observation(i, 3, G, 100.0) for i in known])
    scored = indices(sampler.choose(20, 1 + TossUpRule().rest), "score")
    assert np.isin(scored, known).mean() > 0.8


def returns(rest: int) -> Floats:
    """The steps between two score draws of one problem, in a pool of toss-ups that never change."""
    sampler = toss_up(1000, rule=TossUpRule(rest=rest))
    last: dict[int, int] = {}
    gaps = []
    for step, draws in enumerate(play(sampler, np.full(1000, 0.4), range(150), n=8)):
        gaps += [step - last[d.index] for d in draws if d.by == "score" and d.index in last]
        last |= {d.index: step for d in draws}
    return np.array(gaps, np.float64)


def test_a_visited_problem_regains_its_value_step_by_step() -> None:
    assert np.median(returns(rest=1)) < 10
    assert np.median(returns(rest=40)) > 25


def test_what_is_worth_twice_as_much_comes_back_about_twice_as_often() -> None:
    """Of 300 problems 20 have a rate of 0.3 and 40 of 0.7, whose groups are worth less than half; the others are hopeless."""
    p = np.where(np.arange(300) < 20, 0.3, np.where(np.arange(300) < 60, 0.7, 0.0))
    drawn = play(toss_up(300), p, range(40, 400), n=8)
    often = Counter(i for draws in drawn[150:] for i in indices(draws, "score"))
    better, worse = sum(often[i] for i in range(20)) / 20, sum(often[i] for i in range(20, 60)) / 40
    assert 1.5 < better / worse < 4.0


def test_the_prior_of_a_tag_is_not_taken_from_the_problems_that_come_back() -> None:
    """Nine of ten problems of the tag are solved; the tenth is a toss-up and is drawn again and again."""
    p = np.where(np.arange(400) % 10 == 0, 0.4, 1.0)
    sampler = toss_up(400)
    play(sampler, p, range(150), n=8)
    assert sampler.belief.prior.mean(np.array([1]))[0] > 0.85
    assert np.mean([p[i] for i in indices(sampler.choose(8, 150), "score")]) < 0.7


def test_a_kind_of_problem_that_disappoints_counts_less() -> None:
    """Problems that were all wrong once stay all wrong here, as with wrong keys, though their tag is easy."""
    sampler = toss_up(200)
    for step in range(10):
        seen = [Observation(10 * step + i, 0 if i < 5 else 6, G, 10.0) for i in range(10)]
        sampler.observe(step, seen)
        sampler.observe(step, [Observation(10 * step + i, 0, G, 10.0) for i in range(5)])
    hopeless, mixed = sampler.calibration.ratio(np.array([ALL_WRONG, MIXED], np.int8))
    assert hopeless < 0.6 < mixed


def test_rest_is_short_in_a_small_pool_and_never_leaves_a_step_unfilled() -> None:
    """Twenty toss-ups among 100 problems, 8 draws a step: a long rest would leave only the hopeless."""
    p = np.where(np.arange(100) < 20, 0.5, 0.0)
    sampler = toss_up(100, rule=TossUpRule(rest=1000))
    history = play(sampler, p, range(30), n=8)
    assert all(len(draws) == 8 for draws in history)
    late = [draw.index for draws in history[15:] for draw in draws]
    assert np.mean([i < 20 for i in late]) > 0.5


@given(st.lists(st.sampled_from([0.0, 0.25, 0.5, 1.0, 2.0]), max_size=30), st.integers(0, 35))
def test_the_best_few_are_those_that_sorting_them_all_gives(values: list[float], n: int) -> None:
    array = np.array(values)
    assert best(array, n).tolist() == np.argsort(-array, kind="stable")[:n].tolist()
