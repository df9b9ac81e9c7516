"""Members of lists and sets: matched in any order, by their names, or as solutions of one system."""

from __future__ import annotations

from collections.abc import Callable

from tossup.verifiers.math.scalars import Finding
from tossup.verifiers.math.tree import (
    Group,
    Node,
    Sym,
)
from tossup.verifiers.math.values import (
    Named,
)

Equal = Callable[[Named, Named], Finding]
"""How two members are compared."""


def distinct_names(items: list[Named]) -> bool:
    """Whether every member has a name of its own."""
    names = [item.name for item in items]
    return None not in names and len(set(names)) == len(names) and len(names) > 1 and all(_plain(n) for n in names)


def _plain(name: Node | None) -> bool:
    """Whether a name is a letter without a number (`x_1, x_2` number the roots of one equation)."""
    return not (isinstance(name, Sym) and "_" in name.name and name.name.rpartition("_")[2].isdigit())


def repeated_names(items: list[Named]) -> bool:
    """Whether the names go round (`p, q, p, q`): several solutions of one system."""
    names = [item.name for item in items]
    distinct = list(dict.fromkeys(names))
    return None not in names and 1 < len(distinct) < len(names) and names == distinct * (len(names) // len(distinct))


def by_name(ours: list[Named], theirs: list[Named], equal: Equal) -> Finding:
    """Named members: each name has its value."""
    table = {item.name: item for item in theirs}
    if set(table) != {item.name for item in ours}:
        return Finding(False, "other names for the values")
    findings = [equal(item, table[item.name]) for item in ours]
    return every(findings, "every named value is equal")


def as_systems(ours: list[Named], theirs: list[Named], equal: Equal) -> Finding:
    """Solutions of a system, each a row of named values."""
    names = list(dict.fromkeys(item.name for item in ours))
    if {item.name for item in theirs} != set(names):
        return Finding(False, "other names for the values")
    return matching(_rows(ours, names), _rows(theirs, names), equal)


def as_rows(items: list[Named]) -> list[Named] | None:
    """Solutions of a system as tuples, in the order of the names; None when the names do not go round."""
    return _rows(items, list(dict.fromkeys(item.name for item in items))) if repeated_names(items) else None


def _rows(items: list[Named], names: list[Node | None]) -> list[Named]:
    """One tuple for every round of names."""
    found = []
    for start in range(0, len(items), len(names)):
        row = {item.name: item.value for item in items[start : start + len(names)]}
        found.append(Named(Group("(", ")", tuple(row[name] for name in names if name in row))))
    return found


def matching(ours: list[Named], theirs: list[Named], equal: Equal) -> Finding:
    """A one-to-one matching of members. Equality is transitive, so taking the first equal one is enough."""
    left = list(theirs)
    for item in ours:
        for index, candidate in enumerate(left):
            if equal(item, candidate).equal:
                del left[index]
                break
        else:
            return Finding(False, "a value of the reference is missing")
    return Finding(True, "the same members")


def every(findings: list[Finding], rule: str) -> Finding:
    """True when all are, False with the first rule that failed."""
    for finding in findings:
        if finding.equal is not True:
            return finding
    return Finding(True, rule)
