"""Answers in words: option letters, names, yes and no, number words."""

from __future__ import annotations

import re
from fractions import Fraction


def names(text: str) -> frozenset[str]:
    """The words of a text, for tables of names."""
    return frozenset(text.split())


def _ordered(text: str) -> list[str]:
    """The words of a text in order."""
    return text.split()


_ONES = _ordered(
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen"
    " eighteen nineteen"
)
_TENS = _ordered("twenty thirty forty fifty sixty seventy eighty ninety")
_VALUES = {word: value for value, word in enumerate(_ONES)} | {word: 10 * value for value, word in enumerate(_TENS, 2)}
_PARTS = {"half": 2, "quarter": 4} | dict(
    zip(_ordered("third fourth fifth sixth seventh eighth ninth tenth"), range(3, 11), strict=True)
)
_PARTS |= {name + "s": part for name, part in _PARTS.items()} | {"halves": 2}
SCALES = {"thousand": 10**3, "million": 10**6, "billion": 10**9}
_ARTICLES = frozenset({"a", "an", "the", "on", "at"})
_MONTHS = _ordered("january february march april may june july august september october november december")
_NOTHING = frozenset(
    {"none", "no solution", "no solutions", "no real solution", "no real solutions", "does not exist", "dne"}
)

_LETTER = re.compile(
    r"\s*(?:\\(?:text|textbf|textit|textrm|mathrm|mathbf|mbox|bf)\s*\{?)*\s*(?:\b(?:[Oo]ption|[Cc]hoice|[Aa]nswer)\b\s*:?\s*)?"
    r"\(?\s*(?:\\(?:text|textbf|mathrm|mathbf)\s*\{)?\s*([A-Z])\s*\}?\s*\)?"
    r"\s*\}*\s*(?:$|[.:)]\s*(?:\}|$|[A-Za-z\\$(~ -].*$)|[.:)]\s+\d.*$|(?<=\))\s*[A-Za-z\\$\d~-].*$|(?<=\}\))\s.*$|\\[ ,~;].*$)",
    re.DOTALL,
)


def option(text: str) -> str | None:
    """The letter of an option: `B`, `(B)`, `\\textbf{(B)}`, `B. the third one`; None for anything else."""
    if len(text) > 300:
        return None
    match = _LETTER.match(text)
    if match is None or re.search(r"\b(?:or|and|not)\b\s*(?:\\\w+\{)?\(?[A-Z]\b", text[match.start(1) + 1 :]):
        return None
    return match[1]


def option_text(text: str) -> str:
    """What an option says after its letter (`\\textbf{(C)}\\ 12` says 12); empty when it is the letter alone."""
    match = _LETTER.match(text)
    return text[match.end(1) :].lstrip(" })\\.:,~;") if match else ""


def options(text: str) -> frozenset[str] | None:
    """The letters of several options: `A, C, D`, `A and C`, `ACD`; None for anything else."""
    bare = re.sub(r"\\(?:text|textbf|mathrm|mathbf)\b|[{}()\\$ ]|\band\b|,", "", text[:80])
    return frozenset(bare) if re.fullmatch(r"[A-H]{2,8}", bare) and len(set(bare)) == len(bare) else None


def bare_words(text: str) -> str:
    """Words without LaTeX wrappers, case, punctuation and articles."""
    text = re.sub(r"\\(?:text|textbf|textit|textrm|textnormal|mathrm|mathbf|mbox|operatorname|emph)\b", " ", text)
    text = re.sub(r"\\[,;:! ]|[{}$*_`\"'“”‘’.,;:!?()~]|\\quad", " ", text)
    return " ".join(word for word in text.lower().split() if word not in _ARTICLES)


def same_words(reference: str, answer: str) -> bool:
    """Whether two answers in words are the same words."""
    ours, theirs = bare_words(reference), bare_words(answer)
    if not ours or not theirs:
        return False
    if (
        ours == theirs
        or ours == bare_words(re.sub(r"^\W*(?:text\W*)?\([A-J]\)", "", answer))
        or (_nothing(ours) and _nothing(theirs))
    ):
        return True
    day = date(ours)
    return day is not None and day == date(theirs)


def _nothing(words: str) -> bool:
    """Whether words say that there is no answer, of themselves or of what they name (`limit does not exist`)."""
    words = re.sub(r"^there (?:is|are) ", "", words)
    return words in _NOTHING or bool(
        re.fullmatch(r"(?:(?!no|not)\w+ ){1,4}(?:does not exist|has no (?:real )?solutions?)", words)
    )


def date(words: str) -> tuple[int, int | None, int | None] | None:
    """Month, day and year of a date in words (`march 5th 2020`, `5 march`); None for anything else."""
    month, day, year = 0, None, None
    for word in words.split():
        names = [number for number, name in enumerate(_MONTHS, 1) if len(word) > 2 and name.startswith(word)]
        digits = re.fullmatch(r"(\d{1,4})(?:st|nd|rd|th)?", word)
        if names and not month:
            month = names[0]
        elif digits and len(digits[1]) < 3 and day is None:
            day = int(digits[1])
        elif digits and len(digits[1]) == 4 and year is None:
            year = int(digits[1])
        elif word != "of":
            return None
    return (month, day, year) if month else None


def number_word(text: str) -> Fraction | None:
    """The value of an English number word (`twenty-one`, `two thirds`, `half`); None for anything else."""
    if len(text) > 160:
        return None
    head, joined, tail = bare_words(text).replace("-", " ").rpartition(" and ")
    if joined and tail.split()[-1:] and tail.split()[-1] in _PARTS:  # `two and a half`
        count, rest = number_word(head), number_word(tail)
        return None if count is None or rest is None or count.denominator > 1 else count + rest
    parts = [word for word in bare_words(text).replace("-", " ").split() if word != "and"]
    if not parts or len(parts) > 12:
        return None
    part = _PARTS.get(parts[-1])
    if part is None:
        whole = _whole_number(parts)
        return None if whole is None else Fraction(whole)
    top = _VALUES.get(parts[0]) if len(parts) == 2 else 1 if len(parts) == 1 and part == 2 else None
    return Fraction(top, part) if top is not None and (top == 1) != parts[-1].endswith("s") else None


def counted(text: str) -> tuple[Fraction, str] | None:
    """A number in words and what it counts (`seven apples`, `two and a half hours`); None for anything else."""
    parts = bare_words(text).split()
    if len(parts) > 8 or not parts or parts[0].split("-")[0] not in _VALUES:
        return None
    for size in range(len(parts) - 1, 0, -1):
        value = number_word(" ".join(parts[:size]))
        if value is not None and parts[size] not in _PARTS:
            return value, " ".join(parts[size:])
    return None


def _whole_number(parts: list[str]) -> int | None:
    """The value of the words of a whole number."""
    total, current, last = 0, 0, ""
    for word in parts:
        if word in _VALUES:
            if last in _ONES or (last in _TENS and not 1 <= _VALUES[word] <= 9):
                return None
            current += _VALUES[word]
        elif word == "hundred" and last in _ONES and current:
            current *= 100
        elif word in SCALES and current:
            total, current = total + current * SCALES[word], 0
        else:
            return None
        last = word
    return total + current


def is_words(text: str) -> bool:
    """Whether a text is words without mathematics: at least one run of three letters, no digits or operators."""
    bare = bare_words(text)
    return bool(re.fullmatch(r"[a-z][a-z' -]*[a-z]", bare)) and len(bare) > 2
