"""Properties of the math verifier: no text breaks it, a rewriting keeps the ruling, a changed value flips it."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from tossup.verifiers.math import judge
from tossup.verifiers.math.limits import MAX_ANSWER_CHARS

PIECES = (
    r"\frac \sqrt \boxed{ { } ( ) [ ] ^ _ | = < \le , ; \text{ and or 1 x 9 \pi $ \( \) ! \sin \sum \int \begin{pmatrix}"
    r" \end{pmatrix} & \\ \pm % \cup \infty . e i \{ \} \langle \overline{ ... : ^\circ \log_ f( ' \in \mid \frac12 not"
    r" \cdot ** / - + \lim \det 0 d"
)
SYNTAX = PIECES.split(" ")
mathematics = st.lists(st.sampled_from(SYNTAX), max_size=30).map("".join)
anything = st.one_of(st.text(max_size=200), mathematics, mathematics.map(lambda inner: f"\\boxed{{{inner}}}"))
fractions = st.fractions(min_value=-1000, max_value=1000, max_denominator=1000)


def boxed(answer: str) -> str:
    return f"Therefore the answer is $\\boxed{{{answer}}}$."


def latex(value: Fraction) -> str:
    sign = "-" if value < 0 else ""
    return f"{sign}\\frac{{{abs(value.numerator)}}}{{{value.denominator}}}"


@settings(max_examples=600, deadline=None)
@given(anything, anything)
def test_any_text_gets_a_verdict_with_a_reason(response: str, reference: str) -> None:
    verdict = judge(response, reference)
    assert verdict.ruling in ("correct", "wrong", "undecided")
    assert verdict.reason


@settings(max_examples=100, deadline=None)
@given(st.sampled_from(SYNTAX), st.integers(1, 60_000), st.sampled_from(["7", "x+1", "(1,2)", "[0,1)"]))
def test_repeated_syntax_gets_a_verdict(piece: str, times: int, reference: str) -> None:
    assert judge(boxed(piece * times), reference).ruling != "correct"


def test_an_answer_over_the_limits_is_called_oversized() -> None:
    for answer in (
        "1+" * MAX_ANSWER_CHARS + "1",
        "(" * 100 + "1" + ")" * 100,
        "9" * 5_000,
        "9^{9^{9^{9}}}",
    ):
        verdict = judge(boxed(answer), "7")
        assert (verdict.ruling, verdict.reason) == ("wrong", "oversized answer")


@settings(max_examples=200, deadline=None)
@given(fractions, st.integers(2, 9))
def test_rewritten_fractions_are_equal_and_changed_ones_are_not(value: Fraction, scale: int) -> None:
    reference = latex(value)
    unreduced = f"\\dfrac{{{value.numerator * scale}}}{{{value.denominator * scale}}}"
    for answer in (reference, f"{value.numerator}/{value.denominator}", unreduced, f"x = {reference}"):
        assert judge(boxed(answer), reference).ruling == "correct", answer
    for changed in (value + Fraction(1, 1000), -value if value else Fraction(1), value * 10 + 1):
        if changed != value:
            assert judge(boxed(latex(changed)), reference).ruling == "wrong"


@settings(max_examples=150, deadline=None)
@given(st.integers(-(10**12), 10**12), st.sampled_from([",", "{,}", ",\\!"]))
def test_thousands_marks_keep_an_integer(value: int, mark: str) -> None:
    marked = f"{value:,}".replace(",", mark)
    assert judge(boxed(marked), str(value)).ruling == "correct"
    assert judge(boxed(marked), str(value + 1)).ruling == "wrong"


@settings(max_examples=100, deadline=None)
@given(st.lists(st.integers(-50, 50), min_size=2, max_size=6, unique=True), st.randoms(use_true_random=False))
def test_order_matters_in_tuples_and_not_in_lists(values: list[int], random: object) -> None:
    shuffled = list(values)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    listed, other = ", ".join(map(str, values)), ", ".join(map(str, shuffled))
    assert judge(boxed(other), listed).ruling == "correct"
    assert judge(boxed(f"\\{{{other}\\}}"), f"\\{{{listed}\\}}").ruling == "correct"
    expected = "correct" if shuffled == values else "wrong"
    assert judge(boxed(f"({other})"), f"({listed})").ruling == expected
    assert judge(boxed(f"{other}, 99"), listed).ruling == "wrong"


@settings(max_examples=100, deadline=None)
@given(st.integers(-9, 9), st.integers(1, 9), st.integers(-9, 9))
def test_expanded_products_are_equal_and_changed_ones_are_not(a: int, b: int, c: int) -> None:
    reference = f"(x{a:+d})({b}x{c:+d})"
    expanded = f"{b}x^2{c + a * b:+d}x{a * c:+d}"
    assert judge(boxed(expanded), reference).ruling == "correct"
    assert judge(boxed(f"{expanded}+1"), reference).ruling == "wrong"
    assert judge(boxed(f"y = {expanded}"), f"y = {reference}").ruling == "correct"
    assert judge(boxed(f"y - ({expanded}) = 0"), f"y = {reference}").ruling == "correct"


@settings(max_examples=60, deadline=None)
@given(st.integers(2, 400), st.integers(-20, 20))
def test_radicals_equal_their_simplified_form_and_nothing_near(n: int, a: int) -> None:
    reference = f"{a}+\\sqrt{{{4 * n}}}"
    assert judge(boxed(f"{a}+2\\sqrt{{{n}}}"), reference).ruling == "correct"
    assert judge(boxed(f"{a}+2\\sqrt{{{n}}}+10^{{-30}}"), reference).ruling == "wrong"


def test_every_reference_accepts_itself() -> None:
    for path in sorted((Path(__file__).parent / "cases").glob("*.jsonl")):
        for line in path.read_text(encoding="utf-8").split("\n"):
            case = json.loads(line) if line else None
            if case is not None and case["reference"]:
                assert judge(boxed(case["reference"]), case["reference"]).ruling == "correct", case


def test_a_huge_response_is_read_from_its_end() -> None:
    noise = "So $x^2 = 17$, or perhaps (2, 3). " * 20_000
    assert judge(noise + "The answer is 12.", "12").ruling == "correct"
    assert judge(noise + "\\boxed{12}" + "\n" * 100_000, "12").ruling == "correct"
    assert judge("\\boxed{" * 50_000, "12").ruling == "wrong"
