"""The words of the sandbox: what a run may use, how it ended, and what came back. Plain data, standard library only."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Outcome(StrEnum):
    """How a run ended. Only the last is our failure; all the others are the program's own doing."""

    FINISHED = "finished"
    """It ended by itself with exit status 0. That alone proves nothing: look at what it printed."""
    ERROR = "error"
    """It ended by itself with another status, or crashed."""
    TIMEOUT_CPU = "timeout_cpu"
    """It used up its CPU seconds."""
    TIMEOUT_WALL = "timeout_wall"
    """It slept, waited or hung until the backstop on wall time."""
    MEMORY = "memory"
    """It asked for more memory than allowed."""
    OUTPUT = "output"
    """It printed more than allowed; what was read until then is returned."""
    POLICY = "policy"
    """It made a system call for which the sandbox kills, or passed its number of threads."""
    INFRA = "infra"
    """The sandbox failed, twice: nothing is known about the program."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What one run may use.

    CPU time is the real limit, because a loaded machine does not change it. `wall_seconds` only ends programs that
    wait for ever; None means ten times `cpu_seconds`. `file_bytes` is the size of the run's own /tmp, where the
    backend has one.
    """

    cpu_seconds: float = 4.0
    wall_seconds: float | None = None
    memory_bytes: int = 512 << 20
    output_bytes: int = 1 << 20
    file_bytes: int = 16 << 20
    open_files: int = 64
    threads: int = 64

    def __post_init__(self) -> None:
        for name in ("cpu_seconds", "memory_bytes", "output_bytes", "file_bytes", "open_files", "threads"):
            if not getattr(self, name) > 0:
                raise ValueError(f"Limits.{name} is {getattr(self, name)!r}, expected a positive number")
        if self.wall_seconds is not None and self.wall_seconds <= 0:
            raise ValueError(f"Limits.wall_seconds is {self.wall_seconds!r}, expected a positive number or None")

    @property
    def wall(self) -> float:
        """The wall limit in seconds, with its default filled in."""
        return 10 * self.cpu_seconds if self.wall_seconds is None else self.wall_seconds


@dataclass(frozen=True, slots=True)
class Result:
    """What came back from one run.

    `stdout` is complete unless the outcome is OUTPUT; of `stderr` only the last part is kept. `exit_code` is negative
    for a signal and None where there was no process to have one. `reason` is one line for a person ("CPU limit 4.0 s",
    "exit status 1: ValueError: bad input"), empty for FINISHED. `peak_bytes` is resident memory, interpreter included.
    """

    outcome: Outcome
    stdout: bytes = b""
    stderr: bytes = b""
    exit_code: int | None = None
    cpu_seconds: float = 0.0
    wall_seconds: float = 0.0
    peak_bytes: int = 0
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Conversation:
    """What came back from two programs that talked: how each ended, and what the tests wrote on the verdict pipe."""

    candidate: Result
    tests: Result
    verdict: bytes
