"""Equations and inequalities in letters: do they describe the same curve, plane or half-space?

Two equations are the same when `left - right` differs by a constant factor, and otherwise when they have the same
zeros: all letters but one get values, the zeros in that letter are computed for one equation and must satisfy the other,
in both directions and at several places. `y = 1/x` and `xy = 1` are the same; a factor that adds zeros is not.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from itertools import pairwise
from typing import Any

from tossup.verifiers.math.evaluator import Evaluator, context
from tossup.verifiers.math.limits import Oversized, Undefined, Unreadable
from tossup.verifiers.math.numeric import close, points, precision_for, same
from tossup.verifiers.math.scalars import Finding
from tossup.verifiers.math.tree import SCALARS, ZERO, Add, Chain, Node, Sym, negate, symbols

MAX_DEGREE = 5
_TROUBLE = (Undefined, Unreadable, ZeroDivisionError, ValueError)


INEQUALITIES = frozenset({"<", "<=", ">", ">=", "!="})


def is_inequality(chain: Chain) -> bool:
    """Whether a chain is an inequality rather than an equation."""
    return any(op in INEQUALITIES for op in chain.ops)


def difference(chain: Chain) -> Node | None:
    """`left - right`; None when a side is no number."""
    left, right = chain.items
    if not isinstance(left, SCALARS) or not isinstance(right, SCALARS) or Sym("") in (left, right):
        return None
    return Add((left, negate(right)))


def factor(reference: Node, answer: Node) -> float | None:
    """The constant ratio of two differences, or None when there is none."""
    names = symbols(reference)
    if not names or names != symbols(answer):
        return None
    ctx = context(precision_for(reference, answer))
    ratios = []
    for place in points(names):
        evaluator = Evaluator(ctx, place, real=True)
        try:
            top, bottom = evaluator.value(answer), evaluator.value(reference)
        except _TROUBLE:
            continue
        if top == 0 or bottom == 0:
            return None
        ratios.append(top / bottom)
    if len(ratios) < 2 or isinstance(ratios[0], ctx.mpc) or not all(close(ctx, each, ratios[0]) for each in ratios[1:]):
        return None
    return float(ratios[0])


def same_zeros(reference: Node, answer: Node) -> bool | None:
    """Whether two differences vanish together; None when the zeros of one cannot be computed.

    Raises:
        Oversized: a value that is too large to be computed.
    """
    if symbols(reference) != symbols(answer):
        return False
    if _always_zero(reference) or _always_zero(answer):
        return False
    forth = _zeros_satisfy(reference, answer)
    if forth is False:
        return False
    back = _zeros_satisfy(answer, reference)
    return False if back is False else (True if forth and back else None)


def _always_zero(node: Node) -> bool:
    """Whether an equation says nothing, as `0 = 0` does."""
    return same(node, ZERO) is True


def _zeros_satisfy(first: Node, second: Node) -> bool | None:
    """Whether the zeros of the first, in a letter in which it is a polynomial, are zeros of the second."""
    ctx = context(precision_for(first, second))
    names = symbols(first)
    proven = False
    for name in sorted(names):  # every letter may refute: the zeros of x(y - 1) in x alone say nothing of y
        checked = 0
        for place in (points(names)[at] for at in (0, 1, 3)):  # small, large and negative
            zeros = _zeros(ctx, first, name, place)
            complete = zeros is not None
            for zero in _some_zeros(ctx, first, name, place) if zeros is None else zeros:
                satisfied = _vanishes(ctx, second, name, zero, place)
                if satisfied is False:
                    return False
                checked += satisfied is True and complete
        proven = proven or checked >= 2 or (checked > 0 and len(names) == 1)
    return True if proven else None


def _zeros(ctx: Any, node: Node, name: str, place: Mapping[str, Fraction]) -> list[Any] | None:
    """The zeros in one letter, the others fixed; None when the node is no polynomial of small degree in it."""
    values = []
    for point in range(MAX_DEGREE + 3):
        try:
            values.append(Evaluator(ctx, {**place, name: Fraction(point + 1)}, real=False).value(node))
        except _TROUBLE:
            return None
    coefficients = _interpolated(ctx, values)
    if coefficients is None or len(coefficients) < 2:
        return None
    if len(coefficients) == 2:
        return [-coefficients[1] / coefficients[0]]
    try:
        return list(ctx.polyroots(coefficients, maxsteps=80, extraprec=ctx.prec))
    except ctx.NoConvergence:
        return None


def _some_zeros(ctx: Any, node: Node, name: str, place: Mapping[str, Fraction]) -> list[Any]:
    """Zeros that the secant method finds: enough to refute an equation, not to prove one."""
    found = []
    for start in (Fraction(1, 3), Fraction(5, 4), Fraction(-7, 5)):
        x, y = ctx.mpf(start.numerator) / start.denominator, ctx.mpf(2)
        try:
            values = [_At(ctx, place, name, point).value(node) for point in (x, y)]
            for _ in range(30):
                if values[0] == values[1]:
                    break
                x, y = y, y - values[1] * (y - x) / (values[1] - values[0])
                values = [values[1], _At(ctx, place, name, y).value(node)]
        except (*_TROUBLE, Oversized):
            continue
        if abs(values[1]) <= ctx.mpf(2) ** (20 - ctx.prec):  # far closer than what `_vanishes` allows the other side
            found.append(y)
    return found


def _interpolated(ctx: Any, values: list[Any]) -> list[Any] | None:
    """Coefficients, highest first, of the polynomial through values at 1, 2, 3, ...; None when the degree is too high."""
    rows, newton = list(values), []
    largest = max(abs(value) for value in values)
    order = 0
    while rows:
        newton.append(rows[0] / ctx.factorial(order))
        rows = [b - a for a, b in pairwise(rows)]
        order += 1
    noise = largest * ctx.mpf(2) ** (80 - ctx.prec)
    while newton and abs(newton[-1]) <= noise:
        newton.pop()
    if len(newton) > MAX_DEGREE + 1:
        return None
    result: list[Any] = []
    for index in reversed(range(len(newton))):
        result = [ctx.mpf(0), *result] if result else [ctx.mpf(0)]
        for at in range(len(result) - 1):
            result[at] -= result[at + 1] * (index + 1)
        result[0] += newton[index]
    return list(reversed(result))


def _vanishes(ctx: Any, node: Node, name: str, zero: Any, place: Mapping[str, Fraction]) -> bool | None:
    """Whether the node is zero there, compared with the size of its terms; None where it has no value."""
    evaluator = _At(ctx, place, name, zero)
    try:
        value = evaluator.value(node)
        assert isinstance(node, Add)
        size = max(abs(evaluator.value(term)) for term in node.items)
    except _TROUBLE:
        return None
    return bool(abs(value) <= max(size, 1) * ctx.mpf(2) ** (90 - ctx.prec))


class _At(Evaluator):
    """An evaluator in which one letter has a computed value."""

    def __init__(self, ctx: Any, values: Mapping[str, Fraction], name: str, zero: Any) -> None:
        super().__init__(ctx, values, real=False)
        self.name, self.zero = name, zero

    def symbol(self, name: str) -> Any:
        """The computed value for its letter."""
        return self.zero if name == self.name else super().symbol(name)


def equation(reference: Chain, answer: Chain) -> Finding:
    """Two equations: the same up to a constant factor, or with the same zeros."""
    ours, theirs = difference(reference), difference(answer)
    if ours is None or theirs is None:
        return Finding(False, "another relation")
    if factor(ours, theirs) is not None:
        return Finding(True, "the same equation")
    zeros = same_zeros(ours, theirs)
    rule = {True: "the same solutions", False: "another equation", None: "equations whose zeros cannot be computed"}[
        zeros
    ]
    return Finding(zeros, rule)


def inequality(reference: Chain, answer: Chain) -> Finding:
    """Chains with the same members and directions, or sides that differ by a positive factor."""
    turned = Chain(tuple(reversed(answer.items)), tuple(TURNED.get(op, op) for op in reversed(answer.ops)))
    for candidate in (answer, turned):
        if candidate.ops == reference.ops and len(candidate.items) == len(reference.items):
            pairs = zip(reference.items, candidate.items, strict=True)
            if all(isinstance(a, SCALARS) and isinstance(b, SCALARS) and same(a, b) is True for a, b in pairs):
                return Finding(True, "the same relation")
            if len(candidate.ops) == 1 and _positive_factor(reference, candidate):
                return Finding(True, "the same inequality")
    return Finding(False, "another relation")


def _positive_factor(reference: Chain, answer: Chain) -> bool:
    """Whether `left - right` of the answer is a positive multiple of that of the reference."""
    ours, theirs = difference(reference), difference(answer)
    if ours is None or theirs is None:
        return False
    constant = factor(ours, theirs)
    return constant is not None and constant > 0


TURNED = {"<": ">", ">": "<", "<=": ">=", ">=": "<="}
