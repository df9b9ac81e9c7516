"""How values are written on the page, and how text from outside is made fit to be shown."""

from __future__ import annotations

import re
from typing import Any

from tossup.records import counted

NAME_LIMIT = 80
"""Characters of a name (a dataset, an id) that the page shows."""

CONTROLS = {code: chr(0x2400 + code) for code in range(32) if chr(code) not in "\n\t"} | {0x7F: "␡"}
"""Control characters become their pictures: a reader should see them, and HTML cannot hold a NUL."""

TURNS = {code: f"⟨U+{code:04X}⟩" for code in (*range(0x202A, 0x202F), *range(0x2066, 0x206A))}
"""So do the characters that turn the direction of the text behind them; right-to-left letters themselves stay."""

MARKS = r"[\u0300-\u036f\u1ab0-\u1aff\u1dc0-\u1dff\u20d0-\u20ff\ufe20-\ufe2f]"
PILED = re.compile(f"({MARKS}{{3}}){MARKS}+")
"""More marks on one letter than any language has: they would be drawn over the lines above."""


def legible(text: str, limit: int = NAME_LIMIT) -> str:
    """Text to show: at most about `limit` characters, the middle left out, nothing in it that acts on its surroundings."""
    text = PILED.sub(r"\1", text)
    if len(text) > limit:
        kept = max(1, limit // 2)
        text = f"{text[:kept]} … {len(text) - 2 * kept:,} characters left out … {text[-kept:]}"
    return text.translate(CONTROLS | TURNS)


def percent(share: float | None, digits: int = 1) -> str:
    """`0.1234` as `12.3 %`; nothing to say is `–`."""
    return "–" if share is None else f"{share * 100:.{digits}f}\u00a0%"


def count(number: float | None) -> str:
    """A whole number with its thousands apart."""
    return "–" if number is None else f"{number:,.0f}"


def figure(number: float | None, digits: int = 3) -> str:
    """A number with so many decimals."""
    return "–" if number is None else f"{number:.{digits}f}"


def name(text: Any) -> str:
    """A dataset or an id; an empty one is said to be so."""
    return legible(str(text)) or "(no name)"


FILTERS = {"percent": percent, "count": count, "figure": figure, "name": name, "legible": legible, "counted": counted}
