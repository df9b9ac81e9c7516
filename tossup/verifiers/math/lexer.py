"""Text of an answer -> tokens. LaTeX, plain text and Unicode mathematics share one token stream.

Linear in the text: one regular expression without nested repetition, a cap on the number of tokens, and no look-back
over more than one token. Spacing commands, `\\left`, `\\displaystyle` and their like vanish here; `\\dfrac` becomes
`\\frac`; words that are not mathematics become `text` tokens, which only units, names and remarks may use.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from tossup.verifiers.math.limits import MAX_ANSWER_CHARS, MAX_DIGITS, MAX_TOKENS, Oversized, Unreadable
from tossup.verifiers.math.tables import (
    BOLD_COMMANDS,
    FUNCTIONS,
    GREEK,
    OPERATORS,
    PLAIN_WORDS,
    SAME,
    SPACING,
    TABLE,
    TEXT_COMMANDS,
    WORD_COMMANDS,
)
from tossup.verifiers.math.units import SINGLE_LETTERS, is_unit_word


class Token(NamedTuple):
    """`kind` is num, id, fn, cmd, text, op or end; `value` its text."""

    kind: str
    value: str


END = Token("end", "")

_SUPERSCRIPT = re.compile("[⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻ⁿ]+")
_SUBSCRIPT = re.compile("[₀₁₂₃₄₅₆₇₈₉ₙ]+")
_RAISED = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻ⁿ₀₁₂₃₄₅₆₇₈₉ₙ", "0123456789+-n0123456789n")

_LATEX_COMMA = re.compile(r"(?<=\d)\s?(?:\{,\}|,\\!|\{,\\!\}|\\!,)\s*(?=\d{3}(?!\d))")
_DOUBLED = re.compile(r"\\\\(?=[A-Za-z]{2})")
_DELIMITER = re.compile(r"(?<!\\)\$")
_RING = re.compile(r"\^\s*(?:\{\s*)?(?:\\(?:text|mathrm|rm)\s*\{\s*o\s*\}|o(?![A-Za-z]))(?:\s*\})?")
_TIMES_TEN = re.compile(r"(?<=\d)\s?[xX]\s?10\s?\^")
_TEMPERATURE = re.compile(r"(\^\s?\{?\\circ\s?\}?)\s*(?:\\(?:text|mathrm)\{\s*)?([FC])\b\s*\}?")
_UNIT_FRACTION = re.compile(r"\\frac\{\\(?:text|mathrm)\{([^{}]*)\}\}\{\\(?:text|mathrm)\{([^{}]*)\}(\^\{?\d\}?)?\}")
_CURRENCY_CODE = re.compile(r"\A\s*(?:Rs\.?|USD|US|EUR|INR|GBP)\s*(?=\\?\$?\d)")
_RATIO = re.compile(r"(?<=\d)\s?(?:\\text\{\s?to\s?\}|\bto\b)\s?(?=\d)")
_HALF_DAY = re.compile(r"(?<![A-Za-z])([AaPp])\.\s?[Mm]\b\.?")
_ABOUT = re.compile(r"\(\s*\\approx\s*([^()]{1,60})\)")
_ROW_GAP = re.compile(r"\\\\\s*\[\s*-?[\d.]+\s*(?:pt|em|ex|mm|cm)\s*\]")
_LEFT_BRACE = re.compile(r"\\left\s*\\(?:\{|lbrace)\s*(?=\\begin)")
_NO_BRACKET = re.compile(r"\\(?:left|right)\s*\.")
_PRIME = re.compile(r"\^\s*(?:\{\s*\\prime\s*\}|\\prime(?![A-Za-z]))")
_DOTTED = re.compile(r"\\dot\s*\{?(\d)\}?(\d{0,40})\\dot\s*\{?(\d)\}?")
_BLACKBOARD = re.compile(r"\\mathbb\s*([RZNQC])(?![A-Za-z])")
_QUAD = re.compile(r"\\q?quad(?![A-Za-z]{3})")
_HIDDEN = re.compile(r"\\(?:[hv]?phantom|label|tag)\*?\{[^{}]*\}")

_TOKEN = re.compile(
    r"(?P<space>\s+|~|\\[,;:!> ]|&nbsp;)"
    r"|(?P<cmd>\\[A-Za-z]+)"
    r"|(?P<esc>\\.)"
    r"|(?P<num>\d+\.(?=\s*\\(?:overline|dot|bar)\b)|\.(?=\s*\\(?:overline|dot|bar)\b)|\d+(?:\.\d+)?(?:[eE][+-]?\d{1,12}(?![\w.]))?|\.\d+)"
    r"|(?P<word>[A-Za-z]+)"
    r"|(?P<han>[\u4e00-\u9fff]+)"
    r"|(?P<op>\*\*|<=|>=|!=|==|=>|->|\.\.\.|[-+*/^_=<>(){}\[\]|,;:!%&'.$?])",
    re.DOTALL | re.ASCII,
)
_GROUPED = re.compile(r"\d{1,3}(?:(?:,\d{3})+|(?:(?: |\\,|\\ |\\;|~)\d{3})+)(?:\.\d+)?(?![\d]|[,.]\d)", re.ASCII)
_EUROPEAN = re.compile(r"(\d{1,3}(?:\.\d{3})+),(\d+)(?![\d.,])|(\d{1,3}(?:\.\d{3}){2,})(?![\d.,])", re.ASCII)


def clean(text: str) -> str:
    """Unicode mathematics as LaTeX, doubled backslashes single, thousands marks inside numbers gone."""
    if not text.isascii():
        text = _SUPERSCRIPT.sub(lambda m: "^{" + m.group().translate(_RAISED) + "}", text)
        text = _SUBSCRIPT.sub(lambda m: "_{" + m.group().translate(_RAISED) + "}", text)
        text = text.translate(TABLE)
    if "$" in text and (text.count("$") - text.count("\\$")) % 2 == 0:
        text = _DELIMITER.sub("", text)
    if "^" in text:
        text = _RING.sub(r"^\\circ ", text)
        text = _TIMES_TEN.sub(r"\\cdot 10^", text)
    if "circ" in text:
        text = _TEMPERATURE.sub(r"\1\\text{ degrees \2}", text)
    if "\\frac{\\" in text:
        text = _UNIT_FRACTION.sub(r"\\text{\1/\2}\3", text)
    text = _CURRENCY_CODE.sub("", text)
    if "to" in text:
        text = _RATIO.sub(":", text)
    if ".m" in text.lower() or ". m" in text.lower():
        text = _HALF_DAY.sub(r"\1m", text)
    if "\\" in text:
        if "\\\\" in text:
            text = _ROW_GAP.sub(r"\\\\", text)
            text = _DOUBLED.sub(_undouble(text), text)
        text = _HIDDEN.sub(" ", text)
        if text.endswith("\\") and not text.endswith("\\\\"):
            text = text[:-1]  # what trimming left of a final `\\ `
        if "approx" in text:
            text = _ABOUT.sub(r"\\approx \1", text)
        if "\\prime" in text:
            text = _PRIME.sub("'", text)
        if "\\left" in text:
            if "\\right." in text.replace(" ", ""):
                text = _LEFT_BRACE.sub(" ", text)
            text = _NO_BRACKET.sub(" ", text)
        if "\\dot" in text:
            text = _DOTTED.sub(r"\\overline{\1\2\3}", text)
        if "\\mathbb" in text:
            text = _BLACKBOARD.sub(r"\\mathbb{\1}", text)
        text = _QUAD.sub(" ", text)
    if "{:}" in text:
        text = text.replace("{:}", ":")
    if ",}" in text or "\\!" in text:
        text = _LATEX_COMMA.sub("", text)
    return text


def _undouble(text: str) -> str:
    """A doubled backslash before a command is an escaping accident, unless this is a matrix with rows of letters."""
    return "\\\\" + "\\\\" if "\\begin{" in text and "\\\\begin{" not in text else "\\\\"


def tokenize(text: str) -> list[Token]:
    """The tokens of a cleaned text, ending with END.

    Raises:
        Oversized: too many characters, tokens or digits.
        Unreadable: a character that no answer needs.
    """
    if len(text) > MAX_ANSWER_CHARS:
        raise Oversized(f"{len(text):,} characters")
    tokens: list[Token] = []
    brackets: list[str] = []
    position = 0
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            raise Unreadable(f"unexpected character {text[position]!r}")
        kind, value = match.lastgroup, match.group()
        position = match.end()
        if kind == "space":
            continue
        if kind == "num":
            position = _number(text, match, tokens, brackets)
        elif kind == "cmd":
            position = _command(text, value[1:], position, tokens)
        elif kind == "han":
            tokens.append(Token("text", value))
        elif kind == "word":
            _word(value, tokens)
        elif kind == "esc":
            _escaped(value, tokens, brackets)
        else:
            assert kind == "op"
            _operator(value, tokens, brackets)
        if len(tokens) > MAX_TOKENS:
            raise Oversized(f"more than {MAX_TOKENS:,} symbols")
    tokens.append(END)
    return tokens


def _number(text: str, match: re.Match[str], tokens: list[Token], brackets: list[str]) -> int:
    """A number, with thousands marks where a comma cannot be a separator of a tuple or set."""
    value, end = match.group(), match.end()
    if not brackets or brackets[-1] == "{":
        if (grouped := _GROUPED.match(text, match.start())) and not (tokens and tokens[-1].kind == "num"):
            value, end = re.sub(r"[^\d.]", "", grouped.group()), grouped.end()
        elif european := _EUROPEAN.match(text, match.start()):
            whole = (european[1] or european[3]).replace(".", "")
            value, end = whole + ("." + european[2] if european[2] else ""), european.end()
    if len(value) > MAX_DIGITS:
        raise Oversized(f"a number of {len(value):,} digits")
    tokens.append(Token("num", value))
    return end


def _command(text: str, name: str, position: int, tokens: list[Token]) -> int:
    """A LaTeX command; text commands take their braces along."""
    if name in TEXT_COMMANDS and (inner := _braced(text, position)) is not None:
        _text(name, text[inner[0] : inner[1]], tokens)
        return inner[1] + 1
    if name in ("hspace", "vspace", "color", "textcolor") and (inner := _braced(text, position)) is not None:
        return inner[1] + 1
    if name in SPACING or name in TEXT_COMMANDS:
        return position
    name = SAME.get(name, name)
    if name in ("/", "|", ":", "\\{", "\\}", "[", "]", "(", ")", "...", "\\|", "<", ">"):
        tokens.append(Token("op", name))
    elif name in FUNCTIONS and name != "sqrt":  # `\\sqrt[3]{x}` has a grammar of its own
        tokens.append(Token("fn", name))
    else:
        tokens.append(Token("cmd", name))
    return position


def _braced(text: str, position: int) -> tuple[int, int] | None:
    """Start and end of the braced argument at `position`, or None when there is none."""
    while position < len(text) and text[position] == " ":
        position += 1
    if position >= len(text) or text[position] != "{":
        return None
    depth = 0
    for index in range(position, len(text)):
        if text[index] == "{":
            depth += 1
        elif text[index] == "}":
            depth -= 1
            if depth == 0:
                return position + 1, index
    raise Unreadable("an unclosed brace")


def _text(command: str, content: str, tokens: list[Token]) -> None:
    """The content of a text command: words, a letter in another typeface, or mathematics after all."""
    bare = content.strip()
    if command == "operatorname":
        bare = SAME.get(bare, bare)
    after_value = bool(tokens) and (tokens[-1].kind == "num" or tokens[-1].value in (")", "}", "]", "circ"))
    if command == "mathbb" and bare in ("R", "Z", "N", "Q", "C"):
        tokens.append(Token("id", bare * 2))
    elif bare in SINGLE_LETTERS and after_value and command in WORD_COMMANDS:
        tokens.append(Token("text", bare))
    elif len(bare) == 1 and bare.isalpha() and not "\u4e00" <= bare <= "\u9fff":
        tokens.append(Token("id", bare))
    elif bare.lower() in ("and", "or"):
        tokens.append(Token("cmd", bare.lower()))
    elif bare in FUNCTIONS:
        tokens.append(Token("fn", bare))
    elif command in BOLD_COMMANDS and re.search(r"[-+=^<>]", bare):
        tokens.extend(tokenize(clean(bare))[:-1])
    elif command == "operatorname" and bare in OPERATORS:
        tokens.append(Token("cmd", bare))
    elif (
        not any(c.isalpha() for c in bare)
        or "\\" in bare
        or command in ("vec", "overrightarrow", "hat", "underline")
        or (bare and bare.lstrip("-$ ")[:1].isdigit() and not re.match(r"\d+(?:st|nd|rd|th)\b", bare))
    ):
        tokens.extend(tokenize(clean(bare))[:-1])
    elif bare:
        tokens.append(Token("text", bare))


def _word(word: str, tokens: list[Token]) -> None:
    """A run of letters outside commands: a function, a constant, a unit, a product of letters, or a word."""
    lower = word.lower()
    after_value = bool(tokens) and (tokens[-1].kind == "num" or tokens[-1].value in (")", "}", "]", "circ", "text"))
    if len(word) == 1:
        tokens.append(Token("id", word))
    elif word in PLAIN_WORDS:
        tokens.append(Token("cmd", PLAIN_WORDS[word]))
    elif word in FUNCTIONS:
        tokens.append(Token("fn", word))
    elif word in GREEK:
        tokens.append(Token("cmd", word))
    elif lower in ("and", "or"):
        tokens.append(Token("cmd", lower))
    elif lower in ("am", "pm") and tokens and tokens[-1].kind == "num":
        tokens.append(Token("text", lower))
    elif (tokens and tokens[-1].kind == "text" and not (word.isupper() and len(word) < 3)) or (
        after_value and is_unit_word(lower)
    ):
        tokens.append(Token("text", word))
    elif len(word) <= 3 or (word.isupper() and len(word) <= 6):
        tokens.extend(Token("id", letter) for letter in _split_letters(word, tokens))
    else:
        tokens.append(Token("text", word))


def _split_letters(word: str, tokens: list[Token]) -> str:
    """The letters of a short run, after any function or pi that it starts with (`lnx`, `pir`)."""
    for name in ("ln", "pi"):
        if word.startswith(name):
            tokens.append(Token("cmd", "pi") if name == "pi" else Token("fn", "ln"))
            return word[2:]
    return word


def _escaped(value: str, tokens: list[Token], brackets: list[str]) -> None:
    """A backslash with a character that is not a letter."""
    if value in ("\\{", "\\}", "\\|", "\\\\"):
        tokens.append(Token("op", value))
        if value == "\\{":
            brackets.append(value)
        elif value == "\\}" and brackets:
            brackets.pop()
    elif value in ("\\%", "\\$", "\\&"):
        tokens.append(Token("op", value[1]))
    elif value not in ("\\(", "\\)", "\\[", "\\]", "\\/", "\\-"):
        raise Unreadable(f"unexpected {value!r}")


def _operator(value: str, tokens: list[Token], brackets: list[str]) -> None:
    """An ASCII operator or bracket."""
    if value in "([{":
        brackets.append(value)
    elif value in ")]}" and brackets:
        brackets.pop()
    tokens.append(Token("op", value))
