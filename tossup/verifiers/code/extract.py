"""The program in a response: which of the model's words are its answer.

The last complete fenced block counts, and where the task names a function the last one that defines it (models like to add
a usage example). Text inside a think block is no answer. Without a fence the whole response counts if it is Python, or if
it continues the code of the prompt.
"""

from __future__ import annotations

import ast
import re

from tossup.verifiers.code.task import Reading

FENCE = re.compile(r"^[ \t]*(```+|~~~+)[ \t]*([\w+#.-]*)[^\n`]*\n(.*?)^[ \t]*\1[ \t]*$", re.MULTILINE | re.DOTALL)
OTHER_TEXT = frozenset(
    {"text", "txt", "output", "console", "bash", "sh", "shell", "json", "plaintext", "markdown", "md"}
)
"""Fenced blocks under these names are no programs."""


def program_in(response: str, reading: Reading) -> str | None:
    """The program that a response answers with, ready to be judged; None when there is none."""
    answer = _after_thinking(response)
    if answer is None:
        return None
    blocks = [body for _, tag, body in FENCE.findall(answer) if tag.lower() not in OTHER_TEXT]
    if not blocks:
        return _whole(answer, reading)
    defining = [b for b in blocks if reading.entry and _defines(b, reading.entry)]
    block = (defining or blocks)[-1]
    return _with_prompt(block, reading)


def _after_thinking(response: str) -> str | None:
    """What follows the last think block; None when one was never closed."""
    _, closed, tail = response.rpartition("</think>")
    text = tail if closed else response
    return None if "<think>" in text else text


def _whole(answer: str, reading: Reading) -> str | None:
    """A response without a fence: code, the rest of the prompt's code, or neither."""
    if reading.prompt_code and not _defines(answer, reading.entry):
        continued = reading.prompt_code + answer
        return continued if _parses(continued) else None
    return _with_prompt(answer, reading) if answer.strip() and _parses(answer) else None


def _with_prompt(block: str, reading: Reading) -> str:
    """A block with what it needs of the prompt: imports and helpers, or the head of the function that it continues."""
    if not reading.prompt_code:
        return block
    if not _defines(block, reading.entry):
        continued = reading.prompt_code + block
        return continued if _parses(continued) else block
    return _helpers(reading.prompt_code, block) + block


def _helpers(prompt: str, block: str) -> str:
    """The imports and definitions of the prompt that the block does not have."""
    try:
        tree = ast.parse(prompt)
    except SyntaxError:
        return ""
    needed = [
        s
        for s in tree.body
        if isinstance(s, ast.Import | ast.ImportFrom)
        or (
            isinstance(s, ast.FunctionDef | ast.ClassDef | ast.Assign)
            and not any(_defines(block, n) for n in _names(s))
        )
    ]
    return "".join(f"{ast.unparse(s)}\n" for s in needed)


def _names(statement: ast.stmt) -> list[str]:
    match statement:
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            return [name]
        case ast.Assign(targets=targets):
            return [t.id for t in targets if isinstance(t, ast.Name)]
    return []


def _defines(code: str, name: str) -> bool:
    """Whether this code defines that name at its top level, or as a method of a class."""
    try:
        body = ast.parse(code).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return re.search(rf"^\s*(?:def|class)\s+{re.escape(name)}\b", code, re.MULTILINE) is not None
    methods = [s for c in body if isinstance(c, ast.ClassDef) for s in c.body]
    return any(name in _names(s) for s in [*body, *methods])


def _parses(code: str) -> bool:
    try:
        ast.parse(code)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return True
