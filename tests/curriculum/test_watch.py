from __future__ import annotations

import numpy as np
import pytest

from tossup.curriculum.watch import SUSPECT, Watch

G = 8


def see(watch: Watch, index: int, *correct: int) -> None:
    for c in correct:
        watch.see(np.array([index]), np.array([float(c)]), np.array([float(G)]))


def stuck(watch: Watch, index: int) -> float:
    return float(watch.stuck(np.array([index]))[0])


def test_where_all_stay_in_the_middle_and_are_visited_alike_none_is_stuck() -> None:
    watch, rng = Watch(60), np.random.default_rng(0)
    for _ in range(50):
        watch.see(np.arange(60), rng.binomial(G, 0.5, 60).astype(float), np.full(60, float(G)))
    assert watch.lists()["stuck"].size == 0
    assert watch.stuck(np.arange(60)).max() < SUSPECT


def test_a_coin_among_problems_that_move_is_stuck() -> None:
    watch, rng = Watch(30), np.random.default_rng(1)
    for i in range(1, 30):
        see(watch, i, 2, 3, 3, 5, 6, 8, 8)
    see(watch, 0, *rng.binomial(G, 0.5, 40))
    assert watch.lists()["stuck"].tolist() == [0]
    assert stuck(watch, 0) > 2


def test_one_coin_that_is_seen_every_step_is_not_the_yardstick() -> None:
    watch = Watch(11)
    for i in range(1, 11):
        see(watch, i, 3, 4, 3, 4)
    before = watch.yardstick
    see(watch, 0, *[4] * 300)
    assert watch.yardstick == before


def test_a_move_starts_the_count_again() -> None:
    watch = Watch(2)
    see(watch, 0, *[3] * 20)
    assert watch.still[0] == 20
    see(watch, 0, *[7] * 8)  # the slow rate goes from 3/8 to 0.7
    assert watch.still[0] < 8
    assert watch.needed[0] > 20


def test_one_uniform_group_is_chance_and_two_in_a_row_end_the_count() -> None:
    watch = Watch(1)
    see(watch, 0, *[6] * 10, G)
    assert watch.still[0] == 10
    see(watch, 0, 6, G, G)
    assert watch.still[0] == 0


def test_an_unjudged_group_neither_moves_nor_counts() -> None:
    watch = Watch(2)
    see(watch, 0, 3, 3)
    for _ in range(3):
        watch.see_unjudged(np.array([0]))
    assert watch.still[0] == 2
    assert watch.lists()["unjudged"].tolist() == [0]
    see(watch, 0, 3)
    assert watch.lists()["unjudged"].size == 0


@pytest.mark.parametrize("visits", [1, 1500])
def test_the_books_of_what_was_needed_balance(visits: int) -> None:
    watch, rng = Watch(7), np.random.default_rng(3)
    for _ in range(visits):
        index = rng.choice(7, 3, replace=False)
        watch.see(index, rng.binomial(G, 0.6, 3).astype(float), np.full(3, float(G)))
    counted = np.bincount(watch.needed, minlength=len(watch.needs))
    np.testing.assert_array_equal(watch.needs[1:], counted[1:])
