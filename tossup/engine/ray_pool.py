"""Chunks done by workers of a Ray cluster: `tossup curate --ray`.

Theory of operation. The driver, which is the process of the command, holds the pool and the ledger and never the model. It
connects to the cluster that `RAY_ADDRESS` names, or else starts one of its own here, which ends with it.
Each worker is an actor with a GPU of its own, or on a cluster without GPUs with `threads` CPUs: it loads the model, then
does one chunk after the other, generation and verification, and sends the judged groups back. The driver keeps one chunk
running and one waiting at each worker that is ready, and writes what comes back as the local path does.

What can fail, and what follows:

    a worker dies (killed, out of memory, its node gone)   its chunks go back to the queue, another worker is asked for
    the same chunk takes three workers with it             the command ends and names the chunk: more tries are no help
    an error that the user can mend, in a worker           the command ends with that error
    no worker can be had yet                               the command says so each minute, and waits: clusters grow
    the driver dies                                        Ray ends its workers; the same command goes on from the ledger

A chunk has its own seed (see `chunks`), so none of this changes what is measured. Rows are the same as those of the local
path wherever the arithmetic is: on another kind of device, or with another number of CPU threads under a large model, sums
are rounded differently and an answer may now and then come out differently, as between any two machines.

Left out: autoscaling hints, placement groups, Ray Data. The work is a queue of some thousand equal jobs.
"""

from __future__ import annotations

import os
import socket
import sys
import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, redirect_stdout
from itertools import islice
from typing import Any, Protocol

import ray
from ray.exceptions import RayError, RayTaskError

from tossup.engine import inputs
from tossup.engine.chunks import Chunk, Execute, Measured, do, open_model
from tossup.engine.measure_config import MeasureConfig
from tossup.records import Group, TossupError

LOSSES = 3
"""Workers that one chunk may take with it."""

PATIENCE_S = 60.0
"""How long nothing happens before the driver says what it waits for."""

LOOK_S = 5.0
"""How often the driver looks whether the cluster has grown."""

STORE_BYTES = 128 << 20
"""The object store of a cluster that is started here: chunks are small, and a container's /dev/shm often is as well."""

STARTS = 3
"""Times that a cluster is tried to be started here."""

AT_A_WORKER = 2
"""Chunks at one worker: the one that it does, and the one that it goes on with while the driver writes."""


class Watcher(Protocol):
    """Whoever is told what happens."""

    def note(self, text: str) -> None:
        """Something worth a line."""


class Measurer:
    """What runs in a worker: the model, and chunk after chunk."""

    def __init__(self, config: MeasureConfig, fingerprints: Mapping[str, str]) -> None:
        self.config, self.fingerprints = config, fingerprints
        self.model: Measured | None = None

    def open(self) -> str:
        """Load the model; returns the name of the machine.

        Raises:
            TossupError: there is no such model on this machine, or it is another one than the driver's.
        """
        found = inputs.of_model(self.config.model)
        if found != dict(self.fingerprints):
            raise TossupError(
                f"on {socket.gethostname()}, the content of model {self.config.model} is not what it is where the command "
                "was started: give every machine the same files, for example on a shared disk"
            )
        self.model = open_model(self.config, lambda text: print(text, file=sys.stderr))
        return socket.gethostname()

    def do(self, chunk: Chunk) -> list[Group]:
        """The judged groups of one chunk."""
        assert self.model is not None
        return do(self.model, self.config, chunk)


@contextmanager
def on_ray(config: MeasureConfig, fingerprints: Mapping[str, str], watcher: Watcher) -> Iterator[Execute]:
    """Workers for as long as the context lasts; `fingerprints` are the model's, as the driver sees it.

    The cluster is looked for when there is the first chunk to do.
    """
    ours = not ray.is_initialized()
    fleet = Fleet(config, fingerprints, watcher)
    with redirect_stdout(sys.stderr):  # Ray prints what it has to say; stdout is for the command's result
        try:
            yield fleet
        finally:
            fleet.end()
            if ours:
                ray.shutdown()


def _connect() -> None:
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": "error", "configure_logging": False}
    named = os.environ.get("RAY_ADDRESS", "")
    try:
        if named:
            _knock(named)
            ray.init(**quiet)
        else:
            _start(quiet)  # not "auto": a cluster found on this machine may be another command's, and end with it
    except (OSError, RuntimeError, ValueError) as e:  # a ConnectionError is an OSError
        where = f"RAY_ADDRESS={named}" if named else "this machine"
        raise TossupError(f"Ray cannot use {where}: {e}. Set RAY_ADDRESS to HOST:6379, or unset it") from e


def _knock(address: str) -> None:
    """See that somebody listens there; Ray itself would try for minutes.

    Raises:
        OSError: nobody does.
    """
    host, colon, port = address.removeprefix("ray://").rpartition(":")
    if colon and port.isdigit():
        socket.create_connection((host.strip("[]"), int(port)), timeout=PATIENCE_S).close()


def _start(quiet: Mapping[str, Any]) -> None:
    """Start a cluster on this machine. It has half a minute for that, which a busy machine may not give it at once.

    Raises:
        RuntimeError: it did not start.
    """
    for attempt in range(STARTS):
        try:
            ray.init("local", include_dashboard=False, object_store_memory=STORE_BYTES, **quiet)
            return
        except Exception as e:  # Ray raises a bare one when the time is up
            ray.shutdown()
            if attempt == STARTS - 1:
                raise RuntimeError(str(e)) from e


class Worker:
    """One actor as the driver sees it: what it was asked, oldest first."""

    def __init__(self, actor: Any) -> None:
        self.actor = actor
        self.opening: Any = actor.open.remote()
        self.asked: dict[Any, Chunk] = {}

    @property
    def refs(self) -> list[Any]:
        """What can come back from it."""
        return [*self.asked] if self.opening is None else [self.opening]

    def ask(self, chunk: Chunk) -> None:
        """Have it do a chunk, after those that it has."""
        self.asked[self.actor.do.remote(chunk)] = chunk


class Fleet:
    """The workers, and who has which chunk."""

    def __init__(self, config: MeasureConfig, fingerprints: Mapping[str, str], watcher: Watcher) -> None:
        self.config, self.watcher = config, watcher
        self.arguments = (config, dict(fingerprints))
        self.workers: list[Worker] = []
        self.losses: dict[int, int] = {}
        self.size = 0
        self.looked, self.heard = -LOOK_S, time.monotonic()
        self.kind: Any = None
        self.each: dict[str, int] = {}

    def _plan(self) -> None:
        """Connect, and decide what a worker needs."""
        if not ray.is_initialized():
            _connect()
        device = self.config.device
        on_gpu = device.startswith("cuda") or (device == "auto" and ray.cluster_resources().get("GPU", 0) >= 1)
        self.each = {"GPU": 1, "CPU": 1} if on_gpu else {"CPU": max(1, self.config.threads)}
        needs = {f"num_{name.lower()}s": n for name, n in self.each.items()}
        self.kind = ray.remote(**needs)(Measurer).options(max_restarts=0, max_task_retries=0)

    def _look(self) -> None:
        """See how many workers the cluster has room for now: nodes join while others work already."""
        self.looked = time.monotonic()
        there = ray.cluster_resources()
        room = min(int(there.get(name, 0)) // n for name, n in self.each.items())
        size = self.config.workers or max(1, room)
        if size != self.size:
            self.size = size
            has = " and ".join(f"{int(there.get(name, 0))} {name}s" for name in self.each)
            self.watcher.note(f"Ray: {size} workers with {self.needs} each; the cluster has {has}")

    @property
    def needs(self) -> str:
        """What a worker needs, in words."""
        return " and ".join(f"{n} {name}" for name, n in self.each.items())

    def __call__(self, chunks: Iterable[Chunk]) -> Iterator[tuple[Chunk, list[Group]]]:
        """Do chunks, and give each back as it is finished.

        Raises:
            TossupError: the cluster cannot be reached, or as a worker raised it, or a chunk has taken `LOSSES` workers
                with it.
        """
        source = iter(chunks)
        waiting = deque(islice(source, 1))
        if waiting and self.kind is None:
            self._plan()
        while waiting or any(worker.asked for worker in self.workers):
            if time.monotonic() - self.looked >= LOOK_S:
                self._look()
            waiting.extend(islice(source, max(0, AT_A_WORKER * self.size - len(waiting))))  # not all of a large pool
            self._hire(len(waiting))
            self._ask(waiting)
            owner = {ref: worker for worker in self.workers for ref in worker.refs}
            done, _ = ray.wait([*owner], num_returns=1, timeout=LOOK_S)
            if not done:
                self._say_what_is_missing()
                continue
            self.heard = time.monotonic()
            (ref,) = done
            worker = owner[ref]
            try:
                result = ray.get(ref)
            except RayTaskError as e:
                raise TossupError(str(e.cause)) if isinstance(e.cause, TossupError) else e from None
            except RayError as e:
                waiting.extendleft(reversed(self._lost(worker, e)))
                continue
            if ref == worker.opening:
                worker.opening = None
            else:
                yield worker.asked.pop(ref), result

    def _hire(self, waiting: int) -> None:
        """Ask for the workers that are missing, but for no more than there is work."""
        busy = sum(1 for worker in self.workers if worker.asked)
        while len(self.workers) < min(self.size, busy + waiting):
            self.workers.append(Worker(self.kind.remote(*self.arguments)))

    def _ask(self, waiting: deque[Chunk]) -> None:
        """Hand chunks out, one to each ready worker in turn, so that none waits behind another while a worker is idle."""
        for most in range(1, AT_A_WORKER + 1):
            for worker in self.workers:
                if waiting and worker.opening is None and len(worker.asked) < most:
                    worker.ask(waiting.popleft())

    def _lost(self, worker: Worker, error: RayError) -> list[Chunk]:
        """Forget a worker; returns its chunks, the one that it was doing first."""
        self.workers.remove(worker)
        ray.kill(worker.actor)
        chunks = [*worker.asked.values()]
        first_line = str(error).strip().splitlines()[0]
        doing = chunks[0].number if chunks else -1
        self.losses[doing] = self.losses.get(doing, 0) + 1
        if self.losses[doing] >= LOSSES:
            what = (
                f"problems {chunks[0].problems[0].id} to {chunks[0].problems[-1].id}" if chunks else "loading the model"
            )
            raise TossupError(
                f"{LOSSES} Ray workers in a row died at {what} ({first_line}). If memory ran out, lower --batch-size or "
                "--max-new-tokens, or give each worker more; what was measured is saved"
            )
        self.watcher.note(f"a Ray worker was lost ({first_line}); {len(chunks)} chunks go back to the queue")
        return chunks

    def _say_what_is_missing(self) -> None:
        if time.monotonic() - self.heard < PATIENCE_S or any(worker.opening is None for worker in self.workers):
            return
        self.heard = time.monotonic()
        free = ", ".join(f"{n:g} {name}" for name, n in ray.available_resources().items() if name in ("CPU", "GPU"))
        self.watcher.note(f"waiting for a Ray worker: each needs {self.needs}; free now: {free or 'nothing'}")

    def end(self) -> None:
        """Let every worker go, whatever it is doing."""
        for worker in self.workers:
            ray.kill(worker.actor)
        self.workers.clear()
