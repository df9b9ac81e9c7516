"""Answers of logic puzzles: a truth value, an assignment of values to names, or a sequence of tokens.

The reference shows which of the three it is; `meta["kind"]` (boolean, assignment, sequence) says so where it could be
two of them.

    boolean     True, yes; False, no: one word, in any case
    assignment  "Ann = knight, Ben = knave", "Ann is a knight and Ben is a knave", {"Ann": "knight"}: the same names
                with the same values, in any order, no name missing, none added, none given twice
    sequence    "A# B# B#", "[1, 2, 3]", "up -> left": the same tokens in the same order; brackets, commas, arrows and
                spaces between tokens do not count, letters are compared as written
"""

from __future__ import annotations

import json
import re

from tossup.records import Problem, Verdict, correct, undecided, wrong
from tossup.verifiers._final import clean, final_answer
from tossup.verifiers.exact import shorten

TRUTH = {"true": True, "yes": True, "false": False, "no": False}

KINDS = ("boolean", "assignment", "sequence")

_PART = re.compile(r"\s*(?:[,;\n]|\band\b)\s*(?:and\b\s*)?")
_PAIR = re.compile(r"([\w .'-]+?)\s*(?:=|:|->|→|\\to|\bis\b)\s*(?:an?\s+|the\s+)?(.+)", re.DOTALL)
_BETWEEN = re.compile(r"\s*(?:->|→|⇒|=>|\\(?:to|rightarrow|Rightarrow)\b|[,;\s])\s*")


def gold(problem: Problem) -> str:
    """The response that gives the reference as its answer."""
    return f"<answer>{problem.reference}</answer>"


def judge(problem: Problem, response: str) -> Verdict:
    """Compare the final answer with the reference, by the reference's kind."""
    reference = clean(problem.reference)
    if not reference:
        return undecided("the problem has no reference")
    kind = problem.meta.get("kind") or kind_of(reference)
    if kind not in KINDS:
        return undecided(f"meta kind is {kind!r}: expected one of {', '.join(KINDS)}")
    answer, why_not = final_answer(response)
    if answer is None:
        return wrong(why_not)
    if kind == "boolean":
        return _boolean(answer, reference)
    return _assignment(answer, reference) if kind == "assignment" else _sequence(answer, reference)


def kind_of(reference: str) -> str:
    """The kind that a clean reference shows."""
    if reference.casefold() in TRUTH:
        return "boolean"
    return "assignment" if assignment(reference) else "sequence"


def _boolean(answer: str, reference: str) -> Verdict:
    key, said = TRUTH.get(reference.casefold()), TRUTH.get(answer.casefold())
    if key is None:
        return undecided(f"the reference {shorten(reference)!r} is no truth value")
    if said is None:
        return wrong(f"{shorten(answer)!r} is no truth value", answer)
    return correct(f"says {answer}", answer) if said is key else wrong(f"says {answer}, the key is {reference}", answer)


def assignment(text: str) -> dict[str, str] | None:
    """Name -> value, case folded; None when the text is no assignment or gives a name two values."""
    inner = text.replace('"', "").strip().strip("{}()[]\\ ")
    pairs: dict[str, str] = {}
    for part in _PART.split(inner):
        match = _PAIR.fullmatch(part.strip())
        if match is None:
            return None
        name, value = (_bare(side) for side in match.groups())
        if not name or not value or pairs.get(name, value) != value:
            return None
        pairs[name] = value
    return pairs


def _bare(text: str) -> str:
    return " ".join(text.casefold().strip(" \"'.()").split())


def _assignment(answer: str, reference: str) -> Verdict:
    key, said = assignment(reference), assignment(answer)
    if key is None:
        return undecided(f"the reference {shorten(reference)!r} is no assignment")
    if said is None:
        return wrong(f"{shorten(answer)!r} is no assignment of one value to each name", answer)
    for name, value in key.items():
        if name not in said:
            return wrong(f"no value for {name!r}", answer)
        if said[name] != value:
            return wrong(f"{name!r} is {said[name]!r}, the key is {value!r}", answer)
    added = sorted(said.keys() - key.keys())
    return wrong(f"{added[0]!r} was not asked for", answer) if added else correct("the same assignment", answer)


def sequence(text: str) -> list[str]:
    """The tokens of a sequence in order."""
    try:
        value = json.loads(text)
    except ValueError:
        value = None
    if isinstance(value, list):
        return [item if isinstance(item, str) else json.dumps(item) for item in value]
    inner = re.sub(r"^(?:\\left)?[\[({]\s*(.*?)\s*(?:\\right)?[\])}]$", r"\1", text.strip(), flags=re.DOTALL)
    return [token.strip("\"'") for token in _BETWEEN.split(inner) if token]


def _sequence(answer: str, reference: str) -> Verdict:
    key, said = sequence(reference), sequence(answer)
    for position, (k, s) in enumerate(zip(key, said, strict=False), 1):
        if k != s:
            return wrong(f"token {position} is {shorten(s)!r}, the key is {shorten(k)!r}", answer)
    if len(said) != len(key):
        return wrong(f"{len(said)} tokens, the key has {len(key)}", answer)
    return correct(f"the same {len(key)} tokens" if len(key) > 1 else "equals the reference", answer)
