"""High-precision values of trees, and from them: are two expressions the same?

Two expressions are compared at chosen points, exactly where they are rational there and otherwise to at least sixty
digits, with a relative bound that leaves no room for tolerance: 1e-7 is not 2e-7, and 10**30 is not 10**30 - 10**13.
The precision grows with the digits that were written. Points depend on the names of the letters alone, so a verdict is
the same in every process. Cost is bounded: the tree is small, every operation costs microseconds at this precision, and
a magnitude that would cost more raises Oversized first.

Each thread has its own mpmath context. mpmath's cached constants are computed once at the largest precision that we
use, under a lock, since their cache is not safe against threads that raise its precision.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from tossup.verifiers.math import exact
from tossup.verifiers.math.evaluator import MAX_PRECISION, SLACK, Evaluator, context, digest
from tossup.verifiers.math.limits import (
    Inexact,
    Undefined,
    Unreadable,
)
from tossup.verifiers.math.tree import (
    Fn,
    Mul,
    Node,
    Num,
    Pow,
    Sym,
    symbols,
    walk,
)

BASE_PRECISION = 220


def points(names: frozenset[str]) -> list[dict[str, Fraction]]:
    """Where to compare expressions in these letters: positive values small and large, negative ones."""
    if not names:
        return [{}]
    spans = ((1, 8, 9), (11, 40, 10), (30, 160, 7), (-30, -2, 11), (-9, 9, 8))
    found = []
    for salt, (low, high, scale) in enumerate(spans):
        width = (high - low) * 997
        found.append({n: Fraction(low * 997 + digest(n, salt) % width, scale * 997) for n in names})
    return found


def whole_points(names: frozenset[str]) -> list[dict[str, Fraction]]:
    """Natural numbers, for expressions such as n! and (-1)**n that have values only there."""
    ordered = sorted(names)
    return [
        {n: Fraction(base + step * i) for i, n in enumerate(ordered)} for base, step in ((3, 1), (6, 2), (9, 1), (4, 3))
    ]


def precision_for(*nodes: Node) -> int:
    """Bits that tell these expressions apart."""
    written = 0
    for node in nodes:
        for each in walk(node):
            if isinstance(each, Num):
                written = max(written, each.value.numerator.bit_length(), each.value.denominator.bit_length())
            elif isinstance(each, Pow) and isinstance(each.base, Num):
                written = max(written, _bits_of_power(each.base.value, each.exponent))
            elif isinstance(each, Pow) and each.base == Sym(
                "e"
            ):  # e^{-1000} must not vanish beside what it is added to
                written = max(written, _bits_of_power(Fraction(3), each.exponent))
            elif isinstance(each, Fn) and each.name in ("tanh", "coth", "exp"):
                written = max(written, 2 * _bits_of_power(Fraction(3), each.args[0]))
    return min(MAX_PRECISION, BASE_PRECISION + 2 * written)


def _bits_of_power(base: Fraction, exponent: Node) -> int:
    """Bits of `base ** exponent` for a written whole exponent, such as 10^{-60}; 0 for others."""
    if isinstance(exponent, Mul) and len(exponent.items) == 2:
        exponent = exponent.items[1]
    if not isinstance(exponent, Num):
        return 0
    bits = max(base.numerator.bit_length(), base.denominator.bit_length())
    return min(MAX_PRECISION, int(abs(exponent.value)) * bits)


def same(a: Node, b: Node) -> bool | None:
    """Whether two scalar trees are equal wherever both have a value; None when no value could be had.

    Raises:
        Oversized: a value that is too large to be computed.
    """
    if a == b:
        return True
    names = symbols(a) | symbols(b)
    places = points(names)
    try:
        return all(exact.evaluate(a, place) == exact.evaluate(b, place) for place in places)
    except (Inexact, Undefined):
        pass
    verdict = _agree(a, b, places, real=bool(names) and not _has_i(a, b))
    if verdict is None and names:
        verdict = _agree(a, b, whole_points(names), real=False)
    return verdict


def _has_i(*nodes: Node) -> bool:
    """Whether the imaginary unit is written."""
    return any(isinstance(n, Sym) and n.name == "i" for node in nodes for n in walk(node))


def _agree(a: Node, b: Node, places: list[dict[str, Fraction]], real: bool) -> bool | None:
    """Agreement at those places where both have a value."""
    ctx = context(precision_for(a, b))
    seen = 0
    for place in places:
        evaluator = Evaluator(ctx, place, real)
        try:
            x, y = evaluator.value(a), evaluator.value(b)
        except (Undefined, ZeroDivisionError):
            continue
        except (ValueError, OverflowError) as error:
            raise Undefined(str(error)) from error
        if not close(ctx, x, y):
            return False
        seen += 1
    return True if seen >= min(2, len(places)) else None


def has_value(node: Node) -> bool:
    """Whether a scalar has a value at one of the points at least.

    Raises:
        Oversized: a value that is too large to be computed.
    """
    names = symbols(node)
    ctx = context(precision_for(node))
    for place in (*points(names), *whole_points(names)):
        try:
            Evaluator(ctx, place, real=False).value(node)
        except (Undefined, Unreadable, ZeroDivisionError, ValueError):
            continue
        return True
    return False


def close(ctx: Any, x: Any, y: Any) -> bool:
    """Equality up to rounding in the last bits, relative to the larger."""
    if x == y:
        return True
    return bool(abs(x - y) <= max(abs(x), abs(y)) * ctx.mpf(2) ** (SLACK - ctx.prec))


def closed_value(node: Node) -> Any:
    """The value of a scalar without letters, or None when it has none.

    Raises:
        Oversized: a value that is too large to be computed.
    """
    if symbols(node):
        return None
    ctx = context(precision_for(node))
    try:
        return Evaluator(ctx, {}, real=False).value(node)
    except (Undefined, Unreadable, ZeroDivisionError, ValueError):
        return None
