"""A process that the trainer starts, talks to over a socket, and outlives. Frames are those of `vllm_worker`."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, TypeVar

from tossup.engine.generate import vllm_worker

Result = TypeVar("Result")


class DeathError(Exception):
    """The process ended or fell silent; the text says how."""


class Process:
    """One worker process and its socket. A sign of life is a frame, or a tensor that it took."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str], silence_s: float) -> None:
        ours, theirs = socket.socketpair()
        self.log = tempfile.TemporaryFile()  # noqa: SIM115 -- closed with the process
        with theirs:
            self.popen = subprocess.Popen(
                [*command, str(theirs.fileno()), str(os.getpid())],
                env=environment,
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=self.log,
                stderr=self.log,
                start_new_session=True,
            )
        self.socket, self.silence_s = ours, silence_s

    def send(self, message: dict[str, Any], payload: memoryview | bytes = b"") -> None:
        """Send a frame.

        Raises:
            DeathError: the process did not take it.
        """
        self._try(lambda: vllm_worker.write(self.socket, message, payload), self.silence_s)

    def receive(self, wait_s: float | None = None) -> dict[str, Any]:
        """The next frame's message, within `wait_s` seconds, or else the usual silence.

        Raises:
            DeathError: there is none.
        """
        return self._try(lambda: vllm_worker.read(self.socket), wait_s or self.silence_s)[0]

    def _try(self, talk: Callable[[], Result], wait_s: float) -> Result:
        self.socket.settimeout(wait_s)
        try:
            return talk()
        except TimeoutError:
            raise DeathError(f"gave no sign of life for {wait_s:g} s") from None
        except (OSError, vllm_worker.ClosedError):
            raise DeathError(self._how_it_ended()) from None

    def _how_it_ended(self) -> str:
        try:
            code = self.popen.wait(timeout=10)
        except subprocess.TimeoutExpired:
            return "closed its socket"
        if code < 0:
            return f"was killed by {signal.Signals(-code).name}"
        size = self.log.seek(0, os.SEEK_END)
        self.log.seek(max(0, size - 4000))
        lines = self.log.read().decode(errors="replace").split("\n")
        last = next((line.strip() for line in reversed(lines) if line.strip()), "and said nothing")
        return f"ended with code {code}: {last}"

    def kill(self) -> None:
        """End it now, with all its children; more than once does no harm."""
        self.socket.close()
        with suppress(ProcessLookupError):
            os.killpg(self.popen.pid, signal.SIGKILL)
        self.popen.wait()
        self.log.close()
