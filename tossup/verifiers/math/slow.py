"""The last resort, run in a worker process that can be killed: SymPy on trees that the grammar has read.

Arithmetic and high precision decide nearly everything in the caller's process. What is left are expressions without a
value at any point that we try, and equations whose zeros cannot be computed. Trees become SymPy objects one by one;
no text ever reaches SymPy, so nothing in an answer can be evaluated as code.
"""

from __future__ import annotations

from typing import Any

from tossup.verifiers.math.limits import Unreadable
from tossup.verifiers.math.reading import parse
from tossup.verifiers.math.tree import Add, Based, Chain, Fn, Mul, Node, Num, Opaque, Pow, Sym, negate

_FUNCTIONS = {"ln": "log", "arcsin": "asin", "arccos": "acos", "arctan": "atan", "arccot": "acot", "abs": "Abs"}


def decide(reference: str, answer: str) -> bool:
    """Whether SymPy can show the two equal: expressions by simplification, equations as rational functions.

    Raises:
        Unreadable: a part that has no counterpart in SymPy.
    """
    import sympy

    ours, theirs = parse(reference), parse(answer)
    if isinstance(ours, Chain) != isinstance(theirs, Chain):
        return False
    left, right = to_sympy(_difference(ours)), to_sympy(_difference(theirs))
    if not isinstance(ours, Chain):
        return bool(sympy.simplify(left - right) == 0)
    quotient = sympy.simplify(sympy.cancel(sympy.together(left)) / sympy.cancel(sympy.together(right)))
    return bool(quotient.is_number and quotient.is_finite and quotient != 0)


def _difference(node: Node) -> Node:
    """`left - right` of an equation; other nodes are themselves."""
    if isinstance(node, Chain):
        if len(node.items) != 2 or node.ops != ("=",):
            raise Unreadable("a relation that is no equation")
        return Add((node.items[0], negate(node.items[1])))
    return node


def to_sympy(node: Node) -> Any:
    """A scalar tree as a SymPy object.

    Raises:
        Unreadable: no counterpart.
    """
    import sympy

    match node:
        case Num(value, _) | Based(value, _):
            return sympy.Rational(value.numerator, value.denominator)
        case Sym(name):
            constants = {"pi": sympy.pi, "e": sympy.E, "i": sympy.I, "oo": sympy.oo, "deg": sympy.pi / 180}
            return constants.get(name) or sympy.Symbol(name)
        case Add(items):
            return sympy.Add(*map(to_sympy, items))
        case Mul(items):
            return sympy.Mul(*map(to_sympy, items))
        case Pow(base, exponent):
            return sympy.Pow(to_sympy(base), to_sympy(exponent))
        case Fn("log", (argument, base)):
            return sympy.log(to_sympy(argument), to_sympy(base))
        case Fn(name, args):
            return getattr(sympy, _FUNCTIONS.get(name, name.replace("arc", "a")))(*map(to_sympy, args))
        case Opaque(name, args, False):
            return sympy.Function(name)(*map(to_sympy, args))
    raise Unreadable(f"a {type(node).__name__.lower()}")
