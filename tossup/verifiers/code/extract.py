"""The program in a response: which of the model's words are its answer.

The last complete fenced block counts, and where the task names a function the last one that defines it (models like to add
a usage example). A block that is never closed counts where there is no other: generation may stop at the closing fence.
Text inside a think block is no answer. Without a fence the whole response counts if it looks like code, or if it continues
the code of the prompt.

The response is scanned line by line and never parsed: this runs in the caller's process, and nested code can take a parser
down. Whether it is Python at all shows in the sandbox.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from tossup.verifiers.code.task import Reading

OPENING = re.compile(r"[ \t]*+(`{3,}+|~{3,}+)[ \t]*+([\w+#.-]*+)[^`]*+")
"""Never tries a second way: a line of 100,000 letters with a backtick at its end would else take half a minute."""
OTHER_TEXT = frozenset(
    {"text", "txt", "output", "console", "bash", "sh", "shell", "json", "plaintext", "markdown", "md"}
)
"""Fenced blocks under these names are no programs."""
CODE = re.compile(
    r"^[ \t]*(?:def|class|import|from|for|while|if|with|print|async|@|try:|[A-Za-z_][\w.,]* *=[^=])", re.MULTILINE
)
"""How some line of a program starts."""


def program_in(response: str, reading: Reading) -> str | None:
    """The program that a response answers with, ready to be judged; None when there is none."""
    _, closed, tail = response.rpartition("</think>")
    answer = tail if closed else response
    if "<think>" in answer:  # one that was never closed
        return None
    blocks = [body for tag, body in _blocks(answer) if tag.lower() not in OTHER_TEXT]
    if not blocks:
        return _completed(answer, reading) if CODE.search(answer) or _continues(answer, reading) else None
    defining = [b for b in blocks if reading.entry and _defines(b, reading.entry)]
    return _completed((defining or blocks)[-1], reading)


def _blocks(text: str) -> Iterator[tuple[str, str]]:
    """The complete fenced blocks, or the open one: the word behind the opening fence, and what is inside."""
    fence, tag, body, complete = "", "", list[str](), 0
    for line in text.split("\n"):
        if not fence:
            if opening := OPENING.fullmatch(line):
                fence, tag, body = opening[1], opening[2], []
        elif line.strip() == fence:
            yield tag, "".join(f"{x}\n" for x in body)
            fence, complete = "", complete + 1
        else:
            body.append(line)
    if fence and not complete:
        yield tag, "\n".join(body)


def _continues(code: str, reading: Reading) -> bool:
    """Whether this is the rest of the function that the prompt begins: indented, and not a definition of it."""
    first = next((line for line in code.split("\n") if line.strip()), "")
    return bool(reading.prompt_code) and first[:1] in {" ", "\t"} and not _defines(code, reading.entry)


def _completed(code: str, reading: Reading) -> str:
    """Code with what it needs of the prompt: the function that it continues, or the imports and helpers that it lacks."""
    if _continues(code, reading):
        return reading.prompt_code + code
    return _helpers(reading.prompt_code, code) + code


def _helpers(prompt: str, code: str) -> str:
    """The imports and definitions of the prompt that the code does not have."""
    try:
        body = ast.parse(prompt).body
    except SyntaxError:
        return ""
    needed = [
        s
        for s in body
        if isinstance(s, ast.Import | ast.ImportFrom)
        or (
            isinstance(s, ast.FunctionDef | ast.ClassDef | ast.Assign) and not any(_defines(code, n) for n in _names(s))
        )
    ]
    return "".join(f"{ast.unparse(s)}\n" for s in needed)


def _names(statement: ast.stmt) -> list[str]:
    match statement:
        case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
            return [name]
        case ast.Assign(targets=targets):
            return [t.id for t in targets if isinstance(t, ast.Name)]
    return []


def _defines(code: str, name: str) -> bool:
    """Whether some line defines that name: a function, a method, a class or a variable."""
    word = re.escape(name)
    return (
        re.search(rf"^[ \t]*(?:(?:async[ \t]+)?(?:def|class)[ \t]+{word}\b|{word}[ \t]*=[^=])", code, re.MULTILINE)
        is not None
    )
