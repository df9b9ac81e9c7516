"""The innermost parts of the grammar: numbers, brackets, functions, fractions, roots, matrices and operators."""

from __future__ import annotations

import re
from fractions import Fraction
from typing import TYPE_CHECKING

from tossup.verifiers.math.lexer import END, OPERATORS, SYMBOLS, Token
from tossup.verifiers.math.limits import MAX_DIGITS, Oversized, Unreadable
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
    Union,
    divide,
)
from tossup.verifiers.math.words import bare_words

if TYPE_CHECKING:
    from tossup.verifiers.math.grammar import Parser

STARTS = (
    frozenset({"frac", "sqrt", "binom", "lfloor", "lceil", "langle", "overline", "begin", "infty", "emptyset", "stackrel"})
    | OPERATORS
    | SYMBOLS
)
_CLOSERS = {"(": (")", "]"), "[": ("]", ")"), "\\{": ("\\}", "}"), "{": ("}",), "langle": ("rangle",)}
_ALIASES = {"asin": "arcsin", "acos": "arccos", "atan": "arctan", "asinh": "arcsinh", "acosh": "arccosh", "atanh": "arctanh", "lg": "log"}
_INVERSES = {"sin": "arcsin", "cos": "arccos", "tan": "arctan", "cot": "arccot", "sec": "arcsec", "csc": "arccsc", "sinh": "arcsinh"}
_APPLIED = frozenset("fghFGH") | {"phi", "psi", "Phi", "varphi"}
_MATRICES = frozenset({"pmatrix", "bmatrix", "Bmatrix", "matrix", "vmatrix", "Vmatrix", "array", "smallmatrix"})
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
}
"""Words that name a set."""

_INTRODUCES = re.compile(r"(?:[:=]|\b(?:is|are|equals|be))\s*\Z")
_ASKS = re.compile(r"\b(?:what|which|how|find|compute|evaluate|solve|not|never)\b", re.IGNORECASE)
_SEPARATORS = frozenset({",", ";", "and", "or", "=", "\\\\", "{", "&"})
# Names that an answer would call as a program does. They are no products of letters.
_CALLS = frozenset("id int len str sum set map any all hex oct bin ord chr dir pow max min abs gcd lcm det".split())


def atom(p: Parser) -> Node:
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


def number(p: Parser, text: str) -> Node:
    """A number, a repeating decimal, or a numeral in another base."""
    mantissa, _, power = text.lower().partition("e")
    if power and abs(int(power)) > MAX_DIGITS:
        raise Oversized(f"a number with {power} in its exponent")
    mantissa = "0." if mantissa == "." else mantissa
    digits = len(mantissa.replace(".", "").lstrip("0")) if "." in mantissa else None
    value = Fraction(mantissa) * Fraction(10) ** int(power or 0)
    if p.at("overline", "dot") or (digits is not None and p.at("(") and p.following.kind == "num" and p.tokens[p.index + 2].value == ")"):
        return repeating(p, mantissa)
    if p.at("...") and digits is not None:
        return ellipsis(p, mantissa)
    if p.at("_"):
        return in_base(p, text)
    if p.token.kind == "num" and p.following.value != "/":
        raise Unreadable("two numbers side by side")
    return Num(value, digits)


def repeating(p: Parser, mantissa: str) -> Node:
    """`0.1\\overline{6}` and `0.1(6)`."""
    p.take()
    braces = p.accept("{")
    block = p.take().value
    if braces:
        p.expect("}")
    else:
        p.accept(")")
    if not block.isdigit() or "." not in mantissa and not mantissa.endswith("."):
        raise Unreadable("a repeating block that is not digits")
    decimals = len(mantissa.partition(".")[2])
    tail = Fraction(int(block), (10 ** len(block) - 1) * 10**decimals)
    return Num(Fraction(mantissa) + tail)


def ellipsis(p: Parser, mantissa: str) -> Node:
    """`0.333...`: the shortest block that the digits repeat at least twice; otherwise a rounded decimal."""
    p.take()
    whole, _, decimals = mantissa.partition(".")
    for lead in range(len(decimals)):
        for size in range(1, (len(decimals) - lead) // 2 + 1):
            block, rest = decimals[lead : lead + size], decimals[lead:]
            if len(rest) >= max(3, 2 * size) and all(rest[i] == block[i % size] for i in range(len(rest))):
                head = Fraction(int(whole + decimals[:lead] or "0"), 10**lead)
                return Num(head + Fraction(int(block), (10**size - 1) * 10**lead))
    raise Unreadable("a decimal that breaks off")


def in_base(p: Parser, text: str) -> Node:
    """`204_5`: the digits must exist in the base."""
    p.take()
    base = p.argument() if p.at("{") else atom(p)
    if isinstance(base, Text) and base.words.lower() in ("ten", "two", "eight", "five", "sixteen"):
        base = Num(Fraction({"ten": 10, "two": 2, "eight": 8, "five": 5, "sixteen": 16}[base.words.lower()]))
    if not isinstance(base, Num) or base.value.denominator != 1 or not 2 <= base.value <= 36 or not text.isdigit():
        raise Unreadable("a subscript of a number that is no base")
    radix = int(base.value)
    if len(text) > 1_000:
        raise Oversized(f"a numeral of {len(text):,} digits")
    if any(int(digit) >= radix for digit in text):
        raise Unreadable(f"a digit that base {radix} lacks")
    value = Fraction(int(text, radix))
    return Num(value) if radix == 10 else Based(value, radix)


def letter(p: Parser, name: str) -> Node:
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
        if name[0] in _APPLIED or name in _APPLIED:
            return applied(p, name)
    return Sym(name)


def _defines(p: Parser, name: str) -> int | None:
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
        if name[0].islower() and index > p.index and token.kind != "id" and token.value not in (",", "theta", "phi", "tau"):
            return None
    return None


def _forbid_call(p: Parser) -> None:
    """Refuse `len(...)` and the like, which the lexer split into letters."""
    run, index = "", p.index - 1
    while index >= 0 and p.tokens[index].kind == "id" and len(run) < 4:
        run = p.tokens[index].value + run
        index -= 1
    if any(run.endswith(name) for name in _CALLS):
        raise Unreadable("program text")


def applied(p: Parser, name: str) -> Node:
    """`f(x)`: an unknown function of its arguments."""
    inner = group(p, p.take().value)
    arguments = inner.items if isinstance(inner, Group) else (inner,)
    return Opaque(name, arguments)


def words(p: Parser, text: str) -> Node:
    """Words at the place of a value: a name, a label, or an answer in words."""
    parts = [text]
    while p.token.kind == "text":
        parts.append(p.take().value)
    joined = " ".join(parts)
    if (known := WORDS.get(bare_words(joined))) is not None:
        return known
    if p.token is END or p.token.value in ("=", ":", ",", ";", ")", "}", "\\}", "and", "or", "&", "\\\\", "approx"):
        return Text(joined)
    if _INTRODUCES.search(joined) and not _ASKS.search(joined) and not any(c.isdigit() for c in joined):
        return p.power()
    raise Unreadable("words before the value")


def group(p: Parser, opening: str) -> Node:
    """What stands between brackets: a value, a tuple, an interval, a set, or nested rows."""
    p.enter()
    outer_bars, p.bars = p.bars, 0
    closers = _CLOSERS[opening]
    if p.at(*closers):
        p.take()
        p.leave()
        p.bars = outer_bars
        return bracketed(opening, closers[0], (), ",")
    builder = opening == "\\{" and _skip_builder(p)
    inner = p.sequence()
    if not p.at(*closers):
        raise Unreadable(f"an unclosed {opening!r}")
    closing = p.take().value
    p.leave()
    p.bars = outer_bars
    if builder:
        return inner
    if isinstance(inner, Group) and not inner.open:
        return bracketed(opening, closing, inner.items, inner.ordered_by)
    return bracketed(opening, closing, (inner,), ",")


def _skip_builder(p: Parser) -> bool:
    """Read the head of `{x | ...}` or `{x in R : ...}`, whose condition alone says what the set is."""
    values = [token.value for token in p.tokens[p.index : p.index + 4]]
    if p.token.kind != "id":
        return False
    if values[1] in ("|", ":"):
        p.index += 2
        return True
    if values[1] == "in" and values[2] == "RR" and values[3:] in (["|"], [":"]):
        p.index += 4
        return True
    return False


def bracketed(opening: str, closing: str, items: tuple[Node, ...], separator: str) -> Node:
    """The meaning of a bracket pair around these items."""
    if opening in ("\\{", "{"):
        if opening == "{" and len(items) == 1:
            return items[0]
        if opening == "{" and not items:
            raise Unreadable("empty braces")
        return Group("{", "}", items, separator)
    if opening == "langle":
        return Group("(", ")", items, separator)
    if len(items) == 1 and (opening, closing) in (("(", ")"), ("[", "]")):
        return items[0]
    if not items:
        raise Unreadable("empty brackets")
    if opening == "[" and all(isinstance(item, Group) and item.open == "[" for item in items) and closing == "]":
        rows = tuple(item.items for item in items if isinstance(item, Group))
        if len({len(row) for row in rows}) == 1 and len(rows) > 1:
            return Matrix(rows)
    if len(items) == 1:
        raise Unreadable("brackets that do not match")
    return Group(opening, closing, items, separator)


def bars(p: Parser, mark: str) -> Node:
    """An absolute value or a norm."""
    p.enter()
    p.bars += 1
    inner = p.sum()
    p.bars -= 1
    p.expect(mark)
    p.leave()
    return Fn("abs", (inner,)) if mark == "|" else Opaque("norm", (inner,), operator=True)


def function(p: Parser, name: str) -> Node:
    """A named function with its power, base and argument."""
    name = _ALIASES.get(name, name)
    p.enter()
    power: Node | None = None
    base: Node | None = None
    while p.at("^", "_"):
        if p.take().value == "^":
            power = p.exponent()
        else:
            base = _script(p)
    if isinstance(power, Num) and power.value == -1 and name in _INVERSES:
        name, power = _INVERSES[name], None
    argument = _function_argument(p)
    p.leave()
    if name == "log" and base is not None:
        node: Node = Fn("log", (argument, base))
    elif name in ("exp",):
        node = Pow(Sym("e"), argument)
    elif name in ("sqrt", "cbrt"):
        node = Pow(argument, Num(Fraction(1, 2 if name == "sqrt" else 3)))
    else:
        node = Fn(name, (argument,))
    return node if power is None else Pow(node, power)


def _script(p: Parser) -> Node:
    """A subscript: braces, or one number or letter, whatever stands next to it."""
    if p.at("{"):
        return p.argument()
    if p.token.kind == "num":
        return Num(Fraction(p.take().value))
    return atom(p)


def _function_argument(p: Parser) -> Node:
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
        if p.token.kind == "id" or (p.token.kind == "cmd" and p.token.value in STARTS and p.token.value not in OPERATORS):
            factors.append(p.power())
        elif p.at("/") and p.following.kind == "num":
            p.take()
            factors.append(Pow(p.power(), Num(Fraction(-1))))
        else:
            return factors[0] if len(factors) == 1 else Mul(tuple(factors))


def command(p: Parser, name: str) -> Node:
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


def fraction(p: Parser) -> Node:
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


def root(p: Parser) -> Node:
    """`\\sqrt[n]{a}` and `\\sqrt 2`."""
    degree: Node = Num(Fraction(2))
    if p.accept("["):
        degree = p.sum()
        p.expect("]")
    p.enter()
    if p.at("{", "("):
        inner = group(p, p.take().value)
    else:
        inner = atom(p)
    p.leave()
    if isinstance(inner, (Group, Chain, Union, Text, Matrix)):
        raise Unreadable("a root of something that is no number")
    if isinstance(degree, Num) and degree.value > 0:
        return Pow(inner, Num(1 / degree.value))
    return Pow(inner, Pow(degree, Num(Fraction(-1))))


def operator(p: Parser, name: str) -> Node:
    """An operator with its limits and what it applies to; kept whole."""
    parts: list[Node] = []
    while p.at("_", "^"):
        p.take()
        p.enter()
        if p.accept("{"):
            parts.append(p.sequence())
            p.expect("}")
        else:
            parts.append(atom(p))
        p.leave()
    return Opaque(name, (*parts, *_operand(p)), operator=True)


def _operand(p: Parser) -> tuple[Node, ...]:
    """The product after an operator."""
    if p.starts_factor() or p.token.kind == "num":
        return (p.product(),)
    raise Unreadable("an operator without anything to work on")


def subscript(p: Parser, node: Node) -> Node:
    """A subscript becomes part of the name; a computed one makes an indexed family."""
    p.take()
    p.enter()
    index = _label(p) or (p.argument() if p.at("{") else atom(p))
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


def _label(p: Parser) -> Node | None:
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


def environment(p: Parser) -> Node:
    """A matrix, or the lines of an aligned block as a list."""
    name = _environment_name(p)
    if name not in _MATRICES:
        raise Unreadable(f"the environment {name!r}")
    if name == "array" and p.at("{"):
        while p.token is not END and not p.accept("}"):
            p.take()
    p.enter()
    rows: list[tuple[Node, ...]] = []
    row: list[Node] = []
    while not p.at("end"):
        if p.accept("&"):
            continue
        if p.accept("\\\\") or p.accept("hline"):
            if row:
                rows.append(tuple(row))
            row = []
            continue
        row.append(p.sum())
        if not p.at("&", "\\\\", "end"):
            raise Unreadable("a matrix that breaks off")
    if row:
        rows.append(tuple(row))
    p.take()
    if _environment_name(p) != name or not rows:
        raise Unreadable("a matrix without an end")
    p.leave()
    if len({len(each) for each in rows}) != 1:
        raise Unreadable("rows of different lengths")
    return Matrix(tuple(rows), bars=name in ("vmatrix", "Vmatrix"))


def _environment_name(p: Parser) -> str:
    """The name in braces after begin or end."""
    p.expect("{")
    letters = ""
    while p.token is not END and not p.at("}"):
        letters += p.take().value
    p.expect("}")
    return letters


__all__ = ["STARTS", "Add", "Token", "atom", "subscript"]
