"""Comparison of outputs and of results. Pure functions over data that is already bounded in size."""

from __future__ import annotations

import math
import re
import reprlib
from decimal import Decimal
from typing import Any

from tossup.verifiers.code.codec import Opaque

NUMBER = re.compile(rb"[+-]?(?:[0-9]{1,4000}(?:\.[0-9]{0,4000})?|\.[0-9]{1,4000})(?:[eE][+-]?[0-9]{1,3})?")
"""A decimal number in ASCII: neither Unicode digits nor `1_000`, `inf` and `nan`, all of which `float` would take."""
SHOWN = 60
_SHORT = reprlib.Repr()
_SHORT.maxlevel = 4
_SHORT.maxlist = _SHORT.maxtuple = _SHORT.maxdict = _SHORT.maxset = _SHORT.maxfrozenset = _SHORT.maxdeque = 12
_SHORT.maxstring = _SHORT.maxother = _SHORT.maxlong = SHOWN


def shown(value: Any) -> str:
    """A value for a reason, cut to a sane length."""
    try:
        text = _SHORT.repr(value)
    except ValueError:  # an integer with more digits than Python prints
        text = f"a number of {value.bit_length()} bits" if isinstance(value, int) else "a value too large to print"
    return text if len(text) <= SHOWN else f"{text[: SHOWN - 3]}..."


def output_difference(expected: str, printed: bytes, tolerance: float | None = None) -> str | None:
    """None where the output is right; else one line that says how it differs.

    Blanks around the whole and around each line do not count. Lines have to match one for one: as text, or token by token
    as decimal numbers, exactly (`tolerance` None) or to a relative or absolute tolerance.
    """
    wanted_lines = expected.encode().strip().split(b"\n")
    printed_lines = printed.strip().split(b"\n", len(wanted_lines))
    for number, (wanted, got) in enumerate(zip(wanted_lines, printed_lines, strict=False), 1):
        if not _same_line(wanted.strip(), got.strip(), tolerance):
            where = "" if len(wanted_lines) == 1 else f"line {number}: "
            return f"{where}expected {_text(wanted)}, got {_text(got)}"
    if len(wanted_lines) != len(printed_lines):
        more = len(printed_lines) > len(wanted_lines)
        return f"expected {len(wanted_lines)} lines, got {'more' if more else len(printed_lines)}"
    return None


def _same_line(wanted: bytes, got: bytes, tolerance: float | None) -> bool:
    if wanted == got:
        return True
    wanted_tokens = wanted.split()
    got_tokens = got.split(None, len(wanted_tokens))
    return len(wanted_tokens) == len(got_tokens) and all(
        _same_number(a, b, tolerance) for a, b in zip(wanted_tokens, got_tokens, strict=True)
    )


def _same_number(wanted: bytes, got: bytes, tolerance: float | None) -> bool:
    if not (NUMBER.fullmatch(wanted) and NUMBER.fullmatch(got)):
        return False
    a, b = Decimal(wanted.decode()), Decimal(got.decode())
    if a == b:
        return True
    return tolerance is not None and math.isclose(a, b, rel_tol=tolerance, abs_tol=tolerance)


def _text(line: bytes) -> str:
    return shown(line.strip()[: 2 * SHOWN].decode(errors="replace"))


def equal(expected: Any, got: Any) -> bool:
    """`==`, as an assert would have it; an opaque object equals nothing."""
    return bool(got == expected)


def equal_json(expected: Any, got: Any) -> bool:
    """Equal as JSON values: a tuple counts as a list at any depth, and an integer key as its text."""
    if isinstance(got, Opaque):
        return False
    if isinstance(expected, list):
        return (
            isinstance(got, list | tuple)
            and len(got) == len(expected)
            and all(equal_json(e, g) for e, g in zip(expected, got, strict=True))
        )
    if isinstance(expected, dict):
        if not isinstance(got, dict) or len(got) != len(expected):
            return False
        by_text = {str(k) if type(k) is int else k: v for k, v in got.items()}
        return by_text.keys() == expected.keys() and all(equal_json(e, by_text[k]) for k, e in expected.items())
    return bool(got == expected)


def equal_json_or_wrapped(expected: Any, got: Any) -> bool:
    """`equal_json`, where the expected value may also be wrapped in a list of one (APPS, TACO)."""
    wrapped = isinstance(expected, list) and len(expected) == 1
    return equal_json(expected, got) or (wrapped and equal_json(expected[0], got))


def close(expected: Any, got: Any, absolute: float) -> bool:
    """EvalPlus's rule: equal, or all numbers within 1e-7 relative plus `absolute`.

    `absolute` is 1e-6 where it is given as 0 and the expected value is a float or a sequence of floats only.
    """
    if equal(expected, got):
        return True
    if absolute == 0 and _is_floats(expected):
        absolute = 1e-6
    return absolute != 0 and _all_close(expected, got, absolute)


def _is_floats(x: Any) -> bool:
    return isinstance(x, float) or (isinstance(x, list | tuple) and all(isinstance(i, float) for i in x))


def _all_close(expected: Any, got: Any, absolute: float) -> bool:
    if isinstance(expected, list | tuple) and isinstance(got, list | tuple):
        return len(expected) == len(got) and all(_all_close(e, g, absolute) for e, g in zip(expected, got, strict=True))
    if not (_fits_an_array(expected) and _fits_an_array(got)):
        return False
    if expected == got:
        return True
    difference = abs(got - expected)
    return difference <= absolute + 1e-7 * abs(expected) and math.isfinite(abs(expected))


def _fits_an_array(x: Any) -> bool:
    """Whether NumPy, by whose rule these are compared, would take it for a number: an integer of any size is none."""
    return isinstance(x, float | complex) or (isinstance(x, int) and -(1 << 63) <= x < 1 << 63)
