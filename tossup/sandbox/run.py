"""One run, or two that talk, as the host sees them: descriptors to hand over, pipes to drain, replies to wait for.

The host reads what the programs print, as it comes and up to a cap, so that a program can never fill a pipe and wait.
What a run came to is decided here, from what the zygote measured and the kernel reported, and never from what the program
says of itself.
"""

from __future__ import annotations

import fcntl
import json
import os
import select
import signal
import time
from collections.abc import Sequence
from functools import lru_cache

from tossup.sandbox.files import MemoryFile
from tossup.sandbox.messages import WALL_STRETCH, Reply
from tossup.sandbox.program import Program
from tossup.sandbox.words import Limits, Outcome, Result
from tossup.sandbox.worker import Worker, WorkerError

STDERR_BYTES = 16 << 10
"""How much of the end of stderr is kept."""
FLOOD_BYTES = 64 << 20
"""A program that prints this much anywhere is stopped even where its output is not judged: reading costs the host time."""
GRACE_S = 60.0
"""How long after the wall limit a zygote may take to say that it has killed its run."""
CHUNK = 1 << 16
SHORT_RUN_MS = 5
"""How long a run is given to end before its output is read as it comes."""
EAGER_ROUNDS, PAUSE_S = 16, 0.001
"""After so many wake-ups the host pauses between them: a program that prints a character at a time must not cost it a core."""


class Capture:
    """The host's end of a pipe from a program. Past the cap it keeps the start, or with `tail` the end."""

    def __init__(self, cap: int, tail: bool = False) -> None:
        self.fd, self.theirs = os.pipe()
        fcntl.fcntl(self.fd, fcntl.F_SETFL, os.O_NONBLOCK)
        self._cap, self._tail = cap, tail
        self.data = bytearray()
        self.total = 0

    def read(self) -> int:
        """Take what is there, one chunk at most; how much it was, 0 where there is nothing (now, or ever)."""
        try:
            chunk = os.read(self.fd, CHUNK)
        except BlockingIOError:
            return 0
        self.data += chunk
        self.total += len(chunk)
        if len(self.data) > self._cap:
            if self._tail:
                del self.data[: -self._cap]
            else:
                del self.data[self._cap :]
        return len(chunk)

    def close_theirs(self) -> None:
        """Close the program's end in the host, once it has been handed over."""
        if self.theirs >= 0:
            os.close(self.theirs)
            self.theirs = -1

    def close(self) -> None:
        """Close what is still open."""
        self.close_theirs()
        os.close(self.fd)


@lru_cache(maxsize=64)
def job(layout: tuple[int, ...], argv: tuple[str, ...], limits: Limits, paired: bool) -> bytes:
    """The message that starts a run. The same one for many runs: the zygote need not read it again either."""
    return json.dumps(
        {
            "layout": layout,
            "argv": argv,
            "cpu_seconds": limits.cpu_seconds,
            "wall_seconds": limits.wall,
            "memory_bytes": limits.memory_bytes,
            "file_bytes": limits.file_bytes,
            "open_files": limits.open_files,
            "threads": limits.threads,
            "paired": paired,
        }
    ).encode()


class Run:
    """A job on a worker, from the hand-over to its result. `stop_on_overflow` is off where what is printed is not judged."""

    def __init__(self, worker: Worker, limits: Limits, stop_on_overflow: bool = True, verdict: int = 0) -> None:
        self.worker, self.limits = worker, limits
        self._stop_on_overflow = stop_on_overflow
        self.reply: Reply | None = None
        self.failure = ""
        self._printed_too_much = ""
        self.captures = [Capture(limits.output_bytes), Capture(STDERR_BYTES, tail=True)]
        if verdict:
            self.captures.append(Capture(verdict))

    def start(self, program: Program, stdin: bytes, argv: Sequence[str], peers: Sequence[int] = ()) -> None:
        """Hand the job over. The program sees `peers` as 3, 4; where there is a verdict pipe, as 5.

        Raises:
            WorkerError: the worker has gone.
            OSError: the host is out of descriptors or memory.
        """
        with MemoryFile(stdin) as data, program.handed_to(self) as (source, code):
            stdout, stderr, *verdict = (c.theirs for c in self.captures)
            fds = [source, data.fileno(), stdout, stderr, *peers, *verdict]
            layout = [0, -1, *range(1, len(fds))]
            if code is not None:
                layout[1] = len(fds)
                fds.append(code)
            self.worker.send(job(tuple(layout), tuple(argv), self.limits, bool(peers)), fds)
        for capture in self.captures:
            capture.close_theirs()

    def read(self, capture: Capture) -> int:
        """Drain a bit of one pipe and say how much; a program that prints too much is stopped."""
        taken = capture.read()
        judged = capture is self.captures[0] and self._stop_on_overflow
        cap = self.limits.output_bytes if judged else FLOOD_BYTES
        if capture.total > cap and not self._printed_too_much:
            self._printed_too_much = f"more than {cap} bytes of output"
            if self.reply is None:
                self.worker.stop()
        return taken

    def finish(self) -> None:
        """Take the reply and what is left in the pipes; nobody is there any more to write."""
        try:
            self.reply = self.worker.receive()
        except WorkerError as e:
            self.failure = str(e)
            return
        for capture in self.captures:
            while self.read(capture) == CHUNK:  # less is all that there was
                pass

    @property
    def done(self) -> bool:
        """Whether there is nothing more to wait for."""
        return self.reply is not None or bool(self.failure)

    @property
    def undisturbed(self) -> bool:
        """Whether nobody has ended it."""
        reply = self.reply
        return reply is not None and reply.started and not reply.killed and reply.exit != -signal.SIGKILL

    def close(self) -> None:
        """Close the host's ends of the pipes."""
        for capture in self.captures:
            capture.close()

    def result(self) -> Result:
        """What became of it."""
        if self.failure or self.reply is None:
            return Result(Outcome.INFRA, reason=self.failure or "no reply")
        reply = self.reply
        stderr = bytes(self.captures[1].data)
        outcome, reason = explain(reply, self.limits, self._printed_too_much, stderr)
        return Result(
            outcome=outcome,
            stdout=bytes(self.captures[0].data),
            stderr=stderr,
            exit_code=reply.exit,
            cpu_seconds=reply.cpu_seconds,
            wall_seconds=reply.wall_seconds,
            peak_bytes=reply.peak_bytes,
            reason=reason,
        )


def drive(runs: Sequence[Run], finished: Run | None = None) -> None:
    """Drain and wait until all runs are done; when `finished` is, the others are stopped.

    For the first moments it waits for replies alone: what a short run prints fits its pipes, and waking for each of them
    costs the host more than reading them.
    """
    deadline = time.monotonic() + WALL_STRETCH * max(run.limits.wall for run in runs) + GRACE_S
    poll = select.poll()
    sources: dict[int, tuple[Run, Capture | None]] = {run.worker.fileno(): (run, None) for run in runs}
    for fd in sources:
        poll.register(fd, select.POLLIN)
    rounds, listening = 0, False
    while not all(run.done for run in runs):
        rounds += 1
        if rounds > EAGER_ROUNDS:
            time.sleep(PAUSE_S)
        events = poll.poll(1000 * max(0.0, deadline - time.monotonic()) if listening else SHORT_RUN_MS)
        if not events and not listening:
            pipes = {capture.fd: (run, capture) for run in runs for capture in run.captures}
            for fd in pipes:
                poll.register(fd, select.POLLIN)
            sources, listening = {**sources, **pipes}, True
        elif not events and time.monotonic() > deadline:
            for run in runs:
                run.failure = run.failure or "the worker did not answer"
            return
        for fd, _ in events:
            run, capture = sources[fd]
            if capture is not None:
                if not run.read(capture):
                    poll.unregister(fd)
                continue
            run.finish()
            poll.unregister(fd)
            if run is finished:
                for other in runs:
                    if not other.done:
                        other.worker.stop()


def explain(reply: Reply, limits: Limits, printed_too_much: str, stderr: bytes) -> tuple[Outcome, str]:
    """The outcome and one line for a person, from what the zygote measured.

    A run that the host had stopped before it started is no failure: on a busy machine the tests of a pair can end before
    the candidate has had a core. By its exit status it is told from one whose jail failed just then.
    """
    stopped = reply.killed == "stopped" and reply.exit == -signal.SIGKILL
    if not (reply.started or stopped):
        return Outcome.INFRA, reply.message
    if printed_too_much:
        return Outcome.OUTPUT, printed_too_much
    if reply.killed:
        return _explain_killed(reply, limits)
    if reply.exit == 0:
        return Outcome.FINISHED, ""
    if reply.exit == -signal.SIGSYS:
        return Outcome.POLICY, "killed for a forbidden system call"
    if reply.exit == -signal.SIGKILL:
        if reply.peak_bytes * 2 > limits.memory_bytes:
            return Outcome.MEMORY, "killed by the system for want of memory"
        return Outcome.INFRA, "killed from outside"
    if reply.exit < 0:
        return Outcome.ERROR, f"killed by signal {-reply.exit} ({signal.strsignal(-reply.exit)})"
    last = stderr.decode(errors="replace").strip().rpartition("\n")[2][:300]
    if last.partition(":")[0].endswith("MemoryError"):
        return Outcome.MEMORY, f"memory limit {limits.memory_bytes >> 20} MiB: {last}"
    return Outcome.ERROR, f"exit status {reply.exit}" + (f": {last}" if last else "")


def _explain_killed(reply: Reply, limits: Limits) -> tuple[Outcome, str]:
    """The same for a run that the zygote ended."""
    match reply.killed:
        case "timeout_cpu":
            return Outcome.TIMEOUT_CPU, f"CPU limit {limits.cpu_seconds:g} s"
        case "timeout_wall":
            return Outcome.TIMEOUT_WALL, f"wall limit {limits.wall:g} s, after {reply.cpu_seconds:.2f} s of CPU time"
        case "threads":
            return Outcome.POLICY, f"more than {limits.threads} threads"
        case "memory":
            return Outcome.MEMORY, f"memory limit {limits.memory_bytes >> 20} MiB"
    return Outcome.ERROR, "stopped when the tests had ended"
