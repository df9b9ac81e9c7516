"""Rows of the sets of programming problems: their prompts, and their tests as the JSON text that `verifier: code` reads.

A reference is an object whose `format` says how its tests are run (`humaneval`, `mbpp`, `apps_stdin`, ...) beside the fields
that this format has. A file may mix formats: then each row names its own, and its fields go into the reference as they are.
"""

from __future__ import annotations

import base64
import io
import json
import pickle
import zlib
from collections.abc import Iterable, Mapping
from typing import Any

from tossup.records import TossupError

Row = Mapping[str, Any]
"""One row of a source, its keys in lower case."""

STATEMENTS = ("query", "prompt", "question", "question_content", "text", "problem", "description")
TESTS = frozenset({"test", "tests", "test_list", "inputs", "input_output", "public_tests", "public_test_cases"})
DATA = frozenset({"test_list", "test_imports", "inputs", "outputs", "input_output", "limits"}) | {
    f"{kind}_tests" for kind in ("public", "private", "generated")
}
"""Fields that are data: where the rows disagree in their types, a column holds them as JSON text."""

CODE = frozenset({"prompt", "entry", "entry_point", "imports", "test_setup_code", "module", "starter_code"})
FIELDS = TESTS | DATA | CODE | {"format", "metadata", "private_test_cases", "public", "language", "tolerance"}
"""All that a reader of tests may look at."""


def first_of(row: Row, names: Iterable[str]) -> Any:
    """The value of the first of these columns that the row has."""
    return next((row[name] for name in names if row.get(name) is not None), None)


def prompt_by_format(row: Row) -> str:
    """The statement of a row that names its format, as the sets that publish this format put it."""
    if row.get("test_list") and str(row["format"]).startswith("mbpp"):
        return mbpp_prompt(row)
    return with_starter(first_of(row, STATEMENTS) or "", row.get("starter_code"))


def tests_by_format(row: Row) -> str:
    """The tests of a row that names its format: its own fields."""
    fields = {name: row[name] for name in sorted(FIELDS & row.keys()) if row[name] is not None}
    for name in DATA & fields.keys():
        if isinstance(fields[name], str) and fields[name].lstrip()[:1] in ("[", "{"):
            fields[name] = json.loads(fields[name])
    form = fields.pop("format", None)
    if not form:
        raise ValueError("the row names no format, and rows of this file do")
    return tests_as(form, **_without_nulls(fields))


def _without_nulls(value: Any) -> Any:
    """A column of objects holds every key of every row; those that this row does not have are null."""
    if isinstance(value, dict):
        return {key: _without_nulls(v) for key, v in value.items() if v is not None}
    return value


def tests_as(form: str, **fields: Any) -> str:
    """A reference: the JSON text of a format and its fields."""
    return json.dumps({"format": form, **fields}, ensure_ascii=False)


def humaneval(row: Row) -> str:
    """HumanEval, and HumanEval+ by the helper that only its files define."""
    form = "humanevalplus" if "assertion(" in row["test"] else "humaneval"
    return tests_as(form, prompt=row["prompt"], entry_point=row["entry_point"], test=row["test"])


def leetcode(row: Row) -> str:
    """LeetCode: a `check(candidate)`, called with the entry point."""
    tests = f"{row['test']}\n\ncheck({row['entry_point']})"
    return tests_as("leetcode_asserts", imports=row["prompt"], entry=row["entry_point"].rsplit(".", 1)[-1], tests=tests)


def mbpp_prompt(row: Row) -> str:
    """The statement, then the asserts that the program should pass: without them nothing says what the function is called."""
    asserts = "\n".join(row["test_list"])
    return f"{first_of(row, ('text', 'prompt'))}\nYour code should pass these tests:\n\n{asserts}"


def mbpp(row: Row) -> str:
    """MBPP, and MBPP+ where the row brings a `test` script."""
    statement = first_of(row, ("text", "prompt"))
    if row.get("test"):
        return tests_as("mbppplus", prompt=statement, test_list=list(row["test_list"]), test=row["test"])
    setup = row.get("test_setup_code") or "\n".join(row.get("test_imports") or ())
    return tests_as("mbpp", text=statement, test_setup_code=setup, test_list=list(row["test_list"]))


def with_starter(statement: str, starter: str | None) -> str:
    """The statement, then the code to start from where there is any."""
    return f"{statement}\n\nStart from this code:\n\n{starter}" if starter and starter.strip() else statement


def apps(row: Row) -> str:
    """APPS and TACO: standard input, or the calls of a function where `fn_name` names one."""
    cases = row["input_output"]
    cases = json.loads(cases) if isinstance(cases, str) and cases.strip() else cases
    if not cases:
        return ""
    return tests_as("apps_call" if cases.get("fn_name") else "apps_stdin", imports="", input_output=cases)


def code_contests(row: Row) -> str:
    """CodeContests: the public, private and generated cases, in this order."""
    tests = [row.get(name) or {} for name in ("public_tests", "private_tests", "generated_tests")]
    cases = {f"{end}s": [text for part in tests for text in part.get(end) or ()] for end in ("input", "output")}
    return tests_as("codecontests_stdin", imports="", input_output=cases)


class _NoGlobals(pickle.Unpickler):
    """LiveCodeBench packs its private tests as a pickle of one JSON string; a pickle that names a class is refused."""

    def find_class(self, module_name: str, global_name: str) -> Any:
        raise TossupError(f"private_test_cases name {module_name}.{global_name}: refused, tests are plain JSON")


def _livecodebench_cases(text: str | None) -> list[dict[str, Any]]:
    if not text:
        return []
    if not text.lstrip().startswith("["):
        text = str(_NoGlobals(io.BytesIO(zlib.decompress(base64.b64decode(text)))).load())
    return list(json.loads(text))


def livecodebench(row: Row) -> str:
    """LiveCodeBench: calls of a function where the metadata names one, else standard input."""
    public = _livecodebench_cases(row.get("public_test_cases"))
    cases = public + _livecodebench_cases(row.get("private_test_cases"))
    metadata = row.get("metadata") or "{}"
    name = (json.loads(metadata) if isinstance(metadata, str) else metadata).get("func_name")
    tests = {"inputs": [c["input"] for c in cases], "outputs": [c["output"] for c in cases]}
    if name:
        return tests_as("lcb_functional", imports="", public=len(public), input_output={"fn_name": name, **tests})
    return tests_as("codecontests_stdin", imports="", input_output=tests)
