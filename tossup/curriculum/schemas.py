"""The common problem sets: which columns each publishes, and how a row of it becomes a problem.

One table, `SCHEMAS`, tried in order; the first whose columns are all there reads the rows. Names are compared without
case (AIME publishes `Problem`, SVAMP `Body`). Columns that no problem needs stay as `meta`; columns in `uses` do not:
they went into the prompt or the reference, or they are bulk such as hundreds of worked programs.

Rows of programming problems are read by `code_rows`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from tossup.curriculum import code_rows
from tossup.curriculum.code_rows import Row
from tossup.curriculum.sources import as_text
from tossup.records import Prompt, TossupError


@dataclass(frozen=True, slots=True)
class Schema:
    """How the rows of one published set become problems. `needs` and `uses` are column names in lower case."""

    name: str
    needs: frozenset[str]
    prompt: Callable[[Row], Prompt]
    reference: Callable[[Row], str]
    verifier: str = "math"
    uses: frozenset[str] = frozenset()
    dataset: Callable[[Row], str] = lambda row: as_text(row.get("dataset")) or ""


PROMPTS = ("prompt", "question", "problem", "query", "instruction")
REFERENCES = ("reference", "answer", "final_answer", "expected_answer", "ground_truth", "gold", "target", "expected")
IDS = ("id", "unique_id", "task_id", "problem_id", "question_id")


def final_answer(text: str) -> str:
    """What stands behind the last `####` of a GSM8K solution, thousands commas removed; the whole text without one."""
    if "####" not in text:
        return text.strip()
    tail = text.rsplit("####", 1)[1].strip()
    return re.sub(r"(?<=\d),(?=\d{3}(?!\d))", "", tail)


def last_boxed(text: str) -> str:
    """The content of the last `\\boxed{...}` of a worked solution, braces balanced; empty when there is none."""
    start = text.rfind("\\boxed{")
    if start < 0:
        return ""
    begin = start + len("\\boxed{")
    depth = 1
    for at in range(begin, len(text)):
        depth += {"{": 1, "}": -1}.get(text[at], 0)
        if depth == 0:
            return text[begin:at].strip()
    return ""


def messages(value: Any) -> Prompt:
    """Text as it is; chat messages, also those written as JSON text, as role and content, other keys left out."""
    if isinstance(value, str):
        return _chat_in(value) or value
    if value is None:
        return ""
    if not isinstance(value, Iterable) or isinstance(value, Mapping):
        raise TossupError(f"a prompt is text or a list of messages, got {value!r}"[:300])
    turns = tuple(value)
    if not all(isinstance(t, Mapping) and {"role", "content"} <= t.keys() for t in turns):
        raise TossupError(
            'a prompt is text, or a chat: a list of messages such as {"role": "user", "content": "..."}; got a list that '
            f"holds {_odd(turns)}. If another column has the prompts: --map prompt=COLUMN"
        )
    if odd := next((t for t in turns if not isinstance(t["content"], str | None)), None):
        raise TossupError(f"the content of a message is text, got {odd['content']!r}"[:300])
    return tuple({"role": str(t["role"]), "content": t["content"] or ""} for t in turns)


def _odd(turns: Iterable[Any]) -> str:
    """The first of these that is no message, for an error."""
    odd = next(t for t in turns if not (isinstance(t, Mapping) and {"role", "content"} <= t.keys()))
    return repr(odd) if len(repr(odd)) < 80 else f"{repr(odd)[:80]}…"


def _chat_in(text: str) -> Prompt | None:
    if not text.startswith('[{"'):
        return None
    try:
        value = json.loads(text)
    except ValueError:
        return None
    is_chat = all(isinstance(turn, dict) and {"role", "content"} <= turn.keys() for turn in value)
    return messages(value) if is_chat else None


def _answer_text(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(_answer_text(v) for v in value)
    return final_answer(as_text(value) or "")


def _text(name: str) -> Callable[[Row], str]:
    return lambda row: as_text(row.get(name)) or ""


def _crux_prompt(row: Row) -> str:
    return f"{row['code']}\n\nWhat does f({row['input']}) return? Give the value as a Python literal."


def _schema(name: str, needs: str, uses: str = "", **parts: Any) -> Schema:
    needed = frozenset(needs.split())
    return Schema(name, needed, uses=needed | frozenset(uses.split()), **parts)


SCHEMAS = (
    _schema("tossup", "prompt reference", prompt=lambda r: messages(r["prompt"]), reference=_text("reference")),
    _schema(
        "verl (DAPO-Math)",
        "prompt reward_model",
        "data_source solution source_prompt",
        prompt=lambda r: messages(r["prompt"]),
        reference=lambda r: _answer_text((r["reward_model"] or {}).get("ground_truth")),
        dataset=_text("data_source"),
    ),
    _schema(
        "LeetCode",
        "query prompt entry_point test",
        prompt=_text("query"),
        reference=code_rows.leetcode,
        verifier="code",
    ),
    _schema(
        "HumanEval", "prompt entry_point test", prompt=_text("prompt"), reference=code_rows.humaneval, verifier="code"
    ),
    _schema(
        "MBPP",
        "test_list",
        "text prompt test test_setup_code test_imports challenge_test_list",
        prompt=code_rows.mbpp_prompt,
        reference=code_rows.mbpp,
        verifier="code",
    ),
    _schema(
        "LiveCodeBench",
        "question_content public_test_cases",
        "private_test_cases metadata starter_code",
        prompt=lambda r: code_rows.with_starter(r["question_content"], r.get("starter_code")),
        reference=code_rows.livecodebench,
        verifier="code",
    ),
    _schema(
        "CodeContests",
        "description private_tests",
        "public_tests generated_tests solutions incorrect_solutions",
        prompt=_text("description"),
        reference=code_rows.code_contests,
        verifier="code",
    ),
    _schema(
        "APPS and TACO",
        "question input_output",
        "starter_code solutions",
        prompt=lambda r: code_rows.with_starter(r["question"], r.get("starter_code")),
        reference=code_rows.apps,
        verifier="code",
    ),
    _schema("CRUXEval", "code input output", prompt=_crux_prompt, reference=_text("output"), verifier="exact"),
    _schema(
        "SVAMP",
        "body question answer",
        "question_concat",
        prompt=lambda r: f"{r['body'].strip()} {r['question'].strip()}",
        reference=lambda r: re.sub(r"\.0$", "", _answer_text(r["answer"])),
    ),
)
"""The sets with columns of their own. Sets of a prompt and an answer under usual names need no entry: see `plain`."""


def by_format(columns: frozenset[str]) -> Schema | None:
    """Programming problems that name their `format` row by row, so that one file may mix them."""
    if "format" not in columns or not columns & code_rows.TESTS:
        return None
    prompts = frozenset(code_rows.STATEMENTS) & columns
    return Schema(
        "problems with a format",
        frozenset({"format"}),
        code_rows.prompt_by_format,
        code_rows.tests_by_format,
        verifier="code",
        uses=code_rows.FIELDS | prompts,
    )


def plain(columns: Iterable[str]) -> Schema | None:
    """GSM8K, MATH-500, DeepScaleR, Big-Math, NuminaMath, OlympiadBench, AIME: a prompt column and an answer column.

    MATH and NuminaMath-CoT give no answer but a solution that ends in a box: then the box is the reference.
    """
    there = set(columns)
    prompt = next((name for name in PROMPTS if name in there), None)
    if prompt is None:
        return None
    answers = [name for name in REFERENCES if name in there]
    if answers:
        uses = frozenset({prompt, answers[0], "messages"})
        name = "a prompt and an answer"
        return Schema(name, uses, lambda r: messages(r[prompt]), lambda r: _answer_text(r[answers[0]]), uses=uses)
    if "solution" in there:
        uses = frozenset({prompt, "messages"})
        name = "a prompt and a boxed solution"
        return Schema(name, uses, lambda r: messages(r[prompt]), lambda r: last_boxed(r["solution"] or ""), uses=uses)
    return None


def schema_for(columns: Iterable[str]) -> Schema | None:
    """The schema that reads a source with these columns (lower case), or None."""
    there = frozenset(columns)
    published = next((s for s in SCHEMAS if s.needs <= there), None)
    return (by_format(there) if "reference" not in there else None) or published or plain(there)
