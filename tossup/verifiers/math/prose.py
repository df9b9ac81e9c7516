"""Mathematics and numbers in a line of prose: where they stand, and what they say without their wrapping."""

from __future__ import annotations

import re

MATH = re.compile(r"\$\$(.+?)\$\$|\\\[(.+?)\\\]|\\\((.+?)\\\)|(?<!\\)\$([^$\n]+?)(?<!\\)\$", re.DOTALL)
_NUMBER = re.compile(
    r"(?<![\w:.])\d{1,4}(?::\d{1,4}){1,3}(?![\w:])(?:\s?[AaPp]\.?[Mm]\b\.?)?|"
    r"[(\[]\s?-?[\d./]+(?:\s?,\s?-?[\d./]+)+\s?[)\]]|"
    r"[-+−]?(?:(?<![A-Za-z0-9_.])[$€£])?(?<![A-Za-z0-9_])[-+]?(?:\d{1,3}(?:,\d{3})+|\d+(?:\s\d+(?=/\d))?)(?:\.\d+)?(?:\s*/\s*\d+(?![\d/]))?(?:\s?(?:%|percent))?"
)
_JOINED = re.compile(r"\s*(?:,|,?\s*\band\b|,?\s*\bor\b)\s*")
_NAMED_NEXT = re.compile(r"\s?(?:,|,?\s?\b(?:and|or)\b)\s?[A-Za-z]\s?=\s?")
_PLAIN_NEXT = re.compile(r"\s?(?:,|,?\s?\b(?:and|or)\b)\s?")
_LABEL = re.compile(
    r"\b(?:equation|eq|figure|fig|step|problem|question|exercise|example|theorem|lemma|page|part|case|section|table|line|option"
    r"|chapter|method|formula|item|note|number)s?\.?\s*\(?\s*\Z",
    re.IGNORECASE,
)


def masked(line: str) -> str:
    """The line with its inline mathematics blanked, so that no sentence ends inside it."""
    return MATH.sub(lambda m: "x" * len(m.group()), line)


def last_value(line: str) -> str | None:
    """The last mathematics or number of a line."""
    found = last_span(line)
    return None if found is None else found[0]


def last_span(line: str) -> tuple[str, int] | None:
    """The last mathematics or number of a line, with a percent or degree sign after it, and where it ends.

    Mathematics joined by nothing but "and", "or" and commas goes together.
    """
    spans, numbers = list(MATH.finditer(line)), list(_NUMBER.finditer(masked(line)))
    if spans and (not numbers or spans[-1].end() >= numbers[-1].start()):
        first = len(spans) - 1
        while first and _JOINED.fullmatch(line, spans[first - 1].end(), spans[first].start()):
            first -= 1
        if first < len(spans) - 1:
            word = " or " if re.search(r"\bor\b", line[spans[-2].end() : spans[-1].start()]) else ", "
            return word.join(inner(span) for span in spans[first:]), spans[-1].end()
        after = re.match(r"\s*(?:%|percent\b|°)", line[spans[-1].end() :])
        value = inner(spans[-1]) + (" " + after.group().strip() if after else "")
        return (value, spans[-1].end()) if value else None
    if not numbers or _LABEL.search(line[: numbers[-1].start()]):
        return None
    first = len(numbers) - 1
    while first and _NAMED_NEXT.fullmatch(line, numbers[first - 1].end(), numbers[first].start()):
        first -= 1
    if first == len(numbers) - 1 and re.fullmatch(r"[\s.]*", line[numbers[-1].end() :]):
        while first and _PLAIN_NEXT.fullmatch(line, numbers[first - 1].end(), numbers[first].start()):
            first -= 1
        if not re.search(r"\bare\s*\Z", line[: numbers[first].start()]):
            first = len(numbers) - 1
    if first < len(numbers) - 1:
        return line[numbers[first].start() : numbers[-1].end()].rstrip(","), numbers[-1].end()
    return numbers[-1].group().strip().rstrip(","), numbers[-1].end()


def between(text: str, spans: list[re.Match[str]]) -> str:
    """All that stands around and between the spans."""
    pieces, position = [], 0
    for span in spans:
        pieces.append(text[position : span.start()])
        position = span.end()
    return " ".join([*pieces, text[position:]])


def inner(span: re.Match[str]) -> str:
    """The mathematics without its delimiters."""
    return next(group for group in span.groups() if group is not None).strip()


def unwrap(text: str) -> str:
    """The answer without markdown, quotes, dollar delimiters and closing punctuation."""
    text = text.strip()
    bold = re.match(r"\*\*([^*\n]+)\*\*[.!]?\Z", text)
    text = bold[1].strip() if bold else re.sub(r"\*\*[.!]\Z", "", text).strip("*_`").strip()
    if len(text) > 1 and text[0] == text[-1] and text[0] in "\"'":
        text = text[1:-1]
    for opening, closing in (("$$", "$$"), ("\\[", "\\]"), ("\\(", "\\)"), ("$", "$")):
        if text.startswith(opening) and text.endswith(closing) and len(text) > len(opening) * 2:
            inner = text[len(opening) : -len(closing)]
            if opening not in inner:
                return inner.strip()
    return text.strip().rstrip(".。").strip()
