from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tossup.curriculum.gate import TRUNCATED, fates, informative
from tossup.records import Fate, Group, Problem, Rollout, Stop, Verdict, correct, undecided, wrong

VERDICTS = {
    "r": correct("equal"),
    "w": wrong("other"),
    "u": undecided("timeout after 1.0 s"),
    "t": undecided(TRUNCATED),
}
FATES = {
    "r": Fate.ALL_CORRECT,
    "w": Fate.ALL_WRONG,
    "u": Fate.UNDECIDED,
    "t": Fate.TRUNCATED,
    "T": Fate.TRAINED,
}


def group(letters: str) -> Group:
    def rollout(verdict: Verdict | None) -> Rollout:
        return Rollout((1,), (2,), (-0.1,), "", Stop.END, 0, verdict)

    return Group(0, Problem("p", "?", "1"), tuple(rollout(VERDICTS.get(x)) for x in letters))


@pytest.mark.parametrize(
    ("verdicts", "wanted"),
    [
        ("rw", "TT"),
        ("rrrw", "TTTT"),
        ("rrrr", "rrrr"),
        ("www", "www"),
        ("rwu", "TTu"),
        ("rwt", "TTt"),
        ("rru", "rru"),
        ("wwt", "wwt"),
        ("ru", "uu"),
        ("wtt", "utt"),
        ("uu", "uu"),
        ("ttt", "ttt"),
        ("r", "u"),
        ("", ""),
        ("rw-", "TTu"),  # never judged
    ],
)
def test_the_fate_of_each_rollout(verdicts: str, wanted: str) -> None:
    assert fates(group(verdicts)) == tuple(FATES[x] for x in wanted)


@given(st.text("rwut-", max_size=12))
def test_a_group_trains_exactly_when_it_is_not_degenerate(verdicts: str) -> None:
    it = group(verdicts)
    assert (Fate.TRAINED in fates(it)) == (not it.degenerate) == ("r" in verdicts and "w" in verdicts)
    assert len(fates(it)) == len(verdicts)
    assert informative([it]) == (() if it.degenerate else (it,))


def test_a_reason_that_only_mentions_truncation_is_undecided() -> None:
    it = group("rw")
    odd = it.rollouts[0].judged(undecided("truncated input file"))
    assert fates(Group(0, it.problem, (*it.rollouts, odd)))[-1] is Fate.UNDECIDED
