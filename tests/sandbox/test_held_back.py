"""Any process may have to wait for a core at any moment: that changes no outcome, and no worker is thought broken for it.

Processes are held by SIGSTOP, which is what a busy machine does to them, only longer.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from tests.sandbox.conftest import skip_unless_offered
from tests.sandbox.processes import children, processes, send, until
from tossup.sandbox import Conversation, Limits, Outcome, Result, Sandbox, backends
from tossup.sandbox.child import RUNNING, Job
from tossup.sandbox.messages import WALL_STRETCH
from tossup.sandbox.watch import Watch

HOLD_S = 0.1
LIMITS = Limits(cpu_seconds=5, wall_seconds=300)
ECHO = "import os\nwhile data := os.read(3, 100): os.write(4, data.upper())"
ASK = "import os, time\ntime.sleep(0.05)\nos.write(4, b'abc')\nos.write(5, b'got ' + os.read(3, 100))"
LISTEN = "import os\nos.write(5, repr(os.read(3, 100)).encode())"


@pytest.fixture(scope="module", params=backends.ORDER)
def box(request: pytest.FixtureRequest) -> Iterator[Sandbox]:
    """One of each backend, with both workers started."""
    skip_unless_offered(request.param)
    with Sandbox(request.param, workers=1, limits=LIMITS) as own:
        own.converse("pass", "pass")
        yield own


def workers(box: Sandbox) -> list[int]:
    """The processes that the host started: for the candidates, and for the tests."""
    return [w._process.pid for w in box._slots[0].workers() if w._process is not None]


def zygote(worker: int) -> int:
    """The process of a worker that forks; under namespaces the host's own child is its guard."""
    return next(iter(children(worker)), worker)


VICTIMS: dict[str, Callable[[Sandbox], list[int]]] = {
    "the candidate's worker": lambda box: [*children(workers(box)[0]), workers(box)[0]],
    "the tests' worker": lambda box: [*children(workers(box)[1]), workers(box)[1]],
    "both zygotes": lambda box: [zygote(worker) for worker in workers(box)],
    "the guards": workers,
    "the runs": lambda box: [run for worker in workers(box) for run in children(zygote(worker))],
    "all": processes,
}


def held(pids: Sequence[int]) -> None:
    """Keep these processes from running for a moment."""
    for pid in pids:
        send(pid, signal.SIGSTOP)
    time.sleep(HOLD_S)
    for pid in pids:
        send(pid, signal.SIGCONT)


@contextlib.contextmanager
def meanwhile(box: Sandbox, victim: str, early: bool) -> Iterator[None]:
    """Hold a victim while the block runs: from before it begins, or from when a first run has been forked."""
    idle, over = len(processes(box)), threading.Event()

    def hold() -> None:
        while not early and len(processes(box)) == idle and not over.is_set():
            time.sleep(0.001)
        held(VICTIMS[victim](box))

    if early:
        for pid in VICTIMS[victim](box):
            send(pid, signal.SIGSTOP)
    thread = threading.Thread(target=hold)
    thread.start()
    yield
    over.set()
    thread.join()


def finished(result: Result, stdout: bytes) -> bool:
    return (result.outcome, result.stdout) == (Outcome.FINISHED, stdout)


def judged(talk: Conversation, verdict: bytes) -> bool:
    ended = talk.candidate.outcome in (Outcome.FINISHED, Outcome.ERROR)  # by itself, or stopped as the tests had ended
    return (talk.tests.outcome, talk.verdict) == (Outcome.FINISHED, verdict) and ended


@pytest.mark.parametrize(
    ("victim", "early"),
    [(victim, early) for victim in VICTIMS for early in (True, False) if not (early and victim == "the runs")],
)
def test_whoever_has_to_wait_nothing_else_changes(box: Sandbox, victim: str, early: bool) -> None:
    before = workers(box)
    with meanwhile(box, victim, early):
        result = box.run("import time; time.sleep(0.05); print(int(input()) + 1)", b"41")
    assert finished(result, b"42\n"), result
    with meanwhile(box, victim, early):
        results = box.run_many("import time; time.sleep(0.02); print(input())", [b"0", b"1", b"2"])
    assert [r.stdout for r in results] == [b"0\n", b"1\n", b"2\n"], results
    with meanwhile(box, victim, early):
        talk = box.converse(ECHO, ASK)
    assert judged(talk, b"got ABC"), talk
    with meanwhile(box, victim, early):
        talk = box.converse("pass", LISTEN)
    assert judged(talk, b"b''"), talk
    with meanwhile(box, victim, early):
        talk = box.converse("pass", "import os; os.write(5, b'alone')")
    assert judged(talk, b"alone"), talk
    assert workers(box) == before, "a worker was thought broken"


HOST = """
import sys
from tests.sandbox.test_held_back import ASK, ECHO, LIMITS, judged, workers
from tossup.sandbox import Sandbox
with Sandbox(workers=1, limits=LIMITS) as box:
    box.converse("pass", "pass")
    before = workers(box)
    for _ in range(10):
        print("next", flush=True)
        talk = box.converse(ECHO, ASK)
        assert judged(talk, b"got ABC"), talk
        assert workers(box) == before
"""


def test_the_host_has_to_wait() -> None:
    command = [sys.executable, "-c", HOST]
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=Path(__file__).parents[2]) as host:
        assert host.stdout is not None
        for i, _ in enumerate(host.stdout):
            time.sleep(0.005 * i)
            held([host.pid])
    assert host.returncode == 0


def test_a_machine_that_stands_still_is_no_time_of_the_programs(strongest: Sandbox) -> None:
    """A container is paused, a job suspended. The watching process is the first to run again, as it may well be."""
    limits = Limits(cpu_seconds=1, wall_seconds=3)
    with Sandbox(strongest.backend, workers=1, limits=limits) as own:
        own.run("pass")
        (worker,) = workers(own)
        results: list[Result] = []
        run = threading.Thread(target=lambda: results.append(own.run("import time; time.sleep(0.5); print('done')")))
        run.start()
        until(lambda: children(zygote(worker)))
        everything = [zygote(worker), *children(zygote(worker))]
        for pid in everything:
            send(pid, signal.SIGSTOP)
        time.sleep(limits.wall + 0.5)
        for pid in everything:
            send(pid, signal.SIGCONT)
            time.sleep(0.2)
        run.join()
        assert finished(results[0], b"done\n"), results
        assert own.run("import time; time.sleep(600)").outcome is Outcome.TIMEOUT_WALL


@pytest.mark.parametrize("begun", [True, False])
def test_a_program_that_has_not_begun_has_not_taken_too_long(begun: bool) -> None:
    job = Job((), (), 60, wall_seconds=0.1, memory_bytes=1 << 30, file_bytes=1, open_files=1, threads=9, paired=False)
    host, (control, other), stage = os.pidfd_open(os.getpid()), socket.socketpair(), mmap.mmap(-1, 1)
    with control, other, stage, open(host, "rb"):
        stage[0] = RUNNING if begun else 0
        child = os.posix_spawn("/bin/sleep", ["sleep", "600"], {})
        ended, killed, _, seconds, _ = Watch(control, host, stage).wait(child, job)
    assert (ended, killed) == (-signal.SIGKILL, "timeout_wall")
    assert begun or seconds > WALL_STRETCH * job.wall_seconds
