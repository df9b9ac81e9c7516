"""High-precision values of trees at one point.

Each thread has its own mpmath context. mpmath's cached constants are computed once at the largest precision that we
use, under a lock, since their cache is not safe against threads that raise its precision. Cost is bounded: the tree is
small, every operation costs microseconds at this precision, and a magnitude that would cost more raises Oversized first.
"""

from __future__ import annotations

import hashlib
import math
import os
import threading
from collections.abc import Mapping
from fractions import Fraction
from functools import cache
from typing import Any

from tossup.verifiers.math import exact
from tossup.verifiers.math.limits import (
    MAX_FACTORIAL,
    MAX_MAGNITUDE,
    MAX_TRIG_BITS,
    Inexact,
    Oversized,
    Undefined,
    Unreadable,
)
from tossup.verifiers.math.tree import (
    Add,
    Based,
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
)

MAX_PRECISION = 14_000


SLACK = 60
"""Bits of the precision that rounding may spoil."""


_local = threading.local()
_warming = threading.Lock()


def _renew_lock() -> None:
    """A forked child may have copied the lock while another thread held it."""
    global _warming
    _warming = threading.Lock()


os.register_at_fork(after_in_child=_renew_lock)


def context(precision: int) -> Any:
    """This thread's mpmath context, set to `precision` bits."""
    ctx = getattr(_local, "context", None)
    if ctx is None:
        import mpmath  # here, because most answers never need it

        with _warming:
            _warm_up()
        ctx = _local.context = mpmath.MPContext()
    ctx.prec = precision
    return ctx


@cache
def _warm_up() -> None:
    """Compute mpmath's cached constants at the largest precision that we use."""
    from mpmath.libmp import libelefun

    for constant in (libelefun.pi_fixed, libelefun.ln2_fixed, libelefun.ln10_fixed, libelefun.e_fixed):
        constant(MAX_PRECISION + 200)


class Evaluator:
    """Values of trees at one point, at one precision."""

    def __init__(self, ctx: Any, values: Mapping[str, Fraction], real: bool) -> None:
        self.ctx = ctx
        self.values = values
        self.real = real
        self.tiny = ctx.mpf(2) ** (SLACK // 2 - ctx.prec)

    def value(self, node: Node) -> Any:
        """The value of a scalar tree.

        Raises:
            Undefined, Oversized: see `limits`. Unreadable: not a scalar.
        """
        ctx = self.ctx
        match node:
            case Num(value, _) | Based(value, _):
                return ctx.mpf(value.numerator) / value.denominator
            case Sym(name):
                return self.symbol(name)
            case Add(items):
                return self.total([self.value(item) for item in items])
            case Mul(items):
                product = ctx.mpf(1)
                for item in items:
                    product = product * self.value(item)
                return product
            case Pow(base, exponent):
                return self.power(base, exponent)
            case Fn(name, args):
                return self.function(name, args)
            case Opaque(name, args, _):
                return self.hashed(name + "|" + "|".join(self.fingerprint(arg) for arg in args))
        raise Unreadable(f"a {type(node).__name__.lower()} where a number should stand")

    def symbol(self, name: str) -> Any:
        """A constant, or the point's value of a letter."""
        ctx = self.ctx
        if name in self.values:
            value = self.values[name]
            return ctx.mpf(value.numerator) / value.denominator
        if name == "pi":
            return +ctx.pi
        if name == "e":
            return +ctx.e
        if name == "i":
            return ctx.mpc(0, 1)
        if name == "deg":
            return ctx.pi / 180
        raise Undefined("infinity in an expression")

    def total(self, terms: list[Any]) -> Any:
        """A sum; what cancels to rounding noise is zero."""
        total = self.ctx.mpf(0)
        for term in terms:
            total = total + term
        largest = max(abs(term) for term in terms)
        return self.ctx.mpf(0) if abs(total) < largest * self.tiny else total

    def power(self, base_node: Node, exponent_node: Node) -> Any:
        """A power, on the real branch where there is one."""
        ctx = self.ctx
        base, exponent = self.value(base_node), self.value(exponent_node)
        if base == 0:
            if isinstance(exponent, ctx.mpc) or exponent <= 0:
                raise Undefined("zero to a power that is not positive")
            return base
        size = abs(exponent) * max(1, abs(ctx.mag(base)))
        if size > MAX_MAGNITUDE:
            raise Oversized("a power tower")
        if isinstance(exponent, ctx.mpf) and ctx.isint(exponent):
            return base ** int(exponent)
        if isinstance(base, ctx.mpf) and base < 0:
            try:
                written = exact.evaluate(exponent_node, {})
            except Inexact:
                written = Fraction(1, 2)
            if written.denominator % 2:
                root = (-base) ** exponent
                return -root if written.numerator % 2 else root
            if self.real:
                raise Undefined("an even root of a negative number")
        return ctx.power(base, exponent)

    def function(self, name: str, args: tuple[Node, ...]) -> Any:
        """A known function of known value."""
        ctx = self.ctx
        x = self.value(args[0])
        magnitude = ctx.mag(x) if x != 0 else 0
        if name == "log":
            return self.logarithm(x) / self.logarithm(self.value(args[1])) if len(args) > 1 else self.logarithm(x)
        if name == "ln":
            return self.logarithm(x)
        if name == "abs":
            return abs(x)
        if name in ("floor", "ceiling"):
            if magnitude > ctx.prec - SLACK:
                raise Oversized("a rounding of a huge number")
            return ctx.floor(x) if name == "floor" else ctx.ceil(x)
        if name in ("factorial", "binomial"):
            return self.combinatorial(name, [x, *(self.value(arg) for arg in args[1:])])
        if magnitude > (40 if name.endswith("h") else MAX_TRIG_BITS):
            raise Oversized("a huge argument")
        if self.real and name in ("arcsin", "arccos") and abs(x) > 1:
            raise Undefined("an inverse sine beyond one")
        return self.trigonometric(name, x)

    def logarithm(self, x: Any) -> Any:
        """The natural logarithm."""
        if x == 0:
            raise Undefined("the logarithm of zero")
        if self.real and isinstance(x, self.ctx.mpf) and x < 0:
            raise Undefined("the logarithm of a negative number")
        return self.ctx.log(x)

    def trigonometric(self, name: str, x: Any) -> Any:
        """Circular and hyperbolic functions and their inverses."""
        ctx = self.ctx
        short = {
            "arcsin": "asin",
            "arccos": "acos",
            "arctan": "atan",
            "arccot": "acot",
            "arcsec": "asec",
            "arccsc": "acsc",
        }
        reciprocal = {"cot": ("cos", "sin"), "sec": ("", "cos"), "csc": ("", "sin"), "tan": ("sin", "cos")}
        if name in reciprocal:
            top, bottom = reciprocal[name]
            below = self.flush(getattr(ctx, bottom)(x))
            if below == 0:
                raise Undefined(f"a pole of {name}")
            return (self.flush(getattr(ctx, top)(x)) if top else ctx.mpf(1)) / below
        call = short.get(name, name.replace("arc", "a"))
        return self.flush(getattr(ctx, call)(x))

    def flush(self, x: Any) -> Any:
        """Rounding noise around zero is zero."""
        return self.ctx.mpf(0) if abs(x) < self.tiny else x

    def combinatorial(self, name: str, args: list[Any]) -> Any:
        """Factorials and binomials of natural numbers."""
        ctx = self.ctx
        if any(not isinstance(arg, ctx.mpf) or not ctx.isint(arg) or arg < 0 for arg in args):
            raise Undefined("a factorial of something that is no natural number")
        if any(arg > MAX_FACTORIAL for arg in args):
            raise Oversized(f"a factorial beyond {MAX_FACTORIAL:,}")
        whole = [int(arg) for arg in args]
        return ctx.mpf(math.factorial(whole[0]) if name == "factorial" else math.comb(*whole))

    def fingerprint(self, node: Node) -> str:
        """A text that is equal for equal arguments of an unknown function or of an operator."""
        match node:
            case Chain(items, ops):
                return "".join(self.fingerprint(item) + op for item, op in zip(items, (*ops, ""), strict=True))
            case Group(opening, closing, items, _):
                return opening + ",".join(self.fingerprint(item) for item in items) + closing
            case Matrix(rows, _):
                return ";".join(",".join(self.fingerprint(entry) for entry in row) for row in rows)
            case Text(words):
                return words
            case Sym("oo"):
                return "oo"
        return str(self.ctx.nstr(self.value(node), 25))

    def hashed(self, key: str) -> Any:
        """A number between 1 and 2 that stands for an unknown value."""
        return 1 + self.ctx.mpf(digest(key, 0)) / (1 << 64)


def digest(name: str, salt: int) -> int:
    """64 bits that depend on the name alone."""
    return int.from_bytes(hashlib.blake2b(f"{salt}:{name}".encode(), digest_size=8).digest())
