"""What stands between brackets, bars and matrix environments."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tossup.verifiers.math.lexer import END
from tossup.verifiers.math.limits import Unreadable
from tossup.verifiers.math.tree import (
    Chain,
    Fn,
    Group,
    Matrix,
    Node,
    Opaque,
)

if TYPE_CHECKING:
    from tossup.verifiers.math.factors import Factors


_CLOSERS = {"(": (")", "]"), "[": ("]", ")"), "\\{": ("\\}", "}"), "{": ("}",), "langle": ("rangle",)}


_MATRICES = frozenset({"pmatrix", "bmatrix", "Bmatrix", "matrix", "vmatrix", "Vmatrix", "array", "smallmatrix"})

_LINES = frozenset({"cases", "aligned", "align", "align*", "gathered", "gather", "split"})


def group(p: Factors, opening: str) -> Node:
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


def _skip_builder(p: Factors) -> bool:
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


def bars(p: Factors, mark: str) -> Node:
    """An absolute value or a norm."""
    p.enter()
    p.bars += 1
    inner = p.sum()
    p.bars -= 1
    p.expect(mark)
    p.leave()
    return Fn("abs", (inner,)) if mark == "|" else Opaque("norm", (inner,), operator=True)


def environment(p: Factors) -> Node:
    """A matrix, or the lines of an aligned block as a list."""
    name = _environment_name(p)
    if name not in _MATRICES | _LINES:
        raise Unreadable(f"the environment {name!r}")
    if name in _LINES and name != "cases":
        _unalign(p)
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
        if p.token.kind == "text" and p.token.value.strip().lower() in ("if", "for", "when"):
            p.take()
        row.append(p.chain())
        if name == "cases":
            p.accept(",")
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
    if len(rows[0]) == 1 and (name in _LINES or any(isinstance(row[0], Chain) for row in rows)):
        return Group("", "", tuple(row[0] for row in rows)) if len(rows) > 1 else rows[0][0]
    return Matrix(tuple(rows), bars=name in ("vmatrix", "Vmatrix"))


def _unalign(p: Factors) -> None:
    """Drop the alignment marks up to the end of the environment: they separate nothing."""
    end = p.index
    while p.tokens[end] is not END and p.tokens[end].value != "end":
        end += 1
    p.tokens[p.index : end] = [token for token in p.tokens[p.index : end] if token.value != "&"]


def _environment_name(p: Factors) -> str:
    """The name in braces after begin or end."""
    p.expect("{")
    letters = ""
    while p.token is not END and not p.at("}"):
        letters += p.take().value
    p.expect("}")
    return letters
