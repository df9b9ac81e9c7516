"""Which part of a response is the program."""

import pytest

from tossup.verifiers.code.extract import program_in
from tossup.verifiers.code.task import CallsTask, Reading, StdinTask

FREE = Reading(StdinTask(()))
NAMED = Reading(CallsTask("f", ()), entry="f")
PROMPT = "from typing import List\n\ndef helper(x):\n    return x + 1\n\ndef f(x):\n    '''Doc.'''\n"
CONTINUED = Reading(CallsTask("f", ()), prompt_code=PROMPT, entry="f")


@pytest.mark.parametrize(
    ("response", "program"),
    [
        ("Sure:\n```python\nprint(1)\n```\nDone.", "print(1)\n"),
        ("```\nprint(1)\n```", "print(1)\n"),
        ("~~~py\nprint(1)\n~~~", "print(1)\n"),
        ("```python\nprint(1)\n```\nor better\n```python\nprint(2)\n```", "print(2)\n"),
        ("```python\nprint(1)\n```\nIt prints\n```text\n1\n```", "print(1)\n"),
        ("  ```python\nprint(1)\n  ```", "print(1)\n"),
        ("````python\nx = '''\n```\n'''\n````", "x = '''\n```\n'''\n"),
        ("<think>```python\nprint(1)\n```</think>\n```python\nprint(2)\n```", "print(2)\n"),
        ("print(1)", "print(1)"),
    ],
)
def test_programs(response, program):
    assert program_in(response, FREE) == program


@pytest.mark.parametrize(
    "response",
    ["", "I do not know.", "<think>```python\nprint(1)\n```", "<think>x</think>", "```text\n5\n```", "the answer is 5"],
)
def test_no_program(response):
    assert program_in(response, FREE) is None


def test_the_last_block_that_defines_the_function_counts():
    response = "```python\ndef f(x):\n    return x\n```\nExample:\n```python\nprint(f(3))\n```"
    assert program_in(response, NAMED) == "def f(x):\n    return x\n"
    methods = "```python\nclass Solution:\n    def f(self, x):\n        return x\n```\n```python\nprint(1)\n```"
    assert "class Solution" in program_in(methods, NAMED)


def test_a_continuation_is_put_behind_its_prompt():
    assert program_in("    return helper(x)\n", CONTINUED) == PROMPT + "    return helper(x)\n"
    assert program_in("```python\n    return helper(x)\n```", CONTINUED) == PROMPT + "    return helper(x)\n"
    assert program_in("no code at all, sorry", CONTINUED) is None


def test_a_whole_function_gets_the_imports_and_helpers_that_it_lacks():
    program = program_in("```python\ndef f(x: List[int]):\n    return helper(x)\n```", CONTINUED)
    namespace = {}
    exec(program, namespace)
    assert namespace["f"](1) == 2
    own = program_in("```python\ndef helper(x):\n    return 7\ndef f(x):\n    return helper(x)\n```", CONTINUED)
    exec(own, namespace)
    assert namespace["f"](1) == 7


def test_a_block_that_is_never_closed_counts_where_it_is_the_only_one():
    assert program_in("So:\n```python\nprint(1)", FREE) == "print(1)"
    assert program_in("```python\nprint(1)\n```\nor\n```python\nprint(", FREE) == "print(1)\n"


@pytest.mark.parametrize(
    ("response", "program"),
    [
        ("```python\n" + "x = 1\n" * 50_000, "x = 1\n" * 50_000),
        ("```python\n" * 50_000, "```python\n" * 49_999),
        ("```\n" * 50_000, ""),
        ("<think>" * 50_000, None),
        (" " * 200_000 + "x", None),
        ("`" * 200_000, ""),
        ("x = " + "-" * 200_000 + "1", "x = " + "-" * 200_000 + "1"),
        ("def g(x): return " + "(" * 100_000, "def g(x): return " + "(" * 100_000),
    ],
    ids=range(8),
)
def test_hostile_text_is_scanned_and_never_parsed(response, program):
    assert program_in(response, FREE) == program
    assert program_in(response, NAMED) == program


@pytest.mark.parametrize("line", ["```" + "a" * 300_000 + "`", "~" * 300_000 + "`", "```" + " " * 300_000 + "`"])
def test_a_long_line_that_almost_opens_a_block_is_read_once(line):
    """It was tried in as many ways as it has characters: minutes, in the caller's process."""
    assert program_in(f"{line}\n```\nprint(1)\n```", FREE) == "print(1)\n"
