"""A worker, as the host sees it: one zygote process and the socket to it."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tossup.sandbox import messages
from tossup.sandbox.files import MemoryFile
from tossup.sandbox.messages import Reply

READY_TIMEOUT_S = 120.0
"""For an interpreter to start and import its preloads on a machine with far more jobs than cores."""
CLOSE_TIMEOUT_S = 5.0

_BOOT = """
import os, sys, types
os.register_at_fork = lambda **hooks: None
control, config, folder = sys.argv[1:]
for name, path in (("tossup", folder), ("tossup.sandbox", folder + "/sandbox")):
    sys.modules[name] = types.ModuleType(name)
    sys.modules[name].__path__ = [path]
from tossup.sandbox import zygote
zygote.main(int(control), int(config))
"""
"""Imports the zygote without the package around it. Modules must not ask for work in every child: there is nothing to tidy
after the fork of a process with one thread, and `random` would reseed itself, where rewards should repeat.
"""

ENVIRONMENT = {
    "PATH": "/usr/bin:/bin", "HOME": "/tmp", "TMPDIR": "/tmp", "USER": "nobody", "LOGNAME": "nobody", "LANG": "C.UTF-8",
    "TZ": "UTC", "PYTHONHASHSEED": "0", "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1",
}  # fmt: skip
"""All that a program sees of an environment. A fixed hash seed makes rewards repeat."""

AT_START = {"LD_BIND_NOW": "1"}
"""For the start of the zygote, which removes it: functions of C are bound then and not again in every run."""

DEVICES = ("/dev/null", "/dev/urandom", "/dev/random")


class WorkerError(Exception):
    """The worker could not start or has gone: our failure, never the program's. `errno` where a system call failed."""

    def __init__(self, message: str, errno: int | None = None) -> None:
        super().__init__(message)
        self.errno = errno


@dataclass(frozen=True, slots=True)
class Setup:
    """What every worker of a sandbox is started with."""

    backend: str
    preload: tuple[str, ...] = ()
    modules: Mapping[str, str] = field(default_factory=dict)
    """Module name -> path of the file that defines it."""
    python: str = ""

    def config(self) -> dict[str, Any]:
        """The zygote's configuration; reads the modules' source.

        Raises:
            OSError: a module's file cannot be read.
        """
        site = [p for p in sys.path if os.path.basename(p) in ("site-packages", "dist-packages") and os.path.isdir(p)]
        return {
            **asdict(self),
            "modules": {name: Path(path).read_text(encoding="utf-8") for name, path in self.modules.items()},
            "site": site,
            "readable": readable(site),
            "devices": DEVICES,
        }


def readable(site: Sequence[str]) -> list[str]:
    """The paths that a jail shows, all read-only: libraries of the system, the interpreter's, installed packages."""
    system = ["/lib", "/lib32", "/lib64", "/usr/lib", "/usr/lib64", "/etc/ld.so.cache", "/usr/share/zoneinfo"]
    prefixes = {sys.base_prefix, sys.base_exec_prefix}
    wanted = [*system, *(f"{p}/{d}" for p in sorted(prefixes) for d in ("lib", "lib64")), *site, "/nix/store"]
    kept: list[str] = []
    for path in sorted({os.path.abspath(p) for p in wanted}, key=len):
        if os.path.exists(path) and not any(path.startswith(k + "/") for k in kept):
            kept.append(path)
    return kept


class Worker:
    """One running zygote. Not thread-safe: whoever holds it, uses it alone.

    `waits` is the descriptor of a file of two numbers, by which two zygotes whose runs talk tell each other how long these
    were kept waiting (`watch`); `place` says which is this one's.

    Raises:
        WorkerError: the interpreter is missing, or the backend does not work here.
    """

    def __init__(self, setup: Setup, waits: int = -1, place: int = 0) -> None:
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._process: subprocess.Popen[bytes] | None = None
        try:
            configuration = {**setup.config(), "waits": waits, "place": place}
            with theirs, MemoryFile(json.dumps(configuration).encode()) as config:
                python = setup.python or sys.executable
                if not python:
                    raise WorkerError("no interpreter: sys.executable is empty")
                self._process = subprocess.Popen(
                    [python, "-s", "-P", "-S", "-c", _BOOT, str(theirs.fileno()), str(config.fileno()), _package()],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    env={**ENVIRONMENT, **AT_START},
                    cwd="/",
                    pass_fds=[fd for fd in (theirs.fileno(), config.fileno(), waits) if fd >= 0],
                    start_new_session=True,
                )
            self._control.settimeout(READY_TIMEOUT_S)
            answer = json.loads(self._message())
        except BaseException as e:
            self.kill()
            if isinstance(e, OSError):
                raise WorkerError(f"worker does not start: {e}", e.errno) from e
            raise
        if "error" in answer:
            self.kill()
            raise WorkerError(answer["error"], answer["errno"])
        self.layers: tuple[str, ...] = tuple(answer["ready"])

    def fileno(self) -> int:
        """The control socket, to poll for a reply."""
        return self._control.fileno()

    def send(self, job: bytes, fds: Sequence[int]) -> None:
        """Start a job on these descriptors; the caller closes its own copies.

        Raises:
            WorkerError: the worker has gone.
        """
        try:
            self._control.sendmsg((job,), ((socket.SOL_SOCKET, socket.SCM_RIGHTS, array("i", fds)),))
        except OSError as e:
            raise WorkerError(f"worker is gone: {e}", e.errno) from e

    def stop(self) -> None:
        """End the run; its reply still comes. A worker that has gone is noticed by whoever waits for the reply."""
        with contextlib.suppress(OSError):
            self._control.send(b"stop")

    def receive(self) -> Reply:
        """The next reply.

        Raises:
            WorkerError: the worker has gone, or says nothing in time.
        """
        return messages.decode(self._message())

    def _message(self) -> bytes:
        try:
            message = self._control.recv(1 << 15)
        except OSError as e:
            raise WorkerError(f"no answer from the worker: {e}", e.errno) from e
        if not message:
            raise WorkerError("worker died")
        return message

    def close(self) -> None:
        """Let the zygote end by itself, and wait for it."""
        self._end(CLOSE_TIMEOUT_S)

    def kill(self) -> None:
        """End a worker that is not to be trusted any more."""
        self._end(0.5)

    def _end(self, patience_s: float) -> None:
        with contextlib.suppress(OSError):
            self._control.shutdown(socket.SHUT_RDWR)  # seen by the zygote even if a fork of ours holds a copy
        self._control.close()
        if self._process is not None:
            try:
                self._process.wait(patience_s)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()

    def abandon(self) -> None:
        """In a fork of the host: let go of what belongs to the parent, without a word to the zygote."""
        self._control.close()
        if self._process is not None:
            self._process.returncode = 0  # not ours to wait for


def _package() -> str:
    return str(Path(__file__).parent.parent)
