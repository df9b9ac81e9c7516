"""Work that may hang, crash or eat memory, done in processes that can be killed.

Theory of operation
-------------------
`Workers` keeps up to `size` worker processes for one function. A worker is a fresh Python that is exec'd (never forked
from the caller, so that it holds neither the trainer's heap nor its GPU handles), in a session of its own, with
a made-up environment, no inherited descriptors and a cap on its address space. It starts when the first job needs it,
loads the function, runs the warm-up calls, says that it is ready, and then serves one job at a time: arguments in,
result out, as length-prefixed JSON over two pipes. `_worker.py` is its side of the conversation, `_process.py` ours.

There are no threads of our own behind `call`: the calling thread takes an idle worker, or starts one while there are
fewer than `size`, or waits until another caller gives one back. It then writes the job, waits for the reply and gives
the worker back. `map` and `acall` run `call` in a few threads. So jobs may come from any thread, from asyncio, from
a forked or from a spawned process.

The clock of a job starts when a ready worker is given the job: waiting for a worker, starting one and warming it up are
not the job's time. The clock counts the worker's CPU time, since wall time fails right answers on a busy machine; ten
times as much wall time, and ten seconds at least, is the backstop for a job that sleeps. A worker that overruns or dies
is killed with its whole process group and reaped; the next job that finds too few workers starts a fresh one. A job
whose worker died under it is tried once more on a fresh worker, because the death may have been the machine's doing;
a timeout is not retried. What happened comes back as a value, a `Reply`: nothing that a job does raises in the caller.

Nobody is left behind. Each worker holds the read end of a pipe of which the caller alone holds the write end, and has
asked the kernel for SIGKILL when that end closes: it dies with the caller, even one killed by SIGKILL, even in the
middle of a computation in C. A forked child closes its copies of its parent's pipes and starts workers of its own;
workers are never started while a fork is under way, so that no copy can slip through. `close`, garbage collection and
the end of the program kill the workers too.
"""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import Any

from tossup.records import TossupError
from tossup.verifiers._process import BrokenWorkerError, LoadError, OverrunError, WorkerProcess
from tossup.verifiers.cpus import default_size


class Outcome(StrEnum):
    """How a job ended."""

    DONE = "done"
    """The function returned; `result` holds its value."""
    RAISED = "raised"
    """The function raised; `reason` holds the exception's type and text."""
    TIMEOUT = "timeout"
    """The job used up its time and its worker was killed."""
    DIED = "died"
    """The worker died under the job, twice."""


@dataclass(frozen=True, slots=True)
class Reply:
    """What became of a job. `reason` is a line for a person, empty when done; `seconds` is wall time from its start."""

    outcome: Outcome
    result: Any = None
    reason: str = ""
    seconds: float = 0.0


class WouldWait(BaseException):
    """`call` would have to wait for a worker, inside `WithoutWaiting`. Not an Exception, so that no judge catches it."""


_may_wait: ContextVar[bool] = ContextVar("may_wait", default=True)


class WithoutWaiting:
    """Inside, `call` raises WouldWait instead of doing its job: to try first what can be done at once."""

    __slots__ = ("_token",)

    def __enter__(self) -> None:
        self._token = _may_wait.set(False)

    def __exit__(self, *_: object) -> None:
        _may_wait.reset(self._token)


class Workers:
    """A pool of killable processes for one function; see the top of this file.

    Args:
        function: `package.module:name`; arguments and result are plain JSON data.
        size: how many processes at most; by default `TOSSUP_WORKERS` or the number of CPUs.
        timeout_s: CPU seconds for one job.
        wall_s: wall seconds for one job; by default ten times `timeout_s`, but not less than ten.
        memory_mb: address space of one worker in MiB.
        warm_up: argument lists with which each new worker calls the function before it counts as ready.
        label: what errors call the function; by default its own name.
    """

    def __init__(
        self,
        function: str,
        size: int | None = None,
        timeout_s: float = 1.0,
        wall_s: float | None = None,
        memory_mb: int = 1024,
        warm_up: Sequence[Sequence[Any]] = (),
        label: str = "",
    ) -> None:
        self.label = label or function
        self.function, self.memory_mb, self.warm_up = function, memory_mb, tuple(warm_up)
        self.size = default_size() if size is None else size
        self.timeout_s, self.wall_s = timeout_s, max(10 * timeout_s, 10.0) if wall_s is None else wall_s
        self._all: set[WorkerProcess] = set()
        self._closed = False
        self._begin_empty()
        weakref.finalize(self, _kill_all, self._all)
        _POOLS.add(self)

    def _begin_empty(self) -> None:
        self._idle: list[WorkerProcess] = []
        self._places = self.size
        self._change = threading.Condition()
        self._threads: ThreadPoolExecutor | None = None
        self._threads_lock = threading.Lock()

    def call(self, *args: Any) -> Reply:
        """Run one job and wait for it.

        Raises:
            TossupError: the function cannot be loaded at all, or this pool is closed.
            WouldWait: inside `WithoutWaiting`.
        """
        if not _may_wait.get():
            raise WouldWait
        reply = self._attempt(args)
        return self._attempt(args) if reply.outcome is Outcome.DIED else reply

    async def acall(self, *args: Any) -> Reply:
        """`call` for asyncio: the event loop goes on meanwhile."""
        import asyncio  # here, because each worker process pays for what this module imports

        return await asyncio.get_running_loop().run_in_executor(self._executor(), partial(self.call, *args))

    def map(self, jobs: Iterable[Sequence[Any]]) -> list[Reply]:
        """Run many jobs, each an argument list, as many at once as there are workers. Replies keep the jobs' order."""
        return list(self._executor().map(lambda args: self.call(*args), jobs))

    def rest(self) -> None:
        """End the workers that have no job; the next job starts a fresh one."""
        with self._change:
            idle, self._idle = self._idle, []
            self._places += len(idle)
            self._all.difference_update(idle)
        for worker in idle:
            worker.kill()

    def close(self) -> None:
        """Kill all workers. Calls under way and later ones raise TossupError."""
        with self._change:
            self._closed = True
            for worker in self._idle:
                worker.kill()
                self._all.discard(worker)
            self._idle.clear()
            # The threads that wait for these see them end, and close their pipes.
            for worker in tuple(self._all):
                worker.end()
            self._change.notify_all()
        with self._threads_lock:
            if self._threads is not None:
                self._threads.shutdown(wait=False)
                self._threads = None

    def __enter__(self) -> Workers:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _executor(self) -> ThreadPoolExecutor:
        with self._threads_lock:
            if self._threads is None:
                self._threads = ThreadPoolExecutor(self.size, thread_name_prefix="tossup-workers")
            return self._threads

    def _attempt(self, args: Sequence[Any]) -> Reply:
        try:
            worker = self._take()
        except (BrokenWorkerError, OverrunError, OSError) as e:
            return Reply(Outcome.DIED, reason=f"the worker did not start: {e}")
        whole, start = False, time.monotonic()
        try:
            reply = worker.call(args, self.timeout_s, self.wall_s)
            whole = True
        except OverrunError as e:
            return Reply(Outcome.TIMEOUT, reason=str(e), seconds=time.monotonic() - start)
        except BrokenWorkerError as e:
            return Reply(Outcome.DIED, reason=str(e), seconds=time.monotonic() - start)
        finally:
            self._give_back(worker, whole)
        if "raised" in reply:
            return Reply(Outcome.RAISED, reason=reply["raised"], seconds=time.monotonic() - start)
        return Reply(Outcome.DONE, result=reply["result"], seconds=time.monotonic() - start)

    def _take(self) -> WorkerProcess:
        """An idle worker, or a fresh one where there is a place for it, or the first one that comes back."""
        with self._change:
            self._change.wait_for(lambda: self._idle or self._places or self._closed)
            if self._closed:
                raise TossupError(f"the workers for {self.label} are closed: make a new pool")
            while self._idle:
                worker = self._idle.pop()
                if not worker.ended:
                    return worker
                # Somebody killed it while it waited (the kernel, out of memory): that is no job's fault.
                worker.kill()
                self._all.discard(worker)
                self._places += 1
            self._places -= 1
        try:
            return self._start()
        except BaseException:
            with self._change:
                self._places += 1
                self._change.notify()
            raise

    def _start(self) -> WorkerProcess:
        with _FORK_LOCK:
            worker = WorkerProcess(self.function, self.memory_mb, self.warm_up)
            self._all.add(worker)
        try:
            worker.wait_ready()
        except BaseException as e:
            worker.kill()
            self._all.discard(worker)
            if isinstance(e, LoadError):
                raise TossupError(
                    f"the function {self.label!r} does not load in a worker ({e}): write it as "
                    "package.module:function, of a module that is installed or lies in the current folder"
                ) from e
            raise
        return worker

    def _give_back(self, worker: WorkerProcess, whole: bool) -> None:
        """Put a worker back, or kill it and free its place when its job did not end in a reply."""
        if not whole:
            worker.kill()
        with self._change:
            if whole and not self._closed:
                self._idle.append(worker)
            else:
                self._all.discard(worker)
                self._places += 1
            self._change.notify()

    def _forget(self) -> None:
        """In a forked child: let go of the parent's workers, begin with none."""
        for worker in self._all:
            worker.let_go()
        self._all.clear()
        self._begin_empty()


_POOLS: weakref.WeakSet[Workers] = weakref.WeakSet()
_FORK_LOCK = threading.Lock()
"""Held while a worker is started and while the caller forks."""


def rest_all() -> None:
    """`rest` for every pool of this process."""
    for pool in tuple(_POOLS):
        pool.rest()


def _kill_all(workers: set[WorkerProcess]) -> None:
    for worker in tuple(workers):
        worker.kill()
    workers.clear()


def _in_forked_child() -> None:
    _FORK_LOCK.release()
    for pool in tuple(_POOLS):
        pool._forget()


os.register_at_fork(before=_FORK_LOCK.acquire, after_in_parent=_FORK_LOCK.release, after_in_child=_in_forked_child)
