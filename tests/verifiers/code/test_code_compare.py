"""Comparison of outputs and results."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tossup.verifiers.code.codec import Opaque
from tossup.verifiers.code.compare import close, equal_json, equal_json_or_wrapped, output_difference, shown


@pytest.mark.parametrize(
    ("expected", "printed"),
    [
        ("5\n", b"5"),
        ("5", b"\n\n  5 \r\n\n"),
        ("1 2\n3\n", b" 1 2 \n 3"),
        ("1 2", b"1  2"),
        ("1.0", b"1.000"),
        ("100000", b"1e5"),
        ("5", b"+5"),
        ("0.5", b".5"),
        ("-0", b"0"),
        ("", b"  \n"),
        ("caf\u00e9", "caf\u00e9".encode()),
        ("a\n\nb", b"a\n \nb"),
    ],
)
def test_right_output(expected, printed):
    assert output_difference(expected, printed) is None


@pytest.mark.parametrize(
    ("expected", "printed"),
    [
        ("5", b"6"),
        ("5", b""),
        ("", b"5"),
        ("5", b"5\n5"),
        ("5\n5", b"5 5"),
        ("5", b"5\0"),
        ("5", "\u200b5".encode()),
        ("5", "\u00a05".encode()),
        ("5", "\uff15".encode()),
        ("5", "\u0665".encode()),
        ("15", b"1_5"),
        ("5", b"0x5"),
        ("1.0", b"1.0000000001"),
        ("nan", b"NaN"),
        ("1e400", b"inf"),
        ("YES", b"yes"),
        ("a 1", b"a 1.0"),
        ("caf\u00e9", b"caf\xe9"),
        ("a\nb", b"a\n\nb"),
        ("1" * 5000, b"1" * 5000 + b".0"),
    ],
)
def test_wrong_output(expected, printed):
    assert output_difference(expected, printed)


def test_tolerance_only_where_it_is_asked_for():
    assert output_difference("0.333333", b"0.3333333333", 1e-6) is None
    assert output_difference("1000000", b"1000000.5", 1e-6) is None
    assert output_difference("0.3", b"0.4", 1e-6)
    assert output_difference("a", b"b", 1e-6)


def test_reasons_name_the_line_and_stay_short():
    assert output_difference("1\n2\n3", b"1\n5\n3") == "line 2: expected '2', got '5'"
    assert output_difference("1\n2", b"1") == "expected 2 lines, got 1"
    assert output_difference("1", b"1\n" * 10**6) == "expected 1 lines, got more"
    assert len(output_difference("1", b"x" * 10**6)) < 200


@given(st.lists(st.integers(-(10**30), 10**30), min_size=1))
def test_integers_print_as_themselves_in_any_spacing(numbers):
    expected = " ".join(map(str, numbers))
    assert output_difference(expected, "   ".join(f"{n}.00" for n in numbers).encode()) is None
    changed = [*numbers[:-1], numbers[-1] + 1]
    assert output_difference(expected, " ".join(map(str, changed)).encode())


@given(st.text(), st.binary())
def test_comparison_answers_for_any_text(expected, printed):
    assert output_difference(expected, expected.encode()) is None
    output_difference(expected, printed, 1e-6)


def test_json_equality():
    assert equal_json([1, [2, "x"]], (1, (2, "x")))
    assert equal_json({"1": [2]}, {1: (2,)})
    assert equal_json(1.0, 1)
    assert not equal_json([1], [1, 1])
    assert not equal_json([1], 1)
    assert not equal_json({"a": 1}, {"a": 1, "b": 1})
    assert not equal_json({"1": 1}, [1])
    assert not equal_json([], Opaque("T"))
    assert not equal_json("1", 1)
    assert not equal_json(None, 0)


def test_wrapped_outputs_are_accepted_either_way_round_of_the_data_set_only():
    assert equal_json_or_wrapped(["a12"], "a12")
    assert equal_json_or_wrapped(["a12"], ["a12"])
    assert equal_json_or_wrapped([[1, 2]], [1, 2])
    assert not equal_json_or_wrapped("a12", ["a12"])
    assert not equal_json_or_wrapped([1, 2], 1)


def test_evalplus_tolerance():
    assert close(1.0, 1.0000005, 0)
    assert not close(1, 1.0000005, 0)
    assert close([1.0, 2.0], (1.0, 2.0000005), 0)
    assert not close([1.0, 2], [1.0, 2.0000005], 0)
    assert close(100, 100.00005, 1e-4)
    assert close([[1.0], [2]], [[1.00005], [2]], 1e-4)
    assert not close(1.0, 1.1, 1e-4)
    assert not close(1.0, None, 1e-4)
    assert not close(1.0, "1.0", 1e-4)
    assert not close([1.0], [1.0, 2.0], 1e-4)
    assert not close(float("inf"), 5.0, 1e-4)
    assert close(float("inf"), float("inf"), 0)
    assert not close(float("nan"), float("nan"), 0)
    assert not close(5.0, float("nan"), 1e-4)
    assert close(10**30, 10**30, 1e-4)
    assert not close(10**30, 10**30 + 1, 1e-4)


def test_shown_is_short_whatever_it_is_given():
    for value in (
        10**5000,
        [10**5000],
        "x" * 10**5,
        list(range(10**5)),
        {"k": [[[[[[1]]]]]]},
        [[["y" * 500] * 9] * 9] * 9,
    ):
        assert 0 < len(shown(value)) <= 60
