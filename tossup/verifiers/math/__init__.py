"""The math verifier: is the final answer of a response the reference?"""

from __future__ import annotations

import re
import time
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache

from tossup.records import Problem, Verdict, correct, undecided, wrong
from tossup.verifiers.math import exact, words
from tossup.verifiers.math.announced import Found, Missing
from tossup.verifiers.math.equivalence import compare
from tossup.verifiers.math.extract import find
from tossup.verifiers.math.limits import Oversized, Unreadable
from tossup.verifiers.math.reading import parse
from tossup.verifiers.math.tree import SCALARS, Group, Node, Num, Text
from tossup.verifiers.workers import Workers

SLOW_SECONDS = 1.0
"""CPU seconds for one comparison in a worker process; more is UNDECIDED with the reason `timeout`."""

_DECIMAL_COMMA = re.compile(r"\s*([-+]?\d+)(?:,|\{,\})(\d{1,2}|\d{4,})\s*")


@dataclass(frozen=True, slots=True)
class Reference:
    """An answer key, read once: what it is, or why it cannot be read."""

    text: str
    plain: Fraction | None
    option: str | None
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
    stripped = _undelimited(text)
    node, trouble = _read(stripped)
    if not stripped:
        trouble = "the reference is empty"
    return Reference(stripped, exact.plain(stripped), words.option(stripped), words.is_words(stripped), node, trouble)


def _undelimited(text: str) -> str:
    """The text without surrounding dollar signs, boxes and spaces."""
    text = text.strip()
    if text.startswith("\\boxed{") and text.endswith("}"):
        text = text[7:-1].strip()
    for mark in ("**", "`", '"', "$"):
        if (
            text.startswith(mark)
            and text.endswith(mark)
            and len(text) > 2 * len(mark)
            and mark not in text[len(mark) : -len(mark)]
        ):
            text = text[len(mark) : -len(mark)].strip()
    return text


def _read(text: str) -> tuple[Node | None, str]:
    """The tree of a text, or why there is none."""
    value = words.number_word(text)
    if value is not None:
        return Num(Fraction(value)), ""
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
        max(exact.significant_digits(found.text), exact.significant_digits(gold.text)) >= 12
        or value.denominator >= 1 << 40
    ):
        return _answer(found, gold)
    return wrong(f"{found.how}: {_short(found.text)} is not the reference", found.text)


def _answer(found: Found, gold: Reference) -> Verdict:
    """The general case: every reading of what was found."""
    verdict = wrong("no reading of the answer")
    for text in _readings(found, gold):
        verdict = _one(text, gold, found.how)
        if verdict.ruling == "correct":
            return verdict
    return verdict


def _readings(found: Found, gold: Reference) -> list[str]:
    """The ways to take what was found: the boxes as one list, or the last alone where one value is asked for."""
    if found.earlier:
        return [", ".join((*found.earlier, found.text))]
    readings = [found.text]
    if isinstance(gold.node, SCALARS) and (comma := _DECIMAL_COMMA.fullmatch(found.text)):
        readings.append(f"{comma[1]}.{comma[2]}")
    if found.loose and found.how == "announced":
        readings.extend(found.loose)
    elif found.loose and isinstance(gold.node, Group) and gold.node.open in ("", "{"):
        count = len(gold.node.items)
        if 1 < count <= len(found.loose):
            readings.append(", ".join(found.loose[-count:]))
    return readings


def _one(text: str, gold: Reference, how: str) -> Verdict:
    """One reading of the answer against the reference."""
    text = _undelimited(text)
    if _same_text(text, gold.text):
        return correct(f"{how}: written like the reference", text)
    if gold.option is not None:
        letter = words.option(text)
        if letter is not None or gold.node is None or isinstance(gold.node, Text):
            return (
                correct(f"{how}: option {letter}", text)
                if letter == gold.option
                else wrong(f"{how}: another option", text)
            )
    if (gold.words or gold.node is None or isinstance(gold.node, Text)) and words.same_words(gold.text, text):
        return correct(f"{how}: the words of the reference", text)
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
        return wrong("oversized answer", text)
    if finding.equal is None:
        return _slowly(text, gold, how, finding.rule)
    if finding.equal:
        return correct(f"{how}: {finding.rule}", text)
    return wrong(f"{how}: {_short(text)}: {finding.rule}", text)


def _slowly(text: str, gold: Reference, how: str, rule: str) -> Verdict:
    """What arithmetic cannot tell, by SymPy in a worker process."""
    reply = _workers().call(gold.text, text)
    if reply.outcome == "timeout":
        return undecided("timeout", text)
    if reply.outcome == "died":
        return undecided(f"the checking process died: {reply.reason}", text)
    if reply.outcome == "done" and reply.result is True:
        return correct(f"{how}: equal after simplification", text)
    return wrong(f"{how}: {_short(text)}: {rule}", text)


@lru_cache(maxsize=1)
def _workers() -> Workers:
    """The shared pool, started when the first answer needs it."""
    return Workers("tossup.verifiers.math.slow:decide", timeout_s=SLOW_SECONDS)


def _same_text(text: str, reference: str) -> bool:
    """Equality up to spaces and typesetting."""
    return _squeezed(text) == _squeezed(reference)


_SPACES = re.compile(r"(?<![A-Za-z0-9])\s+|\s+(?![A-Za-z0-9])")


def _squeezed(text: str) -> str:
    """The text without spaces, `\\left`, `\\right` and the `d` of `\\dfrac`."""
    for mark, instead in (
        ("\\left", ""),
        ("\\right", ""),
        ("\\dfrac", "\\frac"),
        ("\\tfrac", "\\frac"),
        ("\\,", ""),
        ("\\!", ""),
    ):
        text = text.replace(mark, instead)
    return _SPACES.sub("", text).rstrip(".")


def _short(text: str) -> str:
    """At most eighty characters, on one line."""
    text = " ".join(text.split())
    return text if len(text) <= 80 else text[:77] + "..."
