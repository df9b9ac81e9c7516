"""The zygote waits for a run and holds it to its limits of CPU time, wall time, threads and memory.

Wall time counts without what the run spent ready to run and waiting for a core, by the kernel's account. Of two programs that
talk one waits whenever the other runs or is kept waiting: with many more jobs than cores, a pair that needs four seconds
of CPU time each took 77 seconds, 70 of them in that queue. So each zygote tells the other how long its run was kept waiting.
The kernel's account knows nothing of a machine or a container that stood still as a whole. Then the zygote wakes too late
itself, and leaves that time out.
"""

from __future__ import annotations

import mmap
import os
import select
import signal
import socket
import struct
import time

from tossup.sandbox.child import RUNNING, Job
from tossup.sandbox.messages import WALL_STRETCH

FIRST_TICK_S, LAST_TICK_S = 0.02, 0.1
SHORTEST_WAIT_S = 0.002
RESIDENT_SLACK = 64 << 20
"""A run may hold this much beyond its memory limit, for the interpreter and its libraries."""
_SECONDS = struct.Struct("=d")


class Watch:
    """Watches one child at a time from the zygote, which the child cannot reach.

    `waits` is a file that two zygotes share (or -1), and `place` says which of its two numbers is ours: the seconds
    that our run has been kept waiting. The first byte of `stage` says whether the program has begun.
    """

    def __init__(self, control: socket.socket, host: int, stage: mmap.mmap, waits: int = -1, place: int = 0) -> None:
        self._stage, self._waits, self._place = stage, waits, place
        self._told = False
        self._poll = select.poll()
        for fd in (control.fileno(), host):
            self._poll.register(fd, select.POLLIN)
        self._cores = len(os.sched_getaffinity(0))
        try:
            self._proc = os.open("/proc", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError:
            self._proc = -1

    def wait(self, child: int, job: Job) -> tuple[int, str, float, float, int]:
        """Until the child has ended: by itself, by a limit, by the host's "stop", or because the host has gone.

        Returns its exit status, why it was killed, CPU and wall seconds and peak bytes, as in `messages.Reply`. Killing
        pid 1 of its pid namespace ends all of it; elsewhere it is one process that cannot fork.
        """
        started = time.monotonic()
        if self._told:
            self._tell(0.0)
            self._told = False
        pidfd = os.pidfd_open(child)
        self._poll.register(pidfd, select.POLLIN)
        killed, tick = "", FIRST_TICK_S
        pause, now, stood_still = tick, started, 0.0
        while True:
            ready = [fd for fd, _ in self._poll.poll(1000 * pause)]
            if pidfd in ready:
                break
            if ready:
                killed = "stopped"
            else:
                before, now = now, time.monotonic()
                late = now - before - pause
                stood_still += late if late > LAST_TICK_S else 0.0
                killed, cpu = self._over(child, pidfd, job, now - started, stood_still)
                pause = max(SHORTEST_WAIT_S, min(tick, (job.cpu_seconds - cpu) / self._cores))
                tick = min(LAST_TICK_S, 1.5 * tick)
            if killed:
                os.kill(child, signal.SIGKILL)
                break
        self._poll.unregister(pidfd)
        os.close(pidfd)
        _, status, used = os.wait4(child, 0)
        cpu = used.ru_utime + used.ru_stime
        if not killed and cpu > job.cpu_seconds:
            killed = "timeout_cpu"
        return os.waitstatus_to_exitcode(status), killed, cpu, time.monotonic() - started, used.ru_maxrss * 1024

    def _over(self, child: int, pidfd: int, job: Job, wall: float, stood_still: float) -> tuple[str, float]:
        """The limit that the child has passed, or "", and its CPU seconds.

        A program that has not begun cannot have taken too long; the outer bound ends a child that never gets there.
        """
        try:
            cpu = time.clock_gettime(cpu_clock(child))
        except OSError:
            return "", 0.0  # it has just ended
        if cpu > job.cpu_seconds:
            return "timeout_cpu", cpu
        process = self._in_proc(pidfd)
        if job.paired or wall > job.wall_seconds:
            kept_waiting = self._kept_waiting(process, job.paired, stood_still)
            too_long = self._stage[0] == RUNNING and wall - kept_waiting > job.wall_seconds
            if too_long or wall > job.wall_seconds * WALL_STRETCH:
                return "timeout_wall", cpu
        threads, resident = self._size(process)
        if threads > job.threads:
            return "threads", cpu
        return ("memory" if resident > job.memory_bytes + RESIDENT_SLACK else ""), cpu

    def _in_proc(self, pidfd: int) -> str:
        """The directory of the child in the host's /proc; "" where there is none.

        Its id outside this pid namespace stands there beside our own descriptor for it.
        """
        if self._proc < 0:
            return ""
        try:
            about = dict(line.split(":", 1) for line in self._read(f"self/fdinfo/{pidfd}").splitlines())
            return str(int(about["Pid"]))
        except (OSError, KeyError):
            return ""  # it has just ended, or /proc hides it

    def _size(self, process: str) -> tuple[int, int]:
        """Threads and resident bytes; zeros where /proc cannot tell.

        RLIMIT_NPROC does not bind uid 0 and counts other processes of the same user, so threads are counted here.
        """
        try:
            fields = self._read(f"{process}/stat").rsplit(")", 1)[1].split() if process else []
        except (OSError, IndexError):
            return 0, 0  # it has just ended
        return (int(fields[17]), int(fields[21]) * os.sysconf("SC_PAGE_SIZE")) if fields else (0, 0)

    def _kept_waiting(self, process: str, paired: bool, stood_still: float) -> float:
        """Seconds that the run was ready and had no core, or all stood still, and with `paired` those of the other run too."""
        try:
            own = int(self._read(f"{process}/schedstat").split()[1]) / 1e9 if process else 0.0
        except (OSError, IndexError):
            own = 0.0  # it has just ended, or this kernel keeps no such account
        own = max(own, stood_still)
        if not paired or self._waits < 0:
            return own
        self._tell(own)
        self._told = True
        return own + float(_SECONDS.unpack(os.pread(self._waits, _SECONDS.size, _SECONDS.size * (1 - self._place)))[0])

    def _tell(self, seconds: float) -> None:
        os.pwrite(self._waits, _SECONDS.pack(seconds), _SECONDS.size * self._place)

    def _read(self, path: str) -> str:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC, dir_fd=self._proc)
        try:
            return os.read(fd, 4096).decode(errors="replace")
        finally:
            os.close(fd)


def cpu_clock(pid: int) -> int:
    """The clock of a process's CPU time, as clock_getcpuclockid(3) computes it."""
    scheduler_clock = 2
    return (~pid << 3) | scheduler_clock
