"""Answers without a box: tags, hashes, announcements, and the last value of a finished response."""

from __future__ import annotations

import re
from dataclasses import dataclass

from tossup.verifiers.math.prose import MATH, between, inner, last_span, last_value, masked, unwrap
from tossup.verifiers.math.tables import FUNCTIONS
from tossup.verifiers.math.units import is_unit_word


@dataclass(frozen=True, slots=True)
class Found:
    """An answer. `how` names the rule; `earlier` are the boxes before it that may belong to the same list."""

    text: str
    how: str
    earlier: tuple[str, ...] = ()
    loose: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Missing:
    """No answer, and why."""

    reason: str


_MARK = re.compile(
    r"\b(?:(?P<weak>solutions?|results?|roots?|zeros)|answers?|choice|option|ans)\b(?:\s{1,2}(?:to|of|for)\s[^.\n:$]{1,60})?"
    r"\s{0,4}(?:\b(?:is|are|equals|would be|will be|should be|must be)\b|:|=)"
    r"(?:\s{0,2}:)?(?:\s{0,2}(?:therefore|thus|then|simply)\b,?)?"
    r"|(?:\A|\n)[ \t]{0,8}A[ \t]{0,2}:|\*\*\s{0,2}(?:final\s)?answer\s{0,2}:?\s{0,2}\*\*\s{0,2}:?"
    r"|(?:\A|\n)[# ]{0,8}final answer[ \t]{0,8}\n|\banswer\s{1,4}(?=\\\[|\\\(|\$)"
    r"|答案】?(?:是|为|：|:|(?<=】))|故选\s?[：:]?|(?:\A|\n)\s{0,4}答[：:]",
    re.IGNORECASE,
)


_NEGATED = re.compile(
    r"\b(?:not|false|wrong|untrue|incorrect|whether|if|cannot|can't|unsure|doubt|unlikely|suppose|assume"
    r"|(?<!only )possible|candidate|potential|reference|expected|told)\b(?:[^\S\n]+\w+){0,4}[^\S\n]*\Z",
    re.IGNORECASE,
)


_AFTERTHOUGHT = re.compile(
    r",?\s+rather than\b|,\s+(?:not|which|since|because|as|so|but|it)\b|\s+\(?(?:because|since)\s|;\s+(?=[a-z]{3})"
)
_ATTAINED = re.compile(
    r",\s+(?:(?:which|and) (?:occurs|happens|is)\s+)?(?:attained|achieved|reached|obtained|at|when|with equality)\b"
    r"|,\s+(?:which occurs|because|since)\b|\s\((?:since|because)\b|\sfor all\b"
    r"|\s\((?=[^()]*[a-z]{3})(?![^()]*\b(?:or|not)\b)[^()]*\)[\s.]*\Z"
)
_JSON = re.compile(r'"(?:final_)?answer"\s*:\s*(?:"([^"\n]*)"|([-\d.]+))')


_HEDGE = re.compile(
    r"\b(?:either|one of|could be|might be|may be|perhaps|maybe|possibly|any of|some of|anything|except|not|false|twice"
    r"|any number|such as|of the form"
    r"|half|double|triple|(?:greater|less|more|fewer|larger|smaller) than|close|near|nearly|almost|between|around|at least"
    r"|at most|minus|unknown|unclear|undetermined|cannot|can't|don't|isn't|aren't|incorrect|(?:is|are|was) wrong)\b"
    r"|不是|并非|可能",
    re.IGNORECASE,
)


_ASIDE = re.compile(r"\b(?:or|mod|base|of)\b", re.IGNORECASE)
_HAN = re.compile("[\u4e00-\u9fff]")
_WORD = re.compile(r"(?<![\\A-Za-z])[A-Za-z]{2,}")


_ALIGNED = re.compile(
    r"\\begin\{(?:align|aligned|gather|equation)\*?\}([^{}]*(?:\{[^{}]*\}[^{}]*){0,60})\\end\{\w+\*?\}[\s.$]*(?:\\\])?[\s.$]*\Z"
)
_LAST_WORD = re.compile(r"\b(?:is|be|was|are)\s+(?:(?:an?|the|on)\s+)?([A-Za-z]+(?:-[a-z]+)?)[.!]?\Z")


_SENTENCE = re.compile(r"\.(?=\s+[A-Z\\(\[*]|\s*\Z)|。|\n\s*\n")


_CHOICE_RIGHT = re.compile(
    r"\b(?:option|choice|answer)\s*\(?([A-J])\)?\s+is\s+(?:the\s+)?(?:correct|right|best|answer)\b[^.\n]*[.!]?\s*\Z"
)


_CHOICE_TAIL = re.compile(r"\b(?:it(?:'s| is)|is|choose|option|pick)\s*\(?\*{0,2}([A-J])\)?\*{0,2}\s*[.!]?\s*\Z")


def tagged(tail: str) -> Found | Missing | None:
    """An answer between answer tags, after four hashes, or in a JSON object."""
    end = tail.rfind("</answer>")
    start = tail.rfind("<answer>", 0, end if end >= 0 else len(tail))
    if start >= 0:
        if end > start and (later := marked(tail[end + 9 :])) is not None:
            return later
        content = tail[start + 8 : end if end > start else len(tail)]
        return marked(content) or Found(unwrap(content), "answer tag")
    start = tail.rfind("####")
    if start >= 0:
        return Found(unwrap(tail[start + 4 :].lstrip(": ").split("\n", 1)[0]), "####")
    fields = list(_JSON.finditer(tail)) if '"' in tail else []
    return Found(fields[-1][1] or fields[-1][2] or "", "answer field") if fields else None


def marked(tail: str) -> Found | Missing | None:
    """An answer that the response announces."""
    marks = list(_MARK.finditer(tail))
    if not marks:
        return None
    mark = marks[-1]
    before = tail[max(0, mark.start() - 60) : mark.start()]
    if not mark.group().startswith("\n") and _NEGATED.search(before):
        return Missing("a negated answer")
    rest = tail[mark.end() :].lstrip(" \n*:：")
    clause = _clause(rest)
    if clause.count("**") % 2:
        clause = clause.replace("**", "", 1)  # its partner stood before the answer
    if re.match(r"[\s.]*(?:or|maybe|perhaps|possibly|or maybe)\b", rest[len(clause) :], re.IGNORECASE):
        return Missing("a choice between answers")
    if mark["weak"] and re.search(r"\d", rest[len(clause) :]):
        return None  # a result on the way, since more figures follow
    if not clause:
        return Missing("no answer where one is announced")
    return _from_clause(clause)


def _clause(rest: str) -> str:
    """The sentence at the start of `rest`."""
    if rest.startswith(("$$", "\\[")):
        math = MATH.match(rest)
        if math:
            return math.group()
    line = rest.split("\n\n", 1)[0][:600]
    end = _SENTENCE.search(masked(line))
    return (line[: end.start()] if end else line).strip()


def _from_clause(clause: str) -> Found | Missing:
    """The answer in an announcing clause: mathematics, a value at its start, or its last number."""
    if re.search(r"\bor\b", masked(clause)) and re.search(r"\d.*\bor\b.*\d", clause):
        return Found(unwrap(clause), "announced")  # a choice, unless both say the same
    head = _AFTERTHOUGHT.split(clause, maxsplit=1)[0]
    if _HEDGE.search(masked(head)):
        return Missing("a hedged or negated answer")
    spans = list(MATH.finditer(head))
    if len(spans) > 1 and re.fullmatch(r"[\s,.]*\bor\b[\s,.]*", between(head, spans)):
        return Found(" or ".join(inner(span) for span in spans), "announced")
    if len(spans) > 1 and re.fullmatch(r"[\s,.]*(?:and)?[\s,]*", between(head, spans)):
        return Found(", ".join(inner(span) for span in spans), "announced")
    last = last_value(head)
    if last is None or last == unwrap(head):
        return Found(unwrap(head), "announced")
    if spans:
        return Found(last, "announced", loose=(unwrap(head),))
    if re.match("[A-Za-z\u4e00-\u9fff]", head) or re.search(r"=\s*" + re.escape(last) + r"\W*\Z", head):
        return Found(unwrap(head), "announced", loose=(last,))
    aside = re.fullmatch(r"([^()]*\d[^()]*?)\s*\(([^()]*)\)\W*", head)
    if aside and not _ASIDE.search(aside[2]):
        return Found(unwrap(head), "announced", loose=(unwrap(aside[1]),))
    if head.endswith("!"):  # a factorial, or joy
        return Found(unwrap(head), "announced", loose=(head.rstrip("!"),))
    return Found(unwrap(head), "announced")


def _bare_answer(text: str) -> bool:
    """Whether a short response is an answer and nothing else: mathematics, a value with its unit, or one word."""
    found = _WORD.findall(text)
    if _HAN.search(text):
        return False
    if all(word in FUNCTIONS or word in ("pi", "and", "or") or is_unit_word(word.lower()) for word in found):
        return True
    return len(found) == 1 and (text == found[0] or text[0] in "-$0123456789\\(")


def last(tail: str, choice: bool) -> Found | Missing:
    """The last value of a response that says nowhere what its answer is."""
    text = re.sub(r"\s{1,2}(?:is|as) (?:the|our|my) (?:final |correct )?answer[.!]?\Z", "", tail.rstrip())
    if text.endswith("```"):
        text = text[:-3].rstrip()
        text = text[text.rfind("```") + 3 :].lstrip() if "```" in text else text
    bold = re.search(r"\*\*([^*\n]{1,80})\*\*[\s.!]*\Z", text)
    if bold and not choice and not _HEDGE.search(bold[1]):
        return Found(unwrap(bold[1]), "last bold")
    if len(text) < 80 and "\n" not in text:
        bare = unwrap(text)
        if _bare_answer(bare):
            return Found(bare, "the whole response")
    if choice:
        match = (
            _CHOICE_RIGHT.search(text)
            or _CHOICE_TAIL.search(text)
            or re.match(r"\(?([A-J])[.)](?=\s)", text)
            or re.fullmatch(r"\*\*\(?([A-J])\)?\*\*", text)
        )
        return Found(match[1], "chosen option") if match else Missing("no option is chosen")
    if _breaks_off(text):
        return Missing("truncated")
    line = text.rsplit("\n", 1)[-1] if len(text.rsplit("\n", 1)[-1]) > 2 else text[-300:]
    if _HEDGE.search(masked(line)) and not re.search(r"\bis not\b.*\bis\b|\bnot\b.*\b(?:it's|which is)\b", line):
        return Missing("no final answer")
    bracketed = list(re.finditer(r"(?<!\\)\[([^\[\]]{1,80})\](?=\s*\.?\s*\Z)", line))
    if bracketed:
        return Found(bracketed[-1][1].strip("$ "), "last bracket")
    if (aligned := _ALIGNED.search(text)) is not None:
        return Found(aligned[1].split("\\\\")[-1].replace("&", " ").strip(" .\n"), "last line of a calculation")
    found = last_span(line)
    sentence = max(line.rfind(". "), line.rfind("! "), line.rfind("? "), 0)
    if (aside := _ATTAINED.search(line, sentence)) is not None:  # where the value is taken, not the value
        found = last_span(line[: aside.start()]) or found
    if found is None:
        word = _LAST_WORD.search(line)
        return Found(word[1], "last word") if word else Missing("no final answer")
    after = line[found[1] :]
    if text[-1] not in ".!?)]}$*" and (len(after.split()) > 3 or re.search(r"[.!?]\s+\w", after)):
        return Missing("truncated")
    return Found(found[0], "last value")


def _breaks_off(text: str) -> bool:
    """Whether the response stops in the middle: no closing mark at its end, or mathematics left open."""
    unfinished = (
        text.count("$$") % 2 or text.count("\\[") > text.count("\\]") or text.count("\\begin{") > text.count("\\end{")
    )
    if unfinished or (text.count("$") % 2 and not re.search(r"\d\$\Z|\$\d[^$]*\Z", text)):
        return True
    return len(text) > 400 and text[-1] not in ".!$)]}*%°\"'`>?" and not text[-1].isdigit()
