"""Vectors in unit vectors: `2\\mathbf{i} - 3\\mathbf{k}` is the column of its components."""

from __future__ import annotations

from tossup.verifiers.math.tree import ONE, ZERO, Add, Group, Matrix, Mul, Node, Sym, symbols

_UNIT_VECTORS = ("i", "j", "k")


def components(node: Node, size: int) -> Matrix | None:
    """The column of `size` components of a sum of multiples of i, j and k; None for anything else."""
    if size not in (2, 3) or "j" not in symbols(node) | ({"j"} if size == 3 and "k" in symbols(node) else set()):
        return None
    found: list[Node] = [ZERO] * size
    for term in node.items if isinstance(node, Add) else (node,):
        factors = _factors(term)
        units = [f.name for f in factors if isinstance(f, Sym) and f.name in _UNIT_VECTORS[:size]]
        if len(units) != 1 or found[place := _UNIT_VECTORS.index(units[0])] != ZERO:
            return None
        rest = tuple(f for f in factors if f != Sym(units[0]))
        found[place] = ONE if not rest else rest[0] if len(rest) == 1 else Mul(rest)
    return Matrix(tuple((entry,) for entry in found))


def _factors(term: Node) -> tuple[Node, ...]:
    """The factors of a term, signs included."""
    return tuple(f for item in term.items for f in _factors(item)) if isinstance(term, Mul) else (term,)


def size_of(node: Node) -> int:
    """How many components a column or a tuple has; 0 for anything else."""
    if isinstance(node, Matrix) and len(node.rows[0]) == 1:
        return len(node.rows)
    return len(node.items) if isinstance(node, Group) and node.open == "(" else 0
