"""Every format end to end, through the sandbox: right programs, wrong ones, and the reason that a person gets to read."""

import json
from pathlib import Path

import pytest

from tossup.records import Problem, Ruling, Verdict
from tossup.verifiers.code import close, judge, remote, verify


@pytest.fixture(scope="module", autouse=True)
def _workers():
    yield
    close()


def ruled(problem, program, name, seconds=2.0):
    return judge({**problem, "limits": {"cpu_seconds": seconds, "wall_seconds": 20}}, program, name)


CASES = [json.loads(line) for line in Path(__file__).with_name("formats.jsonl").read_text().split("\n") if line]


@pytest.mark.parametrize("case", CASES, ids=[f"{i}-{c['format']}-{c['ruling']}" for i, c in enumerate(CASES, 1)])
def test_rulings_and_the_reason_that_a_person_gets_to_read(case):
    limits = {"cpu_seconds": 1.0, "wall_seconds": 3 if "sleep" in case["program"] else 20, "memory_mb": 256}
    verdict = judge({**case["problem"], "limits": limits}, case["program"], case["format"])
    assert verdict.ruling == case["ruling"], verdict
    assert any(part in verdict.reason for part in case["reason"].split("|")), verdict
    assert "\n" not in verdict.reason
    assert len(verdict.reason) < 800
    assert verdict.seconds > 0


MIDDLE = {
    "prompt": "def middle(x, y):\n    '''Mean.'''\n",
    "entry_point": "middle",
    "test": "def check(candidate):\n    assert candidate(1, 3) == 2, 'first'\n    assert candidate(2, 2) == 2\n",
}
SUM = {"input_output": {"inputs": ["2 3\n", "10 -4\n"], "outputs": ["5\n", "6\n"]}}


PYTEST_FILE = """
import unittest
import pytest
import solution
from solution import LIMIT, EmptyError, Stack, divide


@pytest.fixture
def stack():
    made = Stack()
    made.push(1)
    yield made


@pytest.mark.parametrize("a, b, wanted", [(4, 2, 2), (9, 3, 3)])
def test_divide(a, b, wanted):
    assert divide(a, b) == wanted


@pytest.mark.parametrize("a", [1, 2])
@pytest.mark.parametrize("b", [3, 4])
def test_close(a, b):
    assert divide(a, b) == pytest.approx(a / b)
    assert [divide(a, b), divide(b, a)] == pytest.approx([a / b, b / a])


def test_errors():
    with pytest.raises(EmptyError, match="empty"):
        Stack().pop()
    with pytest.raises(ZeroDivisionError):
        divide(1, 0)


def test_stack(stack):
    stack.push([2])
    assert len(stack) == 2
    assert stack.pop() == [2]
    assert stack.items == [1]
    assert list(stack) == [1]
    assert solution.LIMIT == LIMIT == 5


class TestMore:
    def setup_method(self):
        self.stack = Stack()

    def test_empty(self):
        assert self.stack.items == []

    @pytest.mark.skip(reason="not now")
    def test_skipped(self):
        assert False


class Unit(unittest.TestCase):
    def test_it(self):
        self.assertEqual(divide(8, 2), 4)
        with self.assertRaises(EmptyError):
            Stack().pop()
"""
STACK = """
class EmptyError(Exception):
    pass


LIMIT = 5


class Stack:
    def __init__(self):
        self.items = []

    def push(self, x):
        self.items.append(x)

    def pop(self):
        if not self.items:
            raise EmptyError("the stack is empty")
        return self.items.pop()

    def __len__(self):
        return len(self.items)

    def __iter__(self):
        return iter(self.items)


def divide(a, b):
    return a / b
"""


def test_a_pytest_file():
    assert ruled({"test": PYTEST_FILE}, STACK, "pytest").ruling is Ruling.CORRECT
    for old, new in (
        ("a / b", "a // b"),
        ("the stack is empty", "no"),
        ("self.items.pop()", "self.items[-1]"),
        ("LIMIT = 5", "LIMIT = 6"),
    ):
        verdict = ruled({"test": PYTEST_FILE}, STACK.replace(old, new), "pytest")
        assert verdict.ruling is Ruling.WRONG, (new, verdict)


def test_verify_finds_the_program_in_the_response():
    reference = json.dumps({"format": "humaneval", **MIDDLE})
    problem = Problem("1", MIDDLE["prompt"], reference, verifier="code")
    good = verify(problem, "So:\n```python\ndef middle(x, y):\n    return (x + y) / 2\n```")
    assert good.ruling is Ruling.CORRECT
    assert good.answer == "def middle(x, y):\n    return (x + y) / 2\n"
    assert verify(problem, "    return (x + y) / 2\n").ruling is Ruling.CORRECT
    nothing = verify(problem, "I cannot do that.")
    assert nothing.ruling is Ruling.WRONG
    assert nothing.reason == "no program in the response"
    for broken in ("", "[]", "{}", "5"):
        assert verify(Problem("1", "", broken), "x = 1").ruling is Ruling.UNDECIDED


def test_other_languages_need_a_remote_judge(monkeypatch):
    monkeypatch.setattr(remote, "_judges", {})
    problem = {**SUM, "language": "cpp"}
    verdict = ruled(problem, "int main() {}", "apps")
    assert verdict.ruling is Ruling.UNDECIDED
    assert "cpp is not supported here" in verdict.reason
    remote.register(
        "CPP", lambda fields, program, language: Verdict(Ruling.CORRECT, f"{language} {len(fields['input_output'])}")
    )
    assert ruled(problem, "int main() {}", "apps").reason == f"cpp {len(SUM['input_output'])}"

    def down(fields, program, language):
        raise ConnectionError("nobody there")

    remote.register("cpp", down)
    assert ruled(problem, "", "apps").ruling is Ruling.UNDECIDED
