"""The innermost parts of the grammar: numbers, brackets, functions, fractions, roots, matrices and operators."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from tossup.verifiers.math.brackets import bars, environment, group
from tossup.verifiers.math.lexer import END
from tossup.verifiers.math.limits import Unreadable
from tossup.verifiers.math.numerals import number
from tossup.verifiers.math.operators import fraction, function, operator, root
from tossup.verifiers.math.tables import OPERATORS, SYMBOLS
from tossup.verifiers.math.tree import (
    SCALARS,
    Chain,
    Fn,
    Group,
    Mul,
    Node,
    Num,
    Opaque,
    Sym,
    Text,
    negate,
    symbols,
)
from tossup.verifiers.math.words import bare_words, names

if TYPE_CHECKING:
    from tossup.verifiers.math.factors import Factors

_APPLIED = frozenset("fghFGH") | {"phi", "psi", "Phi", "varphi"}
_EMPTY = Group("{", "}", ())
WORDS: dict[str, Node] = {
    "all real numbers": Sym("RR"),
    "all reals": Sym("RR"),
    "real numbers": Sym("RR"),
    "no solution": _EMPTY,
    "no solutions": _EMPTY,
    "no real solution": _EMPTY,
    "no real solutions": _EMPTY,
    "empty set": _EMPTY,
    "infinity": Sym("oo"),
    "positive infinity": Sym("oo"),
    "negative infinity": negate(Sym("oo")),
}
"""Words that name a set."""

_INTRODUCES = re.compile(r"(?:[:=]|\b(?:is|are|equals|be))\s*\Z")
_ASKS = re.compile(r"\b(?:what|which|how|find|compute|evaluate|solve|not|never)\b", re.IGNORECASE)
_SEPARATORS = frozenset({",", ";", "and", "or", "=", "\\\\", "{", "&"})
# Names that an answer would call as a program does. They are no products of letters.
_CALLS = names("id int len str sum set map any all hex oct bin ord chr dir pow max min abs gcd lcm det")


def atom(p: Factors) -> Node:
    """One indivisible part."""
    token = p.take()
    kind, value = token
    if kind == "num":
        return number(p, value)
    if kind == "id":
        return letter(p, value)
    if kind == "fn":
        return function(p, value)
    if kind == "text":
        return words(p, value)
    if kind == "op":
        if value in ("(", "[", "{", "\\{"):
            return group(p, value)
        if value in ("|", "\\|"):
            return bars(p, value)
        if value == "...":
            return Sym("...")
        if value == "'":
            raise Unreadable("a quotation mark")
    elif kind == "cmd":
        return command(p, value)
    raise Unreadable(f"{value!r} where a value should stand" if token is not END else "the answer breaks off")


def letter(p: Factors, name: str) -> Node:
    """A variable, a constant, or the application of a function letter."""
    while p.accept("'"):
        name += "'"
    if name in ("RR", "ZZ", "NN", "QQ", "CC"):
        return Sym(name)
    if p.at("(") and p.index > 1:
        _forbid_call(p)
    if name[0] in _APPLIED and [t.value for t in p.tokens[p.index : p.index + 6]] == ["^", "{", "-", "1", "}", "("]:
        p.index += 5
        return applied(p, name + "^-1")
    if p.at("("):
        if (end := _defines(p, name)) is not None:
            inside = "".join(token.value for token in p.tokens[p.index + 1 : end])
            p.index = end + 1
            return Opaque(name, (Text(inside),))
        if name == "C" and (chosen := _combination(p)) is not None:
            return chosen
        if name[0] in _APPLIED or name in _APPLIED:
            return applied(p, name)
        if p.index == 1 and name.isupper() and len(name) == 1 and (point := _point(p)) is not None:
            return point
    return Sym(name)


def _point(p: Factors) -> Node | None:
    """The coordinates of a point with its letter, `P(3, -4)`, where that is the whole answer; else None."""
    start = p.index
    inner = group(p, p.take().value)
    if p.token is END and isinstance(inner, Group) and inner.open == "(":
        return inner
    p.index = start
    return None


def _combination(p: Factors) -> Node | None:
    """`C(10, 3)` and `C(2n, n)`: the number of combinations; None when other things stand in the brackets."""
    start = p.index
    inner = group(p, p.take().value)
    if isinstance(inner, Group) and inner.open == "(" and len(inner.items) == 2:
        natural = [isinstance(item, Num) and item.value.denominator == 1 and item.value >= 0 for item in inner.items]
        if all(natural) or (symbols(inner.items[0]) and all(isinstance(item, SCALARS) for item in inner.items)):
            return Fn("binomial", inner.items)
    p.index = start
    return None


def _defines(p: Factors, name: str) -> int | None:
    """Where the parenthesis closes in `y(t) =` and `P(X > 2) =`, names of what the equation gives; else None.

    A small letter is a name only before letters alone: `x(x+1) = 6` is an equation.
    """
    if p.index > 1 and p.tokens[p.index - 2].value not in _SEPARATORS:
        return None
    depth = 0
    for index in range(p.index, min(len(p.tokens) - 1, p.index + 24)):
        token = p.tokens[index]
        depth += (token.value == "(") - (token.value == ")")
        if depth == 0:
            return index if p.tokens[index + 1].value in ("=", "approx", "equiv") else None
        if (
            name[0].islower()
            and index > p.index
            and token.kind != "id"
            and token.value not in (",", "theta", "phi", "tau")
        ):
            return None
    return None


def _forbid_call(p: Factors) -> None:
    """Refuse `len(...)` and the like, which the lexer split into letters."""
    run, index = "", p.index - 1
    while index >= 0 and p.tokens[index].kind == "id" and len(run) < 4:
        run = p.tokens[index].value + run
        index -= 1
    if any(run.endswith(name) for name in _CALLS):
        raise Unreadable("program text")


def applied(p: Factors, name: str) -> Node:
    """`f(x)`: an unknown function of its arguments."""
    inner = group(p, p.take().value)
    arguments = inner.items if isinstance(inner, Group) else (inner,)
    return Opaque(name, arguments)


def words(p: Factors, text: str) -> Node:
    """Words at the place of a value: a name, a label, or an answer in words."""
    parts = [text]
    while p.token.kind == "text":
        parts.append(p.take().value)
    joined = " ".join(parts)
    if (known := WORDS.get(bare_words(joined).removeprefix("there is ").removeprefix("there are "))) is not None:
        return known
    if p.token is END or p.token.value in ("=", ":", ",", ";", ")", "}", "\\}", "and", "or", "&", "\\\\", "approx"):
        return Text(joined)
    if joined == "Matrix" and p.at("("):
        return p.power()
    if _INTRODUCES.search(joined) and not _ASKS.search(joined) and not any(c.isdigit() for c in joined):
        return p.signed()
    raise Unreadable("words before the value")


def command(p: Factors, name: str) -> Node:
    """A LaTeX command at the place of a value."""
    if name == "frac":
        return fraction(p)
    if name == "sqrt":
        return root(p)
    if name == "pi":
        return Sym("pi")
    if name == "infty":
        return Sym("oo")
    if name == "emptyset":
        return Group("{", "}", ())
    if name == "RR":
        return Sym("RR")
    if name == "binom":
        return Fn("binomial", (p.argument(), p.argument()))
    if name in ("lfloor", "lceil"):
        inner = p.sum()
        p.expect("rfloor" if name == "lfloor" else "rceil")
        return Fn("floor" if name == "lfloor" else "ceiling", (inner,))
    if name == "langle":
        return group(p, name)
    if name == "overline":
        return Opaque("overline", (p.argument(),))
    if name == "boxed":
        return p.argument()
    if name == "begin":
        return environment(p)
    if name in OPERATORS:
        return operator(p, name)
    if name in SYMBOLS:
        return letter(p, name)
    raise Unreadable(f"\\{name} in an answer")


def subscript(p: Factors, node: Node) -> Node:
    """A subscript becomes part of the name; a computed one makes an indexed family."""
    p.take()
    p.enter()
    index = _label(p) or (p.argument() if p.at("{") else p.atom())
    p.leave()
    if not isinstance(node, Sym):
        raise Unreadable("a subscript of something that is no letter")
    label = index.name if isinstance(index, Sym) else index.words if isinstance(index, Text) else None
    if isinstance(index, Num) and index.value.denominator == 1:
        label = str(index.value)
    if isinstance(index, Opaque) and index.operator:
        raise Unreadable("an operator in a subscript")
    if label is not None:
        named = Sym(f"{node.name}_{label}")
        if p.at("(") and node.name in _APPLIED:
            return applied(p, named.name)
        return named
    if isinstance(index, Mul) and all(isinstance(item, Sym) for item in index.items):
        return Sym(node.name + "_" + "".join(item.name for item in index.items if isinstance(item, Sym)))
    if isinstance(index, (Group, Chain)):
        return Opaque(node.name, index.items)
    return Opaque(node.name, (index,))


def _label(p: Factors) -> Node | None:
    """A subscript that is only a word or the name of an operator, as in `I_{\\max}`."""
    braced = p.at("{")
    index = p.index + braced
    token = p.tokens[index]
    if token.kind in ("text", "fn") or (token.kind == "cmd" and token.value in OPERATORS):
        if braced and p.tokens[index + 1].value != "}":
            return None
        p.index = index + 1 + braced
        return Text(token.value)
    return None
