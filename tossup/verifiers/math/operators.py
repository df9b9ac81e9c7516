"""Functions, fractions and roots, and the operators that are never worked out for the model."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING

from tossup.verifiers.math.brackets import group
from tossup.verifiers.math.limits import Unreadable
from tossup.verifiers.math.tables import OPERATORS, SYMBOLS
from tossup.verifiers.math.tree import (
    Add,
    Chain,
    Fn,
    Group,
    Matrix,
    Mul,
    Node,
    Num,
    Opaque,
    Pow,
    Sym,
    Text,
    Union,
    divide,
)

if TYPE_CHECKING:
    from tossup.verifiers.math.factors import Factors


STARTS = (
    frozenset(
        {"frac", "sqrt", "binom", "lfloor", "lceil", "langle", "overline", "begin", "infty", "emptyset", "stackrel"}
    )
    | OPERATORS
    | SYMBOLS
)


_ALIASES = {
    "asin": "arcsin",
    "acos": "arccos",
    "atan": "arctan",
    "asinh": "arcsinh",
    "acosh": "arccosh",
    "atanh": "arctanh",
    "lg": "log",
}


_INVERSES = {
    "sin": "arcsin",
    "cos": "arccos",
    "tan": "arctan",
    "cot": "arccot",
    "sec": "arcsec",
    "csc": "arccsc",
    "sinh": "arcsinh",
}


def function(p: Factors, name: str) -> Node:
    """A named function with its power, base and argument."""
    p.enter()
    power: Node | None = None
    base: Node | None = Num(Fraction(10)) if name == "lg" else None
    name = _ALIASES.get(name, name)
    while p.at("^", "_"):
        if p.take().value == "^":
            power = p.exponent()
        else:
            base = _script(p)
    if isinstance(power, Num) and power.value == -1 and name in _INVERSES:
        name, power = _INVERSES[name], None
    argument = _function_argument(p)
    p.leave()
    if name == "cis":
        node: Node = Add((Fn("cos", (argument,)), Mul((Sym("i"), Fn("sin", (argument,))))))
    elif name == "log" and base is not None:
        node = Fn("log", (argument, base))
    elif name in ("exp",):
        node = Pow(Sym("e"), argument)
    elif name in ("sqrt", "cbrt"):
        node = Pow(argument, Num(Fraction(1, 2 if name == "sqrt" else 3)))
    else:
        node = Fn(name, (argument,))
    return node if power is None else Pow(node, power)


def _script(p: Factors) -> Node:
    """A subscript: braces, or one number or letter, whatever stands next to it."""
    if p.at("{"):
        return p.argument()
    if p.token.kind == "num":
        return Num(Fraction(p.take().value))
    return p.atom()


def _function_argument(p: Factors) -> Node:
    """The argument in brackets, or the product that follows up to the next function."""
    if p.at("(", "[", "{"):
        inner = group(p, p.take().value)
        if isinstance(inner, (Group, Chain, Union, Text)):
            raise Unreadable("a function of something that is no number")
        return inner
    if p.accept("-"):
        return Mul((Num(Fraction(-1)), _function_argument(p)))
    factors = [p.power()]
    while True:
        if p.token.kind == "id" or (
            p.token.kind == "cmd" and p.token.value in STARTS and p.token.value not in OPERATORS
        ):
            factors.append(p.power())
        elif p.at("/") and p.following.kind == "num":
            p.take()
            factors.append(Pow(p.power(), Num(Fraction(-1))))
        else:
            return factors[0] if len(factors) == 1 else Mul(tuple(factors))


def fraction(p: Factors) -> Node:
    """`\\frac{a}{b}`; a derivative sign is an operator, never worked out."""
    top, bottom = p.argument(), p.argument()
    below = bottom.items if isinstance(bottom, Mul) else (bottom,)
    if below[0] in (Sym("d"), Sym("partial")) and isinstance(top, (Sym, Mul, Pow)):
        if not p.starts_factor():
            return Opaque("derivative", (top, bottom))
        return Opaque("derivative", (top, bottom, *_operand(p)), operator=True)
    for part in (top, bottom):
        if isinstance(part, (Group, Chain, Union, Text, Matrix)):
            raise Unreadable("a fraction of something that is no number")
    return divide(top, bottom)


def root(p: Factors) -> Node:
    """`\\sqrt[n]{a}` and `\\sqrt 2`."""
    degree: Node = Num(Fraction(2))
    if p.accept("["):
        degree = p.sum()
        p.expect("]")
    p.enter()
    inner = group(p, p.take().value) if p.at("{", "(") else p.atom()
    p.leave()
    if isinstance(inner, (Group, Chain, Union, Text, Matrix)):
        raise Unreadable("a root of something that is no number")
    if isinstance(degree, Num) and degree.value > 0:
        return Pow(inner, Num(1 / degree.value))
    return Pow(inner, Pow(degree, Num(Fraction(-1))))


def operator(p: Factors, name: str) -> Node:
    """An operator with its limits and what it applies to; kept whole."""
    parts: list[Node] = []
    while p.at("_", "^"):
        p.take()
        p.enter()
        if p.accept("{"):
            parts.append(p.sequence())
            p.expect("}")
        else:
            parts.append(p.atom())
        p.leave()
    return Opaque(name, (*parts, *_operand(p)), operator=True)


def _operand(p: Factors) -> tuple[Node, ...]:
    """The product after an operator."""
    if p.starts_factor() or p.token.kind == "num":
        return (p.product(),)
    raise Unreadable("an operator without anything to work on")
