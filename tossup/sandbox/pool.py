"""The sandbox: a pool of workers that many threads share."""

from __future__ import annotations

import contextlib
import os
import queue
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import TypeVar

from tossup.records import TossupError
from tossup.sandbox import backends
from tossup.sandbox.files import MemoryFile
from tossup.sandbox.program import Program
from tossup.sandbox.run import Run, drive
from tossup.sandbox.words import Conversation, Limits, Outcome, Result
from tossup.sandbox.worker import Setup, Worker, WorkerError

VERDICT_BYTES = 64 << 10
"""How much the tests of a conversation may write on the verdict pipe."""

T = TypeVar("T")


@dataclass(slots=True)
class _Slot:
    """What one thread uses at a time. Tests never share a zygote with candidates."""

    candidate: Worker | None = None
    tests: Worker | None = None
    waits: MemoryFile | None = None
    """By which the two tell each other how long their runs were kept waiting."""

    def get_candidate(self, setup: Setup) -> Worker:
        self.candidate = self.candidate or Worker(setup, self._shared(), 0)
        return self.candidate

    def get_tests(self, setup: Setup) -> Worker:
        self.tests = self.tests or Worker(setup, self._shared(), 1)
        return self.tests

    def _shared(self) -> int:
        self.waits = self.waits or MemoryFile(bytes(16), sealed=False)
        return self.waits.fileno()

    def workers(self) -> list[Worker]:
        return [w for w in (self.candidate, self.tests) if w is not None]

    def end(self, how: Callable[[Worker], None]) -> None:
        for worker in self.workers():
            how(worker)
        if self.waits is not None:
            self.waits.close()
        self.candidate = self.tests = self.waits = None


class Sandbox:
    """Runs untrusted Python programs, each in a jailed process of its own.

    `backend` is "auto" (the strongest that a live self-test proves to work here), or one of "namespaces", "landlock",
    "chroot", or "none", which isolates nothing. `workers` is how many programs run at once; further threads wait their
    turn. `preload` names installed packages to import once, before any run; `modules` maps a module name to a file of
    trusted source that the programs can import.

    Safe to call from many threads. Starts its workers when they are first needed, and its own after a fork.
    """

    def __init__(
        self,
        backend: str = "auto",
        workers: int | None = None,
        preload: Sequence[str] = (),
        limits: Limits | None = None,
        modules: Mapping[str, str] | None = None,
    ) -> None:
        backends.check_name(backend)
        self.limits = limits or Limits()
        self._asked = backend
        self.workers = len(os.sched_getaffinity(0)) if workers is None else workers
        if self.workers < 1:
            raise ValueError(f"workers is {workers!r}, expected at least 1")
        self._preload, self._modules = tuple(preload), dict(modules or {})
        self._closed = False
        self._reset()
        _alive.add(self)

    def _reset(self) -> None:
        self._slots = [_Slot() for _ in range(self.workers)]
        self._free: queue.LifoQueue[_Slot] = queue.LifoQueue()
        for slot in self._slots:
            self._free.put(slot)
        self._setup: Setup | None = None
        self._lock = threading.Lock()
        self._finalizer = weakref.finalize(self, _end_all, self._slots, os.getpid())

    @property
    def backend(self) -> str:
        """The backend in use, e.g. "namespaces"; finds it out on first use.

        Raises:
            TossupError: none works on this machine, or the one asked for does not.
        """
        return self._ready().backend

    def _ready(self) -> Setup:
        with self._lock:
            if self._setup is None:
                self._setup = Setup(backends.choose(self._asked), self._preload, self._modules)
            return self._setup

    def run(
        self, program: str | Program, stdin: bytes = b"", *, argv: Sequence[str] = (), limits: Limits | None = None
    ) -> Result:
        """Run a Python program as `__main__`. Never raises for anything that the program or a worker does.

        A text that runs again and again can come as a `Program` that its owner keeps: it is compiled once.
        """
        with _kept_or_made(program) as ready:
            return self._run(ready, stdin, argv, limits or self.limits)

    def run_many(
        self,
        program: str,
        stdins: Iterable[bytes],
        *,
        argv: Sequence[str] = (),
        limits: Limits | None = None,
        go_on: Callable[[int, Result], bool] | None = None,
    ) -> list[Result]:
        """Run a program once per input, each time in a fresh process, compiled once.

        After each run `go_on(index, result)` says whether to continue; the results so far are returned.
        """
        results: list[Result] = []
        with Program(program, many=True) as ready:
            for i, stdin in enumerate(stdins):
                results.append(self._run(ready, stdin, argv, limits or self.limits))
                if go_on is not None and not go_on(i, results[-1]):
                    break
        return results

    def converse(
        self,
        candidate: str | Program,
        tests: str | Program,
        *,
        candidate_stdin: bytes = b"",
        tests_stdin: bytes = b"",
        candidate_limits: Limits | None = None,
        tests_limits: Limits | None = None,
    ) -> Conversation:
        """Run two programs in jails of their own, joined by a pipe in each direction.

        Both read from the other on descriptor 3 and write to it on 4; only the tests have 5, the verdict pipe, and at
        most 64 KiB of it are kept. It ends when the tests end; a candidate that ends earlier leaves them end-of-file.
        What the two print past the output limit is dropped.
        """
        limits = candidate_limits or self.limits, tests_limits or self.limits

        def talk(slot: _Slot) -> Conversation:
            candidates, testers = slot.get_candidate(self._ready()), slot.get_tests(self._ready())
            with contextlib.ExitStack() as stack:
                programs = [stack.enter_context(_kept_or_made(program)) for program in (candidate, tests)]
                theirs = Run(candidates, limits[0], stop_on_overflow=False)
                stack.callback(theirs.close)
                ours = Run(testers, limits[1], stop_on_overflow=False, verdict=VERDICT_BYTES)
                stack.callback(ours.close)
                for program, run in zip(programs, (theirs, ours), strict=True):
                    stack.callback(_was_run, program, run)
                with _handing_over, _pipes() as (candidate_reads, tests_write, tests_read, candidate_writes):
                    theirs.start(programs[0], candidate_stdin, (), (candidate_reads, candidate_writes))
                    ours.start(programs[1], tests_stdin, (), (tests_read, tests_write))
                drive([theirs, ours], finished=ours)
                return Conversation(theirs.result(), ours.result(), bytes(ours.captures[2].data))

        def failed(reason: str) -> Conversation:
            result = Result(Outcome.INFRA, reason=reason)
            return Conversation(result, result, b"")

        return self._attempt(talk, failed, lambda c: Outcome.INFRA in (c.candidate.outcome, c.tests.outcome))

    def _run(self, program: Program, stdin: bytes, argv: Sequence[str], limits: Limits) -> Result:
        def once(slot: _Slot) -> Result:
            run = Run(slot.get_candidate(self._ready()), limits)
            try:
                run.start(program, stdin, argv)
                drive([run])
                return run.result()
            finally:
                _was_run(program, run)
                run.close()

        return self._attempt(
            once, lambda reason: Result(Outcome.INFRA, reason=reason), lambda r: r.outcome is Outcome.INFRA
        )

    def _attempt(self, job: Callable[[_Slot], T], failed: Callable[[str], T], infra: Callable[[T], bool]) -> T:
        """Do the job; where the sandbox fails, once more on fresh workers; where it fails again, say so."""
        result = failed("not run")
        for _ in range(2):
            with self._slot() as slot:
                try:
                    result = job(slot)
                except (WorkerError, OSError, TossupError) as e:
                    result = failed(str(e))
                except BaseException:
                    slot.end(Worker.kill)  # in the middle of a job: an interrupt
                    raise
                if not infra(result):
                    return result
                slot.end(Worker.kill)
        return result

    @contextlib.contextmanager
    def _slot(self) -> Iterator[_Slot]:
        if self._closed:
            raise ValueError("this Sandbox is closed")
        free = self._free
        slot = free.get()
        try:
            yield slot
        finally:
            if self._closed:
                slot.end(Worker.close)
            free.put(slot)

    def close(self) -> None:
        """End all workers. Runs in other threads end first; a closed sandbox runs nothing more."""
        self._closed = True
        taken = [self._free.get() for _ in self._slots]
        for slot in taken:
            slot.end(Worker.close)
            self._free.put(slot)
        self._finalizer.detach()

    def __enter__(self) -> Sandbox:
        return self

    def __exit__(self, kind: type[BaseException] | None, e: BaseException | None, tb: TracebackType | None) -> None:
        self.close()


def _was_run(program: Program, run: Run) -> None:
    program.was_run(run, run.undisturbed)


def _kept_or_made(program: str | Program) -> contextlib.AbstractContextManager[Program]:
    """A program that its owner keeps, or one for this run only."""
    return Program(program) if isinstance(program, str) else contextlib.nullcontext(program)


@contextlib.contextmanager
def _pipes() -> Iterator[tuple[int, int, int, int]]:
    """Two pipes: (read, write, read, write)."""
    fds: list[int] = []
    try:
        fds += os.pipe()
        fds += os.pipe()
        yield fds[0], fds[1], fds[2], fds[3]
    finally:
        for fd in fds:
            os.close(fd)


def _end_all(slots: Sequence[_Slot], owner: int) -> None:
    if os.getpid() == owner:
        for slot in slots:
            slot.end(Worker.close)


_handing_over = threading.RLock()
"""Held while both ends of the pipes between two programs are open here. No fork of the host may happen meanwhile: its child
would keep them open, and the tests would wait for ever for a candidate that has ended.
"""
_alive: weakref.WeakSet[Sandbox] = weakref.WeakSet()


def _after_fork() -> None:
    """A fork of the host inherits sandboxes whose workers belong to its parent, and locks that nobody will release."""
    _handing_over.release()
    for sandbox in list(_alive):
        sandbox._finalizer.detach()
        for slot in sandbox._slots:
            slot.end(Worker.abandon)
        sandbox._reset()


os.register_at_fork(before=_handing_over.acquire, after_in_parent=_handing_over.release, after_in_child=_after_fork)
