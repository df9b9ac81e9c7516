"""Tokens -> tree: a recursive-descent parser for final answers.

    answer   = item { separator item }                       separator: , ; and or \\\\
    item     = chain [ words ]                               words become the unit of a Quantity
    chain    = [ relation ] set { relation set }             = < > <= >= != in approx :
    set      = meet { cup meet | setminus meet }             meet = sum { cap sum }
    sum      = [ + - +- ] product { (+ - +- -+) product }
    product  = power { (* /) power | power }                 juxtaposition multiplies
    power    = atom { ^ exponent | ! | % | ' | subscript }

Depth is bounded by `MAX_DEPTH`, so the parser's own recursion is. Nothing is evaluated here, and there is no name that
reaches Python: an identifier is a letter, a known function, or unreadable.
"""

from __future__ import annotations

from tossup.verifiers.math.factors import Factors, times
from tossup.verifiers.math.lexer import END
from tossup.verifiers.math.limits import MAX_ITEMS, Oversized, Unreadable
from tossup.verifiers.math.quantities import UNIT_SYMBOLS, compound, unit
from tossup.verifiers.math.tree import (
    ZERO,
    Add,
    Chain,
    Fn,
    Group,
    Node,
    Num,
    Opaque,
    PlusMinus,
    Quantity,
    Ratio,
    Sym,
    Text,
    Union,
    divide,
    negate,
)
from tossup.verifiers.math.words import SCALES

_RELATIONS = {
    "=": "=", "==": "=", "<": "<", ">": ">", "<=": "<=", ">=": ">=", "le": "<=", "ge": ">=", "ne": "!=", "!=": "!=",
    "approx": "~", "sim": "~", "equiv": "=", "in": "in", "to": "to", "=>": "to", "->": "to",
}  # fmt: skip
_SEPARATORS = {",": ",", ";": ";", "and": "and", "or": "or", "\\\\": ",", "&": ","}


class Parser(Factors):
    """The rules down to a product, one method each; those of a factor are in `factors`."""

    def answer(self) -> Node:
        """The whole text as one tree."""
        node = self.sequence()
        if self.token is not END:
            raise Unreadable(f"cannot read on at {self.token.value!r}")
        return node

    def sequence(self) -> Node:
        """Items between separators; one item alone is itself."""
        items, separator = [self.item()], ""
        while (self.token.value in _SEPARATORS and self.token.kind not in ("text", "end")) or compound(self):
            first = "," if self.token.kind == "num" else _SEPARATORS[self.take().value]
            while self.token.value in _SEPARATORS and self.token.kind != "text":
                first = _stronger(first, _SEPARATORS[self.take().value])
            if self.token is END or self.at(")", "]", "}", "\\}", "rangle"):
                break
            separator = _stronger(separator, first)
            items.append(self.item())
            if len(items) > MAX_ITEMS:
                raise Oversized(f"more than {MAX_ITEMS} members")
        return items[0] if len(items) == 1 else Group("", "", tuple(items), separator or ",")

    def item(self) -> Node:
        """One member with its currency before and its unit after."""
        before = UNIT_SYMBOLS[self.take().value] if self.token.value in ("$", "euro", "pounds", "yen") else ""
        if self.at("-", "+") and self.following.value in ("$", "euro", "pounds"):
            sign = self.take().value
            before = UNIT_SYMBOLS[self.take().value]
            value = self.chain()
            value = negate(value) if sign == "-" else value
        else:
            value = self.chain()
        if self.token.kind == "text" and isinstance(value, Num) and (scale := SCALES.get(self.token.value.lower())):
            self.take()
            value = Num(value.value * scale)
        words = unit(self)
        if words.lower() in ("am", "pm") and isinstance(value, Num):
            return Ratio((value, ZERO), words.lower(), clock=True)
        joined = " ".join(part for part in (before, words) if part)
        return Quantity(value, joined) if joined and not isinstance(value, Text) else value

    def chain(self) -> Node:
        """Values joined by relations, or by colons."""
        items: list[Node] = []
        ops: list[str] = []
        if (op := self.relation()) is not None:
            items, ops = [Sym("")], [op]
        items.append(self.ratio())
        while (op := self.relation()) is not None:
            ops.append(op)
            items.append(self.ratio())
        return items[0] if not ops else Chain(tuple(items), tuple(ops))

    def relation(self) -> str | None:
        """The relation at this place, read; None when there is none."""
        token = self.token
        if token.kind == "cmd" and token.value == "not" and self.following.value == "=":
            self.index += 2
            return "!="
        if token.kind not in ("op", "cmd") or token.value not in _RELATIONS:
            return None
        self.take()
        if token.value in ("<", ">", "le", "ge") and self.accept("="):
            return token.value + "="
        return _RELATIONS[token.value]

    def ratio(self) -> Node:
        """`a : b : c`, perhaps with a.m. or p.m.; words followed by a colon are a label and vanish."""
        first = self.union()
        if not self.at(":"):
            return first
        items, clock = [first], isinstance(first, Num)
        while self.accept(":"):
            clock = clock and self.token.kind == "num" and len(self.token.value) == 2
            items.append(self.union())
        suffix = ""
        if self.token.kind == "text" and self.token.value.lower().split()[0] in ("am", "pm"):
            suffix = self.take().value.lower().split()[0]
        if isinstance(first, Text):
            return items[1] if len(items) == 2 else Ratio(tuple(items[1:]))
        return Ratio(tuple(items), suffix, clock)

    def union(self) -> Node:
        """Sets joined by union or difference."""
        items = [self.intersection()]
        minus = False
        while self.at("cup", "setminus") or (self._capital_u() and bool(self.tokens)):
            minus = self.take().value == "setminus" or minus
            items.append(self.intersection())
        return items[0] if len(items) == 1 else Union(tuple(items), minus)

    def intersection(self) -> Node:
        """Sets joined by intersection: a name such as `A \\cap B`, or an operator that is not worked out."""
        items = [self.sum()]
        while self.accept("cap"):
            items.append(self.sum())
        return items[0] if len(items) == 1 else Opaque("cap", tuple(items), operator=True)

    def sum(self) -> Node:
        """Terms with their signs."""
        terms: list[Node] = []
        while True:
            sign = ""
            while self.at("+", "-", "pm", "mp"):
                value = self.take().value
                if value in ("pm", "mp"):
                    sign = value
                elif value == "-":
                    sign = {"": "-", "-": ""}.get(sign, sign)
            term = self.product()
            if sign == "-" and terms and isinstance(term, Group) and term.open == "{":
                return Union((terms[0] if len(terms) == 1 else Add(tuple(terms)), term), True)
            if sign == "-":
                term = negate(term)
            elif sign:
                term = PlusMinus(term, sign == "mp")
            terms.append(term)
            if not self.at("+", "-", "pm", "mp"):
                return terms[0] if len(terms) == 1 else Add(tuple(terms))

    def product(self) -> Node:
        """Factors, divided or multiplied."""
        node = self.mixed()
        while True:
            if self.accept("*", "cdot"):
                while self.accept("*", "cdot"):
                    continue
                node = times(node, self.signed())
            elif self.accept("/"):
                node = divide(node, self.signed())
            elif self.accept("over"):
                node = divide(node, self.product())
            elif self.accept("choose"):
                node = Fn("binomial", (node, self.product()))
            elif self.accept("bmod", "mod"):
                node = Opaque("mod", (node, self.power()), operator=True)
            elif self.starts_factor():
                node = times(node, self.power())
            else:
                return node


def _stronger(old: str, new: str) -> str:
    """How a list of mixed separators counts: `or` and `and` over semicolons over commas."""
    order = ("", ",", ";", "and", "or")
    return max(old, new, key=order.index)
