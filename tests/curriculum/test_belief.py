from __future__ import annotations

from math import exp

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tossup.curriculum.belief import Belief, BeliefRule
from tossup.curriculum.prior import FeaturePrior, TagPrior

G = 8


def fresh(n: int, tags: list[str] | None = None, rule: BeliefRule | None = None) -> Belief:
    return Belief([0] * n, [0] * n, TagPrior(tags, n), G, rule)


def visit(belief: Belief, index: int, correct: int, step: int, decided: int = G) -> None:
    belief.visit(np.array([index]), np.array([float(correct)]), np.array([float(decided)]), step)


def rate(belief: Belief, index: int, step: int) -> float:
    a, b = belief.posterior(np.array([index]), step)
    return float(a[0] / (a[0] + b[0]))


def weight(belief: Belief, index: int, step: int) -> float:
    a, b = belief.posterior(np.array([index]), step)
    return float(a[0] + b[0])


def test_a_visit_fades_the_old_counts_and_adds_the_new() -> None:
    belief = fresh(1, rule=BeliefRule((0.6,), (1.0,)))
    visit(belief, 0, 8, 0)
    visit(belief, 0, 2, 0)
    assert belief.right[0, 0] == pytest.approx(0.6 * 8 + 2)
    assert belief.wrong[0, 0] == pytest.approx(6)
    assert belief.own_mean(np.array([0]))[0] == pytest.approx(6.8 / 12.8)


def test_between_visits_the_weight_ages_and_the_mean_stays() -> None:
    belief = fresh(2, rule=BeliefRule((0.6,), (1.0,), ageing_steps=100.0, least_weight=1.0))
    visit(belief, 0, 6, 10)
    assert weight(belief, 0, 10) == pytest.approx(8 + 1)
    assert weight(belief, 0, 60) == pytest.approx(8 * exp(-0.5) + 1)
    assert weight(belief, 0, 100_000) == pytest.approx(1 + 1)
    assert belief.own_mean(np.array([0]))[0] == pytest.approx(0.75)
    assert np.isnan(belief.own_mean(np.array([1]))[0])


def test_a_hopeless_problem_becomes_worth_a_look_again() -> None:
    belief = fresh(1)
    for step in range(3):
        visit(belief, 0, 0, step)
    assert rate(belief, 0, 400) > 2 * rate(belief, 0, 3)


def test_offline_counts_load_as_one_visit_and_teach_the_prior() -> None:
    belief = Belief([100, 0, 4, 0], [25, 0, 4, 0], TagPrior(["a", "a", "b", "b"], 4), G)
    assert weight(belief, 0, 0) == pytest.approx(G + belief.strength)
    assert belief.own_mean(np.array([0, 2])) == pytest.approx([0.25, 1.0])
    assert weight(belief, 2, 0) == pytest.approx(4 + belief.strength)
    assert rate(belief, 1, 0) < rate(belief, 3, 0)


def test_counts_that_cannot_be_are_refused() -> None:
    with pytest.raises(ValueError, match="correct <= attempts"):
        Belief([1], [2], TagPrior(None, 1), G)
    with pytest.raises(ValueError, match="correct <= attempts"):
        Belief([1, 1], [1], TagPrior(None, 2), G)


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, G), st.integers(0, 50)), max_size=30))
def test_every_belief_is_a_proper_beta(visits: list[tuple[int, int, int]]) -> None:
    belief = fresh(4, ["x", "x", "y", "y"], BeliefRule((0.3, 0.9), (0.4, 2.5)))
    step = 0
    for index, correct, wait in visits:
        step += wait
        visit(belief, index, correct, step)
    a, b = belief.posterior(np.arange(4), step + 1000)
    assert np.isfinite([a, b]).all()
    assert (a >= 0.01).all()
    assert (b >= 0.01).all()


@given(st.integers(0, G), st.integers(0, G))
def test_more_right_answers_never_lower_the_rate(low: int, high: int) -> None:
    low, high = sorted((low, high))
    first, second = fresh(1), fresh(1)
    visit(first, 0, low, 0)
    visit(second, 0, high, 0)
    assert rate(first, 0, 1) <= rate(second, 0, 1)


@pytest.mark.parametrize(("steady", "decay"), [(True, 0.9), (False, 0.1)])
def test_the_grid_picks_the_memory_that_predicts(steady: bool, decay: float) -> None:
    rng = np.random.default_rng(0)
    belief = fresh(40, rule=BeliefRule((0.1, 0.9), (1.0,)))
    everything, n = np.arange(40), np.full(40, float(G))
    p = rng.random(40)
    for step in range(40):
        if not steady:
            p = np.clip(p + rng.normal(0, 0.3, 40), 0, 1)
        belief.visit(everything, rng.binomial(G, p).astype(float), n, step)
    assert belief.decay == decay


def test_the_tag_prior_separates_tags_and_forgets() -> None:
    prior = TagPrior(["easy", "hard", "new"], 3)
    everything, n = np.arange(3), np.full(2, 800.0)
    prior.learn(everything[:2], np.array([800.0, 0.0]), n, 0)
    easy, hard, new = prior.mean(everything)
    assert easy > 0.95
    assert hard < 0.05
    assert new == pytest.approx(0.5, abs=0.01)
    # The policy has unlearned the easy ones: after a few hundred steps the same weight of news prevails.
    prior.learn(everything[:1], np.zeros(1), np.full(1, 100.0), 300)
    assert prior.mean(everything)[0] < 0.1


def test_the_feature_prior_learns_what_the_features_say() -> None:
    rng = np.random.default_rng(1)
    x = rng.normal(size=(2000, 5))
    p = 1 / (1 + np.exp(-(3 * x[:, 0] - x[:, 1])))
    prior = FeaturePrior(x)
    for step in range(20):
        index = np.arange(step * 64, step * 64 + 64)
        prior.learn(index, rng.binomial(G, p[index]).astype(float), np.full(64, float(G)), step)
    unseen = np.arange(1500, 2000)
    assert np.corrcoef(prior.mean(unseen), p[unseen])[0, 1] > 0.9


@pytest.mark.parametrize("features", [False, True])
def test_a_restored_belief_goes_on_bit_for_bit(features: bool) -> None:
    x = np.random.default_rng(2).normal(size=(30, 4))

    def make() -> Belief:
        prior = FeaturePrior(x) if features else TagPrior(["a", "b", "c"] * 10, 30)
        return Belief([4] * 30, [1] * 30, prior, G, BeliefRule((0.3, 0.9), (0.4, 2.5)))

    def go_on(belief: Belief, start: int) -> None:
        for step in range(start, start + 10):
            rng = np.random.default_rng(step)
            index = rng.choice(30, 6, replace=False)
            belief.visit(index, rng.integers(0, G + 1, 6).astype(float), np.full(6, float(G)), step)

    whole, half = make(), make()
    go_on(whole, 0)
    go_on(half, 0)
    resumed = make()
    resumed.restore(half.state())
    go_on(whole, 10)
    go_on(resumed, 10)
    assert whole.state().keys() == resumed.state().keys()
    for name, array in whole.state().items():
        np.testing.assert_array_equal(array, resumed.state()[name], strict=True)


def test_a_state_of_another_pool_is_refused() -> None:
    with pytest.raises(ValueError, match="own pool"):
        fresh(3).restore(fresh(4).state())
