"""The final answer of a response that is no mathematics: found as in `tossup.verifiers.math`, then cleaned.

The same strict rules say where an answer stands (box, tags, "the answer is"). One rule is added, since these answers need
not look like mathematics: a response of one short line that announces nothing is its own answer.
"""

from __future__ import annotations

import re

from tossup.verifiers.math.extract import Missing, find

SHORT = 200
"""Characters of a one-line response that counts as its own answer."""

_WRAPPER = re.compile(r"\\(?:text|textbf|textit|mathrm|mathbf|mathit|texttt|operatorname)\s*\{([^{}]*)\}")
_SPACE = re.compile(r"\\[,;:! ]|\\quad|\\qquad|~|\s+")
_MARKED = re.compile(r"boxed|<answer>|####|\b(?:answer|solution|result|choice|option)\b", re.IGNORECASE)


def final_answer(response: str, choice: bool = False) -> tuple[str | None, str]:
    """The answer as clean text and "", or None and why there is none."""
    visible = response.rsplit("</think>", 1)[-1].strip()
    if len(visible) <= SHORT and "\n" not in visible and visible and not _MARKED.search(visible):
        return clean(visible), ""
    found = find(response, choice)
    if isinstance(found, Missing):
        return None, found.reason
    return clean(", ".join((*found.earlier, found.text))), ""


def clean(text: str) -> str:
    """Plain text: LaTeX text commands, dollar signs, markdown, closing full stop and odd spaces removed."""
    before = None
    while before != text:
        before, text = text, _WRAPPER.sub(r"\1", text)
    text = _SPACE.sub(" ", text.replace("\\_", "_").replace("\\#", "#").replace("$", "")).strip()
    text = text.removeprefix("\\(").removesuffix("\\)").strip().strip("*`\"'").strip()
    return text.removesuffix(".").strip()
