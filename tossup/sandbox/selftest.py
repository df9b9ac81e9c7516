"""The self-test: attack one's own sandbox before trusting it, and say what happened."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import socket
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tossup.sandbox.program import Program
from tossup.sandbox.run import Run, drive
from tossup.sandbox.words import Limits, Outcome, Result
from tossup.sandbox.worker import ENVIRONMENT, Setup, Worker, WorkerError, readable

_LIMITS = Limits(cpu_seconds=5.0)
_FORBIDDEN_CALL = "import ctypes; ctypes.CDLL(None).ptrace(0, 0, 0, 0)"


@dataclass(frozen=True, slots=True)
class Report:
    """What one backend showed. It works if it started, computed what it should, and let nothing out.

    `error` says why it did not start or run, with the `errno` of the system call that failed; `attempts` maps each built-in
    attack to the error that stopped it; `got_out` names those that nothing stopped.
    """

    backend: str
    error: str = ""
    errno: int | None = None
    layers: tuple[str, ...] = ()
    attempts: Mapping[str, str] | None = None
    got_out: tuple[str, ...] = ()

    @property
    def works(self) -> bool:
        """Whether this backend isolates on this machine."""
        return not self.error and self.attempts is not None and not self.got_out

    @property
    def summary(self) -> str:
        """One line for a person."""
        if self.error:
            return self.error
        if self.got_out:
            return f"lets through: {', '.join(self.got_out)}"
        return "works"


def attack(backend: str) -> Report:
    """Start a worker of this backend, let the built-in attacks loose in it, and report."""
    try:
        worker = Worker(Setup(backend))
    except WorkerError as e:
        return Report(backend, error=str(e), errno=e.errno)
    try:
        with _listeners() as where:
            result = _run(worker, Path(__file__).with_name("attempts.py").read_text(encoding="utf-8"), where)
        if result.outcome is not Outcome.FINISHED:
            return Report(backend, error=f"the self-test did not finish: {result.reason}", layers=worker.layers)
        tried: dict[str, dict[str, str]] = json.loads(result.stdout)
        stopped = {name: answer.get("stopped", "") for name, answer in tried.items()}
        got_out = [f"{name} ({answer['got']})" for name, answer in tried.items() if "got" in answer]
        forbidden = _run(worker, _FORBIDDEN_CALL, {})
        stopped["trace itself"] = "SIGSYS" if forbidden.outcome is Outcome.POLICY else ""
        if forbidden.outcome is not Outcome.POLICY:
            got_out.append(f"trace itself ({forbidden.outcome})")
        return Report(backend, layers=worker.layers, attempts=stopped, got_out=tuple(got_out))
    except (WorkerError, OSError, ValueError) as e:
        return Report(backend, error=f"the self-test failed: {e}", errno=getattr(e, "errno", None))
    finally:
        worker.close()


def _run(worker: Worker, program: str, stdin: Mapping[str, Any]) -> Result:
    run = Run(worker, _LIMITS)
    try:
        with Program(program) as ready:
            run.start(ready, json.dumps(stdin).encode(), ())
        drive([run])
        return run.result()
    finally:
        run.close()


@contextlib.contextmanager
def _listeners() -> Iterator[dict[str, Any]]:
    """Listeners and files of this process for the attacks to reach for."""
    name = f"tossup-{secrets.token_hex(8)}"
    with socket.socket(socket.AF_INET) as tcp, socket.socket(socket.AF_UNIX) as unix:
        tcp.bind(("127.0.0.1", 0))
        tcp.listen()
        unix.bind("\0" + name)
        unix.listen()
        yield {
            "pid": os.getpid(),
            "files": ["/etc/passwd", "/etc/shadow", f"/proc/{os.getpid()}/environ", "/proc/1/environ", "/proc", "/sys"],
            "environment": list(ENVIRONMENT),
            "readable": readable([]),
            "tcp": tcp.getsockname(),
            "unix": name,
        }
