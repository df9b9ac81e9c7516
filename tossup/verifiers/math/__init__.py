"""The math verifier: is the final answer of a response the reference?

    judge("So it is \\\\boxed{0.5}.", "\\\\frac{1}{2}").ruling      # correct
    verify(problem, response)                              # the same, for a Problem

Nothing in an answer is ever run as code: answers are tokenised and parsed by a grammar of our own into a small tree,
compared exactly on Python integers and fractions where they are rational, otherwise at chosen points to sixty digits
or more, and in the rare rest by SymPy in a process that can be killed. The path of an answer through the files:

    extract, announced      where the final answer stands, strictly (prose: values in a line of text)
    exact                   plain numbers: one regular expression, exact arithmetic
    spelling                answers that are written alike
    lexer, grammar, ...     text -> tree (cursor, factors, atoms, brackets, numerals, operators, reading)
    equivalence             tree against tree (values, scalars, lists, sets, vectors, relations, units, words)
    numeric, evaluator      exact and high-precision values
    slow                    SymPy, in a worker process
    limits                  how big anything may be

What counts as equal, and what does not. Every row has its cases in `tests/verifiers/math/cases/policy.jsonl`.

policy                  rule
======================  ====================================================================================
last box                the last visible box counts; one in a comment or a phantom does not
boxes as a list         boxes joined by nothing but commas or "and" are one list
a choice                "4 or 9" is no answer to a question with one answer, unless both say the same
hedges                  "at most 9", "nearly 9", "I doubt that ..." are no answers
thinking                an answer inside a think block does not count
run-on                  what follows once the response turns to another question does not count
truncation              a response that breaks off has no answer, nor has a box that never closes
last value              without box or announcement: the last value of the last line, unless it is a label
lists                   lists and sets have no order; every member must be there and none besides
tuples                  tuples, intervals and their brackets are ordered
names                   `n = 5` is 5; another name is another answer; a whole equation is not its right side
units                   a unit may be missing, may not contradict, and is never converted
percent                 the percent sign is a unit, never a factor of 100
unsimplified numbers    6/10 is 3/5 and sqrt(144) is 12
exact answers           an exact reference needs an exact answer or twelve digits, correctly rounded
mixed numbers           an integer before a proper fraction is added to it
separators              thousands commas, LaTeX commas, spaces; points with a decimal comma
free letters            the name of a constant of integration or of a whole number of periods is free
side conditions         a condition on a letter after the answer does not count
modulus                 a modulus may be missing and may not contradict
bases                   a numeral needs its base, and another base is another answer
unevaluated operators   an integral, sum, limit or gcd is not worked out for the model
chains                  members of a chain of equations must be equal; the last exact one is the answer
sets of numbers         intervals, unions and solved inequalities with the same points are the same
equations               the same up to a factor or with the same zeros
expressions             equal wherever both have a value
undefined values        what has no value equals nothing
vectors and matrices    entry by entry; a tuple is a column; a determinant is not worked out
ratios and times        a ratio up to a common factor; a time part by part
words                   the same words, whatever case and typeface; number words and dates by value
options                 the letter, with or without brackets and the text of the option
program text            a call of a function that mathematics does not know is no answer
size                    an answer over a structural limit is wrong unless it is written like the reference
the reference           one that is empty or cannot be read leaves the answer undecided, if not the same text
======================  ====================================================================================
"""

from __future__ import annotations

import re
import time
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache

from tossup.records import Problem, Ruling, Verdict, correct, undecided, wrong
from tossup.verifiers.math import exact, words
from tossup.verifiers.math.announced import Found, Missing
from tossup.verifiers.math.equivalence import compare
from tossup.verifiers.math.extract import find
from tossup.verifiers.math.limits import Oversized, Unreadable
from tossup.verifiers.math.numeric import has_value
from tossup.verifiers.math.reading import parse
from tossup.verifiers.math.scalars import ROUNDED_DIGITS
from tossup.verifiers.math.spelling import same_text, undelimited
from tossup.verifiers.math.tree import SCALARS, Group, Node, Num, Quantity, Text
from tossup.verifiers.workers import Workers

SLOW_SECONDS = 0.8
"""CPU seconds for one comparison in a worker process; more is UNDECIDED with the reason `timeout`."""

_DECIMAL_COMMA = re.compile(
    r"\s*([-+]?\d+)(?:,|\{,\})(\d{1,2}|\d{4,})((?:\s|\\?[%$€°]|\\(?:text|mathrm)\{[^{}\d]*\})*)"
)


@dataclass(frozen=True, slots=True)
class Reference:
    """An answer key, read once: what it is, or why it cannot be read."""

    text: str
    plain: Fraction | None
    option: str | None
    options: frozenset[str] | None
    words: bool
    node: Node | None
    trouble: str


def verify(problem: Problem, response: str) -> Verdict:
    """Judge one response to a problem whose reference is a mathematical answer."""
    return judge(response, problem.reference)


def judge(response: str, reference: str) -> Verdict:
    """Judge the final answer of `response` against `reference`. Never raises; the reason says which rule decided."""
    started = time.perf_counter()
    verdict = _judge(response, read_reference(reference))
    return replace(verdict, seconds=time.perf_counter() - started)


@lru_cache(maxsize=4096)
def read_reference(text: str) -> Reference:
    """An answer key in all the ways that we use it."""
    stripped = undelimited(text)
    node, trouble = _read(stripped)
    if not stripped:
        trouble = "the reference is empty"
    return Reference(
        text=stripped,
        plain=exact.plain(stripped),
        option=words.option(stripped),
        options=words.options(stripped),
        words=words.is_words(stripped),
        node=node,
        trouble=trouble,
    )


def _read(text: str) -> tuple[Node | None, str]:
    """The tree of a text, or why there is none."""
    value = words.number_word(text)
    if value is not None:
        return Num(value), ""
    counted = words.counted(text)
    if counted is not None:
        return Quantity(Num(counted[0]), counted[1]), ""
    try:
        return parse(text), ""
    except Oversized as error:
        return None, f"oversized: {error}"
    except Unreadable as error:
        return None, str(error)


def _judge(response: str, gold: Reference) -> Verdict:
    """Extraction, then the cheapest rule that decides."""
    if not gold.text:
        return undecided("the reference is empty")
    found = find(response, choice=gold.option is not None)
    if isinstance(found, Missing):
        return wrong(f"no final answer: {found.reason}")
    if gold.plain is not None and not found.earlier and (value := exact.plain(found.text)) is not None:
        return _plain(value, gold, found)
    return _answer(found, gold)


def _plain(value: Fraction, gold: Reference, found: Found) -> Verdict:
    """Two plain numbers."""
    if value == gold.plain:
        return correct(f"{found.how}: {found.text} equals the reference", found.text)
    if (
        exact.significant_digits(found.text) >= 12
        or exact.significant_digits(gold.text) >= ROUNDED_DIGITS
        or value.denominator >= 1 << 40
    ):
        return _answer(found, gold)
    return wrong(f"{found.how}: {_short(found.text)} is not the reference", found.text)


def _answer(found: Found, gold: Reference) -> Verdict:
    """The general case: every reading of what was found."""
    verdict = wrong("no reading of the answer")
    for text in _readings(found, gold):
        verdict = _one(text, gold, found.how)
        if verdict.ruling is Ruling.CORRECT:
            return verdict
    return verdict


def _readings(found: Found, gold: Reference) -> list[str]:
    """The ways to take what was found: the boxes as one list, or the last alone where one value is asked for."""
    if found.earlier:
        return [", ".join((*found.earlier, found.text))]
    readings = [found.text]
    if isinstance(gold.node, SCALARS) and (comma := _DECIMAL_COMMA.fullmatch(found.text)):
        readings.append(f"{comma[1]}.{comma[2]}{comma[3]}")
    if found.loose and found.how == "announced":
        readings.extend(found.loose)
    elif found.loose and isinstance(gold.node, Group) and gold.node.open in ("", "{"):
        count = len(gold.node.items)
        if 1 < count <= len(found.loose):
            readings.append(", ".join(found.loose[-count:]))
    return readings


def _one(text: str, gold: Reference, how: str) -> Verdict:
    """One reading of the answer against the reference."""
    text = undelimited(text)
    if same_text(text, gold.text):
        return correct(f"{how}: written like the reference", text)
    if text.rstrip(" })$.").endswith("?") and "?" not in gold.text:
        return wrong(f"{how}: a question mark after the answer", text)
    if gold.option is not None:
        letter = words.option(text.upper() if len(text) == 1 else text)
        if letter is None and (said := words.option_text(gold.text)):
            return _one(text, read_reference(said), how)
        if letter is not None or gold.node is None or isinstance(gold.node, Text):
            return (
                correct(f"{how}: option {letter}", text)
                if letter == gold.option
                else wrong(f"{how}: another option", text)
            )
    if gold.options is not None and words.options(text) == gold.options:
        return correct(f"{how}: the options of the reference", text)
    if (gold.words or gold.node is None or isinstance(gold.node, Text)) and words.same_words(gold.text, text):
        return correct(f"{how}: the words of the reference", text)
    if gold.node is None and gold.words:
        return wrong(f"{how}: {_short(text)} is not the reference", text)
    if gold.node is None:
        return undecided(f"the reference cannot be read: {gold.trouble}", text)
    node, trouble = _read(text)
    if node is None:
        if trouble.startswith("oversized"):
            return wrong("oversized answer", text)
        return wrong(f"{how}: {_short(text)} cannot be read: {trouble}", text)
    return _compared(node, text, gold, how)


def _compared(node: Node, text: str, gold: Reference, how: str) -> Verdict:
    """Two trees."""
    assert gold.node is not None
    try:
        finding = compare(gold.node, node)
    except Oversized:
        if _oversized(gold.node):
            return undecided("the reference is too large to be computed", text)
        return wrong("oversized answer", text)
    if finding.equal is None:
        return _slowly(text, gold, how, finding.rule)
    if finding.equal:
        return correct(f"{how}: {finding.rule}", text)
    return wrong(f"{how}: {_short(text)}: {finding.rule}", text)


def _oversized(node: Node) -> bool:
    """Whether the value of a reference is itself over the limits."""
    if not isinstance(node, SCALARS):
        return False
    try:
        has_value(node)
    except Oversized:
        return True
    return False


def _slowly(text: str, gold: Reference, how: str, rule: str) -> Verdict:
    """What arithmetic cannot tell, by SymPy in a worker process."""
    reply = _workers().call(gold.text, text)
    if reply.outcome == "timeout":
        return undecided("timeout", text)
    if reply.outcome == "died":
        return undecided(f"the checking process died: {reply.reason}", text)
    if reply.outcome == "done" and reply.result is True:
        return correct(f"{how}: equal after simplification", text)
    return undecided(f"{how}: {_short(text)}: neither shown to be equal nor to differ ({rule})", text)


@lru_cache(maxsize=1)
def _workers() -> Workers:
    """The shared pool, started when the first answer needs it."""
    return Workers("tossup.verifiers.math.slow:decide", timeout_s=SLOW_SECONDS)


def _short(text: str) -> str:
    """At most eighty characters, on one line."""
    text = " ".join(text.split())
    return text if len(text) <= 80 else text[:77] + "..."
