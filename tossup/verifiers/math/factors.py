"""The rules of a factor: an atom with its exponents, factorials and degrees, a mixed number, the argument of a command."""

from __future__ import annotations

from abc import ABC, abstractmethod
from fractions import Fraction

from tossup.verifiers.math import atoms
from tossup.verifiers.math.cursor import Cursor
from tossup.verifiers.math.lexer import Token
from tossup.verifiers.math.limits import Unreadable
from tossup.verifiers.math.operators import STARTS
from tossup.verifiers.math.tree import (
    MINUS_ONE,
    SCALARS,
    Chain,
    Fn,
    Group,
    Matrix,
    Mul,
    Node,
    Num,
    Pow,
    Quantity,
    Sym,
    Text,
    Union,
    negate,
)

_STARTS = frozenset({"(", "[", "{", "\\{", "\\|"})


class Factors(Cursor, ABC):
    """The lower half of the grammar, one method a rule. Braces lead back up, to rules that the whole grammar adds."""

    @abstractmethod
    def sum(self) -> Node:
        """Terms with their signs."""

    @abstractmethod
    def product(self) -> Node:
        """Factors, divided or multiplied."""

    @abstractmethod
    def chain(self) -> Node:
        """Values joined by relations, or by colons."""

    @abstractmethod
    def sequence(self) -> Node:
        """Items between separators."""

    def signed(self) -> Node:
        """A factor with a sign of its own, as in `2 * -3`."""
        if self.accept("-"):
            return negate(self.power())
        self.accept("+")
        return self.power()

    def mixed(self) -> Node:
        """A factor, or a mixed number such as `1\\frac{1}{2}` and `1 1/2`."""
        node = self.power()
        if not isinstance(node, Num) or node.digits is not None or node.value.denominator != 1:
            return node
        if self.at("frac"):
            mark = self.index
            fraction = self.power()
            if (part := _proper(fraction)) is not None and part < 1:
                return Num(node.value + part)
            self.index = mark
        elif self.token.kind == "num" and self.following == Token("op", "/"):
            top, bottom = self.take(), self.tokens[self.index + 1]
            self.index += 2
            if (
                bottom.kind != "num"
                or not (top.value.isdigit() and bottom.value.isdigit())
                or int(top.value) >= int(bottom.value)
            ):
                raise Unreadable("two numbers side by side")
            return Num(node.value + Fraction(int(top.value), int(bottom.value)))
        return node

    def starts_factor(self) -> bool:
        """Whether the next token may multiply what came before by standing next to it."""
        token = self.token
        if token.kind in ("id", "fn"):
            return not self._capital_u()
        if token.kind == "num":
            return self.index > 0 and self.tokens[self.index - 1].value in (")", "!", "i", "pi")
        if token.kind == "cmd":
            return token.value in STARTS
        if token.kind == "op":
            if token.value == "|":
                return self.bars == 0
            return token.value in _STARTS and not (token.value == "(" and self.following.kind == "text")
        return False

    def atom(self) -> Node:
        """One indivisible part."""
        return atoms.atom(self)

    def power(self) -> Node:
        """An atom with exponents, factorials and primes."""
        self.enter()
        node = self.atom()
        while True:
            if self.at("^", "**"):
                if self.following.value == "circ" or self._degree_in_braces():
                    node = times(node, self._degrees())
                    continue
                self.take()
                node = Pow(node, self.exponent())
            elif self.at("circ"):
                self.take()
                node = times(node, Sym("deg"))
            elif self.at("!"):
                self.take()
                node = Fn("factorial", (node,))
            elif self.at("_"):
                node = atoms.subscript(self, node)
            else:
                self.leave()
                return node

    def _degree_in_braces(self) -> bool:
        """Whether `^{\\circ}` follows."""
        ahead = [token.value for token in self.tokens[self.index + 1 : self.index + 4]]
        return ahead == ["{", "circ", "}"]

    def _degrees(self) -> Node:
        """Read a degree sign."""
        self.index += 2 if self.following.value == "circ" else 4
        return Sym("deg")

    def exponent(self) -> Node:
        """What stands after `^`: a braced expression, or one signed factor."""
        self.enter()
        if self.accept("{"):
            node = self.sum()
            self.expect("}")
        elif self.accept("-"):
            node = negate(self.exponent())
        else:
            self.accept("+")
            node = self.atom()
            if self.at("^", "**"):
                self.take()
                node = Pow(node, self.exponent())
        self.leave()
        return node

    def argument(self) -> Node:
        """An argument of a command: braces, or one token (one digit of a number, as LaTeX reads it)."""
        self.enter()
        if self.accept("{"):
            node = self.sequence()
            self.expect("}")
        elif self.token.kind == "num" and self.token.value.isdigit():
            value = self.token.value
            if len(value) > 1:
                self.tokens[self.index] = Token("num", value[1:])
            else:
                self.take()
            node = Num(Fraction(int(value[0])))
        else:
            node = self.atom()
        self.leave()
        return node

    def _capital_u(self) -> bool:
        """A letter U between two brackets is a union."""
        before = self.tokens[self.index - 1].value if self.index else ""
        return self.token == Token("id", "U") and before in (")", "]") and self.following.value in ("(", "[")


def times(left: Node, right: Node) -> Node:
    """A product without needless nesting."""
    if isinstance(right, Matrix) and isinstance(left, SCALARS) and not right.bars:
        return Matrix(tuple(tuple(times(left, entry) for entry in row) for row in right.rows))
    if isinstance(left, (Group, Matrix, Chain, Union, Text, Quantity)) or isinstance(
        right, (Group, Chain, Union, Text, Quantity)
    ):
        raise Unreadable("a product of things that are not numbers")
    if isinstance(left, Mul) and left.items[0] is not MINUS_ONE:
        return Mul((*left.items, right))
    return Mul((left, right))


def _proper(node: Node) -> Fraction | None:
    """The value of a fraction of two written natural numbers."""
    match node:
        case Mul((Num(top, None), Pow(Num(bottom, None), exponent))) if (
            exponent is MINUS_ONE and bottom > 0 and top >= 0
        ):
            return top / bottom
    return None
