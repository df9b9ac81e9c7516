from __future__ import annotations

import numpy as np
import pytest

from tossup.curriculum.cells import CellTable
from tossup.curriculum.estimate import Cells
from tossup.curriculum.planner import BANDS, plan
from tossup.records import TossupError

LENGTH = 100.0


def table(p: np.ndarray, n: int = 16, tokens: bool = True, seed: int = 0) -> CellTable:
    hits = np.random.default_rng(seed).binomial(n, p)
    units = np.zeros((len(p), n + 1))
    units[np.arange(len(p)), hits] = 1.0
    total = units.sum(axis=0)
    lengths = total * LENGTH * tokens
    return CellTable(Cells(np.full(n + 1, n), np.arange(n + 1)), units, lengths, lengths, lengths, tokens)


def pool() -> np.ndarray:
    rng = np.random.default_rng(7)
    return np.concatenate([np.zeros(300), np.ones(200), rng.beta(2, 2, 500)])


def test_the_rate_of_the_whole_pool_is_what_its_problems_give() -> None:
    p = pool()
    found = plan(table(p), [8], 1e6)
    truth = 1e6 * float(np.mean(1 - p**8 - (1 - p) ** 8)) / (8 * LENGTH)
    whole = found.options[0]
    assert whole.low <= truth <= whole.high
    assert whole.per_million == pytest.approx(truth, rel=0.05)
    assert whole.informative == pytest.approx(whole.per_million)
    assert whole.visits == pytest.approx(1e6 / (8 * LENGTH) / 1000)


def test_a_band_without_the_hopeless_gains_what_they_wasted() -> None:
    p = pool()
    whole, *bands = plan(table(p), [8], 1e6).options
    kept = bands[1]
    assert kept.band == (0.1, 0.9)
    assert 420 < kept.problems < 520
    assert kept.gain == pytest.approx(kept.per_million / whole.per_million)
    assert 1.8 < kept.gain < 2.2


def test_the_posterior_does_not_promise_what_luck_showed() -> None:
    # Every problem is solved once in twenty, so those that look mixed in 4 answers are the lucky ones.
    p = np.full(2000, 0.05)
    lucky = plan(table(p, n=4, seed=3), [8], 1e6, bands=[(0.0, 1.0)]).options[0]
    truth = 1e6 * (1 - 0.05**8 - 0.95**8) / (8 * LENGTH)
    assert lucky.per_million == pytest.approx(truth, rel=0.1)


def test_the_best_option_keeps_to_the_visits_allowed() -> None:
    found = plan(table(pool()), [4, 8], 4e6, max_visits=11.0)
    assert found.best is not None
    assert found.best.visits <= 11.0
    narrower = [o for o in found.options if o.group_size == 4 and o.per_million > found.best.per_million]
    assert all(o.visits > 11.0 for o in narrower)
    assert found.margin >= 1.0
    assert 0.0 <= found.confidence <= 1.0
    assert plan(table(pool()), [8], 1e12, max_visits=8.0).best is None


def test_lengths_come_from_the_rollouts_or_must_be_given() -> None:
    without = table(pool(), tokens=False)
    with pytest.raises(TossupError, match="give --answer-tokens"):
        plan(without, [8], 1e6)
    given = plan(without, [8], 1e6, answer_tokens=LENGTH)
    assert given.options[0].per_million == pytest.approx(plan(table(pool()), [8], 1e6).options[0].per_million)


def test_a_band_that_holds_nothing_is_told() -> None:
    with pytest.raises(TossupError, match="no problem lies"):
        plan(table(np.zeros(50)), [8], 1e6, bands=[(0.9, 1.0)])
    assert len({o.band for o in plan(table(pool()), [4, 8], 1e6).options}) == len(BANDS)
