from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest
from report_ledgers import RULINGS, STEPS, answer, group, write_ledger
from scipy import stats

from tossup.curriculum.ledger import Ledger, scan_ledger
from tossup.curriculum.report import folds
from tossup.records import Fate, Group, Problem


def table_of(folder: Path, steps) -> pl.DataFrame:
    return folds.groups(scan_ledger(write_ledger(folder, steps)))


def test_groups_have_their_counts_and_kind(tmp_path: Path) -> None:
    table = table_of(tmp_path, STEPS)
    assert table.select("step", "group", "n", "c", "answers", "tokens", "kind", "wasted").rows() == [
        (0, 0, 4, 1, 4, 12, "mixed", False),
        (0, 1, 4, 4, 4, 12, "all_correct", True),
        (0, 2, 4, 0, 4, 12, "all_wrong", True),
        (1, 3, 4, 3, 4, 12, "mixed", False),
        (1, 4, 2, 1, 4, 12, "mixed", False),
        (1, 5, 1, 0, 4, 12, "too_few", True),
        (2, 6, 4, 4, 4, 12, "all_correct", True),
        (2, 7, 4, 0, 4, 12, "all_wrong", True),
    ]


def test_a_group_number_that_repeats_in_another_step_is_another_group(tmp_path: Path) -> None:
    table = table_of(tmp_path, [[group(0, "a", "01")], [group(0, "a", "11")]])
    assert table["kind"].to_list() == ["mixed", "all_correct"]


@pytest.mark.parametrize("first", [0, 7])
@pytest.mark.parametrize("steps", [1, 59, 60, 61, 1000])
def test_bars_reach_from_the_first_step_to_the_last_and_are_not_too_many(first: int, steps: int) -> None:
    width = folds.width_of_bars(first, first + steps - 1, 60)
    assert -(-steps // width) <= 60
    assert width == 1 or -(-steps // (width - 1)) > 60


def test_every_token_is_in_one_bar_and_the_shares_of_a_bar_add_up(tmp_path: Path) -> None:
    rows = scan_ledger(write_ledger(tmp_path, STEPS))
    bars = folds.tokens_by_fate(rows, 0, 2)
    assert bars["tokens"].sum() == sum(len(r.response_ids) for step in STEPS for g in step for r in g.rollouts)
    assert bars.group_by("step").agg(pl.col("share").sum())["share"].to_list() == pytest.approx([1.0, 1.0])
    assert bars.select("step", "until").unique().sort("step").rows() == [(0, 1), (2, 3)]
    assert set(bars["fate"]) <= {fate.value for fate in Fate}


def test_fates_stand_in_the_order_of_the_words(tmp_path: Path) -> None:
    bars = folds.tokens_by_fate(scan_ledger(write_ledger(tmp_path, STEPS)), 0, 3)
    assert bars["fate"].to_list() == ["trained", "all_correct", "all_wrong", "undecided"]


def test_the_score_interval_is_wilsons() -> None:
    for hits, n in ((0, 7), (3, 10), (50, 50), (1, 1000)):
        known = stats.binomtest(hits, n).proportion_ci(0.9, method="wilson")
        low, high = folds.wilson(np.array([hits]), np.array([n]))
        assert (low[0], high[0]) == pytest.approx((known.low, known.high), abs=1e-4)


def test_arms_are_the_uniform_groups_and_all_others(tmp_path: Path) -> None:
    found = folds.arms(table_of(tmp_path, STEPS))
    assert found.select("arm", "step", "until", "groups", "hits").rows() == [
        ("curriculum", 0, 2, 5, 3),
        ("uniform", 0, 2, 3, 2),
    ]


def test_each_bar_of_the_control_arm_has_its_groups(tmp_path: Path) -> None:
    steps = [[group(2 * s, "a", "01"), group(2 * s + 1, "b", "11", "score")] for s in range(40)]
    found = folds.arms(table_of(tmp_path, steps)).filter(pl.col("arm") == "uniform")
    assert found["groups"].to_list() == [10, 10, 10, 10]
    assert found["until"].to_list() == [9, 19, 29, 39]


def test_then_is_the_first_group_and_now_the_last_of_problems_seen_twice(tmp_path: Path) -> None:
    seen = folds.then_and_now(table_of(tmp_path, STEPS))
    assert seen.problems == 2
    assert (seen.mean_then, seen.mean_now) == pytest.approx((0.125, 0.5))
    counts = seen.bins.filter(pl.col("problems") > 0).select("when", "rate", "problems").rows()
    assert counts == [("then", "0/4", 1), ("then", "1/4", 1), ("now", "0/4", 1), ("now", "4/4", 1)]


def test_a_pool_seen_once_has_no_then_unless_it_was_measured_before(tmp_path: Path) -> None:
    table = table_of(tmp_path, [[group(0, "a", "0001"), group(1, "b", "1111")]])
    assert folds.then_and_now(table).mean_then is None
    before = pl.DataFrame({"id": ["a", "b", "z"], "n": [10, 0, 10], "c": [9, 0, 1]})
    seen = folds.then_and_now(table, before)
    assert (seen.problems, seen.mean_then, seen.mean_now) == (1, pytest.approx(0.9), pytest.approx(0.25))
    assert seen.bins.filter(pl.col("problems") > 0)["rate"].to_list() == ["90–100 %", "20–30 %"]


def test_never_and_always_have_bins_of_their_own(tmp_path: Path) -> None:
    groups = [group(0, "a", "000"), group(1, "b", "1111"), group(2, "c", "1" * 19 + "0"), group(3, "d", "1" + "0" * 19)]
    bins = folds.then_and_now(table_of(tmp_path, [groups])).bins
    assert bins.filter(pl.col("problems") > 0)["rate"].to_list() == ["never", "0–10 %", "90–100 %", "always"]


def test_the_data_sets_are_counted_apart(tmp_path: Path) -> None:
    found = {d["dataset"]: d for d in folds.datasets(table_of(tmp_path, STEPS)).to_dicts()}
    assert list(found) == ["sums", "products"]
    assert (
        found["products"] | {"problems": 1, "groups": 2, "rate": 0.0, "wasted": 1.0, "lost": 1.0} == found["products"]
    )
    sums = found["sums"]
    assert (sums["rate"], sums["wasted"], sums["undecided"]) == pytest.approx((13 / 19, 3 / 6, 5 / 24))


def test_a_data_set_without_a_judged_answer_has_no_rate(tmp_path: Path) -> None:
    (found,) = folds.datasets(table_of(tmp_path, [[group(0, "a", "??")]])).to_dicts()
    assert found["rate"] is None
    assert found["too_few"] == 1.0


def test_the_problem_with_the_clearest_move_is_first(tmp_path: Path) -> None:
    visits = {"up": ["0000", "0001", "1110", "1111"], "down": ["11", "00"], "same": ["0101", "0101"]}
    steps = [
        [
            group(10 * step + k, name, rewards[step])
            for k, (name, rewards) in enumerate(visits.items())
            if step < len(rewards)
        ]
        for step in range(4)
    ]
    found = folds.moved(table_of(tmp_path, steps), 10)
    assert found["problem"].to_list() == ["up", "down"]
    assert found.select("then", "now", "visits").row(0) == (0.125, 0.875, 4)
    assert found["right"].to_list() == [[0, 1, 3, 4], [2, 0]]
    assert found["z"][0] > 0 > found["z"][1]


def test_an_odd_number_of_visits_leaves_the_middle_one_out(tmp_path: Path) -> None:
    found = folds.moved(table_of(tmp_path, [[group(s, "a", r)] for s, r in enumerate(("00", "01", "11"))]), 10)
    assert found.select("n0", "c0", "n1", "c1").row(0) == (2, 0, 2, 2)


def test_no_tokens_at_all_is_no_division_by_zero(tmp_path: Path) -> None:
    empty = Group(0, Problem("a", "?", "7"), tuple(answer(RULINGS[r], tokens=0) for r in "01"), "uniform")
    Ledger(tmp_path, "r").append(0, [(empty, (Fate.TRAINED, Fate.TRAINED))])
    rows = scan_ledger(tmp_path)
    assert folds.tokens_by_fate(rows, 0, 1)["share"].to_list() == [0.0]
    assert folds.datasets(folds.groups(rows))["lost"].to_list() == [None]
