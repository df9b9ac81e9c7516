"""The zygote waits for a run and holds it to its limits of CPU time, wall time, threads and memory."""

from __future__ import annotations

import os
import select
import signal
import socket
import time

from tossup.sandbox.child import Job

FIRST_TICK_S, LAST_TICK_S = 0.02, 0.1
SHORTEST_WAIT_S = 0.002
RESIDENT_SLACK = 64 << 20
"""A run may hold this much beyond its memory limit, for the interpreter and its libraries."""


class Watch:
    """Watches one child at a time from the zygote, which the child cannot reach."""

    def __init__(self, control: socket.socket, host: int) -> None:
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
        pidfd = os.pidfd_open(child)
        self._poll.register(pidfd, select.POLLIN)
        killed, tick = "", FIRST_TICK_S
        pause = tick
        while True:
            ready = [fd for fd, _ in self._poll.poll(1000 * pause)]
            if pidfd in ready:
                break
            if ready:
                killed = "stopped"
            else:
                killed, cpu = self._over(child, pidfd, job, time.monotonic() - started > job.wall_seconds)
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

    def _over(self, child: int, pidfd: int, job: Job, too_long: bool) -> tuple[str, float]:
        """The limit that the child has passed, or "", and its CPU seconds."""
        try:
            cpu = time.clock_gettime(cpu_clock(child))
        except OSError:
            return "", 0.0  # it has just ended
        if cpu > job.cpu_seconds:
            return "timeout_cpu", cpu
        if too_long:
            return "timeout_wall", cpu
        threads, resident = self._size(pidfd)
        if threads > job.threads:
            return "threads", cpu
        return ("memory" if resident > job.memory_bytes + RESIDENT_SLACK else ""), cpu

    def _size(self, pidfd: int) -> tuple[int, int]:
        """Threads and resident bytes; zeros where /proc cannot tell.

        RLIMIT_NPROC does not bind uid 0 and counts other processes of the same user, so threads are counted here. The
        child's id outside this pid namespace stands in the host's /proc, beside our own descriptor for it.
        """
        if self._proc < 0:
            return 0, 0
        try:
            about = dict(line.split(":", 1) for line in self._read(f"self/fdinfo/{pidfd}").splitlines())
            fields = self._read(f"{int(about['Pid'])}/stat").rsplit(")", 1)[1].split()
        except (OSError, KeyError, IndexError):
            return 0, 0  # it has just ended, or /proc hides it
        return int(fields[17]), int(fields[21]) * os.sysconf("SC_PAGE_SIZE")

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
