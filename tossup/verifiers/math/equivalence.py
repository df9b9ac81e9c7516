"""Do a reference and an answer say the same? One function per kind of reference.

Every function returns a Finding: yes or no with the rule that decided, or `None` where neither arithmetic nor high
precision could tell, which is what the slow path is for.
"""

from __future__ import annotations

import re
from typing import TypeGuard

from tossup.verifiers.math import sets, units
from tossup.verifiers.math.limits import Undefined, Unreadable
from tossup.verifiers.math.lists import as_rows, as_systems, by_name, distinct_names, every, matching, repeated_names
from tossup.verifiers.math.numeric import same
from tossup.verifiers.math.relations import equation, inequality, is_inequality
from tossup.verifiers.math.scalars import Finding, angle, ratio, scalar
from tossup.verifiers.math.tree import (
    SCALARS,
    Based,
    Chain,
    Group,
    Matrix,
    Mul,
    Node,
    Num,
    Opaque,
    Quantity,
    Ratio,
    Sym,
    Text,
    Union,
    symbols,
    walk,
)
from tossup.verifiers.math.values import (
    FalseChain,
    Named,
    decimal,
    members,
    named,
)
from tossup.verifiers.math.vectors import components, size_of
from tossup.verifiers.math.words import same_words


def compare(reference: Node, answer: Node) -> Finding:
    """Whether the answer is the reference.

    Raises:
        Oversized: a value on either side is too large to be computed.
    """
    if reference == answer:
        return Finding(True, "written the same")
    known = {units.canonical(n.unit) for n in walk(reference) if isinstance(n, Quantity)}
    for node in walk(answer):
        if isinstance(node, Quantity) and units.changes_value(node.unit) and units.canonical(node.unit) not in known:
            return Finding(False, f"the words {node.unit!r} change the value")
    try:
        if isinstance(answer, Group) and answer.ordered_by == "or" and answer.open == "":
            answer = _one_of_equals(answer)
        return _compare(reference, answer)
    except FalseChain:
        return Finding(False, "a chain of unequal values")
    except Undefined as error:
        return Finding(False, f"undefined: {error}")
    except Unreadable as error:
        return Finding(False, f"not comparable: {error}")


def _compare(reference: Node, answer: Node) -> Finding:
    """Dispatch on what the reference is."""
    if isinstance(reference, Chain) and is_inequality(reference):
        return relation(reference, answer)
    gold = named(reference, strict=True)
    if isinstance(reference, Chain) and gold.name is None:
        return relation(reference, answer)
    if isinstance(gold.value, Chain) and is_inequality(gold.value):
        return relation(gold.value, answer)
    if (listed := members(reference)) is not None:
        return several(listed, answer, reference)
    mine = named(answer, strict=False)
    if gold.name is not None and mine.name is not None and not _names_agree(gold, mine):
        if isinstance(reference, Chain) and isinstance(answer, Chain):
            return relation(reference, answer)
        return Finding(False, "another name for the value")
    if gold.name is not None and isinstance(answer, Chain) and mine.name is None and answer.ops == ("=",):
        return relation(reference, answer) if isinstance(reference, Chain) else Finding(False, "an equation")
    return value(gold, mine)


def _one_of_equals(answer: Group) -> Node:
    """`3/4 or 0.75` is one value said twice; any other `or` stays a choice."""
    if all(isinstance(item, SCALARS) for item in answer.items):
        first = answer.items[0]
        if all(same(first, item) is True for item in answer.items[1:]):
            return first
    return answer


def _names_agree(gold: Named, mine: Named) -> bool:
    """The same name, or a function's value and the letter of its graph (`f(x)` and `y`)."""
    if gold.name == mine.name or isinstance(gold.name, Text) or isinstance(mine.name, Text):
        return True
    one, other = gold.name, mine.name
    if isinstance(one, Group) and isinstance(other, Group):
        return len(one.items) == len(other.items)
    if isinstance(one, Sym) and isinstance(other, Sym):
        return False
    if isinstance(one, Sym) or isinstance(other, Sym):
        letter, function = (one, other) if isinstance(one, Sym) else (other, one)
        if isinstance(function, Opaque) and isinstance(letter, Sym):
            free = symbols(gold.value) | symbols(mine.value)
            return letter.name not in free and not function.operator
        return False
    assert one is not None
    assert other is not None
    return type(one) is type(other) and (not isinstance(one, SCALARS) or same(one, other) is True)


def value(gold: Named, mine: Named) -> Finding:
    """Two values with their units."""
    finding = _unit(gold, mine)
    if finding is not None:
        return finding
    reference, answer = _without_unit(gold.value, mine.unit), _unwrapped(mine.value, gold.value)
    if isinstance(answer, SCALARS) and (size := size_of(reference)):
        answer = components(answer, size) or answer
    elif isinstance(reference, SCALARS) and (size := size_of(answer)):
        reference = components(reference, size) or reference
    if reference == Sym("RR"):
        return by_region(reference, answer)
    if isinstance(reference, SCALARS):
        return scalar(reference, answer)
    if isinstance(reference, Matrix):
        return matrix(reference, answer)
    if isinstance(reference, Ratio):
        return ratio(reference, answer)
    if isinstance(reference, Union):
        return by_region(reference, answer)
    if isinstance(reference, Group):
        return tuple_or_interval(reference, answer)
    if isinstance(reference, Text):
        return Finding(isinstance(answer, Text) and same_words(reference.words, answer.words), "the words")
    return Finding(False, "another kind of answer")


def _without_unit(reference: Node, unit: str) -> Node:
    """The number of a reference such as `0.64N`, when the answer spells that letter as a unit."""
    match reference:
        case Mul((Num() as number, Sym(name))) if name == unit:
            return number
    return reference


def _unwrapped(answer: Node, reference: Node) -> Node:
    """A set of one element where a value is asked for is that value, and a weak unit (`5m`) is a unit."""
    if isinstance(answer, Group) and answer.open == "{" and len(answer.items) == 1 and isinstance(reference, SCALARS):
        return answer.items[0]
    if isinstance(reference, SCALARS) and not symbols(reference) and isinstance(answer, Mul) and symbols(answer):
        last = answer.items[-1]
        base = last.base if hasattr(last, "base") and not isinstance(last, Based) else last
        if isinstance(base, Sym) and base.name in units.SINGLE_LETTERS:
            rest = answer.items[:-1]
            remaining = rest[0] if len(rest) == 1 else Mul(rest)
            if decimal(remaining) is not None or isinstance(remaining, Num):
                return remaining
    return answer


def _unit(gold: Named, mine: Named) -> Finding | None:
    """A finding when the units or the words after the value decide; None to go on."""
    if gold.unit and mine.unit and units.contradict(units.canonical(gold.unit), units.canonical(mine.unit)):
        return Finding(False, f"the unit {mine.unit!r} contradicts {gold.unit!r}")
    wanted, given = angle(gold.value), angle(mine.value)
    if gold.unit and given and not wanted and "deg" not in units.canonical(gold.unit).split():
        return Finding(False, "degrees where another unit is asked for")
    if mine.unit and wanted and units.contradict("deg", units.canonical(mine.unit)):
        return Finding(False, f"the unit {mine.unit!r} contradicts degrees")
    return None


def several(listed: list[Node], answer: Node, reference: Node) -> Finding:
    """A list or set: the same members in any order, by name where names are given."""
    mine = members(answer)
    bare = isinstance(reference, Group) and not reference.open
    if mine is None and bare and isinstance(answer, Group) and answer.open == "[" and answer.close == "]":
        mine = list(answer.items)
    if mine is None:
        inner = named(answer, strict=False).value
        mine = members(inner)
    whole = named(answer, strict=False).value
    if mine is None and isinstance(whole, Text) and all(isinstance(item, Text) for item in listed):
        mine = [Text(each) for each in re.split(r"\s*,\s*(?:and\s+)?|\s+and\s+", whole.words)]
    if mine is None and bare and isinstance(whole, Group) and whole.open == "(" and len(listed) > 1:
        ours = [named(item, strict=True) for item in listed]
        if distinct_names(ours) and len(ours) == len(whole.items):
            return every(
                [_compare(a.value, b) for a, b in zip(ours, whole.items, strict=True)], "the named values in order"
            )
        return Finding(False, "a tuple where a list is asked for")
    if mine is None:
        if len(listed) == 1:
            return _compare(listed[0], answer)
        return by_region(reference, answer)
    if len(mine) != len(listed):
        solutions = as_rows([named(n, strict=False) for n in mine])
        if solutions is not None and len(solutions) == len(listed):
            return matching([named(n, strict=True) for n in listed], solutions, value)
        regions = by_region(reference, answer)
        return regions if regions.equal else Finding(False, f"{len(mine)} values where there are {len(listed)}")
    ours, theirs = [named(n, strict=True) for n in listed], [named(n, strict=False) for n in mine]
    if distinct_names(ours) and distinct_names(theirs):
        return by_name(ours, theirs, value)
    if repeated_names(ours) and repeated_names(theirs):
        return as_systems(ours, theirs, value)
    found = matching(ours, theirs, value)
    if not found.equal and all(isinstance(item, Chain) and is_inequality(item) for item in listed):
        regions = by_region(reference, answer)
        return regions if regions.equal else found
    return found


def tuple_or_interval(reference: Group, answer: Node) -> Finding:
    """Brackets and members in order; an inequality may say the same as an interval."""
    if isinstance(answer, Matrix) and len(answer.rows[0]) == 1 and not answer.bars:
        answer = Group("(", ")", tuple(row[0] for row in answer.rows))
    if _bare_tuple(answer) and reference.open == "(":
        answer = Group("(", ")", answer.items)
    if isinstance(answer, Group) and answer.open in ("(", "["):
        if len(reference.items) != len(answer.items):
            return Finding(False, f"{len(answer.items)} members where there are {len(reference.items)}")
        brackets = (reference.open, reference.close) == (answer.open, answer.close)
        if len(reference.items) == 2 and not brackets:
            return Finding(False, "other brackets")
        pairs = zip(reference.items, answer.items, strict=True)
        return every([_compare(a, b) for a, b in pairs], "the same members in order")
    return by_region(reference, answer)


def _bare_tuple(answer: Node) -> TypeGuard[Group]:
    """Whether members stand in order without brackets. A choice is no tuple, nor are joined inequalities."""
    return (
        isinstance(answer, Group)
        and answer.open == ""
        and answer.ordered_by != "or"
        and not any(isinstance(item, Chain) and is_inequality(item) for item in answer.items)
    )


def by_region(reference: Node, answer: Node) -> Finding:
    """The same set of real numbers, however it is written."""
    target = named(answer, strict=False).value
    if isinstance(reference, Chain) and isinstance(target, Chain) and symbols(reference) != symbols(target):
        return Finding(False, "another letter")
    ours, theirs = sets.region(reference), sets.region(target)
    if ours is None or theirs is None:
        if isinstance(reference, Union) and isinstance(target, Union) and len(reference.items) == len(target.items):
            pairs = zip(reference.items, target.items, strict=True)
            return every([_compare(a, b) for a, b in pairs], "the same pieces")
        return Finding(False, "another kind of answer")
    return Finding(sets.equal(ours, theirs), "the same set" if sets.equal(ours, theirs) else "another set")


def matrix(reference: Matrix, answer: Node) -> Finding:
    """Entry by entry; a determinant in bars is a number, not a matrix. A column vector may be written as a tuple."""
    if isinstance(answer, Group) and answer.open == "(" and 1 in (len(reference.rows), len(reference.rows[0])):
        answer = Matrix(tuple((item,) for item in answer.items))
        if len(reference.rows) == 1 and len(reference.rows[0]) > 1:
            answer = Matrix((tuple(row[0] for row in answer.rows),))
    if not isinstance(answer, Matrix) or answer.bars != reference.bars:
        return Finding(False, "another kind of answer")
    if len(answer.rows) != len(reference.rows) or len(answer.rows[0]) != len(reference.rows[0]):
        return Finding(False, "a matrix of another shape")
    pairs = [
        (a, b)
        for ours, theirs in zip(reference.rows, answer.rows, strict=True)
        for a, b in zip(ours, theirs, strict=True)
    ]
    return every([_compare(a, b) for a, b in pairs], "every entry is equal")


def relation(reference: Chain, answer: Node) -> Finding:
    """Equations with the same zeros, inequalities with the same solutions or the same members."""
    if isinstance(answer, Quantity):
        answer = answer.value
    if is_inequality(reference):
        regions = by_region(reference, answer)
        if regions.equal is True or not isinstance(answer, Chain):
            return regions
        return inequality(reference, answer)
    if not isinstance(answer, Chain):
        return Finding(False, "no equation where one is asked for")
    if len(answer.ops) != 1 or len(reference.ops) != 1 or answer.ops != reference.ops:
        return Finding(False, "another relation")
    return equation(reference, answer)
