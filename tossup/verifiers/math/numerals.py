"""Numbers as written: integers, decimals, repeating decimals, numerals in another base."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING

from tossup.verifiers.math.limits import MAX_DIGITS, Oversized, Unreadable
from tossup.verifiers.math.tree import (
    Based,
    Node,
    Num,
    Text,
)

if TYPE_CHECKING:
    from tossup.verifiers.math.factors import Factors


def number(p: Factors, text: str) -> Node:
    """A number, a repeating decimal, or a numeral in another base."""
    mantissa, _, power = text.lower().partition("e")
    if power and abs(int(power)) > MAX_DIGITS:
        raise Oversized(f"a number with {power} in its exponent")
    mantissa = "0." if mantissa == "." else mantissa
    digits = len(mantissa.replace(".", "").lstrip("0")) if "." in mantissa else None
    value = Fraction(mantissa) * Fraction(10) ** int(power or 0)
    if p.at("overline", "dot") or (
        digits is not None and p.at("(") and p.following.kind == "num" and p.tokens[p.index + 2].value == ")"
    ):
        return repeating(p, mantissa)
    if p.at("...") and digits is not None:
        return ellipsis(p, mantissa)
    if p.at("_"):
        return in_base(p, text)
    if p.token.kind == "num" and p.following.value != "/":
        raise Unreadable("two numbers side by side")
    return Num(value, digits)


def repeating(p: Factors, mantissa: str) -> Node:
    """`0.1\\overline{6}` and `0.1(6)`."""
    p.take()
    braces = p.accept("{")
    block = p.take().value
    if braces:
        p.expect("}")
    else:
        p.accept(")")
    if not block.isdigit() or ("." not in mantissa and not mantissa.endswith(".")):
        raise Unreadable("a repeating block that is not digits")
    decimals = len(mantissa.partition(".")[2])
    tail = Fraction(int(block), (10 ** len(block) - 1) * 10**decimals)
    return Num(Fraction(mantissa) + tail)


def ellipsis(p: Factors, mantissa: str) -> Node:
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


def in_base(p: Factors, text: str) -> Node:
    """`204_5`: the digits must exist in the base."""
    p.take()
    base = p.argument() if p.at("{") else p.atom()
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
