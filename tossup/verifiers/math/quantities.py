"""The words, currency signs and percent signs after a value."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tossup.verifiers.math.lexer import END
from tossup.verifiers.math.limits import Unreadable
from tossup.verifiers.math.tree import Node, Num
from tossup.verifiers.math.units import SINGLE_LETTERS, is_unit

if TYPE_CHECKING:
    from tossup.verifiers.math.factors import Factors

UNIT_SYMBOLS = {"%": "percent", "$": "dollar", "euro": "euro", "pounds": "gbp", "yen": "yen"}


def unit(p: Factors) -> str:
    """The words, currency signs and percent signs after a value."""
    words: list[str] = []
    while True:
        token = p.token
        if token.kind == "text":
            words.append(p.take().value)
        elif token.kind != "text" and token.value in UNIT_SYMBOLS:
            words.append(UNIT_SYMBOLS[p.take().value])
        elif words and token.value == "^":
            p.take()
            words.append("^" + str(_small_integer(p.exponent())))
        elif words and token.kind == "op" and token.value in ("/", "."):
            p.take()
            words.append("per" if token.value == "/" else "")
        elif words and _goes_on(p):
            words.append(p.take().value)
        elif token.kind == "cmd" and token.value == "pmod":
            p.take()
            words.append(_modulus(p.argument()))
        elif token.value == "(" and p.following.kind == "text":
            words.append(remark(p))
        else:
            return " ".join(word for word in words if word)


def _goes_on(p: Factors) -> bool:
    """Whether a number (`1 hour 30 minutes`) or a letter (`cm/s`) still belongs to the unit."""
    token, before = p.token, p.tokens[p.index - 1]
    if token.kind == "num":  # but `3 hours 20 minutes` is two quantities
        return before.kind == "text" and not compound(p)
    return token.kind == "id" and (before.value == "/" or (before.kind == "text" and token.value in SINGLE_LETTERS))


def compound(p: Factors) -> bool:
    """Whether another number with a known unit follows a unit."""
    return (
        p.token.kind == "num"
        and p.following.kind == "text"
        and p.index > 0
        and p.tokens[p.index - 1].kind == "text"
        and is_unit(p.tokens[p.index - 1].value.removesuffix(" and"))
        and is_unit(p.following.value)
    )


def remark(p: Factors) -> str:
    """Words in parentheses."""
    p.take()
    words = []
    while p.token is not END and not p.at(")"):
        words.append(p.take().value)
    p.expect(")")
    return " ".join(words)


def _modulus(node: Node) -> str:
    """The modulus of a congruence as a unit: it may be missing and may not contradict."""
    return f"congruent^{node.value}" if isinstance(node, Num) and node.value.denominator == 1 else "congruent"


def _small_integer(node: Node) -> int:
    """A whole exponent of a unit."""
    if isinstance(node, Num) and node.value.denominator == 1 and abs(node.value) < 10:
        return int(node.value)
    raise Unreadable("an exponent of a unit that is no small integer")
