"""The last resort: SymPy on our own trees, called directly and through the pool."""

from __future__ import annotations

import pytest

from tossup.verifiers.math import judge
from tossup.verifiers.math.limits import Unreadable
from tossup.verifiers.math.slow import decide


@pytest.mark.parametrize(
    ("reference", "answer", "same"),
    [
        (r"\frac{x^2-1}{x-1}", "x+1", True),
        (r"\frac{x^2-1}{x-1}", "x-1", False),
        (r"\sin^2 x + \cos^2 x", "1", True),
        ("2x+3y=6", r"x+\frac{3}{2}y=3", True),
        ("2x+3y=6", "2x-3y=6", False),
        ("x=1", "1", False),
    ],
)
def test_simplification(reference: str, answer: str, same: bool) -> None:
    assert decide(reference, answer) is same


def test_what_sympy_has_no_counterpart_for_is_refused() -> None:
    with pytest.raises(Unreadable):
        decide("(1,2)", "(2,1)")


def test_what_nothing_can_decide_is_undecided_and_says_so() -> None:
    verdict = judge(r"\boxed{x = \ln 5}", "e^x = 5")
    assert verdict.ruling == "undecided"
    assert "neither shown to be equal nor to differ" in verdict.reason
