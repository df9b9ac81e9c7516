from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from tossup.curriculum.baselines import Greso, LastMeanPools, Mopps, dapo
from tossup.curriculum.sampler import Draw, Observation, Sampler

G = 8
MAKERS: dict[str, Callable[[int], Sampler]] = {
    "greso": lambda n: Greso(n, 3),
    "pools": lambda n: LastMeanPools(n, 3),
    "mopps": lambda n: Mopps(n, 3),
}
each = pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)


def play(sampler: Sampler, p: np.ndarray, steps: range, n: int = 16) -> list[list[Draw]]:
    drawn = []
    for step in steps:
        draws = sampler.choose(n, step)
        rng = np.random.default_rng(step)
        sampler.observe(step, [Observation(d.index, int(rng.binomial(G, p[d.index])), G, 10.0) for d in draws])
        drawn.append(draws)
    return drawn


@each
def test_no_problem_twice_in_a_step_and_full_waves(make: Callable[[int], Sampler]) -> None:
    sampler = make(50)
    play(sampler, np.where(np.arange(50) < 40, 1.0, 0.5), range(30))
    drawn = [d.index for _ in range(4) for d in sampler.choose(16, 30)]
    assert len(drawn) == len(set(drawn)) == 50


@each
def test_a_restored_sampler_goes_on_bit_for_bit(make: Callable[[int], Sampler]) -> None:
    p = np.linspace(0, 1, 50)
    whole, half, resumed = make(50), make(50), make(50)
    play(whole, p, range(10))
    play(half, p, range(10))
    resumed.restore(half.state())
    assert play(whole, p, range(10, 20)) == play(resumed, p, range(10, 20))


@each
def test_each_wastes_less_than_uniform(make: Callable[[int], Sampler]) -> None:
    p = np.where(np.arange(300) < 240, np.arange(300) % 2, 0.4).astype(float)  # uniform wastes more than 80 %
    late = [p[d.index] for draws in play(make(300), p, range(60))[30:] for d in draws]
    assert np.mean(np.isin(late, (0.0, 1.0))) < 0.72


def test_greso_skips_by_the_length_of_the_run() -> None:
    sampler = Greso(1000, 0)
    for step in range(3):
        sampler.observe(step, [Observation(i, 0, G, 1.0) for i in range(500)])
    assert sampler.run[0] == -3
    drawn = [d.index for d in sampler.choose(400, 3)]
    assert np.mean(np.array(drawn) < 500) == pytest.approx(0.125 / 1.125, abs=0.05)


def test_pools_draw_by_their_weights() -> None:
    sampler = LastMeanPools(1000, 0, easy=0.0, hard=0.25)
    sampler.observe(0, [Observation(i, (0, 3, G)[i % 3], G, 1.0) for i in range(999)])
    drawn = np.array([d.index for step in range(40) for d in sampler.choose(20, step)])
    assert not np.any((drawn % 3 == 2) & (drawn != 999))
    assert np.mean(drawn % 3 == 0) == pytest.approx(0.2, abs=0.04)


def test_mopps_seeks_its_target() -> None:
    p = np.linspace(0, 1, 200)
    late = [p[d.index] for draws in play(Mopps(200, 0, target=0.5), p, range(60))[30:] for d in draws]
    assert np.mean(late) == pytest.approx(0.5, abs=0.1)
    assert np.std(late) < 0.2


def test_dapo_refills_in_full_waves_and_discards_unless_thrifty() -> None:
    assert (dapo(8).refill, dapo(8).by_yield, dapo(8).max_age, dapo(8).max_waves) == (True, False, 0, 10)
    assert (dapo(8, thrifty=True).by_yield, dapo(8, thrifty=True).max_age) == (True, 1)
