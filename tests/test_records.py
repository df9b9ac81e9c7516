"""The words keep their promises: no reward without a decision, no truth in a verdict, degenerate by the raw verdicts."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tossup.records import (
    Group,
    Problem,
    Rollout,
    Ruling,
    Stop,
    Verdict,
    content_id,
    correct,
    counted,
    tokens,
    undecided,
    wrong,
)

VERDICTS = {"1": correct("right"), "0": wrong("not right"), "?": undecided("broken"), " ": None}


def group(marks: str) -> Group:
    rollouts = tuple(Rollout((1,), (2, 3), (-1.0, -1.0), "", Stop.END, 0, VERDICTS[m]) for m in marks)
    return Group(0, Problem("p", "1+1", "2"), rollouts)


def test_rewards() -> None:
    assert correct("x").reward == 1.0
    assert wrong("x").reward == 0.0
    with pytest.raises(ValueError, match="undecided verdict has no reward"):
        _ = undecided("timeout").reward


@pytest.mark.parametrize("ruling", list(Ruling))
def test_a_verdict_has_no_truth(ruling: Ruling) -> None:
    with pytest.raises(TypeError, match="no truth"):
        bool(Verdict(ruling, "x"))


@given(st.text("10? ", max_size=16))
def test_degenerate_means_no_two_decided_rewards_differ(marks: str) -> None:
    g = group(marks)
    decided = [m for m in marks if m in "10"]
    assert g.degenerate == (len(set(decided)) < 2)
    assert g.rewards == tuple(float(m) for m in decided)
    assert len(g.decided) == len(decided)
    assert tokens(g.rollouts) == 2 * len(marks)


def test_content_ids_are_stable_and_tell_problems_apart() -> None:
    chat = ({"role": "user", "content": "1+1"},)
    assert content_id("1+1", "2") == content_id("1+1", "2") == "645b6bf44b44b997"
    assert len({content_id("1+1", "2"), content_id("1+1", "3"), content_id("1+2", "2"), content_id(chat, "2")}) == 4


def test_a_noun_agrees_with_its_number() -> None:
    said = [counted(n, "problem") for n in (0, 1, 2, 1234)]
    assert said == ["0 problems", "1 problem", "2 problems", "1,234 problems"]
