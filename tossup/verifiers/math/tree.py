"""The small tree that an answer is read into: plain data, no evaluation.

Scalars are built from Num, Sym, Add, Mul, Pow, Fn and Opaque; everything else holds scalars. `Opaque` is an operator
that the question asked the model to work out (an integral, a sum, a limit): it is never evaluated, only compared with
the same operator.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction


@dataclass(frozen=True, slots=True)
class Num:
    """A number as written. `digits` counts its significant digits when it was written with a decimal point."""

    value: Fraction
    digits: int | None = None


@dataclass(frozen=True, slots=True)
class Sym:
    """A letter or a named constant (`pi`, `e`, `i`, `oo`, `deg`), with its subscript in the name."""

    name: str


@dataclass(frozen=True, slots=True)
class Add:
    """A sum."""

    items: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Mul:
    """A product; division is a power of -1."""

    items: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Pow:
    """A power."""

    base: Node
    exponent: Node


@dataclass(frozen=True, slots=True)
class Fn:
    """A known function of known value: `sin`, `sqrt`, `factorial`, `binomial`, ..."""

    name: str
    args: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Opaque:
    """An unknown function `f(x)`, an indexed family `F_{n-1}`, or an operator that must not be worked out for the model."""

    name: str
    args: tuple[Node, ...]
    operator: bool = False


@dataclass(frozen=True, slots=True)
class PlusMinus:
    """Plus or minus its argument; `flipped` for the lower sign."""

    item: Node
    flipped: bool = False


@dataclass(frozen=True, slots=True)
class Based:
    """A numeral in a base other than ten, `204_5`."""

    value: Fraction
    base: int


@dataclass(frozen=True, slots=True)
class Group:
    """Items between brackets, or the bare list (`open` and `close` empty). A set has `open` equal to `{`."""

    open: str
    close: str
    items: tuple[Node, ...]
    ordered_by: str = ","


@dataclass(frozen=True, slots=True)
class Matrix:
    """Rows of entries. `bars` is true for a determinant in vertical bars."""

    rows: tuple[tuple[Node, ...], ...]
    bars: bool = False


@dataclass(frozen=True, slots=True)
class Chain:
    """`items[0] ops[0] items[1] ops[1] ...`, a chain of equations, inequalities or memberships."""

    items: tuple[Node, ...]
    ops: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Union:
    """Sets joined by union, or a set difference when `minus` is true."""

    items: tuple[Node, ...]
    minus: bool = False


@dataclass(frozen=True, slots=True)
class Ratio:
    """`a : b : c`, a time of day if `clock` (two digits after every colon). `suffix` is am or pm."""

    items: tuple[Node, ...]
    suffix: str = ""
    clock: bool = False


@dataclass(frozen=True, slots=True)
class Quantity:
    """A value with the words or units after it."""

    value: Node
    unit: str


@dataclass(frozen=True, slots=True)
class Text:
    """Words."""

    words: str


Node = (
    Num
    | Sym
    | Add
    | Mul
    | Pow
    | Fn
    | Opaque
    | PlusMinus
    | Based
    | Group
    | Matrix
    | Chain
    | Union
    | Ratio
    | Quantity
    | Text
)

SCALARS = (Num, Sym, Add, Mul, Pow, Fn, Opaque, PlusMinus, Based)
CONSTANTS = frozenset({"pi", "e", "i", "oo", "deg"})

ZERO = Num(Fraction(0))
ONE = Num(Fraction(1))
MINUS_ONE = Num(Fraction(-1))


def children(node: Node) -> tuple[Node, ...]:
    """The nodes directly inside `node`."""
    match node:
        case Num() | Sym() | Based() | Text():
            return ()
        case Pow(base, exponent):
            return (base, exponent)
        case Fn(_, args) | Opaque(_, args, _):
            return args
        case PlusMinus(item, _) | Quantity(item, _):
            return (item,)
        case Matrix(rows, _):
            return tuple(entry for row in rows for entry in row)
        case _:
            return node.items


def walk(node: Node) -> list[Node]:
    """Every node of the tree, parents first."""
    found = [node]
    for each in found:
        found.extend(children(each))
    return found


def symbols(node: Node) -> frozenset[str]:
    """The free letters, constants excluded."""
    return frozenset(n.name for n in walk(node) if isinstance(n, Sym) and n.name not in CONSTANTS)


def replaced(node: Node, letter: str, instead: str) -> Node:
    """A scalar with another letter in the place of one."""
    match node:
        case Sym(name):
            return Sym(instead) if name == letter else node
        case Add(items):
            return Add(tuple(replaced(item, letter, instead) for item in items))
        case Mul(items):
            return Mul(tuple(replaced(item, letter, instead) for item in items))
        case Pow(base, exponent):
            return Pow(replaced(base, letter, instead), replaced(exponent, letter, instead))
        case Fn(name, args):
            return Fn(name, tuple(replaced(arg, letter, instead) for arg in args))
    return node


def negate(node: Node) -> Node:
    """Minus `node`, kept simple for numbers."""
    if isinstance(node, Num):
        return Num(-node.value, node.digits)
    return Mul((MINUS_ONE, node))


def divide(top: Node, bottom: Node) -> Node:
    """`top / bottom`."""
    return Mul((top, Pow(bottom, MINUS_ONE)))
