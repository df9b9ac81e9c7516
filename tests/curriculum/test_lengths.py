from __future__ import annotations

import numpy as np
import pytest

from tossup.curriculum.lengths import Lengths
from tossup.curriculum.prior import number_tags


def made() -> Lengths:
    """Problems 0 to 2 of one tag, 3 and 4 of another, whose answers are ten times as long."""
    lengths = Lengths(number_tags(["short", "short", "short", "long", "long"], 5))
    lengths.see(np.array([0, 1, 3]), np.array([50.0, 150.0, 1000.0]))
    return lengths


def test_a_length_is_relative_to_its_own_tag() -> None:
    assert made().relative(np.array([0, 1, 3])) == pytest.approx([0.5, 1.5, 1.0])


def test_what_was_never_seen_has_the_usual_length() -> None:
    assert made().relative(np.array([2, 4])).tolist() == [1.0, 1.0]
    assert Lengths(number_tags(None, 3)).relative(np.arange(3)).tolist() == [1.0, 1.0, 1.0]


def test_lengths_follow_the_policy() -> None:
    lengths = made()
    for _ in range(60):
        lengths.see(np.array([0]), np.array([150.0]))
    assert lengths.relative(np.array([0, 1])) == pytest.approx([1.0, 1.0], abs=0.02)
    assert lengths.relative(np.array([3])) == pytest.approx([1.0])


def test_a_restored_state_goes_on() -> None:
    lengths, other = made(), Lengths(made().tag_of)
    other.restore(lengths.state())
    for each in (lengths, other):
        each.see(np.array([2, 4]), np.array([70.0, 900.0]))
    np.testing.assert_array_equal(lengths.relative(np.arange(5)), other.relative(np.arange(5)))
