"""Do a reference and an answer say the same? One function per kind of reference.

Every function returns a Finding: yes or no with the rule that decided, or `None` where neither arithmetic nor high
precision could tell, which is what the slow path is for.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from tossup.verifiers.math import relations, sets, units
from tossup.verifiers.math.limits import Undefined, Unreadable
from tossup.verifiers.math.numeric import closed_value, has_value, same
from tossup.verifiers.math.tree import (
    MINUS_ONE,
    SCALARS,
    ZERO,
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
    PlusMinus,
    Pow,
    Quantity,
    Ratio,
    Sym,
    Text,
    Union,
    negate,
    symbols,
    walk,
)
from tossup.verifiers.math.values import (
    FalseChain,
    Named,
    decimal,
    is_name,
    last_place,
    members,
    named,
    within_rounding,
)
from tossup.verifiers.math.words import same_words

_INEQUALITIES = frozenset({"<", "<=", ">", ">=", "!="})


@dataclass(frozen=True, slots=True)
class Finding:
    """`equal` is None where this path cannot tell."""

    equal: bool | None
    rule: str


def compare(reference: Node, answer: Node) -> Finding:
    """Whether the answer is the reference.

    Raises:
        Oversized: a value on either side is too large to be computed.
    """
    if reference == answer:
        return Finding(True, "written the same")
    if isinstance(answer, Group) and answer.ordered_by == "or" and answer.open == "":
        answer = _one_of_equals(answer)
    try:
        return _compare(reference, answer)
    except FalseChain:
        return Finding(False, "a chain of unequal values")
    except Undefined as error:
        return Finding(False, f"undefined: {error}")
    except Unreadable as error:
        return Finding(False, f"not comparable: {error}")


def _compare(reference: Node, answer: Node) -> Finding:
    """Dispatch on what the reference is."""
    if isinstance(reference, Chain) and _is_relation(reference):
        return relation(reference, answer)
    gold = named(reference, strict=True)
    if isinstance(reference, Chain) and gold.name is None:
        return relation(reference, answer)
    if isinstance(gold.value, Chain) and _is_relation(gold.value):
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


def _is_relation(chain: Chain) -> bool:
    """Whether a chain is an inequality rather than an equation."""
    return any(op in _INEQUALITIES for op in chain.ops)


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
    reference, answer = gold.value, _unwrapped(mine.value, gold.value)
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
    if mine.unit and units.changes_value(mine.unit) and units.canonical(mine.unit) != units.canonical(gold.unit):
        return Finding(False, f"the words {mine.unit!r} change the value")
    if gold.unit and mine.unit and units.contradict(units.canonical(gold.unit), units.canonical(mine.unit)):
        return Finding(False, f"the unit {mine.unit!r} contradicts {gold.unit!r}")
    wanted, given = _angle(gold.value), _angle(mine.value)
    if gold.unit and given and "deg" not in units.canonical(gold.unit).split():
        return Finding(False, "degrees where another unit is asked for")
    if mine.unit and wanted and units.contradict("deg", units.canonical(mine.unit)):
        return Finding(False, f"the unit {mine.unit!r} contradicts degrees")
    return None


def _angle(node: Node) -> bool:
    """Whether a value ends in a degree sign."""
    return isinstance(node, Mul) and node.items[-1] == Sym("deg") or (
        isinstance(node, Mul) and len(node.items) == 2 and _angle(node.items[1])
    )


def _without_degrees(node: Node) -> Node:
    """The number before a degree sign."""
    if isinstance(node, Mul) and node.items[-1] == Sym("deg"):
        rest = node.items[:-1]
        return rest[0] if len(rest) == 1 else Mul(rest)
    if isinstance(node, Mul) and len(node.items) == 2 and _angle(node.items[1]):
        return Mul((node.items[0], _without_degrees(node.items[1])))
    return node


def scalar(reference: Node, answer: Node) -> Finding:
    """Two numbers or expressions."""
    if _angle(reference) != _angle(answer) and isinstance(answer, SCALARS) and same(reference, answer) is True:
        return Finding(True, "equal in radians")
    reference, answer = _without_degrees(reference), _without_degrees(answer)
    sign = sets.infinity(reference)
    if sign:
        return Finding(sets.infinity(answer) == sign, "infinity")
    if isinstance(answer, Ratio) and len(answer.items) == 2 and _written_fraction(reference):
        return scalar(reference, Mul((answer.items[0], _inverse(answer.items[1]))))
    if not isinstance(answer, SCALARS):
        return Finding(False, "another kind of answer")
    if isinstance(answer, PlusMinus) or any(isinstance(n, PlusMinus) for n in walk(answer)):
        return Finding(False, "two values where one is asked for")
    if _unevaluated(answer) - _unevaluated(reference):
        return Finding(False, "an operator that was not worked out")
    if isinstance(reference, Based) != isinstance(answer, Based) or (
        isinstance(reference, Based) and isinstance(answer, Based) and reference.base != answer.base
    ):
        return _bases(reference, answer)
    verdict = same(reference, answer)
    if verdict is True:
        return Finding(True, "equal")
    if verdict is False and (common := _common_logarithms(reference, answer)) is not None and same(*common) is True:
        return Finding(True, "equal with logarithms to base ten")
    answer = _binary_fraction(answer) or answer
    if _rounding(reference, answer):
        return Finding(True, "equal to all of its digits")
    if verdict is None and has_value(reference):
        return Finding(False, "the answer has no value where the reference has one")
    return Finding(verdict, "not equal" if verdict is False else "no value at any point")


def _bases(reference: Node, answer: Node) -> Finding:
    """A numeral without its base may only repeat the digits; another base is another answer."""
    if isinstance(reference, Based) and isinstance(answer, Num):
        return Finding(False, "a numeral without its base")
    return Finding(False, "another base")


def _inverse(node: Node) -> Node:
    """One over a node."""
    return Pow(node, MINUS_ONE)


def _written_fraction(node: Node) -> bool:
    """Whether a reference is written as a quotient."""
    return isinstance(node, Mul) and isinstance(node.items[-1], Pow)


def _unevaluated(node: Node) -> set[str]:
    """The operators in a tree that a question may have asked to work out."""
    return {n.name for n in walk(node) if isinstance(n, Opaque) and n.operator}


def _rounding(reference: Node, answer: Node) -> bool:
    """Whether twelve digits or more of one are a correct rounding of the other."""
    for written, true in ((answer, reference), (reference, answer)):
        number = decimal(written)
        if number is None or number.digits is None or number.digits < 12:
            continue
        if number.digits >= 15 and true is not reference and _noise(number, true):
            return True
        other = decimal(true)
        if (other is None or other.digits is None or other.digits >= 12) and not symbols(true):
            exactly_short = isinstance(true, Num) and true.digits is None and true.value.denominator == 1
            if not exactly_short and within_rounding(number, true, ulps=1):
                return True
    return isinstance(answer, Num) and (answer.digits or 0) >= 15 and _noise(answer, reference)


def _common_logarithms(reference: Node, answer: Node) -> tuple[Node, Node] | None:
    """Both sides with `log` read to base ten; None when neither writes it."""
    if not any(isinstance(n, Fn) and n.name == "log" and len(n.args) == 1 for side in (reference, answer) for n in walk(side)):
        return None
    return _to_base_ten(reference), _to_base_ten(answer)


def _to_base_ten(node: Node) -> Node:
    """The tree with a base for every `log` without one."""
    match node:
        case Fn("log", (argument,)):
            return Fn("log", (_to_base_ten(argument), Num(Fraction(10))))
        case Fn(name, args):
            return Fn(name, tuple(_to_base_ten(arg) for arg in args))
        case Add(items):
            return Add(tuple(_to_base_ten(item) for item in items))
        case Mul(items):
            return Mul(tuple(_to_base_ten(item) for item in items))
        case Pow(base, exponent):
            return Pow(_to_base_ten(base), _to_base_ten(exponent))
    return node


def _binary_fraction(node: Node) -> Num | None:
    """A double-precision number written out as a fraction with a huge power of two below."""
    match node:
        case Mul((Num(top, None), Pow(Num(bottom, None), Num(power)))) if power == -1 and bottom >= 1 << 40:
            whole = int(bottom)
            if bottom.denominator == 1 and whole & (whole - 1) == 0:
                return Num(top / bottom, 15)
    return None


def _noise(number: Num, true: Node) -> bool:
    """Whether a decimal of fifteen digits or more is off by no more than double-precision arithmetic is."""
    value = closed_value(true)
    if value is None or hasattr(value, "_mpc_"):
        return False
    ctx = value.context
    error = abs(value - ctx.mpf(number.value.numerator) / number.value.denominator)
    return bool(error <= abs(value) * ctx.mpf(10) ** -14)


def several(listed: list[Node], answer: Node, reference: Node) -> Finding:
    """A list or set: the same members in any order, by name where names are given."""
    mine = members(answer)
    bare = isinstance(reference, Group) and not reference.open
    if mine is None and bare and isinstance(answer, Group) and answer.open == "[" and answer.close == "]":
        mine = list(answer.items)
    if mine is None:
        inner = named(answer, strict=False).value
        mine = members(inner)
    if mine is None and bare and isinstance(answer, Group) and answer.open == "(" and len(listed) > 1:
        ours = [named(item, strict=True) for item in listed]
        if _distinct_names(ours) and len(ours) == len(answer.items):
            return _all([_compare(a.value, b) for a, b in zip(ours, answer.items, strict=True)], "the named values in order")
        return Finding(False, "a tuple where a list is asked for")
    if mine is None:
        if len(listed) == 1:
            return _compare(listed[0], answer)
        return by_region(reference, answer)
    if len(mine) != len(listed):
        regions = by_region(reference, answer)
        return regions if regions.equal else Finding(False, f"{len(mine)} values where there are {len(listed)}")
    ours, theirs = [_member(n, True) for n in listed], [_member(n, False) for n in mine]
    if _distinct_names(ours) and _distinct_names(theirs):
        return _by_name(ours, theirs)
    if _repeated_names(ours) and _repeated_names(theirs):
        return _as_systems(ours, theirs)
    return _match(ours, theirs)


def _member(node: Node, strict: bool) -> Named:
    """A member with its name."""
    return named(node, strict)


def _distinct_names(items: list[Named]) -> bool:
    """Whether every member has a name of its own."""
    names = [item.name for item in items]
    return None not in names and len(set(names)) == len(names) and len(names) > 1 and all(_plain(n) for n in names)


def _plain(name: Node | None) -> bool:
    """Whether a name is a letter without a number (`x_1, x_2` number the roots of one equation)."""
    return not (isinstance(name, Sym) and "_" in name.name and name.name.rpartition("_")[2].isdigit())


def _repeated_names(items: list[Named]) -> bool:
    """Whether the names go round (`p, q, p, q`): several solutions of one system."""
    names = [item.name for item in items]
    distinct = list(dict.fromkeys(names))
    return None not in names and 1 < len(distinct) < len(names) and names == distinct * (len(names) // len(distinct))


def _by_name(ours: list[Named], theirs: list[Named]) -> Finding:
    """Named members: each name has its value."""
    table = {item.name: item for item in theirs}
    if set(table) != {item.name for item in ours}:
        return Finding(False, "other names for the values")
    findings = [value(item, table[item.name]) for item in ours]
    return _all(findings, "every named value is equal")


def _as_systems(ours: list[Named], theirs: list[Named]) -> Finding:
    """Solutions of a system, each a row of named values."""
    names = list(dict.fromkeys(item.name for item in ours))
    size = len(names)
    if {item.name for item in theirs} != set(names):
        return Finding(False, "other names for the values")

    def rows(items: list[Named]) -> list[Named]:
        found = []
        for start in range(0, len(items), size):
            row = {item.name: item.value for item in items[start : start + size]}
            found.append(Named(Group("(", ")", tuple(row[name] for name in names if name in row))))
        return found

    return _match(rows(ours), rows(theirs))


def _match(ours: list[Named], theirs: list[Named]) -> Finding:
    """A one-to-one matching of members. Equality is transitive, so taking the first equal one is enough."""
    left = list(theirs)
    for item in ours:
        for index, candidate in enumerate(left):
            if value(item, candidate).equal:
                del left[index]
                break
        else:
            return Finding(False, "a value of the reference is missing")
    return Finding(True, "the same members")


def _all(findings: list[Finding], rule: str) -> Finding:
    """True when all are, False with the first rule that failed."""
    for finding in findings:
        if finding.equal is not True:
            return finding
    return Finding(True, rule)


def tuple_or_interval(reference: Group, answer: Node) -> Finding:
    """Brackets and members in order; an inequality may say the same as an interval."""
    if isinstance(answer, Matrix) and len(answer.rows[0]) == 1 and not answer.bars:
        answer = Group("(", ")", tuple(row[0] for row in answer.rows))
    if isinstance(answer, Group) and answer.open == "" and reference.open == "(" and answer.ordered_by != "or":
        answer = Group("(", ")", answer.items)
    if isinstance(answer, Group) and answer.open in ("(", "["):
        if len(reference.items) != len(answer.items):
            return Finding(False, f"{len(answer.items)} members where there are {len(reference.items)}")
        brackets = (reference.open, reference.close) == (answer.open, answer.close)
        if len(reference.items) == 2 and not brackets:
            return Finding(False, "other brackets")
        pairs = zip(reference.items, answer.items, strict=True)
        return _all([_compare(a, b) for a, b in pairs], "the same members in order")
    return by_region(reference, answer)


def by_region(reference: Node, answer: Node) -> Finding:
    """The same set of real numbers, however it is written."""
    target = named(answer, strict=False).value
    if isinstance(reference, Chain) and isinstance(target, Chain) and symbols(reference) != symbols(target):
        return Finding(False, "another letter")
    ours, theirs = sets.region(reference), sets.region(target)
    if ours is None or theirs is None:
        if isinstance(reference, Union) and isinstance(target, Union) and len(reference.items) == len(target.items):
            pairs = zip(reference.items, target.items, strict=True)
            return _all([_compare(a, b) for a, b in pairs], "the same pieces")
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
    pairs = [(a, b) for ours, theirs in zip(reference.rows, answer.rows, strict=True) for a, b in zip(ours, theirs, strict=True)]
    return _all([_compare(a, b) for a, b in pairs], "every entry is equal")


def ratio(reference: Ratio, answer: Node) -> Finding:
    """A time of day part by part, a ratio up to a common factor."""
    if not isinstance(answer, Ratio):
        if len(reference.items) == 2 and isinstance(answer, Mul) and not reference.clock:
            return scalar(Mul((reference.items[0], _inverse(reference.items[1]))), answer)
        return Finding(False, "another kind of answer")
    if reference.suffix and answer.suffix and reference.suffix != answer.suffix:
        return Finding(False, "another half of the day")
    ours, theirs = list(reference.items), list(answer.items)
    if reference.clock and answer.clock:
        for parts in (ours, theirs):
            while len(parts) > 2 and parts[-1] == ZERO:
                parts.pop()
        return Finding(ours == theirs, "the time")
    if reference.clock or reference.suffix or ZERO in ours or ZERO in theirs:
        return Finding(ours == theirs, "the ratio")
    if len(ours) != len(theirs):
        return Finding(False, "a ratio of another length")
    crossed = [(Mul((ours[0], b)), Mul((theirs[0], a))) for a, b in zip(ours[1:], theirs[1:], strict=True)]
    return Finding(all(same(a, b) is True for a, b in crossed), "the ratio")


def relation(reference: Chain, answer: Node) -> Finding:
    """Equations with the same zeros, inequalities with the same solutions or the same members."""
    if isinstance(answer, Quantity):
        answer = answer.value
    if _is_relation(reference):
        regions = by_region(reference, answer)
        if regions.equal is True or not isinstance(answer, Chain):
            return regions
        return _inequality(reference, answer)
    if not isinstance(answer, Chain):
        return Finding(False, "no equation where one is asked for")
    if len(answer.ops) != 1 or len(reference.ops) != 1 or answer.ops != reference.ops:
        return Finding(False, "another relation")
    ours, theirs = relations.difference(reference), relations.difference(answer)
    if ours is None or theirs is None:
        return Finding(False, "another relation")
    if relations.factor(ours, theirs) is not None:
        return Finding(True, "the same equation")
    zeros = relations.same_zeros(ours, theirs)
    return Finding(zeros, "the same solutions" if zeros else "another equation")


def _inequality(reference: Chain, answer: Chain) -> Finding:
    """Chains with the same members and directions, or sides that differ by a positive factor."""
    turned = Chain(tuple(reversed(answer.items)), tuple(_TURNED.get(op, op) for op in reversed(answer.ops)))
    for candidate in (answer, turned):
        if candidate.ops == reference.ops and len(candidate.items) == len(reference.items):
            pairs = zip(reference.items, candidate.items, strict=True)
            if all(isinstance(a, SCALARS) and isinstance(b, SCALARS) and same(a, b) is True for a, b in pairs):
                return Finding(True, "the same relation")
            if len(candidate.ops) == 1 and _positive_factor(reference, candidate):
                return Finding(True, "the same inequality")
    return Finding(False, "another relation")


def _positive_factor(reference: Chain, answer: Chain) -> bool:
    """Whether `left - right` of the answer is a positive multiple of that of the reference."""
    ours, theirs = relations.difference(reference), relations.difference(answer)
    if ours is None or theirs is None:
        return False
    factor = relations.factor(ours, theirs)
    return factor is not None and factor > 0


_TURNED = {"<": ">", ">": "<", "<=": ">=", ">=": "<="}


__all__ = ["Finding", "compare", "is_name", "last_place"]
