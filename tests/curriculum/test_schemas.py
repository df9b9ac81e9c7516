"""A made-up row for each published set, with the columns that the set has; what must come out of it."""

from __future__ import annotations

import base64
import json
import pickle
import re
import zlib
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from tossup.curriculum.pool import read_pool
from tossup.curriculum.schemas import final_answer, last_boxed
from tossup.records import TossupError

MATH_ROWS: dict[str, tuple[dict[str, Any], str, str]] = {
    "GSM8K": ({"question": "q?", "answer": "2*500=<<2*500=1000>>1000\n#### 1,000"}, "q?", "1000"),
    "MATH": (
        {"problem": "q?", "solution": "so $\\boxed{\\frac{1}{2}}$.", "level": "Level 5", "type": "Algebra"},
        "q?",
        "\\frac{1}{2}",
    ),
    "MATH-500": (
        {
            "problem": "q?",
            "solution": "\\boxed{9}",
            "answer": "7",
            "subject": "Algebra",
            "level": 3,
            "unique_id": "t/1",
        },
        "q?",
        "7",
    ),
    "DAPO-Math": (
        {
            "data_source": "math_dapo",
            "prompt": [{"role": "user", "content": "q?"}],
            "ability": "MATH",
            "reward_model": {"ground_truth": "34", "style": "rule"},
            "extra_info": {"index": "x1"},
        },
        "q?",
        "34",
    ),
    "DeepScaleR": ({"problem": "q?", "answer": "-2/3", "solution": "long"}, "q?", "-2/3"),
    "Big-Math": ({"problem": "q?", "answer": "5", "source": "orca", "llama8b_solve_rate": 0.25}, "q?", "5"),
    "NuminaMath-CoT": (
        {"source": "aops", "problem": "q?", "solution": "\\boxed{3}", "messages": [{"role": "user", "content": "q?"}]},
        "q?",
        "3",
    ),
    "OlympiadBench": ({"id": 1606, "question": "q?", "final_answer": ["2", "3"], "subfield": "Algebra"}, "q?", "2, 3"),
    "AIME": ({"ID": "2024-I-1", "Problem": "q?", "Solution": "s", "Answer": 204}, "q?", "204"),
    "SVAMP": ({"ID": "chal-1", "Body": "There are 8. ", "Question": "q?", "Answer": "5.0"}, "There are 8. q?", "5"),
}


def one_row(tmp_path: Path, row: dict[str, Any], suffix: str = "parquet") -> Any:
    path = tmp_path / f"set.{suffix}"
    if suffix == "parquet":
        pl.DataFrame([row]).write_parquet(path)
    else:
        path.write_text(json.dumps(row))
    return read_pool(path)[0]


@pytest.mark.parametrize("suffix", ["parquet", "jsonl"])
@pytest.mark.parametrize("name", MATH_ROWS)
def test_sets_with_a_final_answer(tmp_path: Path, name: str, suffix: str) -> None:
    row, prompt, reference = MATH_ROWS[name]
    problem = one_row(tmp_path, row, suffix)
    said = problem.prompt if isinstance(problem.prompt, str) else problem.prompt[0]["content"]
    assert (said, problem.reference, problem.verifier) == (prompt, reference, "math")


def test_what_a_set_says_beside_is_meta_and_its_name_the_dataset(tmp_path: Path) -> None:
    problem = one_row(tmp_path, MATH_ROWS["MATH-500"][0])
    assert (problem.id, problem.dataset) == ("t/1", "set")
    assert dict(problem.meta) == {"solution": "\\boxed{9}", "subject": "Algebra", "level": 3}
    assert one_row(tmp_path, MATH_ROWS["DAPO-Math"][0]).dataset == "math_dapo"
    assert one_row(tmp_path, MATH_ROWS["AIME"][0]).id == "2024-I-1"


def packed(cases: list[dict[str, str]]) -> str:
    return base64.b64encode(zlib.compress(pickle.dumps(json.dumps(cases)))).decode()


CASE = {"input": "1 2\n", "output": "3\n", "testtype": "stdin"}
LCB = {"question_id": "a1", "question_content": "Add.", "public_test_cases": json.dumps([CASE]), "starter_code": ""}
APPS = {"problem_id": 7, "question": "Add.", "solutions": "[]", "starter_code": "", "difficulty": "easy"}
CODE_ROWS: dict[str, tuple[dict[str, Any], str, str, dict[str, Any]]] = {
    "HumanEval": (
        {
            "task_id": "H/0",
            "prompt": "def f():",
            "entry_point": "f",
            "test": "def check(c): pass",
            "canonical_solution": "x",
        },
        "def f():",
        "humaneval",
        {"entry_point": "f", "prompt": "def f():"},
    ),
    "HumanEval+": (
        {"task_id": "H/0", "prompt": "def f():", "entry_point": "f", "test": "def check(c): assertion(c(), 1, 0)"},
        "def f():",
        "humanevalplus",
        {"entry_point": "f"},
    ),
    "MBPP": (
        {
            "task_id": 2,
            "text": "Add.",
            "code": "c",
            "test_list": ["assert f(1) == 2"],
            "test_setup_code": "import math",
        },
        "Add.\nYour code should pass these tests:\n\nassert f(1) == 2",
        "mbpp",
        {"test_list": ["assert f(1) == 2"], "test_setup_code": "import math", "text": "Add."},
    ),
    "MBPP+": (
        {
            "task_id": 2,
            "prompt": "Add.",
            "code": "c",
            "test_list": ["assert f(1) == 2"],
            "test_imports": ["x"],
            "test": "t",
        },
        "Add.\nYour code should pass these tests:\n\nassert f(1) == 2",
        "mbppplus",
        {"test": "t", "prompt": "Add."},
    ),
    "APPS, stdin": (
        {**APPS, "input_output": '{"inputs": ["1\\n"], "outputs": ["2\\n"]}'},
        "Add.",
        "apps_stdin",
        {"input_output": {"inputs": ["1\n"], "outputs": ["2\n"]}},
    ),
    "TACO, calls": (
        {**APPS, "input_output": '{"fn_name": "f", "inputs": [[1]], "outputs": [[2]]}', "starter_code": "def f(x):"},
        "Add.\n\nStart from this code:\n\ndef f(x):",
        "apps_call",
        {"input_output": {"fn_name": "f", "inputs": [[1]], "outputs": [[2]]}},
    ),
    "CodeContests": (
        {
            "name": "n",
            "description": "Add.",
            "public_tests": {"input": ["1"], "output": ["2"]},
            "private_tests": {"input": ["3"], "output": ["4"]},
            "generated_tests": {"input": [], "output": []},
        },
        "Add.",
        "codecontests_stdin",
        {"input_output": {"inputs": ["1", "3"], "outputs": ["2", "4"]}},
    ),
    "LiveCodeBench, stdin": (
        {**LCB, "private_test_cases": packed([CASE]), "metadata": "{}"},
        "Add.",
        "codecontests_stdin",
        {"input_output": {"inputs": ["1 2\n", "1 2\n"], "outputs": ["3\n", "3\n"]}},
    ),
    "LiveCodeBench, calls": (
        {**LCB, "private_test_cases": "", "metadata": '{"func_name": "add"}'},
        "Add.",
        "lcb_functional",
        {"public": 1, "input_output": {"fn_name": "add", "inputs": ["1 2\n"], "outputs": ["3\n"]}},
    ),
    "LeetCode": (
        {
            "prompt": "from typing import *",
            "entry_point": "Solution().f",
            "test": "def check(c): pass",
            "query": "Add.",
        },
        "Add.",
        "leetcode_asserts",
        {"imports": "from typing import *", "entry": "f", "tests": "def check(c): pass\n\ncheck(Solution().f)"},
    ),
}


@pytest.mark.parametrize("name", CODE_ROWS)
def test_sets_with_tests(tmp_path: Path, name: str) -> None:
    row, prompt, form, fields = CODE_ROWS[name]
    problem = one_row(tmp_path, row, "jsonl")
    reference = json.loads(problem.reference)
    assert (problem.prompt, problem.verifier, reference["format"]) == (prompt, "code", form)
    assert {key: reference[key] for key in fields} == fields


def test_private_tests_that_would_run_code_are_refused(tmp_path: Path) -> None:
    class Attack:
        def __reduce__(self) -> tuple[Any, ...]:
            return (print, ("run",))

    evil = base64.b64encode(zlib.compress(pickle.dumps(Attack()))).decode()
    with pytest.raises(TossupError, match="refused, tests are plain JSON"):
        one_row(tmp_path, {**LCB, "private_test_cases": evil, "metadata": "{}"})


def test_a_row_that_is_not_of_its_set_is_named(tmp_path: Path) -> None:
    with pytest.raises(TossupError, match="row 1: not a row of APPS and TACO"):
        one_row(tmp_path, {**APPS, "input_output": "{broken"}, "jsonl")


def test_the_final_answer_of_a_worked_solution() -> None:
    assert final_answer("a #### b\n#### -1,234,567.5") == "-1234567.5"
    assert final_answer("(1,234)") == "(1,234)"
    assert last_boxed("\\boxed{1} then \\boxed{\\text{a{b}c}}") == "\\text{a{b}c}"
    assert last_boxed("none") == ""
    assert last_boxed("\\boxed{open") == ""


@pytest.mark.parametrize(
    ("prompt", "says"),
    [
        (["What is", "1 + 1?"], "holds 'What is'"),
        ([1, 2], "holds 1"),
        ([{"role": "user"}], "list that holds {'role': 'user'}"),
        ({"text": "1 + 1?"}, "text or a list of messages, got {'text'"),
        ([{"role": "user", "content": ["a", "b"]}], "content of a message is text"),
    ],
)
@pytest.mark.parametrize("names", [("prompt", "reference"), ("question", "answer")])
def test_a_prompt_that_is_none_is_named_with_its_row(
    tmp_path: Path, prompt: Any, says: str, names: tuple[str, str]
) -> None:
    path = tmp_path / "p.jsonl"
    path.write_text(json.dumps({names[0]: prompt, names[1]: "2"}) + "\n")
    with pytest.raises(TossupError, match=re.escape(says)) as error:
        read_pool(path)
    assert "p.jsonl row 1" in str(error.value)
    assert "shape:" not in str(error.value)


def test_a_pool_without_a_name_is_said_so() -> None:
    with pytest.raises(TossupError, match="name of a pool is empty"):
        read_pool("")
