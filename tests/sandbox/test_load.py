"""Limits where there is far more to do than cores: a program that waits for its turn has not hung."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator

import pytest

from tossup.sandbox import Limits, Outcome, Sandbox

OTHERS = 20
SPIN = "import time\nwhile time.process_time() < 0.1: pass\nprint('done')"
TALK = """
import os, time
def spin():
    end = time.process_time() + 0.005
    while time.process_time() < end: pass
for _ in range(10):
    if {first}: os.write(4, b'x')
    assert os.read(3, 1) == b'x'
    spin()
    if not {first}: os.write(4, b'x')
if {first}: os.write(5, b'done')
"""
LIMITS = Limits(cpu_seconds=5, wall_seconds=0.8)


@pytest.fixture
def one_busy_core() -> Iterator[None]:
    """This process, and what it starts, on one core with many programs that never pause."""
    if not os.path.exists("/proc/self/schedstat"):
        pytest.skip("this kernel keeps no account of how long a process waited for a core")
    cores = os.sched_getaffinity(0)
    with contextlib.ExitStack() as stack:
        stack.callback(os.sched_setaffinity, 0, cores)
        os.sched_setaffinity(0, {min(cores)})
        for _ in range(OTHERS):
            busy = stack.enter_context(subprocess.Popen(["/bin/sh", "-c", "while :; do :; done"]))
            stack.callback(busy.kill)
        yield


def test_wall_time_leaves_out_the_wait_for_a_core(one_busy_core: None) -> None:
    with Sandbox(workers=1, limits=LIMITS) as box:
        result = box.run(SPIN)
        assert (result.outcome, result.stdout) == (Outcome.FINISHED, b"done\n"), result
        assert box.run("import time; time.sleep(1000)").outcome is Outcome.TIMEOUT_WALL


def test_of_two_that_talk_none_pays_for_the_others_wait(one_busy_core: None) -> None:
    with Sandbox(workers=1, limits=LIMITS) as box:
        talk = box.converse(TALK.format(first=False), TALK.format(first=True))
        assert (talk.candidate.outcome, talk.tests.outcome) == (Outcome.FINISHED, Outcome.FINISHED), talk
        assert talk.verdict == b"done"
        hung = box.converse("import os; os.read(3, 9)", "import os; os.read(3, 9)")
        assert Outcome.TIMEOUT_WALL in (hung.candidate.outcome, hung.tests.outcome), hung
