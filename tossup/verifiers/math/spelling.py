"""How an answer is written: the delimiters around it, and whether two answers are written alike."""

from __future__ import annotations

import re

_SPACES = re.compile(r"(?<![A-Za-z0-9])\s+|\s+(?![A-Za-z0-9])")


def undelimited(text: str) -> str:
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


def same_text(text: str, reference: str) -> bool:
    """Equality up to spaces and typesetting."""
    return _squeezed(text) == _squeezed(reference)


def _squeezed(text: str) -> str:
    """The text without spaces, `\\left`, `\\right` and the `d` of `\\dfrac`."""
    for mark, instead in (
        ("\\left", ""),
        ("\\right", ""),
        ("\\dfrac", "\\frac"),
        ("\\tfrac", "\\frac"),
        ("\\,", " "),
        ("\\!", " "),
    ):
        text = text.replace(mark, instead)
    return _SPACES.sub("", text).rstrip(".")
