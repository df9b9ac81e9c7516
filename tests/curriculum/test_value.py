from __future__ import annotations

from fractions import Fraction
from math import comb, prod, sqrt

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tossup.curriculum.value import (
    Aim,
    beta_binomial,
    expected_signal,
    expected_std,
    group_std,
    informative_chance,
    log_likelihood,
    signal_at,
)

counts = st.integers(1, 30)
rates = st.floats(0.01, 60.0)
sizes = st.integers(2, 40)


def rising(x: int, n: int) -> int:
    return prod(x + i for i in range(n))


def exact(a: int, b: int, size: int, headroom: int) -> float:
    """E[std (1-p)^headroom] by the moments of a Beta with whole parameters: sums of exact fractions."""
    total = 0.0
    for c in range(size + 1):
        moment = Fraction(rising(a, c) * rising(b, size - c + headroom), rising(a + b, size + headroom))
        total += float(comb(size, c) * moment) * sqrt(c * (size - c)) / size
    return total


@given(counts, counts, st.integers(1, 20))
def test_the_predictive_distribution_equals_the_exact_fractions(a: int, b: int, size: int) -> None:
    wanted = [
        float(comb(size, c) * Fraction(rising(a, c) * rising(b, size - c), rising(a + b, size)))
        for c in range(size + 1)
    ]
    assert beta_binomial(np.array(float(a)), np.array(float(b)), size) == pytest.approx(wanted, rel=1e-9)


@given(counts, counts, st.integers(2, 20))
def test_both_aims_equal_sums_over_exact_moments(a: int, b: int, size: int) -> None:
    arrays = np.array([float(a)]), np.array([float(b)])
    assert expected_signal(*arrays, size, Aim.HALF)[0] == pytest.approx(exact(a, b, size, 0), rel=1e-9)
    assert expected_signal(*arrays, size, Aim.HEADROOM)[0] == pytest.approx(exact(a, b, size, 1), rel=1e-9)


@given(rates, rates, sizes)
def test_bounds_and_symmetry(a: float, b: float, size: int) -> None:
    x, y = np.array(a), np.array(b)
    std = float(expected_std(x, y, size))
    assert 0 < std <= 0.5
    assert std == pytest.approx(float(expected_std(y, x, size)), rel=1e-9)
    assert 0 < float(expected_signal(x, y, size)) < std
    assert beta_binomial(x, y, size) == pytest.approx(beta_binomial(y, x, size)[::-1], rel=1e-9)
    # A group that is not uniform has at least the deviation of one odd answer out.
    chance = float(informative_chance(x, y, size))
    assert std >= chance * group_std(size)[1] - 1e-12
    assert std <= chance * 0.5 + 1e-12


def test_no_overflow_at_the_ends() -> None:
    for a, b in ((0.01, 5000.0), (5000.0, 0.01), (1e-2, 1e-2), (300.0, 200.0)):
        p = beta_binomial(np.array(a), np.array(b), 1024)
        assert np.isfinite(p).all()
        assert p.sum() == pytest.approx(1.0)
        assert expected_std(np.array(a), np.array(b), 1024) == pytest.approx(p @ group_std(1024), rel=1e-9)


def test_the_best_rate_is_a_half_or_lower_with_headroom() -> None:
    p = np.linspace(0.01, 0.99, 99)
    a, b = 1e6 * p, 1e6 * (1 - p)  # as good as known
    assert p[expected_signal(a, b, 8, Aim.HALF).argmax()] == pytest.approx(0.5)
    assert 0.2 < p[expected_signal(a, b, 8, Aim.HEADROOM).argmax()] < 0.4
    assert p[signal_at(p, Aim.HALF).argmax()] == pytest.approx(0.5)
    assert p[signal_at(p).argmax()] == pytest.approx(0.25)


def test_a_known_rate_gives_the_binomial_and_a_large_group_the_true_deviation() -> None:
    p = 0.3
    known = informative_chance(np.array(p * 1e9), np.array((1 - p) * 1e9), 8)
    assert known == pytest.approx(1 - p**8 - (1 - p) ** 8, rel=1e-6)
    large = expected_signal(np.array(p * 1e7), np.array((1 - p) * 1e7), 4000)
    assert large == pytest.approx(signal_at(np.array(p)), rel=1e-3)


@given(counts, counts, st.integers(0, 12), st.integers(0, 12))
def test_the_likelihood_of_one_order_is_the_predictive_over_the_number_of_orders(
    a: int, b: int, right: int, wrong: int
) -> None:
    n = right + wrong
    got = log_likelihood(np.array(float(a)), np.array(float(b)), np.array(float(right)), np.array(float(n)))
    if n == 0:
        assert got == 0.0
    else:
        predictive = beta_binomial(np.array(float(a)), np.array(float(b)), n)[right]
        assert np.exp(got) * comb(n, right) == pytest.approx(predictive, rel=1e-9)


@pytest.mark.parametrize(("a", "b", "size"), [(0.0, 1.0, 8), (1.0, -1.0, 8), (1.0, 1.0, 0)])
def test_impossible_beliefs_are_refused(a: float, b: float, size: int) -> None:
    with pytest.raises(ValueError, match=r"positive|group_size"):
        beta_binomial(np.array(a), np.array(b), size)
