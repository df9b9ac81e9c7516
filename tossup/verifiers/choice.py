"""Multiple choice: the response picks an option by its letter, by its text, or by both where they agree.

The options come from the problem's meta (`choices` or `options`: a list, a mapping from label to text, or ARC's
`{"text": [...], "label": [...]}`) or are read out of the prompt, "(A) 12 (B) 15" or one "A. 12" a line. The reference is
a label, the text of an option, or, where the options are a list, MMLU's position counted from 0. Several labels in
the reference ("A, C") ask for exactly these options.

Naming more options than were asked for is wrong, and so is a letter beside another option's text.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from tossup.records import Problem, Verdict, correct, undecided, wrong
from tossup.verifiers._final import clean, final_answer
from tossup.verifiers.exact import shorten

LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"

_INLINE = re.compile(r"\(([A-Z])\)\s*(.*?)(?=\s*\([A-Z]\)|\s*\Z)", re.DOTALL)
_LINES = re.compile(r"^\s*\(?([A-Z])[.):]\s+(.*?)\s*$", re.MULTILINE)
_LEAD = re.compile(r"(?:the\s+)?(?:correct\s+)?(?:option|choice|answer)s?\s*(?:is|are|:)?\s*", re.IGNORECASE)
_LABELLED = re.compile(r"[(\[]?(\w+)[)\]]?\s*(?:[.):\-–—]\s*|\Z|\s+(?=\())(.*)", re.DOTALL)
_SEVERAL = re.compile(r"[(\[]?\w[)\]]?(?:\s*(?:,|;|&|and|\s)\s*[(\[]?\w[)\]]?)+", re.IGNORECASE)


def gold(problem: Problem) -> str:
    """The response that chooses what the reference names."""
    labels = key_labels(problem.reference, options_of(problem))
    return f"\\boxed{{{', '.join(sorted(labels)) or problem.reference}}}"


def judge(problem: Problem, response: str) -> Verdict:
    """Compare the chosen options with the key; an answer that is no option may still equal one in value (0.5, 1/2)."""
    options = options_of(problem)
    keys = key_labels(problem.reference, options)
    if not keys:
        return undecided(f"the reference {shorten(problem.reference)!r} names none of the options")
    answer, why_not = final_answer(response, choice=True)
    if answer is None:
        return wrong(why_not)
    chosen, remark = chosen_labels(answer, options)
    if remark:
        return wrong(remark, answer)
    return _compare(answer, chosen or _equal_in_value(answer, options), keys)


def _compare(answer: str, chosen: frozenset[str], keys: frozenset[str]) -> Verdict:
    if not chosen:
        return wrong(f"{shorten(answer)!r} is none of the options", answer)
    if chosen == keys:
        return correct(f"chose {_named(chosen)}", answer)
    if len(chosen) > len(keys):
        return wrong(f"chose {_named(chosen)}, more than were asked for", answer)
    return wrong(f"chose {_named(chosen)}, the key is {_named(keys)}", answer)


def _named(labels: frozenset[str]) -> str:
    return " and ".join(sorted(labels))


def options_of(problem: Problem) -> dict[str, str]:
    """Label -> text of the option, in order; empty when the problem shows none."""
    given = problem.meta.get("choices") or problem.meta.get("options")
    if isinstance(given, Mapping):
        texts, labels = given.get("text"), given.get("label")
        if isinstance(texts, Sequence) and isinstance(labels, Sequence) and not isinstance(texts, str):
            return {str(label): clean(str(text)) for label, text in zip(labels, texts, strict=True)}
        return {str(label): clean(str(text)) for label, text in given.items()}
    if isinstance(given, Sequence) and not isinstance(given, str):
        return {LETTERS[i]: _without_label(str(text), LETTERS[i]) for i, text in enumerate(given[: len(LETTERS)])}
    prompt = problem.prompt
    return _read_options(prompt if isinstance(prompt, str) else "\n".join(m.get("content", "") for m in prompt))


def _without_label(text: str, label: str) -> str:
    """The option's text where the list repeats the label: "A. 12" or "(A) 12"."""
    return clean(re.sub(rf"^\s*\(?{label}[.):]\s+", "", text))


def _read_options(prompt: str) -> dict[str, str]:
    """The options that a prompt lists: letters that run from A without a gap, two at least; the last such list."""
    plain = re.sub(r"\\text(?:bf)?\s*\{\s*(\([A-Z]\))\s*\}", r"\1", prompt)
    for pattern in (_LINES, _INLINE):
        found: dict[str, str] = {}
        for label, text in pattern.findall(plain):
            if label == "A":
                found = {}
            if label == LETTERS[len(found)]:
                found[label] = clean(text.split("\n", 1)[0])
        if len(found) > 1:
            return found
    return {}


def key_labels(reference: str, options: Mapping[str, str]) -> frozenset[str]:
    """The labels that the reference asks for; empty when it names no option."""
    text = clean(reference)
    labels, _ = chosen_labels(text, options)
    if labels:
        return labels
    if text.isascii() and text.isdigit() and int(text) < len(options):
        return frozenset({list(options)[int(text)]})
    return frozenset()


def chosen_labels(answer: str, options: Mapping[str, str]) -> tuple[frozenset[str], str]:
    """The options that a clean answer names, and a remark when its letter and its text contradict."""
    text = _LEAD.sub("", answer, count=1).strip() if _LEAD.match(answer) else answer
    if text.strip("()") in options:
        return frozenset({text.strip("()")}), ""  # before the texts: an option's text can be another's letter
    by_text = frozenset(label for label, option in options.items() if _same_text(text, option))
    if by_text:
        return by_text, ""
    several = _several(text, options)
    if several:
        return several, ""
    match = _LABELLED.fullmatch(text)
    label = None if match is None else _label(match[1], options)
    if match is None or label is None:
        return frozenset(), ""
    rest = clean(match[2])
    others = [other for other, option in options.items() if _same_text(rest, option)]
    if rest and others and label not in others:
        return frozenset({label}), f"chose {label} but wrote the text of {others[0]}"
    return frozenset({label}), ""


def _several(text: str, options: Mapping[str, str]) -> frozenset[str]:
    """Two or more labels: "A and C", "A, C", "(A)(C)", or "AC" in capitals; empty when it is something else."""
    if re.fullmatch(r"[A-Z]{2,}", text) and len(set(text)) == len(text):
        parts = list(text)
    elif _SEVERAL.fullmatch(text):
        parts = [part for part in re.findall(r"\w+", text) if part.lower() != "and"]
    else:
        return frozenset()
    labels = [_label(part, options) for part in parts]
    return frozenset(labels) if len(labels) > 1 and None not in labels else frozenset()  # type: ignore[arg-type]


def _label(text: str, options: Mapping[str, str]) -> str | None:
    """The option's label that this word is, capital or small; without options any single letter up to J."""
    if options:
        return next((label for label in options if label.casefold() == text.casefold()), None)
    return text.upper() if len(text) == 1 and text.upper() in LETTERS[:10] else None


def _same_text(text: str, option: str) -> bool:
    return bool(text) and " ".join(text.casefold().split()) == " ".join(option.casefold().split())


def _equal_in_value(answer: str, options: Mapping[str, str]) -> frozenset[str]:
    """The options whose value the answer has, written another way: 0.5 for \\frac{1}{2}."""
    from tossup.verifiers import math

    boxed = f"\\boxed{{{answer}}}"
    return frozenset(label for label, text in options.items() if math.judge(boxed, text).ruling == "correct")
