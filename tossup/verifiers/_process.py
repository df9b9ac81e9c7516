"""One worker process as its caller sees it: started, asked, killed. `tossup.verifiers.workers` tells the story."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from tossup.verifiers._worker import HEADER, frame

KEPT_ENVIRONMENT = ("LD_LIBRARY_PATH", "PYTHONHOME", "TMPDIR")
"""What a Python may need to start at all. No other variable of the caller reaches a worker: no tokens, no keys."""

MAX_REPLY = 64 << 20
"""Bytes. A longer reply counts as a broken worker."""

START_WALL_S = 120.0

PARTING_MS = 10_000
"""How long a worker that has closed its pipes may take to be gone, where everything else wants the processor too."""


class OverrunError(Exception):
    """The job used up its time."""


class BrokenWorkerError(Exception):
    """The worker ended, or said something that is no reply."""


class LoadError(Exception):
    """The worker could not import the function."""


def environment() -> dict[str, str]:
    """The environment of a worker: made up, the same every time, with a fixed hash seed so that rewards repeat."""
    kept = {name: os.environ[name] for name in KEPT_ENVIRONMENT if name in os.environ}
    one_thread = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    fixed = {"PATH": os.defpath, "LANG": "C.UTF-8", "PYTHONHASHSEED": "0", "CUDA_VISIBLE_DEVICES": ""}
    return kept | one_thread | fixed


@contextlib.contextmanager
def open_pidfd(pid: int) -> Iterator[int]:
    """A descriptor that becomes readable when the process ends."""
    fd = os.pidfd_open(pid)
    try:
        yield fd
    finally:
        os.close(fd)


class Clock:
    """The time that one job may use: CPU seconds of the worker, with wall seconds as a backstop for one that sleeps.

    CPU time is the limit because wall time fails right answers on a busy machine.
    """

    def __init__(self, pid: int, cpu_s: float, wall_s: float) -> None:
        # The kernel's id of another process's CPU clock, as in clock_getcpuclockid(3).
        self.clock_id = (~pid << 3) | 2
        self.cpu_s, self.wall_s = cpu_s, wall_s
        self.cpu_start = self.cpu_now() if cpu_s < float("inf") else 0.0
        self.wall_start = time.monotonic()

    def cpu_now(self) -> float:
        """CPU seconds that the worker has used in its life."""
        return time.clock_gettime(self.clock_id)

    @property
    def elapsed(self) -> float:
        """Wall seconds since the job started."""
        return time.monotonic() - self.wall_start

    def wait(self, fd: int, event: int) -> None:
        """Wait until `fd` is ready.

        Raises:
            OverrunError: the time is used up; the text says which.
        """
        ready = select.poll()
        ready.register(fd, event)
        left = min(self.cpu_s, self.wall_s)
        while not ready.poll(max(1.0, left * 1000)):
            wall_left = self.wall_s - self.elapsed
            cpu_left = self.cpu_s - (self.cpu_now() - self.cpu_start) if self.cpu_s < float("inf") else wall_left
            if cpu_left <= 0:
                raise OverrunError(f"timeout after {self.cpu_s:g} s of CPU time")
            if wall_left <= 0:
                raise OverrunError(f"timeout after {self.wall_s:g} s")
            left = min(cpu_left, wall_left)


class WorkerProcess:
    """A freshly exec'd Python that serves calls of one function, one at a time."""

    def __init__(self, function: str, memory_mb: int, warm_up: Sequence[Sequence[Any]]) -> None:
        """Start the process without waiting for it; `wait_ready` does that."""
        lifeline, self.lifeline = os.pipe()
        try:
            self.process = subprocess.Popen(
                [sys.executable, "-s", "-P", str(Path(__file__).with_name("_worker.py")), str(lifeline)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                bufsize=0,
                env=environment(),
                pass_fds=(lifeline,),
                start_new_session=True,
            )
        except BaseException:
            os.close(self.lifeline)
            raise
        finally:
            os.close(lifeline)
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self._ending = threading.Lock()
        self.requests, self.replies = self.process.stdin.fileno(), self.process.stdout.fileno()
        os.set_blocking(self.requests, False)
        os.set_blocking(self.replies, False)
        # '' means the caller's folder, wherever the worker is.
        path = [os.path.abspath(entry) for entry in sys.path]
        self.orders = {"path": path, "function": function, "memory_mb": memory_mb, "warm_up": list(warm_up)}

    def wait_ready(self) -> None:
        """Wait until the function is loaded and warm. Not part of any job's time.

        Raises:
            LoadError: the function cannot be imported, or its warm-up call failed.
            BrokenWorkerError, OverrunError: the worker died or hung while loading.
        """
        reply = self._exchange(self.orders, Clock(self.process.pid, float("inf"), START_WALL_S))
        if "failed" in reply:
            raise LoadError(reply["failed"])

    def call(self, args: Sequence[Any], cpu_s: float, wall_s: float) -> dict[str, Any]:
        """One call; the reply holds `result` or `raised`.

        Raises:
            BrokenWorkerError, OverrunError: the worker must be killed.
        """
        return self._exchange(list(args), Clock(self.process.pid, cpu_s, wall_s))

    def _exchange(self, message: Any, clock: Clock) -> dict[str, Any]:
        try:
            self._send(frame(message), clock)
            size = int.from_bytes(self._receive(HEADER, clock), "big")
            if size > MAX_REPLY:
                raise BrokenWorkerError(f"a reply of {size} bytes")
            reply = json.loads(self._receive(size, clock))
        except OSError as e:
            raise BrokenWorkerError(self._how_it_ended()) from e
        if not isinstance(reply, dict):
            raise BrokenWorkerError("a reply that is no object")
        return reply

    def _send(self, data: bytes, clock: Clock) -> None:
        rest = memoryview(data)
        while rest:
            try:
                rest = rest[os.write(self.requests, rest) :]
            except BlockingIOError:
                clock.wait(self.requests, select.POLLOUT)

    def _receive(self, n: int, clock: Clock) -> bytes:
        data = bytearray()
        while len(data) < n:
            clock.wait(self.replies, select.POLLIN)
            part = os.read(self.replies, n - len(data))
            if not part:
                raise BrokenWorkerError(self._how_it_ended())
            data += part
        return bytes(data)

    def _how_it_ended(self) -> str:
        """How a worker that closed its pipes ended, for a person. Not reaped here: `end` still needs its group."""
        try:
            with open_pidfd(self.process.pid) as pidfd:
                ended = select.poll()
                ended.register(pidfd, select.POLLIN)
                if not ended.poll(PARTING_MS):
                    return "worker closed its pipes"
            how = os.waitid(os.P_PID, self.process.pid, os.WEXITED | os.WNOWAIT)
        except (ProcessLookupError, ChildProcessError):  # another thread has ended and reaped it meanwhile
            return "worker was ended"
        assert how is not None
        if how.si_code == os.CLD_EXITED:
            return f"worker exited with code {how.si_status}"
        return f"worker killed by {signal.Signals(how.si_status).name}"

    @property
    def ended(self) -> bool:
        """Whether the process has ended. It is not reaped here, but another thread may have reaped it."""
        try:
            return os.waitid(os.P_PID, self.process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
        except ChildProcessError:
            return True

    def end(self) -> None:
        """End the process and whatever it started, and leave no zombie. Safe from any thread and to call twice."""
        with self._ending:
            if self.process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(self.process.pid, signal.SIGKILL)
                self.process.wait()

    def kill(self) -> None:
        """`end` and close the pipes. For the thread that has the worker to itself: another could be waiting on them."""
        self.end()
        self.let_go()

    def let_go(self) -> None:
        """Close our ends of the pipes and no more: what a forked child does with its parent's workers."""
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            pipe.close()
        if self.lifeline >= 0:
            os.close(self.lifeline)
            self.lifeline = -1
        # In a forked child the process is not ours to wait for; `poll` notes that, so that Popen does not complain.
        self.process.poll()
