"""Messages between the two jailed processes: four bytes of length, then JSON.

Standard library only: both processes load this file without the rest of the package.
"""

from __future__ import annotations

import io
import json
import os
import sys
from typing import Any

MAX_MESSAGE = 32 << 20
"""Bytes. A longer message ends the conversation."""
READ_FD, WRITE_FD, VERDICT_FD = 3, 4, 5
"""Where the sandbox puts the pipes: from the peer, to the peer and, in the tests process only, the verdict."""


class UnsupportedError(Exception):
    """The test code needs something that is not in the tests' process: no verdict, and not the program's fault."""


def read_all(fd: int) -> bytes:
    """Everything up to the end of this descriptor."""
    parts = []
    while part := os.read(fd, 1 << 20):
        parts.append(part)
    return b"".join(parts)


def write_all(fd: int, data: bytes) -> None:
    """All of data, however many writes it takes."""
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(fd, rest) :]


class _Nowhere(io.RawIOBase):
    """Takes whatever is written."""

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        return len(data)


def quiet_stdout() -> int:
    """Give code a stdout and stderr that lead nowhere; returns a descriptor for what stdout was."""
    out = os.dup(1)
    try:
        null = os.open(os.devnull, os.O_RDWR)
    except OSError:  # a jail in which nothing can be opened
        sys.stdout = sys.stderr = io.TextIOWrapper(io.BufferedWriter(_Nowhere()))
        os.close(1)
        os.close(2)
        return out
    for fd in (1, 2):
        os.dup2(null, fd)
    os.close(null)
    return out


class Channel:
    """Whole messages over one pipe in and one pipe out."""

    def __init__(self, read_fd: int, write_fd: int) -> None:
        self._in = os.fdopen(read_fd, "rb", buffering=1 << 16)
        self._out = write_fd

    @classmethod
    def inherited(cls) -> Channel:
        """The channel that the sandbox left at the agreed descriptors."""
        return cls(READ_FD, WRITE_FD)

    def send(self, message: Any) -> None:
        """Send one message.

        Raises:
            OSError: the peer is gone.
        """
        data = json.dumps(message).encode()
        write_all(self._out, len(data).to_bytes(4, "big") + data)

    def receive(self) -> Any:
        """The next message; None when the peer is gone, broke off inside one, or sent what is none."""
        head = self._in.read(4)
        size = int.from_bytes(head, "big")
        if len(head) < 4 or size > MAX_MESSAGE:
            return None
        data = self._in.read(size)
        if len(data) < size:
            return None
        try:
            message = json.loads(data)
        except (ValueError, RecursionError):
            return None
        return message if isinstance(message, list) and message else None
