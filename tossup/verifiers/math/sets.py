"""Intervals, unions and solved inequalities as one normal form: sorted pieces of the real line.

`x < 3`, `(-\\infty, 3)` and `x \\in (-\\infty, 3)` are the same region. Endpoints are high-precision values; a region
whose endpoints hold letters has no normal form and is compared piece by piece instead.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from tossup.verifiers.math.evaluator import Evaluator, context
from tossup.verifiers.math.limits import Undefined, Unreadable
from tossup.verifiers.math.numeric import close, closed_value, precision_for
from tossup.verifiers.math.tree import Add, Chain, Fn, Group, Node, Sym, Union, negate, symbols


@dataclass(frozen=True, slots=True)
class Piece:
    """One interval; a point when both ends are the same and closed."""

    low: Any
    low_closed: bool
    high: Any
    high_closed: bool


Region = list[Piece]


def infinity(node: Node) -> int:
    """1 for infinity, -1 for minus infinity, 0 for anything else."""
    if node == Sym("oo"):
        return 1
    return -1 if node == negate(Sym("oo")) else 0


def region(node: Node) -> Region | None:
    """The normal form of a set of real numbers, or None when the node is no such set.

    Raises:
        Oversized: an endpoint that is too large to be computed.
    """
    match node:
        case Sym("RR"):
            ctx = context(64)
            return [Piece(-ctx.inf, False, ctx.inf, False)]
        case Group("{", _, items, _):
            return _points(items)
        case Group(opening, closing, (low, high), _) if opening in ("(", "["):
            return _interval(low, opening == "[", high, closing == "]")
        case Group("", "", (Chain((letter, value), ("!=",)), *others), _) if not any(
            isinstance(o, Chain) for o in others
        ):
            return _combined(tuple(Chain((letter, each), ("!=",)) for each in (value, *others)), "and")
        case Group("", "", items, separator) if all(isinstance(item, (Chain, Group, Union)) for item in items):
            return _combined(items, separator)
        case Union(items, minus):
            parts = [region(item) for item in items]
            known = [part for part in parts if part is not None]
            if len(known) != len(parts):
                return None
            return _difference(known) if minus else _merged([piece for part in known for piece in part])
        case Chain((_, target), ("in",)):
            return region(target)
        case Chain():
            return _solved(node)
    return None


def _combined(items: tuple[Node, ...], separator: str) -> Region | None:
    """Inequalities joined by words: `or` unites them, `and` intersects them, and a comma does
    either: `x < 1, x > 3` can only be meant as a union. Intervals are united by any word."""
    parts = [region(item) for item in items]
    known = [part for part in parts if part is not None]
    if len(known) != len(parts):
        return None
    if separator == "or" or not any(isinstance(item, Chain) for item in items):
        return _merged([piece for part in known for piece in part])
    result = known[0]
    for part in known[1:]:
        result = _intersected(result, part)
    if not result and separator != "and":
        return _merged([piece for part in known for piece in part])
    return result


def _endpoint(node: Node) -> Any | None:
    """The value of an endpoint; None when it has letters or no value."""
    sign = infinity(node)
    if sign:
        return context(64).inf * sign
    value = closed_value(node)
    if value is None or (hasattr(value, "imag") and value.imag != 0):
        return None
    return value.real if hasattr(value, "real") else value


def _points(items: tuple[Node, ...]) -> Region | None:
    """A finite set."""
    values = [_endpoint(item) for item in items]
    if any(value is None for value in values):
        return None
    return _merged([Piece(value, True, value, True) for value in values])


def _interval(low: Node, low_closed: bool, high: Node, high_closed: bool) -> Region | None:
    """An interval with its ends in order."""
    a, b = _endpoint(low), _endpoint(high)
    if a is None or b is None or not a < b:
        return None
    return [Piece(a, low_closed, b, high_closed)]


def _solved(chain: Chain) -> Region | None:
    """An inequality or a double inequality, linear in its only letter."""
    if not all(op in ("<", "<=", ">", ">=", "!=") for op in chain.ops):
        return None
    names = symbols(chain)
    if len(names) != 1 or (len(chain.ops) > 1 and "!=" in chain.ops):
        return None
    if len(chain.ops) == 1 and isinstance(chain.items[0], Fn) and chain.items[0].name == "abs":
        return _within(chain.items[0].args[0], chain.ops[0], chain.items[1], next(iter(names)))
    result: Region | None = None
    for left, op, right in zip(chain.items[:-1], chain.ops, chain.items[1:], strict=True):
        part = _half_line(left, op, right, next(iter(names)))
        if part is None:
            return None
        result = part if result is None else _intersected(result, part)
    return result


def _within(inside: Node, op: str, bound: Node, name: str) -> Region | None:
    """`|u| < c` and `|u| > c`."""
    turned = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}.get(op)
    if turned is None or symbols(bound):
        return None
    upper, lower = _half_line(inside, op, bound, name), _half_line(inside, turned, negate(bound), name)
    if upper is None or lower is None:
        return None
    return _intersected(upper, lower) if op in ("<", "<=") else _merged([*upper, *lower])


def _half_line(left: Node, op: str, right: Node, name: str) -> Region | None:
    """`left op right` where the difference is linear in the letter."""
    if Sym("") in (left, right):
        return None
    if infinity(left) or infinity(right):
        return [Piece(-context(64).inf, False, context(64).inf, False)]
    difference = Add((left, negate(right)))
    ctx = context(precision_for(difference))
    values = []
    for point in (0, 1, 2, 5):
        try:
            values.append(Evaluator(ctx, {name: Fraction(point)}, real=True).value(difference))
        except (Undefined, Unreadable, ZeroDivisionError, ValueError):
            return None
    slope = values[1] - values[0]
    if slope == 0 or any(hasattr(v, "_mpc_") for v in values):
        return None
    if not (close(ctx, values[2] - values[0], 2 * slope) and close(ctx, values[3] - values[0], 5 * slope)):
        return None
    root = -values[0] / slope
    if op == "!=":
        return [Piece(-ctx.inf, False, root, False), Piece(root, False, ctx.inf, False)]
    below = (op in ("<", "<=")) == (slope > 0)
    closed = op in ("<=", ">=")
    return [Piece(-ctx.inf, False, root, closed)] if below else [Piece(root, closed, ctx.inf, False)]


def _merged(pieces: Region) -> Region:
    """Sorted, with overlapping and touching pieces joined."""
    ordered = sorted(pieces, key=lambda piece: (piece.low, not piece.low_closed))
    merged: Region = []
    for piece in ordered:
        if merged and _touches(merged[-1], piece):
            last = merged[-1]
            if piece.high > last.high:
                merged[-1] = Piece(last.low, last.low_closed, piece.high, piece.high_closed)
            elif piece.high == last.high:
                merged[-1] = Piece(last.low, last.low_closed, last.high, last.high_closed or piece.high_closed)
        else:
            merged.append(piece)
    return merged


def _touches(first: Piece, second: Piece) -> bool:
    """Whether two neighbours leave no gap."""
    return bool(second.low < first.high or (second.low == first.high and (first.high_closed or second.low_closed)))


def _intersected(first: Region, second: Region) -> Region:
    """What lies in both."""
    found: Region = []
    for a in first:
        for b in second:
            low, low_closed = max((a.low, not a.low_closed), (b.low, not b.low_closed))
            high, high_closed = min((a.high, a.high_closed), (b.high, b.high_closed))
            if low < high or (low == high and not low_closed and high_closed):
                found.append(Piece(low, not low_closed, high, high_closed))
    return found


def _difference(parts: list[Region]) -> Region:
    """The first region without the others."""
    result = parts[0]
    for part in parts[1:]:
        for piece in part:
            inf = context(64).inf
            outside = [
                Piece(-inf, False, piece.low, not piece.low_closed),
                Piece(piece.high, not piece.high_closed, inf, False),
            ]
            result = _intersected(result, outside)
    return result


def equal(first: Region, second: Region) -> bool:
    """Whether two normal forms are the same set."""
    if len(first) != len(second):
        return False
    ctx = context(220)
    return all(
        a.low_closed == b.low_closed
        and a.high_closed == b.high_closed
        and _same_end(ctx, a.low, b.low)
        and _same_end(ctx, a.high, b.high)
        for a, b in zip(first, second, strict=True)
    )


def _same_end(ctx: Any, a: Any, b: Any) -> bool:
    """Equal endpoints, infinite ones included."""
    if ctx.isinf(a) or ctx.isinf(b):
        return bool(a == b)
    return close(ctx, a, b)
