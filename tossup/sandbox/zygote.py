"""The zygote: a small, fresh interpreter that forks one jailed child per run.

    host process            zygote (exec'd by the host)                child (forked per run)
    ------------            ---------------------------                ----------------------
    starts the zygote  ->   namespaces, root, preloads
                       <-   {"ready": ...} or {"error": ...}
    job + descriptors  ->   fork                               ->      closes the jail, becomes the program
    reads the child's output by itself; may send "stop"                writes to the host's pipes
                            waits; watches CPU, wall, threads  <-      ends or is killed
                       <-   how it ended, what it used

The host is never forked: its children would see its heap, its environment and its devices. The zygote has a made-up
environment, no descriptor of the host but the control socket, and never reads a program, its data or its output.
Under the namespaces backend two processes stand for it: a guard outside, which watches the host's life, and the zygote
proper, pid 1 of the pid namespace, so that its death takes everything along.

It runs by `python -s -P -S -c ...` and imports its siblings without `tossup/__init__`.
"""

from __future__ import annotations

import array
import contextlib
import errno
import gc
import importlib
import json
import mmap
import os
import random
import select
import signal
import site
import socket
import sys
import types
from typing import Any

from tossup.sandbox import kernel, landlock, messages, namespaces, seccomp
from tossup.sandbox.child import (
    MOST_DESCRIPTORS,
    RUNNING,
    Jail,
    Job,
    Limits,
    become_program,
    limit_all_runs,
    limits_of,
    prepare_main,
    prepare_streams,
)
from tossup.sandbox.rehearsal import fill_gaps, rehearse
from tossup.sandbox.watch import Watch

LOW_DESCRIPTORS = 8
"""Kept busy, so that what the host sends never lies where a child puts its pipes (0 to 5)."""
COMMON = """
    abc array atexit bisect collections collections.abc contextlib copy dataclasses datetime decimal enum fractions
    functools heapq inspect io itertools json math numbers operator os random re string struct sys threading time
    traceback types typing warnings
"""
"""Imported before any fork: what programs import all the time costs 1 to 15 ms each when it is imported cold. What they

import rarely is left out, as every run pays for each page and each mapped file that the zygote holds.
"""


def main(control_fd: int, config_fd: int) -> None:
    """Set up what the configuration says, then serve jobs until the host goes away. Never returns."""
    forget_inheritance()
    control = socket.socket(fileno=control_fd)
    host = os.pidfd_open(os.getppid())
    with open(config_fd) as f:
        config = json.load(f)
    try:
        if config["backend"] == "namespaces":
            namespaces.leave_host()
            zygote = os.fork()
            if zygote:
                control.close()
                guard(zygote, host)
            kernel.die_with_parent()
        server = Zygote(control, host, config)
    except Exception as e:  # noqa: BLE001 - whatever failed, the host reports it as the reason
        code = e.errno if isinstance(e, OSError) else None
        control.send(json.dumps({"error": f"{type(e).__name__}: {e}"[:4000], "errno": code}).encode())
        os._exit(1)
    control.send(json.dumps({"ready": server.layers}).encode())
    server.serve()
    os._exit(0)


def forget_inheritance() -> None:
    """Undo what exec hands on from the host: ignored and blocked signals, the umask, and who goes first for want of memory;

    and what was meant for the start of this interpreter only.
    """
    del os.environ["LD_BIND_NOW"]
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP, signal.SIGPIPE, signal.SIGXFSZ}:
        if signal.getsignal(number) is signal.SIG_IGN:  # an ignored SIGCHLD would take away how runs ended
            signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    os.umask(0o022)
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as f:  # /proc may be hidden
        f.write("1000")


def guard(zygote: int, host: int) -> None:
    """Stay outside, end with the zygote, and end it when the host is gone. Never returns."""
    if host > 0:
        kernel.close_range(0, host - 1)
    kernel.close_range(host + 1, kernel.LAST_DESCRIPTOR)
    zygote_fd = os.pidfd_open(zygote)
    poll = select.poll()
    poll.register(zygote_fd, select.POLLIN)
    poll.register(host, select.POLLIN)
    poll.poll()
    os.kill(zygote, signal.SIGKILL)
    os.waitpid(zygote, 0)
    os._exit(0)


class Zygote:
    """What is prepared once, and the loop over jobs."""

    def __init__(self, control: socket.socket, host: int, config: dict[str, Any]) -> None:
        while os.open("/dev/null", os.O_RDWR | os.O_CLOEXEC) < LOW_DESCRIPTORS:
            pass
        self._control, self._host = control, host
        self._stage = mmap.mmap(-1, mmap.PAGESIZE)
        self._watch = Watch(control, host, self._stage, config["waits"], config["place"])
        backend = config["backend"]
        in_namespaces = backend == "namespaces"
        self._pids = namespaces.PidNamespaces() if in_namespaces else None
        self._tmp = namespaces.Tmp() if in_namespaces else None
        if in_namespaces:
            namespaces.build_root(config["readable"], config["devices"])
        else:
            os.chdir("/")
        if backend == "chroot":
            from tossup.sandbox import chroot  # here, because other backends' runs would carry along what it imports

            chroot.import_everything()
        self._preload(config)
        if backend == "chroot":
            chroot.enter_empty_root()
        rules = self._landlock(config) if backend in ("namespaces", "landlock") else None
        filtered = backend != "none"
        self._jail = Jail(in_namespaces, rules, seccomp.own_part(in_namespaces) if filtered else None)
        self.layers = [name for name, on in (("landlock", rules is not None), ("seccomp", filtered)) if on]
        self._last: tuple[bytes, Job, Limits] | None = None
        self._prepare_runs(filtered)

    def _prepare_runs(self, filtered: bool) -> None:
        """Once, what every run would have to do or make, or copy because something else lies on the same page."""
        limit_all_runs()
        rehearse(self._jail)
        prepare_streams()
        prepare_main()
        kernel.no_new_privileges()
        if filtered:
            kernel.load_seccomp(seccomp.compile_filter(part="inherited"))
        gc.collect()
        self._gaps = fill_gaps()
        gc.freeze()
        gc.disable()

    def _preload(self, config: dict[str, Any]) -> None:
        sys.path += config["site"]
        for name in (*COMMON.split(), *config["preload"]):
            importlib.import_module(name)
        random.seed(0)  # every run starts from this state: rewards repeat
        for name, source in config["modules"].items():
            module = types.ModuleType(name)
            sys.modules[name] = module
            exec(compile(source, f"{name}.py", "exec", dont_inherit=True), module.__dict__)
        for name in [name for name in sys.modules if name.split(".")[0] == "tossup"]:
            del sys.modules[name]
        for define in (site.setquit, site.setcopyright, site.sethelper):  # exit() and the like, which -S leaves out
            define()

    def _landlock(self, config: dict[str, Any]) -> int | None:
        in_namespaces = config["backend"] == "namespaces"
        try:
            writable = [namespaces.HOLDER] if in_namespaces else []
            return landlock.ruleset(config["readable"], config["devices"], writable)
        except OSError as e:
            if in_namespaces and e.errno in (errno.ENOSYS, errno.EOPNOTSUPP):
                return None  # here it is a second fence behind the mounts
            raise

    def serve(self) -> None:
        """One job after another, until the host closes the socket or dies."""
        poll = select.poll()
        poll.register(self._control, select.POLLIN)
        poll.register(self._host, select.POLLIN)
        room = socket.CMSG_LEN(4 * MOST_DESCRIPTORS)
        while True:
            if any(fd == self._host for fd, _ in poll.poll()):
                return
            message, ancillary, _, _ = self._control.recvmsg(1 << 16, room)
            if not message:
                return
            if message != b"stop":  # else: it came too late for the run that it meant
                fds = array.array("i", ancillary[0][2]).tolist() if ancillary else []
                self._control.send(self._run(message, fds))

    def _read(self, request: bytes) -> tuple[Job, Limits]:
        """The job of a request, which is often the same as the last."""
        if self._last is None or self._last[0] != request:
            fields = json.loads(request)
            job = Job(tuple(fields.pop("layout")), tuple(fields.pop("argv")), **fields)
            self._last = request, job, limits_of(job, self._pids is not None)
        return self._last[1:]

    def _run(self, request: bytes, fds: list[int]) -> bytes:
        job, limits = self._read(request)
        self._stage[0] = 0
        try:
            if self._pids is not None:
                self._pids.renew()
            if self._tmp is not None:
                self._tmp.renew(job.file_bytes)
            child = os.fork()
        except OSError as e:
            child, failure = -1, f"no run could be started: {e}".encode()
        if child == 0:
            become_program(self._jail, job, fds, limits, self._stage)
        for fd in fds:
            os.close(fd)
        if child < 0:
            return messages.encode(False, 0, "", 0.0, 0.0, 0, failure)
        ended = self._watch.wait(child, job)
        if self._stage[0] == RUNNING:
            return messages.encode(True, *ended)
        why = self._stage[1:].rstrip(b"\0")
        self._stage[:] = bytes(mmap.PAGESIZE)
        return messages.encode(False, *ended, b"the jail could not be closed: " + (why or b"the child died"))
