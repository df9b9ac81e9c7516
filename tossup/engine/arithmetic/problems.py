"""The built-in pool: sums, differences and products of whole numbers, written so that a tiny model can learn them.

A number is written lowest digit first, each digit behind the letter of its place: 47 is `a7b4`. The prompt of 47 + 58 is
`a7b4+a8b5=` and its reference is `a5b0c1` (105). With the place spelled out, each digit of the answer depends on the
digits behind the same letter and on a carry, which two layers can work out.

Real pools are full of problems that are solved already, of problems that are out of reach, of wrong keys and of
duplicates, so this one is too:

    add-2-digit ... sub-6-digit     35 %; how often the start policy is right depends on the carries
    add-2-digit-plain and others    36 %; no carry at all: solved, or nearly
    mul-3-digit                     29 %; never seen before and not to be learnt here: out of reach

    wrong keys    3 %: one digit of the reference is off; `meta["wrong_key"]` is True
    duplicates    2 %: another problem of the pool again; `meta["duplicate_of"]` is its id

Every prompt is either for training or for evaluation, by its own hash, so that no training pool of any seed, nor the warm
start, has met a held-out problem.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from tossup.records import Problem

PLACES = "abcdefgh"
"""The letter of each place, ones first; the longest answer has seven digits."""

WRONG_KEYS = 0.03
"""Share of the pool whose reference is wrong."""

DUPLICATES = 0.02
"""Share of the pool that repeats another of its problems, key and all."""

POOL_SIZE = 2000
HELDOUT_SIZE = 500


@dataclass(frozen=True, slots=True)
class Family:
    """Problems of one operation whose longer operand has `digits` digits; a `plain` one has no carry or borrow.

    `pool_share` and `warm_share` are relative weights in the training pool and in the warm start's examples, which have
    plain problems among the others anyway and no products at all.
    """

    operation: str
    digits: int
    pool_share: float
    warm_share: float
    plain: bool = False

    @property
    def name(self) -> str:
        """The dataset name of its problems, such as `add-3-digit` or `sub-4-digit-plain`."""
        verb = {"+": "add", "-": "sub", "*": "mul"}[self.operation]
        return f"{verb}-{self.digits}-digit" + ("-plain" if self.plain else "")


FAMILIES = (
    *(Family(operation, digits, 3.5, 2.0 if digits < 5 else 1.0) for operation in "+-" for digits in range(2, 7)),
    *(Family(operation, digits, 9.0, 0.0, plain=True) for operation in "+-" for digits in (2, 3)),
    Family("*", 3, 29.0, 0.0),
)
"""Pool shares in per cent."""

HELD_OUT_FAMILIES = tuple(family for family in FAMILIES if family.warm_share > 0)
"""The families of the held-out set: those in which there is something to learn."""


def spell(number: int) -> str:
    """A number as the policy reads and writes it: 105 is `a5b0c1`, 0 is `a0`."""
    return "".join(place + digit for place, digit in zip(PLACES, reversed(str(number)), strict=False))


def _below(rng: random.Random, n: int) -> int:
    """A whole number in [0, n). Built on `random()`, the one method whose sequence Python keeps between versions."""
    return int(rng.random() * n)


def _pick(rng: random.Random, shares: Mapping[Family, float]) -> Family:
    """One family, by its share."""
    point = rng.random() * sum(shares.values())
    for family, share in shares.items():
        point -= share
        if point < 0:
            return family
    return family


def operands(family: Family, rng: random.Random) -> tuple[int, int]:
    """Two operands: one with the family's digits, one with as many or fewer; a difference is never negative."""
    low = 10 ** (family.digits - 1)
    while True:
        a = low + _below(rng, 9 * low)
        b = _below(rng, 10 ** (1 + _below(rng, family.digits)))
        if family.operation == "-":
            a, b = max(a, b), min(a, b)
        elif rng.random() >= 0.5:
            a, b = b, a
        if not family.plain or is_plain(family.operation, a, b):
            return a, b


def is_plain(operation: str, a: int, b: int) -> bool:
    """Whether a + b needs no carry, or a - b no borrow."""
    pairs = zip(reversed(str(a)), reversed(str(b)), strict=False)
    return all(int(x) + int(y) <= 9 if operation == "+" else int(x) >= int(y) for x, y in pairs)


def solve(operation: str, a: int, b: int) -> int:
    """The right answer."""
    return {"+": a + b, "-": a - b, "*": a * b}[operation]


def is_held_out(prompt: str) -> bool:
    """Whether a prompt belongs to evaluation: one in eight, by its hash, whatever the seed."""
    return hashlib.sha256(prompt.encode()).digest()[0] < 32


def make_prompt(operation: str, a: int, b: int) -> str:
    """The prompt of one problem, such as `a7b4+a8b5=`."""
    return f"{spell(a)}{operation}{spell(b)}="


def draw(rng: random.Random, shares: Mapping[Family, float], *, held_out: bool) -> Iterator[tuple[Family, int, int]]:
    """An endless stream of (family, a, b) on one side of the split, families by their share; prompts may come twice."""
    while True:
        family = _pick(rng, shares)
        a, b = operands(family, rng)
        if is_held_out(make_prompt(family.operation, a, b)) is held_out:
            yield family, a, b


def _distinct(rng: random.Random, n: int, shares: Mapping[Family, float], *, held_out: bool) -> list[Problem]:
    """`n` problems with right keys, no prompt twice, without ids."""
    found: dict[str, Problem] = {}
    for family, a, b in draw(rng, shares, held_out=held_out):
        prompt, reference = make_prompt(family.operation, a, b), spell(solve(family.operation, a, b))
        found.setdefault(prompt, Problem("", prompt, reference, verifier="exact", dataset=family.name))
        if len(found) == n:
            break
    return list(found.values())


def _spoil(reference: str, rng: random.Random) -> str:
    """The reference with one digit off."""
    at = 1 + 2 * _below(rng, len(reference) // 2)
    digit = (int(reference[at]) + 1 + _below(rng, 9)) % 10
    return f"{reference[:at]}{digit}{reference[at + 1 :]}"


def pool(seed: int = 0, size: int = POOL_SIZE) -> list[Problem]:
    """The training pool: `size` problems of all families, some with wrong keys, some of them duplicates.

    The same seed gives the same problems with the same ids (`arithmetic/0/00017`: seed and position).
    """
    rng = random.Random(f"arithmetic pool {seed}")
    copies = round(DUPLICATES * size)
    shares = {family: family.pool_share for family in FAMILIES}
    problems = _distinct(rng, size - copies, shares, held_out=False)
    problems = [replace(p, id=f"arithmetic/{seed}/{i:05d}") for i, p in enumerate(problems)]
    for i in range(len(problems)):
        if rng.random() < WRONG_KEYS:
            spoiled = _spoil(problems[i].reference, rng)
            problems[i] = replace(problems[i], reference=spoiled, meta={"wrong_key": True})
    for i in range(len(problems), size):
        original = problems[_below(rng, size - copies)]
        meta = {**original.meta, "duplicate_of": original.id}
        problems.append(replace(original, id=f"arithmetic/{seed}/{i:05d}", meta=meta))
    return problems


def heldout(seed: int = 0, size: int = HELDOUT_SIZE) -> list[Problem]:
    """Fresh problems with right keys, `HELD_OUT_FAMILIES` in equal shares, none of them in any training pool."""
    rng = random.Random(f"arithmetic held out {seed}")
    shares = dict.fromkeys(HELD_OUT_FAMILIES, 1.0)
    problems = _distinct(rng, size, shares, held_out=True)
    return [replace(p, id=f"arithmetic/heldout/{seed}/{i:05d}") for i, p in enumerate(problems)]
