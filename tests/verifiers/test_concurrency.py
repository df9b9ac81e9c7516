"""The same verdicts, whoever asks: one by one, many at once, 32 threads, asyncio, a forked and a spawned process.

Among the items are some that hang, crash or run out of memory; none of them may cost another item its verdict, and no
process may stay behind. `benchmarks/verifier.py --concurrency 10000` runs the same at full size.
"""

import asyncio
import multiprocessing
import os
import subprocess
import sys
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path

import pytest

from tossup import verifiers
from tossup.records import Problem
from tossup.verifiers import averify, verify, verify_many
from tossup.verifiers._user import SECONDS_VARIABLE

HERE = Path(__file__).parent
OWN = "own_verifier:moody"
LONG = r"\frac{\sqrt{8}}{2}"


def items(n):
    """`n` pairs, one in twenty of which hangs; each group of forty is the same."""
    kinds = [
        *((OWN, "7", bad) for bad in ["hang", "crash"]),
        *((OWN, str(i), str(i + i % 3 // 2)) for i in range(8)),
        *(("math", "1/2", rf"so \boxed{{{answer}}}") for answer in ["0.5", "0.6", r"\frac{2}{4}", "2^{-1}", "x"]),
        *(
            ("math", r"\sqrt{2}", rf"\boxed{{{answer}}}")
            for answer in [LONG, "1.4142", r"10^{10^{10^{10}}}", r"2^{1/2}"]
        ),
        ("math", "", r"\boxed{1}"),
        *(("exact", "7", answer) for answer in ["7", "8", ""]),
        *(("choice", "B", answer) for answer in ["(B)", r"\boxed{C}", ""]),
        *(("logic", "a b c", answer) for answer in ["a b c", r"\boxed{c b a}"]),
        *(("math", str(i), f"the answer is {i + i % 5 // 4}.") for i in range(10)),
        (OWN, "7", "hang in C"),
        (OWN, "7", "eat"),
    ]
    assert len(kinds) == 40
    return [(Problem(str(i), "", r, v), a) for i, (v, r, a) in enumerate(kinds * -(-n // 40))][:n]


def plain(verdicts):
    return [(v.ruling.value, v.reason, v.answer) for v in verdicts]


def children():
    """Process ids of this process's children, zombies among them."""
    pids = []
    for task in os.listdir("/proc/self/task"):
        pids += Path(f"/proc/self/task/{task}/children").read_text().split()
    return pids


@pytest.fixture(scope="module")
def expected():
    """Verdicts one by one."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(SECONDS_VARIABLE, "0.2")
        verifiers.close()
        pairs = items(80)
        verdicts = plain(verify(*pair) for pair in pairs)
        assert {ruling for ruling, *_ in verdicts} == {"correct", "wrong", "undecided"}
        yield pairs, verdicts
    verifiers.close()


def test_many_at_once(expected):
    pairs, verdicts = expected
    assert plain(verify_many(pairs)) == verdicts


def test_32_threads(expected):
    pairs, verdicts = expected
    with ThreadPoolExecutor(32) as threads:
        assert plain(threads.map(lambda pair: verify(*pair), pairs)) == verdicts


def test_asyncio(expected):
    pairs, verdicts = expected

    async def ask():
        return await asyncio.gather(*(averify(*pair) for pair in pairs))

    assert plain(asyncio.run(ask())) == verdicts


def judge_many(n):
    return plain(verify_many(items(n)))


def test_a_spawned_process(expected):
    _, verdicts = expected
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as processes:
        assert processes.submit(judge_many, 80).result() == verdicts


def judge_in_forked_child(n):
    """In a program of its own: judge, fork, judge in the child and again in the parent, and print the child's verdicts."""
    first = judge_many(40)
    child = os.fork()
    if child == 0:
        print(judge_many(n), flush=True)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    assert judge_many(40) == first
    verifiers.close()
    assert children() == []


def test_a_forked_process(expected):
    _, verdicts = expected
    run = [sys.executable, "-W", "error", "-c", "import test_concurrency as t; t.judge_in_forked_child(80)"]
    environment = {**os.environ, "PYTHONPATH": str(HERE)}
    output = subprocess.run(run, env=environment, stdout=subprocess.PIPE, text=True, check=True).stdout
    assert output.strip() == str(verdicts)


def test_no_process_stays_behind(expected):
    pairs, _ = expected
    before = set(children())
    verifiers.close()
    verify_many(pairs)
    verifiers.close()
    assert set(children()) <= before
