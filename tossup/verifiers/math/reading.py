"""Text -> tree: what has to be known of an answer as a whole before its tokens are parsed."""

from __future__ import annotations

import re
from fractions import Fraction
from itertools import pairwise

from tossup.verifiers.math.grammar import Parser
from tossup.verifiers.math.lexer import clean, tokenize
from tossup.verifiers.math.limits import Unreadable
from tossup.verifiers.math.tree import Based, Node, Num


def parse(text: str) -> Node:
    """The tree of a final answer.

    Raises:
        Unreadable: the text is no answer that we can read.
        Oversized: the text is over a structural limit.
    """
    if (numeral := _NUMERAL.fullmatch(text.strip())) and int(numeral[2]) > 10:
        return _numeral(numeral[1], int(numeral[2]))
    if (wrapped := _WRAPPED.fullmatch(text.strip())) is not None:
        base = _BASES.get(wrapped[2]) or int(wrapped[2] if wrapped[2].isdigit() else 0)
        if not 2 <= base <= 36:
            raise Unreadable("a subscript of a number that is no base")
        return _numeral(wrapped[1].upper(), base)
    tokens = tokenize(clean(_parts(_unconditioned(text))))
    while len(tokens) > 1 and tokens[-2].kind == "op" and tokens[-2].value in (".", ",", ";", ":", "?", "\\\\"):
        del tokens[-2]
    if len(tokens) == 1:
        raise Unreadable("nothing there")
    return Parser(tokens).answer()


_BASES = {"two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "seven": 7, "eight": 8, "nine": 9, "sixteen": 16}
# `(1101)_2`, `\\text{2A}_{16}`, `1101_{two}`; a letter alone with a subscript is no numeral.
_WRAPPED = re.compile(
    r"(?:\(|\\(?:text|mathrm)\{)?((?=[0-9A-Fa-f]*\d)[0-9A-Fa-f]{1,200})[)}]?_\s?\{?\(?(?:\\(?:text|mathrm)\{)?(?:base\s?)?"
    r"(\d\d?|two|three|four|five|six|seven|eight|nine|sixteen)\}?\)?\}?",
    re.ASCII,
)
_NUMERAL = re.compile(r"([0-9A-Z]{1,200})_\{?(\d\d)\}?", re.ASCII)


def _numeral(digits: str, base: int) -> Node:
    """A numeral such as `BEE_{16}`."""
    if base > 36 or any(int(digit, 36) >= base for digit in digits):
        raise Unreadable(f"a digit that base {base} lacks")
    value = Fraction(int(digits, base))
    return Num(value) if base == 10 else Based(value, base)


_CONDITION = re.compile(
    r"(?:,|(?:\\left\s?)?\(|\\text\{[ ,]*(?:where|for all|for|with|and)\s*\})(?:\s|\\[,; ]|\\q?quad|\\forall)*([a-z])\s*"
    r"(?:\\in\s*\\math(?:bb|bf|rm)\s*\{?\s*[ZNRQ]\s*\}?(?:\s?[\^_]?\{?[-+*\d]\}?){0,2}|\\geq?\s?[01])\s*(?:\\right\s?)?\)?\s*\.?\s*"
)


_FOR_ALL = re.compile(
    r"[\s,]*\\text\{[ ,]*for (?:all|every|any)(?:\s(?:real|positive|natural|integers?|numbers?))*\s*\}?\s*\$?[a-z](?![a-z])"
)


def _unconditioned(text: str) -> str:
    """The text without a condition on one of its letters at its end, as in `..., k \\in \\mathbb{Z}`."""
    if "\\text{" in text and (for_all := _FOR_ALL.search(text)) is not None and for_all.start():
        return text[: for_all.start()]
    start = max(text.rfind(","), text.rfind("("), text.rfind("\\left"), text.rfind("\\text{"), 0)
    if not start or len(text) - start > 80:
        return text
    for at in (start - 5, start):  # a `\\left` may stand before the bracket
        match = _CONDITION.fullmatch(text, max(at, 0))
        head = text[: max(at, 0)].rstrip(" ,")
        if match and match[1] in head and not _RELATION.search(head):
            return head
    return text


_RELATION = re.compile(r"[<>]|\\(?:le|ge|ne|lt|gt|in)(?:q|qslant)?(?![A-Za-z])")
_PART = re.compile(r"(?:\A|[\s,;}]|\\\\)\s*(?:\\(?:text|textbf|mathrm)\{\s*)?\(([a-h]|i{1,3}|iv|v)\)\s*\}?\s*(?=\S)")


def _parts(text: str) -> str:
    """`(a) 5 (b) 6` with its labels as names, so that each part is compared with its own."""
    if "(a)" not in text and "(i)" not in text:
        return text
    labels = list(_PART.finditer(text))
    if len(labels) < 2 or labels[0].start() > 0 or [m[1] for m in labels[:2]] not in (["a", "b"], ["i", "ii"]):
        return text
    pieces = [text[m.end() : n.start()] for m, n in pairwise(labels)] + [text[labels[-1].end() :]]
    return ", ".join(f"\\text{{part {m[1]}}} = {piece.strip(' ,;')}" for m, piece in zip(labels, pieces, strict=True))
