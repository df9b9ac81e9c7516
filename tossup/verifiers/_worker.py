"""The worker's side of `tossup.verifiers.workers`: a script that a fresh Python runs.

It imports the standard library only until it is told what to load. Requests arrive on standard input and replies leave
on standard output, each as eight bytes of length (big endian) and that much JSON. Before anything else is loaded, both
move to other descriptors, so that a `print` in somebody's function cannot break the conversation.

The first message says what to load and under which limits; the answer is `{"ready": true}` or `{"failed": why}`.
Each later message is the list of arguments of one call; the answer is `{"result": value}` or `{"raised": text}`.
"""

from __future__ import annotations

import contextlib
import fcntl
import importlib
import json
import os
import resource
import select
import signal
import sys
import threading
from collections.abc import Callable
from typing import Any

HEADER = 8
"""Bytes of length before each message."""


def die_with(lifeline: int) -> None:
    """Ask the kernel to kill this process when the other end of a pipe closes, that is, when the caller is gone.

    Unlike a parent-death signal this does not depend on which thread of the caller started us, and unlike a watching
    thread it also works while a computation in C holds the interpreter's lock.
    """
    try:
        fcntl.fcntl(lifeline, fcntl.F_SETOWN, os.getpid())
        fcntl.fcntl(lifeline, fcntl.F_SETSIG, signal.SIGKILL)
        fcntl.fcntl(lifeline, fcntl.F_SETFL, fcntl.fcntl(lifeline, fcntl.F_GETFL) | os.O_ASYNC)
    except OSError:
        # Not every kernel has signals for pipes (some sandboxes imitate Linux); then a thread has to watch.
        threading.Thread(target=_watch, args=(lifeline,), daemon=True).start()
    closed_before = select.poll()
    closed_before.register(lifeline, 0)
    if closed_before.poll(0):
        os._exit(0)


def _watch(lifeline: int) -> None:
    os.read(lifeline, 1)
    os.kill(os.getpid(), signal.SIGKILL)


def limit_memory(memory_mb: int) -> None:
    """Cap the address space, write no core files, and be the first to go when the whole machine runs out."""
    size, allowed = memory_mb << 20, resource.getrlimit(resource.RLIMIT_AS)[1]
    if allowed != resource.RLIM_INFINITY:
        size = min(size, allowed)
    resource.setrlimit(resource.RLIMIT_AS, (size, size))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as score:
        score.write("1000")


def load(function: str) -> Callable[..., Any]:
    """The function that `package.module:name` names."""
    module, _, name = function.partition(":")
    loaded: Callable[..., Any] = getattr(importlib.import_module(module), name)
    return loaded


def read_exactly(fd: int, n: int) -> bytes | None:
    """`n` bytes, or None at the end of the stream."""
    data = bytearray()
    while len(data) < n:
        part = os.read(fd, n - len(data))
        if not part:
            return None
        data += part
    return bytes(data)


def read_message(fd: int) -> Any:
    """The next message; None when the caller has closed the pipe."""
    header = read_exactly(fd, HEADER)
    body = None if header is None else read_exactly(fd, int.from_bytes(header, "big"))
    return None if body is None else json.loads(body)


def frame(message: Any) -> bytes:
    """A message as it travels. ASCII JSON, so that lone surrogates in a model's text survive the trip."""
    body = json.dumps(message).encode("ascii")
    return len(body).to_bytes(HEADER, "big") + body


def write(fd: int, data: bytes) -> None:
    """Write all of it."""
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(fd, rest) :]


def answer(function: Callable[..., Any], args: list[Any]) -> bytes:
    """Call the function; whatever it raises is told to the caller as text, and so is a result that JSON cannot hold."""
    try:
        return frame({"result": function(*args)})
    except Exception as e:  # noqa: BLE001 -- not swallowed: the caller gets it as the reply
        return frame({"raised": f"{type(e).__name__}: {e}"[:500]})


def main() -> None:
    """Serve calls until the caller closes the pipe."""
    die_with(int(sys.argv[1]))
    requests, replies = os.dup(0), os.dup(1)
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    os.dup2(null, 1)
    orders = read_message(requests)
    if orders is None:
        return
    sys.path[:] = orders["path"]
    limit_memory(orders["memory_mb"])
    try:
        function = load(orders["function"])
        for args in orders["warm_up"]:
            function(*args)
    except Exception as e:  # noqa: BLE001 -- not swallowed: the caller raises it
        write(replies, frame({"failed": f"{type(e).__name__}: {e}"}))
        return
    write(replies, frame({"ready": True}))
    while (args := read_message(requests)) is not None:
        write(replies, answer(function, args))


if __name__ == "__main__":
    main()
