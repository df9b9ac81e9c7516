"""Units and currencies: when two of them say the same, and when they contradict.

Nothing is converted. A question asks for an answer in its own unit, so 6 square feet is not 864 square inches; a
missing unit is no contradiction, another known unit is.
"""

from __future__ import annotations

import re

from tossup.verifiers.math.words import names

_NAMES = {
    "mm": "mm millimeter millimetre",
    "cm": "cm cms centimeter centimetre",
    "dm": "dm decimeter decimetre",
    "m": "m meter metre",
    "km": "km kms kilometer kilometre",
    "in": "in inch inche",
    "ft": "ft foot feet",
    "yd": "yd yard",
    "mi": "mi mile",
    "mg": "mg milligram",
    "g": "g gram gm",
    "kg": "kg kgs kilogram kilo",
    "lb": "lb lbs pound",
    "oz": "oz ounce",
    "ton": "ton tonne",
    "ml": "ml milliliter millilitre",
    "l": "l liter litre",
    "gal": "gal gallon",
    "cup": "cup",
    "ms": "ms millisecond",
    "s": "s sec second",
    "min": "min minute",
    "h": "h hr hour",
    "day": "day",
    "week": "week wk",
    "month": "month",
    "year": "year yr",
    "mph": "mph",
    "kph": "kph kmh kmph",
    "deg": "deg degree",
    "rad": "rad radian",
    "percent": "percent pct percentage percents",
    "dollar": "dollar usd buck",
    "cent": "cent",
    "euro": "euro eur",
    "gbp": "gbp",
    "yen": "yen",
    "rupee": "rupee",
    "n": "newton",
    "j": "joule",
    "kj": "kj kilojoule",
    "w": "watt",
    "kw": "kw kilowatt",
    "v": "volt",
    "hz": "hz hertz",
    "khz": "khz kilohertz",
    "pa": "pa pascal",
    "kpa": "kpa kilopascal",
    "mol": "mol mole",
    "rpm": "rpm",
    "unit": "unit",
}
_CANONICAL = {name: unit for unit, names in _NAMES.items() for name in names.split()}
_CANONICAL |= {name + "s": unit for name, unit in list(_CANONICAL.items()) if len(name) > 2}
_SPEEDS = {"mi / h": "mph", "km / h": "kph", "km h^-1": "kph", "m s^-1": "m / s"}
_FILLER = names("of and the a an in total per each square sq cubic cu base altogether long wide tall")
_POWERS = {"square": "2", "sq": "2", "squared": "2", "cubic": "3", "cu": "3", "cubed": "3"}
_VAGUE = frozenset({"unit", ""})
SINGLE_LETTERS = frozenset("mgslhNJWVLACKF")

_CHANGES_VALUE = names("or not minus plus times"
    " than except nd th st rd prime mod modulo if else between least most about"
    " hundred thousand million billion dozen half twice double triple tenth hundredth factorial squared choose over divided"
    " multiplied root power to neither nor either unknown maybe wrong false without excluding approximately pick option"
    " out unless otherwise instead percentile remainder ratio thousands millions billions dozens"
    " ish incorrect invalid but") - {"squared"}  # fmt: skip


_REMARK = re.compile(
    r"\((?:about|approximately|approx|roughly|exactly|rounded|i\.e|that is|in|exact)\b(?:(?!\bor\b)[^()])*\)",
    re.IGNORECASE,
)


def is_unit_word(word: str) -> bool:
    """Whether a lower-case run of letters after a number is a unit rather than a product of variables."""
    return len(word) > 1 and (word in _CANONICAL or word in _POWERS)


def is_unit(words: str) -> bool:
    """Whether words are one known unit, of whatever power."""
    return canonical(words).split("^")[0] in _NAMES


def canonical(words: str) -> str:
    """One spelling per unit: `square centimeters` and `cm^2` give `cm^2`; unknown words stay, in lower case."""
    words = _REMARK.sub("", words)
    found: list[str] = []
    power = ""
    for word in re.findall(r"[a-z]+|\^\s*\{?\s*-?\d+|\d+|/|\$|%", words.lower()):
        if word in _POWERS:
            if word.endswith("ed") and found:
                found[-1] += "^" + _POWERS[word]
            else:
                power = _POWERS[word]
        elif word.startswith("^") or word.isdigit():
            if found:
                found[-1] += "^" + word.strip("^{ ")
        elif word in ("$", "%"):
            found.append("dollar" if word == "$" else "percent")
        elif word == "per":
            found.append("/")
        elif word in _CANONICAL:
            found.append(_CANONICAL[word] + ("^" + power if power else ""))
            power = ""
        elif word not in _FILLER:
            found.append(word)
    joined = " ".join(_below(word) for word in found)
    return _SPEEDS.get(joined, joined)


def _below(word: str) -> str:
    """`s^-2` as `/ s^2`."""
    name, _, power = word.partition("^-")
    return word if not power else f"/ {name}" if power == "1" else f"/ {name}^{power}"


def changes_value(words: str) -> bool:
    """Whether words after a number say something other than what is counted (`42 more than x`, `42nd prime`).

    A remark in parentheses that only repeats the value in another form does not.
    """
    words = _REMARK.sub("", words)
    if not words.isascii() and re.search("[或不非至到约]", words):
        return True
    if re.match(r"\W*(?:squared|cubed)\b", words):
        return True
    if re.search(r"\bof\b.*\d|(?<![\^\w-])\d", words):
        return True
    return any(word in _CHANGES_VALUE for word in re.findall(r"[a-z]+", words.lower()))


def contradict(reference: str, answer: str) -> bool:
    """Whether two canonical units cannot both be meant. An empty or vague unit contradicts nothing."""
    reference, answer = _strip_vague(reference), _strip_vague(answer)
    if not reference or not answer or reference == answer:
        return False
    ours, theirs = reference.split(), answer.split()
    return not (set(ours) <= set(theirs) or set(theirs) <= set(ours)) or _dimension(ours) != _dimension(theirs)


def _strip_vague(unit: str) -> str:
    """The unit without the word `units` (of whatever power), which names none."""
    return " ".join(word for word in unit.split() if word.split("^")[0] not in _VAGUE)


def _dimension(words: list[str]) -> list[str]:
    """The known units among the words."""
    known = set(_CANONICAL.values())
    return [word for word in words if word.split("^")[0] in known]
