"""Exact rational arithmetic: the fast path for plain numbers, and the value of a tree where it is rational.

Sizes are bounded before they are computed (see `limits`).
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from fractions import Fraction

from tossup.verifiers.math.limits import MAX_BITS, MAX_DIGITS, MAX_FACTORIAL, Inexact, Oversized, Undefined
from tossup.verifiers.math.tree import Add, Based, Fn, Mul, Node, Num, Pow, Sym

_PLAIN = re.compile(
    r"\s*(?:\\?\$)?\s*([-+]?)\s*(?:\\?\$)?\s*(?:"
    r"(\d{1,3}(?:,\d{3})+|\d+)(\.\d+)?"
    r"|(\.\d+)"
    r"|\\[dtc]?frac\s*\{\s*([-+]?\d+)\s*\}\s*\{\s*([-+]?\d+)\s*\}"
    r")(?:\s*/\s*(\d+))?\s*\.?\s*",
    re.ASCII,
)


def plain(text: str) -> Fraction | None:
    """The value of an integer, decimal or fraction in its usual spellings; None for anything else.

    A sign, a dollar sign and thousands commas may stand with it. This is what most references and answers are, and it
    needs one regular expression.
    """
    if len(text) > 120:
        return None
    match = _PLAIN.fullmatch(text)
    if match is None:
        return None
    sign, whole, decimals, bare, top, bottom, over = match.groups()
    if top is not None:
        if int(bottom) == 0:
            return None
        value = Fraction(int(top), int(bottom))
    elif bare is not None:
        value = Fraction(bare)
    elif decimals is not None:
        value = Fraction(whole.replace(",", "") + decimals)
    else:
        value = Fraction(int(whole.replace(",", "")))
    if over is not None:
        if int(over) == 0 or top is not None:
            return None
        value /= int(over)
    return -value if sign == "-" else value


def significant_digits(text: str) -> int:
    """Significant digits of a plain decimal; 0 when it has no decimal point."""
    return len(re.sub(r"\D", "", text).lstrip("0")) if "." in text.rstrip(". ") else 0


def evaluate(node: Node, values: Mapping[str, Fraction]) -> Fraction:
    """The exact value of a tree with these values for its letters.

    Raises:
        Inexact: it is not rational, or cannot be shown to be without more than arithmetic.
        Undefined: a division by zero, 0 ** 0.
        Oversized: more than MAX_BITS.
    """
    match node:
        case Num(value, _) | Based(value, _):
            return value
        case Sym(name):
            if name in values:
                return values[name]
            raise Inexact(name)
        case Add(items):
            return _checked(sum((evaluate(item, values) for item in items), Fraction(0)))
        case Mul(items):
            product = Fraction(1)
            for item in items:
                product = _checked(product * evaluate(item, values))
            return product
        case Pow(base, exponent):
            return power(evaluate(base, values), evaluate(exponent, values))
        case Fn(name, args):
            return _function(name, [evaluate(arg, values) for arg in args])
    raise Inexact(type(node).__name__)


def _checked(value: Fraction) -> Fraction:
    """The value itself, unless it has outgrown the limit."""
    if max(value.numerator.bit_length(), value.denominator.bit_length()) > MAX_BITS:
        raise Oversized(f"a value of more than {MAX_BITS:,} bits")
    return value


def power(base: Fraction, exponent: Fraction) -> Fraction:
    """`base ** exponent` where that is rational; odd roots of negative numbers are real."""
    if exponent.denominator == 1:
        if base == 0 and exponent <= 0:
            raise Undefined("zero to a power that is not positive")
        bits = max(base.numerator.bit_length(), base.denominator.bit_length())
        if abs(exponent) > 1 and bits > 1 and bits * abs(exponent) > MAX_BITS:
            raise Oversized(f"a power of more than {MAX_BITS:,} bits")
        if base in (1, -1):
            return base if exponent.numerator % 2 else Fraction(1)
        return base ** int(exponent)
    degree = exponent.denominator
    if degree > 64 or (base < 0 and degree % 2 == 0):
        raise Inexact("a root")
    top = integer_root(abs(base.numerator), degree)
    bottom = integer_root(base.denominator, degree)
    if top is None or bottom is None:
        raise Inexact("a root")
    return power(Fraction(top if base >= 0 else -top, bottom), Fraction(exponent.numerator))


def integer_root(value: int, degree: int) -> int | None:
    """The whole `degree`-th root of a natural number, or None when it has none."""
    if value < 2:
        return value
    if degree == 2:
        root = math.isqrt(value)
        return root if root * root == value else None
    if value.bit_length() > MAX_DIGITS * 4:
        return None
    low, high = 1, 1 << (value.bit_length() // degree + 1)
    while low < high:
        middle = (low + high + 1) // 2
        if middle**degree <= value:
            low = middle
        else:
            high = middle - 1
    return low if low**degree == value else None


def _function(name: str, args: list[Fraction]) -> Fraction:
    """Functions that keep rational numbers rational."""
    if name == "abs":
        return abs(args[0])
    if name == "floor":
        return Fraction(math.floor(args[0]))
    if name == "ceiling":
        return Fraction(math.ceil(args[0]))
    if name == "factorial":
        return Fraction(math.factorial(_count(args[0])))
    if name == "binomial":
        n, k = _count(args[0]), _count(args[1])
        return Fraction(math.comb(n, k))
    raise Inexact(name)


def _count(value: Fraction) -> int:
    """A natural number small enough for combinatorics."""
    if value.denominator != 1 or value < 0:
        raise Undefined("a factorial of something that is no natural number")
    if value > MAX_FACTORIAL:
        raise Oversized(f"a factorial beyond {MAX_FACTORIAL:,}")
    return int(value)
