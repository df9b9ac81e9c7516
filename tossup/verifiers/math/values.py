"""What an answer says once its names, chains and plus-minus signs are read: names taken off, lists spread out."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from tossup.verifiers.math.numeric import closed_value, same
from tossup.verifiers.math.tree import (
    SCALARS,
    Add,
    Chain,
    Fn,
    Group,
    Matrix,
    Mul,
    Node,
    Num,
    Opaque,
    PlusMinus,
    Pow,
    Quantity,
    Ratio,
    Sym,
    Text,
    negate,
    symbols,
    walk,
)


class FalseChain(Exception):  # noqa: N818
    """`1 = 2 = 3`: a chain of equations whose members are not equal."""


@dataclass(frozen=True, slots=True)
class Named:
    """A value, with the name that it was given (`x` in `x = 5`) and its unit; empty when it has none."""

    value: Node
    name: Node | None = None
    unit: str = ""


def is_name(node: Node) -> bool:
    """Whether this names a quantity: a letter, `f(x)`, `\\sin A`, a segment, words, a tuple or a ratio of names."""
    match node:
        case Sym(name):
            return name not in ("", "oo", "pi", "RR")
        case Opaque() | Text() | Matrix(_, True):
            return True
        case Group(opening, _, items, _):
            return opening in ("(", "") and all(is_name(item) for item in items)
        case Ratio(items, _):
            return all(is_name(item) for item in items)
        case Fn(name, args):
            return name not in ("factorial", "binomial") and all(is_name(arg) for arg in args)
        case Mul((top, Pow(bottom, Num(power, None)))) if power == -1:
            return is_name(top) and is_name(bottom)
        case Mul(items):
            return all(isinstance(item, (Sym, Opaque)) and is_name(item) for item in items) and any(
                isinstance(item, Opaque)
                or (isinstance(item, Sym) and (item.name[0].isupper() or item.name in ("angle", "triangle")))
                for item in items
            )
        case Quantity(value, _):
            return is_name(value)
    return False


def _numberless(node: Node) -> bool:
    """Whether no number but an exponent is written: `x + y`, `ab`, `x^2 + y^2` name what a question asks for."""
    match node:
        case Num():
            return False
        case Pow(base, _):
            return _numberless(base)
        case Mul(items) | Add(items):
            return all(_numberless(item) or (isinstance(item, Num) and item.value == -1) for item in items)
        case Sym(name):
            return name not in ("", "pi", "e", "oo")
        case Opaque(_, _, operator):
            return not operator
    return is_name(node)


def named(node: Node, strict: bool) -> Named:
    """The value of a node, its name and unit apart.

    `strict` is for a reference, where only a true name may be dropped; an answer may also say `x + y = 5`.

    Raises:
        FalseChain: members of a chain of equations are not equal.
    """
    if isinstance(node, Quantity):
        inner = named(node.value, strict)
        return Named(inner.value, inner.name, node.unit)
    if not isinstance(node, Chain):
        return Named(node)
    items, ops = node.items, node.ops
    if items[0] == Sym("") and ops[0] in ("=", "~"):
        items, ops = items[1:], ops[1:]
        if not ops:
            return Named(items[0])
    if ops[-1] == "in" and len(ops) == 1 and is_name(items[0]):
        return Named(items[1], items[0])
    if ops[-1] == "to" and all(op in ("=", "~", "to") for op in ops):
        return named(items[-1], strict)
    if not all(op in ("=", "~") for op in ops):
        return Named(node)
    name: Node | None = None
    if is_name(items[0]) or (not strict and _numberless(items[0]) and not _closed(items[0])):
        name, items, ops = items[0], items[1:], ops[1:]
    elif len(items) == 2 and isinstance(items[1], Sym) and is_name(items[1]) and _closed(items[0]):
        return Named(items[0], items[1])
    if len(items) == 1:
        return Named(items[0], name)
    return _consistent(Chain(items, ops), name)


def _closed(node: Node) -> bool:
    """Whether a node holds no letters."""
    return not symbols(node)


def _consistent(chain: Chain, name: Node | None) -> Named:
    """The one value of a chain of equal members: the last that is not a rounded decimal."""
    exact = [item for item in chain.items if not _rounded(item)] or list(chain.items[-1:])
    scalars = [item for item in exact if isinstance(item, SCALARS)]
    if len(scalars) != len(exact):
        return Named(chain, name) if name is None and len(exact) > 1 else Named(exact[-1], name)
    for scalar in scalars[:-1]:
        if same(scalar, scalars[-1]) is False:
            if all(_closed(each) for each in scalars):
                raise FalseChain
            return Named(chain, name)
    for item in chain.items:
        if _rounded(item) and _closed(exact[-1]):
            crude = item.digits is not None and item.digits < 2 if isinstance(item, Num) else False
            if not within_rounding(item, exact[-1]) or (crude and same(item, exact[-1]) is False):
                raise FalseChain
    return Named(exact[-1], name)


def _rounded(node: Node) -> bool:
    """Whether this is a decimal as written, which may be the rounding of something exact."""
    return decimal(node) is not None


def decimal(node: Node) -> Num | None:
    """The number if the node is a bare decimal with a point."""
    if isinstance(node, Num) and node.digits is not None:
        return node
    return None


def within_rounding(written: Node, true: Node) -> bool:
    """Whether a decimal is `true` rounded, or cut off, at the decimal's last place."""
    number, value = decimal(written), closed_value(true)
    if number is None or value is None or hasattr(value, "_mpc_"):
        return False
    error = abs(value - _mpf(value, number.value))
    unit = _mpf(value, last_place(number))
    cut_off = abs(_mpf(value, number.value)) <= abs(value)
    return bool(error * 2 <= unit or (cut_off and error < unit))


def _mpf(like: Any, value: Fraction) -> Any:
    """A fraction in the context of `like`."""
    context = like.context
    return context.mpf(value.numerator) / value.denominator


def last_place(number: Num) -> Fraction:
    """The unit in the last place of a decimal, from its significant digits."""
    assert number.digits is not None
    if number.value == 0:
        return Fraction(1, 10 ** max(number.digits, 1))
    place = Fraction(1)
    size = abs(number.value)
    while size >= place * 10:
        place *= 10
    while size < place:
        place /= 10
    return place / Fraction(10) ** (number.digits - 1)


def spread(node: Node) -> list[Node]:
    """Both values of every plus-minus in a node; the node alone when there is none."""
    if not any(isinstance(each, PlusMinus) for each in walk(node)):
        return [node]
    if isinstance(node, Chain):
        tails = spread(node.items[-1])
        return [Chain((*node.items[:-1], tail), node.ops) for tail in tails]
    return [_signed(node, 1), _signed(node, -1)]


def _signed(node: Node, sign: int) -> Node:
    """The node with every plus-minus read as this sign."""
    match node:
        case PlusMinus(item, flipped):
            inner = _signed(item, sign)
            return inner if (sign > 0) != flipped else negate(inner)
        case Add(items):
            return Add(tuple(_signed(item, sign) for item in items))
        case Mul(items):
            return Mul(tuple(_signed(item, sign) for item in items))
        case Pow(base, exponent):
            return Pow(_signed(base, sign), _signed(exponent, sign))
        case Fn(name, args):
            return Fn(name, tuple(_signed(arg, sign) for arg in args))
        case Group(opening, closing, items, separator):
            return Group(opening, closing, tuple(_signed(item, sign) for item in items), separator)
        case Quantity(value, unit):
            return Quantity(_signed(value, sign), unit)
    return node


def members(node: Node) -> list[Node] | None:
    """The members of a list or set with lists inside it flattened and plus-minus spread; None for anything else."""
    if isinstance(node, Chain) and node.ops[-1] == "=" and is_name(node.items[0]) and len(node.ops) == 1:
        inner = members(node.items[1])
        if inner is not None:
            return inner
    if isinstance(node, Quantity):
        return members(node.value)
    if isinstance(node, Group) and node.open in ("", "{"):
        found: list[Node] = []
        for item in node.items:
            nested = isinstance(item, Group) and item.open == ""
            found.extend((members(item) or [item]) if nested else spread(item))
        return found
    if isinstance(node, Matrix):
        return None
    both = spread(node)
    return both if len(both) > 1 else None
