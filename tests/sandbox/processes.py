"""The processes of a sandbox, as the tests look at them from outside."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

from tossup.sandbox import Sandbox

PATIENCE_S = 120
"""For what happens in a moment on a machine that has time."""


def children(*pids: int) -> list[int]:
    """The ids of all that descends from these processes."""
    found = list(pids)
    for pid in found:
        with contextlib.suppress(OSError):  # it has just ended
            found += [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return found[len(pids) :]


def processes(box: Sandbox) -> list[int]:
    """The ids of a sandbox's own processes: the workers and all that descends from them."""
    own = [w._process.pid for slot in box._slots for w in slot.workers() if w._process is not None]
    return [*own, *children(*own)]


def send(pid: int, number: signal.Signals) -> None:
    """Signal a process that may have ended meanwhile."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def until(true: Callable[[], object], patience_s: float = PATIENCE_S) -> None:
    """Wait for a state, and fail where it does not come."""
    end = time.monotonic() + patience_s
    while not true():
        assert time.monotonic() < end, "it did not come to that"
        time.sleep(0.002)


def alive(pid: int) -> bool:
    """Whether there is such a process. One of which only the parent has still to take notice has ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in ("Z", "X")
    except OSError:
        return False


def gone(pids: list[int]) -> None:
    """Wait until these processes have ended."""
    until(lambda: not any(map(alive, pids)))
