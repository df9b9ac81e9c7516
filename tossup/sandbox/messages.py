"""What host and zygote say to each other, over one socket whose messages keep their bounds.

host    ->  a job as JSON, with descriptors; "stop" while it runs
zygote  ->  once it is ready, JSON; then one Reply for each job
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

KILLED = ("", "timeout_cpu", "timeout_wall", "threads", "memory", "stopped")
"""Why the zygote ended a run; "" where it ended by itself."""
WALL_STRETCH = 10
"""So many times its wall limit a run may take at most, however much of that it was kept from running: see `watch`."""
_NUMBERS = struct.Struct("=?iBddq")
"""Of fixed form, since to write and read it costs every run a tenth of what JSON does."""


@dataclass(frozen=True, slots=True)
class Reply:
    """How a run ended and what it used."""

    started: bool
    """Whether the jail was closed and the program began. Else `message` says why not, if anything does."""
    exit: int
    """Exit status, negative for a signal."""
    killed: str
    cpu_seconds: float
    wall_seconds: float
    peak_bytes: int
    message: str


def encode(started: bool, exit: int, killed: str, cpu: float, wall: float, peak: int, message: bytes = b"") -> bytes:  # noqa: A002
    """A reply for the socket; the parts are those of `Reply`."""
    return _NUMBERS.pack(started, exit, KILLED.index(killed), cpu, wall, peak) + message


def decode(data: bytes) -> Reply:
    """A reply as it came."""
    started, exit_status, killed, cpu, wall, peak = _NUMBERS.unpack_from(data)
    message = data[_NUMBERS.size :].decode(errors="replace")
    return Reply(started, exit_status, KILLED[killed], cpu, wall, peak, message)
