from __future__ import annotations

import math
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tossup.curriculum import estimate, profile
from tossup.curriculum.estimate import Cells

SEED_TABLE = {
    0.5: (12.5, 0.8, 0.0, 0.0),
    0.7: (24.8, 5.8, 0.3, 0.0),
    0.9: (65.6, 43.0, 18.5, 3.4),
    0.95: (81.5, 66.3, 44.0, 19.4),
    0.99: (96.1, 92.3, 85.1, 72.5),
}
"""Percent of uniform groups of 4, 8, 16 and 32 answers, by the success rate of the problem."""

counts = st.integers(2, 12).flatmap(lambda n: st.tuples(st.just(n), st.integers(0, n), st.integers(2, n)))
rates = st.floats(0.0, 1.0)


def waste(n: int, c: int, size: int) -> float:
    right, wrong = estimate.subset_shares(np.array([n]), np.array([c]), size)
    return float(right[0] + wrong[0])


def pool_counts(p: np.ndarray, n: int, seed: int) -> tuple[Cells, np.ndarray]:
    hits = np.random.default_rng(seed).binomial(n, p)
    return Cells(np.full(n + 1, n), np.arange(n + 1)), np.bincount(hits, minlength=n + 1).astype(float)


def test_the_table_of_uniform_groups_by_success_rate() -> None:
    for p, percents in SEED_TABLE.items():
        for size, percent in zip((4, 8, 16, 32), percents, strict=True):
            right, wrong = estimate.uniform_share(np.array([p]), size)
            assert round(100 * float(right[0] + wrong[0]), 1) == percent


@given(counts)
def test_a_share_is_that_of_the_uniform_subsets(case: tuple[int, int, int]) -> None:
    n, c, size = case
    answers = [1] * c + [0] * (n - c)
    subsets = list(combinations(answers, size))
    right, wrong = estimate.subset_shares(np.array([n]), np.array([c]), size)
    assert right[0] == pytest.approx(sum(all(s) for s in subsets) / len(subsets), abs=1e-12)
    assert wrong[0] == pytest.approx(sum(not any(s) for s in subsets) / len(subsets), abs=1e-12)


@given(st.integers(2, 14), st.integers(2, 14), rates)
def test_the_share_is_unbiased_at_every_success_rate(n: int, size: int, p: float) -> None:
    size = min(size, n)
    mean = sum(math.comb(n, c) * p**c * (1 - p) ** (n - c) * waste(n, c, size) for c in range(n + 1))
    assert mean == pytest.approx(p**size + (1 - p) ** size, abs=1e-9)


@given(counts)
def test_larger_groups_waste_no_more_and_right_mirrors_wrong(case: tuple[int, int, int]) -> None:
    n, c, size = case
    assert 0.0 <= waste(n, c, size) <= waste(n, c, size - 1) + 1e-12 if size > 2 else waste(n, c, size) <= 1.0
    right, wrong = estimate.subset_shares(np.array([n, n]), np.array([c, n - c]), size)
    assert right[0] == wrong[1]
    assert right[1] == wrong[0]


def test_more_answers_than_there_are_is_no_number() -> None:
    right, wrong = estimate.subset_shares(np.array([3, 8]), np.array([1, 8]), 4)
    assert np.isnan(right[0])
    assert np.isnan(wrong[0])
    assert (right[1], wrong[1]) == (1.0, 0.0)
    with pytest.raises(ValueError, match="fewer than 4 answers"):
        Cells(np.array([3]), np.array([1])).values(4, None)


def test_the_likelihood_knows_the_ends() -> None:
    like = estimate.likelihood_JK(np.array([4, 4, 4]), np.array([0, 2, 4]), np.array([0.0, 0.5, 1.0]))
    assert like[0] == pytest.approx([1.0, 1 / 16, 0.0])
    assert like[1] == pytest.approx([0.0, 1.0, 0.0])
    assert like[2] == pytest.approx([0.0, 1 / 16, 1.0])


@settings(max_examples=25, deadline=None)
@given(st.lists(st.integers(0, 40), min_size=5, max_size=5).filter(lambda h: sum(h) > 0))
def test_the_fit_is_a_distribution_and_its_waste_falls_with_the_group_size(histogram: list[int]) -> None:
    cells = Cells(np.full(5, 4), np.arange(5))
    weights = np.array([histogram], dtype=float)
    mix = cells.fit(weights)
    assert mix.sum() == pytest.approx(1.0)
    assert (mix >= 0).all()
    shares = []
    for size in (5, 8, 16, 32):
        right, wrong = cells.values(size, mix)
        shares.append(float(((right + wrong) @ weights[0])[0]) / weights.sum())
    assert shares == sorted(shares, reverse=True)
    assert 0.0 <= shares[-1] <= shares[0] <= 1.0


def test_the_fit_sees_the_waste_that_the_mean_rate_hides() -> None:
    p = np.concatenate([np.zeros(600), np.full(100, 0.95), np.random.default_rng(1).beta(0.5, 1.5, 300)])
    cells, weights = pool_counts(p, 8, seed=2)
    right, wrong = cells.values(16, cells.fit(weights[None]))
    found = float((right + wrong)[0] @ weights) / 1000
    truth = float(np.mean(p**16 + (1 - p) ** 16))
    mean = p.mean()
    assert abs(found - truth) < 0.03
    assert abs(mean**16 + (1 - mean) ** 16 - truth) > 0.3


def test_thinning_keeps_the_law_of_fewer_answers() -> None:
    every = [(n, c) for n in range(1, 41) for c in range(n + 1)]
    cells = Cells(np.array([n for n, _ in every]), np.array([c for _, c in every]))
    few, share = cells.thinned()
    assert len(few.n) <= estimate.MAX_CELLS < len(every)
    assert share.sum(axis=1) == pytest.approx(np.ones(len(every)))
    keep = int(few.n.max())
    p = 0.3
    for n in (3, keep, 40):
        of_n = cells.n == n
        law = np.array([math.comb(n, c) * p**c * (1 - p) ** (n - c) for c in cells.c[of_n]])
        m = min(n, keep)
        expected = [math.comb(m, c) * p**c * (1 - p) ** (m - c) for c in range(m + 1)]
        assert (law @ share[of_n])[few.n == m] == pytest.approx(expected)
    same, identity = Cells(np.array([8]), np.array([3])).thinned()
    assert (len(same.n), identity.tolist()) == (1, [[1.0]])


def test_the_interior_point_finds_the_best_mixture() -> None:
    cells, weights = pool_counts(np.random.default_rng(0).beta(0.3, 0.9, 800), 8, seed=3)
    points = estimate.grid(101)
    like = estimate.likelihood_JK(cells.n, cells.c, points)
    shares = weights / weights.sum()
    best = profile.maximise(like[None], shares)[0]
    gradient = like.T @ (shares / (like @ best))
    # Kuhn and Tucker: no point of the grid could take more weight, and those that have some are indifferent.
    assert gradient.max() < 1 + 1e-4
    assert gradient[best > 1e-3] == pytest.approx(1.0, abs=1e-4)
    slow = estimate.fit(weights[None], like, 500)[0]
    assert shares @ np.log(like @ best) >= shares @ np.log(like @ slow)


def test_an_interval_holds_the_truth_and_is_as_wide_as_the_ignorance() -> None:
    p = np.random.default_rng(5).beta(0.4, 1.2, 2000)
    points = estimate.grid(101)
    widths = []
    for n in (3, 8, 16):
        cells, weights = pool_counts(p, n, seed=n)
        like = estimate.likelihood_JK(cells.n, cells.c, points)
        low, high = profile.interval(like, weights, np.array([points**32 + (1 - points) ** 32]), 1.35)
        assert low[0] < np.mean(p**32 + (1 - p) ** 32) < high[0]
        widths.append(float(high[0] - low[0]))
    assert widths == sorted(widths, reverse=True)
    assert widths[0] > 0.2


def test_one_answer_a_problem_leaves_all_open_between_the_two_extremes() -> None:
    points = estimate.grid(101)
    like = estimate.likelihood_JK(np.array([1, 1]), np.array([0, 1]), points)
    low, high = profile.interval(like, np.array([50_000.0, 50_000.0]), np.array([points**4 + (1 - points) ** 4]), 1.35)
    # All problems at one half, or half of them solved and half impossible.
    assert low[0] == pytest.approx(0.125, abs=0.01)
    assert high[0] == pytest.approx(1.0, abs=0.01)
