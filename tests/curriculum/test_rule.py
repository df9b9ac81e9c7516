"""Which problems are kept: what a rule says of counts, as properties that hold for any pool."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tossup.curriculum.posterior import Posterior, binomial, membership
from tossup.curriculum.rule import Band, Counts, Rule, Signal, mixed_from, parse_band, parse_signal
from tossup.records import TossupError

BANDS = st.tuples(st.floats(0, 1), st.floats(0, 1)).map(lambda ends: Band(*sorted(ends)))
CONFIDENCES = st.floats(0.51, 0.99)


def counts(pairs: list[tuple[int, int]], tokens: list[float] | None = None, tags: list[str] | None = None) -> Counts:
    n, c = np.array([n for n, _ in pairs]), np.array([c for _, c in pairs])
    return Counts(n, n, c, np.array(tokens or [100.0] * len(pairs)), tags or [""] * len(pairs))


@st.composite
def pools(draw: st.DrawFn) -> list[tuple[int, int]]:
    """Some pool, and in it every count that 12 answers can give."""
    others = draw(st.lists(st.integers(1, 16).flatmap(lambda n: st.tuples(st.just(n), st.integers(0, n))), max_size=40))
    return [(12, c) for c in range(13)] + others


@given(pools(), BANDS, CONFIDENCES)
def test_what_is_kept_and_what_is_dropped_are_stretches_of_counts(
    pool: list[tuple[int, int]], band: Band, confidence: float
) -> None:
    """More right answers of as many never lead from too easy back to kept, nor from kept back to too hard."""
    sure = Rule(band, confidence=confidence).judge(counts(pool)).sure[:13].tolist()
    kept = [c for c, one in enumerate(sure) if one == 1]
    not_dropped = [c for c, one in enumerate(sure) if one >= 0]
    for stretch in (kept, not_dropped):
        assert stretch == list(range(stretch[0], stretch[-1] + 1)) if stretch else True


@given(pools(), st.floats(0, 1))
def test_more_right_answers_make_a_high_rate_likelier(pool: list[tuple[int, int]], low: float) -> None:
    inside = Rule(Band(low, 1.0), confidence=0.9).judge(counts(pool)).inside[:13]
    assert (np.diff(inside) >= -1e-9).all()


@given(pools(), BANDS, CONFIDENCES, CONFIDENCES)
def test_more_confidence_settles_fewer_and_none_otherwise(
    pool: list[tuple[int, int]], band: Band, one: float, other: float
) -> None:
    lax, strict = sorted((one, other))
    before, after = (Rule(band, confidence=x).judge(counts(pool)).sure for x in (lax, strict))
    settled = after != 0
    assert (after[settled] == before[settled]).all()


@given(pools(), BANDS, st.randoms(use_true_random=False))
def test_the_order_of_the_problems_does_not_matter(pool: list[tuple[int, int]], band: Band, random: Any) -> None:
    order = list(range(len(pool)))
    random.shuffle(order)
    rule = Rule(band, confidence=0.8)
    straight, shuffled = rule.judge(counts(pool)), rule.judge(counts([pool[i] for i in order]))
    assert (straight.inside[order] == shuffled.inside).all()
    assert (straight.keep[order] == shuffled.keep).all()


@given(st.integers(1, 400))
def test_more_answers_at_one_rate_make_surer(times: int) -> None:
    """Half of the answers right, more and more of them: the rate is ever more surely between 0.1 and 0.9."""
    calls = Rule(Band(0.1, 0.9), confidence=0.9).judge(counts([(2 * times, times), (2 * times + 2, times + 1)]))
    assert calls.inside[1] >= calls.inside[0] - 1e-6


def test_a_posterior_is_bayes_rule_on_the_grid() -> None:
    posterior = Posterior(np.array([8, 8]), np.array([2, 2]), ["", ""])
    (mix,) = posterior.mix_TK
    p = posterior.points
    by_hand = mix * p**2 * (1 - p) ** 6
    by_hand /= by_hand.sum()
    inside = posterior.inside(np.array([0.1, 0.0]), np.array([0.9, 1.0]))
    band = membership(np.array([0.1]), np.array([0.9]), p)[0]
    assert inside == pytest.approx([by_hand @ band, 1.0])
    assert posterior.mean(p) == pytest.approx([by_hand @ p] * 2)


def test_without_answers_nothing_is_known_but_the_pool() -> None:
    posterior = Posterior(np.array([0, 400, 400]), np.array([0, 200, 200]), [""] * 3)
    assert posterior.inside(np.zeros(3), np.ones(3)).tolist() == [1.0] * 3
    assert 0 < posterior.inside(np.full(3, 0.4), np.full(3, 0.6))[0] < 1


def test_a_pool_of_one_is_not_sure_after_four_answers() -> None:
    (inside,) = Posterior(np.array([4]), np.array([4]), [""]).inside(np.array([0.1]), np.array([0.9]))
    assert 0.2 < inside < 0.6


def test_a_tag_of_hopeless_problems_makes_four_wrong_answers_say_more() -> None:
    hopeless, mixed = [(4, 0)] * 60, [(4, k % 5) for k in range(60)]
    tags = ["hopeless"] * 60 + ["mixed"] * 60
    inside = Rule(Band(0.1, 0.9), confidence=0.9).judge(counts(hopeless + mixed, tags=tags)).inside
    assert inside[0] < 0.1 < inside[60]
    assert mixed[0] == (4, 0)


def test_decisions_are_as_sure_as_they_say() -> None:
    """Over many problems, nine of ten calls at confidence 0.9 are right, and open ones are open."""
    rng = np.random.default_rng(7)
    p = np.where(rng.random(4000) < 0.5, rng.beta(0.4, 6, 4000), rng.random(4000))
    right = rng.binomial(8, p)
    calls = Rule(Band(0.1, 0.9), confidence=0.9).judge(counts([(8, int(c)) for c in right]))
    truth = (p >= 0.1) & (p <= 0.9)
    settled = calls.sure != 0
    assert (calls.keep == truth)[settled].mean() > 0.9
    assert abs(calls.inside.mean() - truth.mean()) < 0.03
    assert calls.kept_wrongly == pytest.approx((~truth)[calls.keep].mean(), abs=0.03)
    assert calls.dropped_wrongly == pytest.approx(truth[~calls.keep].mean(), abs=0.05)
    assert calls.doubt == pytest.approx(((calls.inside >= 0.5) != truth).mean(), abs=0.03)


def test_the_observed_rate_decides_without_a_confidence() -> None:
    calls = Rule(Band(0.25, 0.75)).judge(counts([(4, 0), (4, 1), (4, 2), (4, 3), (4, 4), (0, 0)]))
    assert calls.keep.tolist() == [False, True, True, True, False, False]


def test_a_rule_that_asks_for_nothing_keeps_all_even_the_unmeasured() -> None:
    assert Rule().judge(counts([(0, 0), (4, 4)])).keep.all()


@pytest.mark.parametrize(("undecided", "kept"), [("keep", True), ("drop", False), ("likelier", True)])
def test_what_is_open_at_the_end_goes_as_the_rule_says(undecided: Any, kept: bool) -> None:
    calls = Rule(Band(0.1, 0.9), confidence=0.98, undecided=undecided).judge(counts([(2, 1)]))
    assert calls.sure.tolist() == [0]
    assert calls.inside[0] > 0.5
    assert calls.keep.tolist() == [kept]


def test_signal_is_informative_groups_per_thousand_tokens() -> None:
    calls = Rule(signal=Signal(0.1), group_size=4).judge(counts([(4000, 2000)] * 2, [50.0, 5000.0]))
    assert calls.signal == pytest.approx([0.875 / 0.2, 0.875 / 20], rel=0.01)
    assert calls.keep.tolist() == [True, False]


def test_long_answers_narrow_the_stretch_and_too_long_ones_close_it() -> None:
    calls = Rule(Band(0.0, 0.7), Signal(0.5), 0.9).judge(counts([(8, 4)] * 3, [20.0, 200.0, 2000.0]))
    assert 0 < calls.low[0] < calls.low[1] < 0.5
    assert calls.high.tolist()[:2] == [0.7, 0.7]
    assert calls.low[2] > calls.high[2]
    assert calls.inside[2] == 0


@given(st.floats(0.001, 0.99), st.sampled_from([2, 4, 8, 32]))
def test_the_edge_of_a_signal_is_where_groups_are_mixed_often_enough(chance: float, size: int) -> None:
    (edge,) = mixed_from(np.array([chance]), size)
    reached = 1 - 2 * 0.5**size
    assert (edge == 1) == (chance > reached)
    if edge < 1:
        assert 1 - edge**size - (1 - edge) ** size == pytest.approx(chance, abs=0.0006 * size + 1e-6)


def test_a_share_keeps_the_best_by_signal() -> None:
    calls = Rule(signal=Signal(share=0.5)).judge(counts([(8, 0), (8, 4), (8, 8), (8, 4)], [50, 60, 40, 5000]))
    assert calls.keep.tolist() == [False, True, True, False]
    assert set(np.argsort(-calls.signal)[:2]) == {1, 2}


def test_more_answers_go_where_they_mend_most_per_token() -> None:
    pool = [(4, 2), (4, 0), (4, 0), (4, 4)] + [(4, k % 5) for k in range(40)]
    tokens = [100.0, 400.0, 100.0, 100.0] + [100.0] * 40
    measured = counts(pool, tokens)
    rule = Rule(Band(0.1, 0.9), confidence=0.9)
    wanted = rule.wanted(measured, rule.judge(measured), 4, 32)
    assert 0 not in wanted, "two of four right: surely in the band"
    assert wanted.index(2) < wanted.index(1), "the same question is cheaper to ask of short answers"


@given(pools(), BANDS, CONFIDENCES, st.integers(1, 40))
def test_nothing_is_asked_beyond_the_most_or_of_what_is_settled(
    pool: list[tuple[int, int]], band: Band, confidence: float, most: int
) -> None:
    measured = counts(pool)
    rule = Rule(band, confidence=confidence)
    calls = rule.judge(measured)
    for row in rule.wanted(measured, calls, 4, most):
        assert calls.sure[row] == 0
        assert measured.answers[row] + 4 <= most


def test_what_cannot_be_judged_is_not_asked_again() -> None:
    measured = Counts(np.array([4, 4]), np.array([0, 4]), np.array([0, 0]), np.array([9.0, 9.0]), ["", ""])
    rule = Rule(Band(0.1, 0.9), confidence=0.95)
    calls = rule.judge(measured)
    assert 0 not in rule.wanted(measured, calls, 4, 32)
    assert not calls.keep[0]


@given(st.integers(0, 12))
def test_binomial_chances_add_up(m: int) -> None:
    chance = binomial(m, np.array([0.0, 0.3, 1.0]))
    assert chance.sum(axis=0) == pytest.approx([1, 1, 1])
    assert chance[:, 1] @ np.arange(m + 1) == pytest.approx(0.3 * m)


@pytest.mark.parametrize("text", ["0.5", "0.9..0.1", "a..b", "-1..0.5", "0..2", "nan..1", ""])
def test_a_band_that_is_none_is_an_error(text: str) -> None:
    with pytest.raises(TossupError, match=r"LOW\.\.HIGH"):
        parse_band(text)


@pytest.mark.parametrize("text", ["0", "-1", "a", "nan", "inf", "0%", "101%", "nan%", "%", ""])
def test_a_signal_that_is_none_is_an_error(text: str) -> None:
    with pytest.raises(TossupError, match="--signal"):
        parse_signal(text)


def test_bands_and_signals_as_typed() -> None:
    assert parse_band("0.1..0.9") == (0.1, 0.9)
    assert str(parse_band("0.10..1")) == "0.1..1"
    assert parse_signal("0.5") == Signal(0.5)
    assert parse_signal("30%") == Signal(share=0.3)
