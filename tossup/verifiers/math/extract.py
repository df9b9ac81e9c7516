"""Where the final answer of a response stands.

Strict on purpose: a policy learns whatever is paid. In this order:

    1  the last visible `\\boxed{}` (or `\\fbox{}`); neighbouring boxes joined by commas or "and" are one list
    2  the last `<answer>...</answer>`, then the last `####`
    3  the last "final answer is", "answer is", "Answer:", "A:" (GSM8K), "solution is", "result is"
    4  the last mathematics or number of a response that ends in a whole sentence

Nothing counts inside a think block, a comment, a `\\phantom`, or after the point where the response starts to answer
another question. A choice between answers ("either", "one of", "could be", "or") is no answer.
Everything is linear in the length of the response; without a box only its tail is searched.
"""

from __future__ import annotations

import re

from tossup.verifiers.math.announced import Found, Missing, last, marked, tagged
from tossup.verifiers.math.limits import TAIL_CHARS

_BOX = re.compile(r"\\(?:boxed|fbox|framebox)\s*(?:\{|(?=[\dA-Za-z]))")
_RUN_ON = re.compile(
    r"<\|(?:im_end|im_start|eot_id|endoftext|end)\|>|</s>"
    r"|\n\s*(?:#+ *|\*\* *)?(?:Problem|Question|Exercise|Human|User|Q)(?: *\d+)? *[:.\n]"
    r"|\n\s*\[?(?:Note|The reference answer|Ground truth)\b",
)
_PHANTOM = re.compile(r"\\[hv]?phantom\s*\{(?:[^{}]|\{(?:[^{}]|\{[^{}]*\})*\})*\}")
_COMMENTS = (("<!--", "-->"), ("\\begin{comment}", "\\end{comment}"), ("\\iffalse", "\\fi"))
_COMMENT_LINE = re.compile(r"^[ \t]*%[^\n]*$", re.MULTILINE)
_INVISIBLE = re.compile(r"<(\w{1,10})\s[^<>]{0,80}(?:display:\s?none|hidden)[^<>]{0,80}>[^<>]*</\1>")
_END_TOKENS = re.compile(r"(?:\s*(?:<\|\w{1,30}\|>|</s>|<eos>|<pad>|<end_of_turn>))+\Z")
_THOUGHT = re.compile(r"</(?:think|thinking|thought)\b\s*>?|\\end\{think(?:ing)?[}>]|<(?:think|thinking|thought)>")
_LAST_TAG = re.compile(r"<answer>[^<>]{1,400}</answer>\s*\Z")
_ALTERNATIVE = re.compile(
    r"\b(?:else|otherwise|alternatively|perhaps|maybe|possibly)\b"
    r"|\b(?:option|alternative|possibility|choice|case)\s+\w+\W{0,6}\Z|\([A-E]\)\W{0,4}\Z|\bpossibility\W{0,6}\Z|\A[\s$]*[/|][\s$]*\Z",
    re.IGNORECASE,
)
_JOIN = re.compile(
    r"(?:\s|[$,;.&]|\\\(|\\\)|\\\[|\\\]|\\quad|\\qquad|\\,|\\;|\\text\{\s*(?:and|,)?\s*\}"
    r"|\\text\{ for part \(?\w\)? and \}|and\b)*",
)


def find(response: str, choice: bool = False) -> Found | Missing:
    """The final answer of a response. `choice` says that the reference is the letter of an option."""
    text = response.strip()
    if "think" in text or "thought>" in text:
        text, trouble = _after_thought(text)
        if trouble:
            return Missing(trouble)
    if not text:
        return Missing("empty response")
    if (ending := _END_TOKENS.search(text, max(0, len(text) - 200))) is not None:
        text = text[: ending.start()]
    text = _cut(_visible(text))
    if "oxed" in text or "box" in text:
        found = _boxed(text, choice)
        if found is not None:
            return found
    tail = text[-TAIL_CHARS:]
    return tagged(tail) or marked(tail) or last(tail, choice)


def _after_thought(text: str) -> tuple[str, str]:
    """What follows the last think block, or why nothing does. A block that never closes may end in an answer tag."""
    marks = list(_THOUGHT.finditer(text))
    if not marks:
        return text, ""
    last = marks[-1]
    after = text[last.end() :].strip()
    if not last.group().startswith("<t"):
        return after, "" if after else "nothing after the think block"
    tag = _LAST_TAG.search(after[-500:])
    return (tag.group(), "") if tag else ("", "answer only inside a think block")


def _visible(text: str) -> str:
    """The text without what a reader does not see: comments, phantoms, hidden elements."""
    for opening, closing in _COMMENTS:
        if opening in text:
            text = _without(text, opening, closing)
    if "phantom" in text:
        text = _PHANTOM.sub(" ", text[-4 * TAIL_CHARS :])
    if "%" in text:
        text = _COMMENT_LINE.sub("", text)
    if "none" in text or "hidden" in text:
        text = _INVISIBLE.sub(" ", text)
    return text


def _without(text: str, opening: str, closing: str) -> str:
    """The text without what stands from `opening` to the next `closing`."""
    pieces, position = [], 0
    while (start := text.find(opening, position)) >= 0 and (end := text.find(closing, start)) >= 0:
        pieces.append(text[position:start])
        position = end + len(closing)
    return " ".join([*pieces, text[position:]])


def _cut(text: str) -> str:
    """The response up to the point where it starts on something else."""
    start = text.find("I hope it is correct")
    if start < 0:
        start = _first_answer(text)
    if start < 0:
        return text.split("<|", 1)[0].rstrip() or text
    match = _RUN_ON.search(text, start)
    return text[: match.start()].rstrip() if match else text


def _first_answer(text: str) -> int:
    """Where the first thing stands that looks like a final answer; -1 when nothing does."""
    places = [at for mark in ("boxed{", "####", "answer is", "Answer:") if (at := text.find(mark)) >= 0]
    return min(places, default=-1)


def _boxed(text: str, choice: bool) -> Found | Missing | None:
    """The last box that holds something, with the boxes that stand right before it."""
    starts = list(_BOX.finditer(text, max(0, len(text) - 40 * TAIL_CHARS)))[-12:]
    boxes: list[tuple[int, int, str]] = []
    for match in starts:
        end = _closing(text, match.end()) if match.group().endswith("{") else None
        if match.group().endswith("{") and end is None:
            continue
        if end is None:
            token = re.compile(r"[A-Za-z]|[\d.,]+").match(text, match.end())
            end = token.end() if token else match.end()
        if boxes and match.start() < boxes[-1][1]:
            continue  # a box inside a box is part of the outer one
        content = text[match.end() : end].strip()
        if content and not re.fullmatch(r"(?:\\[,;:! ]|\\text\{\s*\}|[\s$~{}])*", content):
            boxes.append((match.start(), end + 1, content))
    if not boxes:
        return Missing("no closed box") if starts and _unclosed(text, starts[-1]) else None
    return _from_boxes(text, boxes, choice)


def _unclosed(text: str, match: re.Match[str]) -> bool:
    """Whether the last box never closes: the response was cut off inside it."""
    return match.group().endswith("{") and _closing(text, match.end()) is None


def _from_boxes(text: str, boxes: list[tuple[int, int, str]], choice: bool) -> Found | Missing:
    """The last box, as a list with its neighbours where they are joined, unless the text offers a choice."""
    start, _, content = boxes[-1]
    between = text[boxes[-2][1] : start] if len(boxes) > 1 else ""
    if between and len(between) < 30 and re.search(r"\bor\b[^.\n]{0,12}\Z", between):
        if choice or re.search(
            r"\b(?:either|one of|could be|if|is it)\b", text[max(0, boxes[-2][0] - 40) : boxes[-2][0]]
        ):
            return Missing("a choice between boxed answers")
        return Found(f"{boxes[-2][2]} \\text{{ or }} {content}", "boxed")
    if between and len(between) < 60 and _ALTERNATIVE.search(between):
        return Missing("a choice between boxed answers")
    joined, loose = [content], [content]
    for (_, end, earlier), (later, _, _) in zip(reversed(boxes[:-1]), reversed(boxes[1:]), strict=True):
        between = text[end:later]
        if len(between) > 200 or "\n\n" in between:
            break
        loose.insert(0, earlier)
        if len(joined) == len(loose) - 1 and len(between) < 80 and _JOIN.fullmatch(between):
            joined.insert(0, earlier)
    first = boxes[-len(joined)][0]
    lead = text[max(0, first - 40) : first]
    if len(joined) > 1 and re.search(r"\b(?:either|one of|could be)\b", lead):
        return Missing("a choice between boxed answers")
    distinct = tuple(dict.fromkeys(joined))
    return Found(content, "boxed", distinct[:-1] if len(distinct) > 1 else (), tuple(loose) if len(loose) > 1 else ())


def _closing(text: str, position: int) -> int | None:
    """Where the brace closes that opened just before `position`."""
    depth = 1
    for match in re.compile(r"\\\\|\\?[{}]").finditer(text, position, position + 4 * TAIL_CHARS):
        brace = match.group()
        if brace == "{":
            depth += 1
        elif brace == "}":
            depth -= 1
            if depth == 0:
                return match.start()
    return None


__all__ = ["Found", "Missing", "find"]
