"""Two numbers or expressions: equal, equal to all of their digits, or not."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from tossup.verifiers.math import sets
from tossup.verifiers.math.numeric import closed_value, has_value, same
from tossup.verifiers.math.tree import (
    MINUS_ONE,
    SCALARS,
    ZERO,
    Add,
    Based,
    Fn,
    Mul,
    Node,
    Num,
    Opaque,
    PlusMinus,
    Pow,
    Ratio,
    Sym,
    replaced,
    symbols,
    walk,
)
from tossup.verifiers.math.values import (
    decimal,
    within_rounding,
)

_FREE_CONSTANTS = frozenset({"C", "c", "K", "C_1", "c_1"})
_WHOLE_NUMBERS = frozenset({"k", "n", "m"})


@dataclass(frozen=True, slots=True)
class Finding:
    """`equal` is None where this path cannot tell."""

    equal: bool | None
    rule: str


ROUNDED_DIGITS = 10
"""A reference with as many significant digits is taken to be the rounding of what is asked for."""


def angle(node: Node) -> bool:
    """Whether a value ends in a degree sign."""
    return (isinstance(node, Mul) and node.items[-1] == Sym("deg")) or (
        isinstance(node, Mul) and len(node.items) == 2 and angle(node.items[1])
    )


def _without_degrees(node: Node) -> Node:
    """The number before a degree sign."""
    if isinstance(node, Mul) and node.items[-1] == Sym("deg"):
        rest = node.items[:-1]
        return rest[0] if len(rest) == 1 else Mul(rest)
    if isinstance(node, Mul) and len(node.items) == 2 and angle(node.items[1]):
        return Mul((node.items[0], _without_degrees(node.items[1])))
    return node


def scalar(reference: Node, answer: Node) -> Finding:
    """Two numbers or expressions."""
    if angle(reference) != angle(answer) and isinstance(answer, SCALARS) and same(reference, answer) is True:
        return Finding(True, "equal in radians")
    reference, answer = _without_degrees(reference), _without_degrees(answer)
    sign = sets.infinity(reference)
    if sign:
        return Finding(sets.infinity(answer) == sign, "infinity")
    if isinstance(answer, Ratio) and len(answer.items) == 2 and _written_fraction(reference):
        return scalar(reference, Mul((answer.items[0], inverse(answer.items[1]))))
    if not isinstance(answer, SCALARS):
        return Finding(False, "another kind of answer")
    if isinstance(answer, PlusMinus) or any(isinstance(n, PlusMinus) for n in walk(answer)):
        return Finding(False, "two values where one is asked for")
    if _unevaluated(answer) - _unevaluated(reference):
        return Finding(False, "an operator that was not worked out")
    if isinstance(reference, Based) != isinstance(answer, Based) or (
        isinstance(reference, Based) and isinstance(answer, Based) and reference.base != answer.base
    ):
        return _bases(reference, answer)
    answer = _renamed_constant(reference, answer)
    verdict = same(reference, answer)
    if verdict is True:
        return Finding(True, "equal")
    if verdict is False and (common := _common_logarithms(reference, answer)) is not None and same(*common) is True:
        return Finding(True, "equal with logarithms to base ten")
    answer = _binary_fraction(answer) or answer
    if _rounding(reference, answer):
        return Finding(True, "equal to all of its digits")
    if verdict is None and has_value(reference):
        return Finding(False, "the answer has no value where the reference has one")
    return Finding(verdict, "not equal" if verdict is False else "no value at any point")


def _renamed_constant(reference: Node, answer: Node) -> Node:
    """The answer with the reference's letter for a constant of integration, or for a whole number of periods.

    Both are the asker's free choice: `+ C` or `+ c`, and `k\\pi` or `n\\pi`.
    """
    ours, theirs = symbols(reference) - symbols(answer), symbols(answer) - symbols(reference)
    if len(ours) != 1 or len(theirs) != 1:
        return answer
    (wanted,), (given,) = ours, theirs
    added = isinstance(reference, Add) and Sym(wanted) in reference.items and wanted in _FREE_CONSTANTS
    period = {wanted, given} <= _WHOLE_NUMBERS and Sym("pi") in walk(reference)
    if (added and given in _FREE_CONSTANTS) or period:
        return replaced(answer, given, wanted)
    return answer


def _bases(reference: Node, answer: Node) -> Finding:
    """A numeral without its base may only repeat the digits; another base is another answer."""
    if isinstance(reference, Based) and isinstance(answer, Num):
        return Finding(False, "a numeral without its base")
    return Finding(False, "another base")


def inverse(node: Node) -> Node:
    """One over a node."""
    return Pow(node, MINUS_ONE)


def _written_fraction(node: Node) -> bool:
    """Whether a reference is written as a quotient."""
    return isinstance(node, Mul) and isinstance(node.items[-1], Pow)


def _unevaluated(node: Node) -> set[str]:
    """The operators in a tree that a question may have asked to work out."""
    return {n.name for n in walk(node) if isinstance(n, Opaque) and n.operator}


def _rounding(reference: Node, answer: Node) -> bool:
    """Whether twelve digits or more of one are a correct rounding of the other."""
    for written, true in ((answer, reference), (reference, answer)):
        number = decimal(written)
        enough = ROUNDED_DIGITS if written is reference else 12
        if number is None or number.digits is None or number.digits < enough:
            continue
        if number.digits >= 15 and true is not reference and _noise(number, true):
            return True
        other = decimal(true)
        if (other is None or other.digits is None or other.digits >= 12) and not symbols(true):
            exactly_short = isinstance(true, Num) and true.digits is None and true.value.denominator == 1
            if not exactly_short and within_rounding(number, true):
                return True
    return isinstance(answer, Num) and (answer.digits or 0) >= 15 and _noise(answer, reference)


def _common_logarithms(reference: Node, answer: Node) -> tuple[Node, Node] | None:
    """Both sides with `log` read to base ten; None when neither writes it."""
    if not any(
        isinstance(n, Fn) and n.name == "log" and len(n.args) == 1 for side in (reference, answer) for n in walk(side)
    ):
        return None
    return _to_base_ten(reference), _to_base_ten(answer)


def ratio(reference: Ratio, answer: Node) -> Finding:
    """A time of day part by part, a ratio up to a common factor."""
    if not isinstance(answer, Ratio):
        if len(reference.items) == 2 and isinstance(answer, Mul) and not reference.clock:
            return scalar(Mul((reference.items[0], inverse(reference.items[1]))), answer)
        return Finding(False, "another kind of answer")
    if reference.suffix and answer.suffix and reference.suffix != answer.suffix:
        return Finding(False, "another half of the day")
    ours, theirs = list(reference.items), list(answer.items)
    if reference.clock and answer.clock:
        for parts in (ours, theirs):
            while len(parts) > 2 and parts[-1] == ZERO:
                parts.pop()
        return Finding(ours == theirs, "the time")
    if reference.clock or reference.suffix or ZERO in ours or ZERO in theirs:
        return Finding(ours == theirs, "the ratio")
    if len(ours) != len(theirs):
        return Finding(False, "a ratio of another length")
    crossed = [(Mul((ours[0], b)), Mul((theirs[0], a))) for a, b in zip(ours[1:], theirs[1:], strict=True)]
    return Finding(all(same(a, b) is True for a, b in crossed), "the ratio")


def _to_base_ten(node: Node) -> Node:
    """The tree with a base for every `log` without one."""
    match node:
        case Fn("log", (argument,)):
            return Fn("log", (_to_base_ten(argument), Num(Fraction(10))))
        case Fn(name, args):
            return Fn(name, tuple(_to_base_ten(arg) for arg in args))
        case Add(items):
            return Add(tuple(_to_base_ten(item) for item in items))
        case Mul(items):
            return Mul(tuple(_to_base_ten(item) for item in items))
        case Pow(base, exponent):
            return Pow(_to_base_ten(base), _to_base_ten(exponent))
    return node


def _binary_fraction(node: Node) -> Num | None:
    """A double-precision number written out as a fraction with a huge power of two below."""
    match node:
        case Mul((Num(top, None), Pow(Num(bottom, None), Num(power)))) if power == -1 and bottom >= 1 << 40:
            whole = int(bottom)
            if bottom.denominator == 1 and whole & (whole - 1) == 0:
                return Num(top / bottom, 15)
    return None


def _noise(number: Num, true: Node) -> bool:
    """Whether a decimal of fifteen digits or more is off by no more than double-precision arithmetic is."""
    value = closed_value(true)
    if value is None or hasattr(value, "_mpc_"):
        return False
    ctx = value.context
    error = abs(value - ctx.mpf(number.value.numerator) / number.value.denominator)
    return bool(error <= abs(value) * ctx.mpf(10) ** -14)
