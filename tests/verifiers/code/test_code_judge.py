"""One judge for many threads, closed and used again, and what it says when there is no sandbox."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from tossup.records import Ruling, TossupError
from tossup.verifiers.code import Bounds, Judge
from tossup.verifiers.code.formats import read

PLAIN = read({"entry_point": "f", "test": "def check(candidate):\n    assert candidate(20) == 6765\n"}, "humaneval")
SPLIT = read(
    {"entry_point": "f", "test": "def check(candidate):\n    for i in (1, 20):\n        assert candidate(i)\n"},
    "humaneval",
)
PRINTED = read({"inputs": ["20\n"] * 3, "outputs": ["6765\n"] * 3}, "stdin")
FIBONACCI = "def f(n):\n    return n if n < 2 else f(n - 1) + f(n - 2)\n"
JOBS = [(PLAIN, FIBONACCI), (SPLIT, FIBONACCI), (PRINTED, FIBONACCI + "print(f(int(input())))\n")]


def test_many_at_once_are_each_judged_by_their_own_time():
    judge = Judge(workers=12)
    bounds = Bounds(cpu_seconds=2.0)

    def rule(i):
        reading, program = JOBS[i % len(JOBS)]
        return judge.judge(reading.task, program if i % 4 else program.replace("n - 2", "n - 1"), bounds)

    with ThreadPoolExecutor(12) as threads:
        verdicts = list(threads.map(rule, range(36)))
    judge.close()
    for i, verdict in enumerate(verdicts):
        reading, _ = JOBS[i % len(JOBS)]
        wrong = i % 4 == 0 and reading is not SPLIT  # the split tests only want something true
        assert verdict.ruling is (Ruling.WRONG if wrong else Ruling.CORRECT), (i, verdict)


def test_a_closed_judge_starts_again():
    judge = Judge(workers=1)
    for _ in range(2):
        assert judge.judge(PLAIN.task, FIBONACCI, Bounds()).ruling is Ruling.CORRECT
        judge.close()
    judge.close()


def test_numpy_is_loaded_only_for_those_who_name_it():
    judge = Judge(workers=1)
    names = "import sys\n\ndef f(n):\n    return 6765 if ('num' + 'py' in sys.modules) is {} else 0\n"
    assert judge.judge(PLAIN.task, names.format(False), Bounds()).ruling is Ruling.CORRECT
    assert judge.judge(PLAIN.task, "import numpy\n" + names.format(True), Bounds()).ruling is Ruling.CORRECT
    judge.close()


def test_a_backend_that_does_not_exist_is_the_users_to_put_right():
    with pytest.raises(TossupError, match="fortress"):
        Judge("fortress").judge(PLAIN.task, FIBONACCI, Bounds())


def test_text_that_is_no_program():
    judge = Judge(workers=1)
    assert judge.judge(PLAIN.task, "x = '\ud800'", Bounds()).ruling is Ruling.WRONG
    assert judge.judge(PLAIN.task, "\ufeff" + FIBONACCI, Bounds()).ruling is Ruling.CORRECT
    assert judge.judge(PLAIN.task, "", Bounds()).reason.endswith("defines no f")
    judge.close()


@pytest.mark.parametrize("backend", ["none", "landlock", "namespaces"])
def test_the_same_rulings_on_every_backend_and_a_mark_where_nothing_is_isolated(backend):
    judge = Judge(backend, workers=1)
    for reading, program in JOBS:
        good, bad = (
            judge.judge(reading.task, p, Bounds(cpu_seconds=2.0))
            for p in (program, program.replace("return n", "return 0"))
        )
        if not good.decided:
            pytest.skip(good.reason)  # this machine does not offer it
        assert good.ruling is Ruling.CORRECT, good
        assert bad.ruling is Ruling.WRONG, bad
        assert good.reason.startswith("not isolated: ") == (backend == "none")
    judge.close()


LONG = read(
    {
        "entry_point": "f",
        "test": "def check(candidate):\n" + "".join(f"    assert candidate({i}) == {i * i}\n" for i in range(40)),
    },
    "humaneval",
)


@pytest.mark.parametrize(
    ("program", "reason"),
    [
        ("def f(n):\n    return n * n\n", "40 of 40 tests passed"),
        ("def f(n):\n    return n + n\n", "test 2 of 40: expected 1, got 2"),
        ("def f(n):\n    while n > 9:\n        pass\n    return n * n\n", "test 11 of 40: CPU limit 1 s"),
        ("def f(n):\n    while n > 9:\n        pass\n    return n\n", "test 3 of 40: expected 4, got 2"),
        ("seen = []\ndef f(n):\n    seen.append(n)\n    return n * (len(seen) - 1)\n", "40 of 40 tests passed"),
    ],
)
def test_a_long_list_of_calls_gets_the_verdict_of_its_first_wrong_answer(program, reason):
    judge = Judge(workers=1)
    verdict = judge.judge(LONG.task, program, Bounds(cpu_seconds=1.0))
    judge.close()
    assert verdict.reason.startswith(reason), verdict
