"""The built-in attacks: a program that the sandbox runs on itself and that tries to get out.

It reads a JSON object on stdin that says where the host is (see `selftest`), and prints one: attempt -> what it got, or the
name of the error that stopped it. What gets through here must be nothing at all. It runs as `__main__` in a run, so that
it imports nothing of tossup.
"""

from __future__ import annotations

import ctypes
import errno
import json
import mmap
import os
import resource
import signal
import socket
import sys
from collections.abc import Callable
from typing import Any

libc = ctypes.CDLL(None, use_errno=True)


def check(result: int) -> int:
    """Raise what a C function reported."""
    if result < 0:
        raise OSError(ctypes.get_errno(), "")
    return result


def read_any(paths: list[str]) -> str:
    """The first of these that can be read or listed."""
    reason = OSError(errno.ENOENT, "")
    for path in paths:
        try:
            if os.path.isdir(path):
                os.listdir(path)
            else:
                with open(path, "rb") as f:
                    f.read(1)
        except OSError as e:
            reason = e
        else:
            return path
    raise reason


def write_any(folders: list[str]) -> str:
    """The first of these in which a file can be made."""
    reason = OSError(errno.ENOENT, "")
    for folder in folders:
        path = f"{folder}/tossup-self-test"
        try:
            with open(path, "x"):
                pass
            os.unlink(path)
        except OSError as e:
            reason = e
        else:
            return path
    raise reason


def foreign_environment(expected: list[str]) -> str:
    """Variables that the host did not make up."""
    extra = sorted(set(os.environ) - set(expected))
    if extra:
        return ", ".join(extra)
    raise OSError(errno.ENOENT, "")


def spare_descriptors() -> str:
    """Open descriptors beyond the standard streams."""
    for fd in range(3, 4096):
        try:
            os.fstat(fd)
        except OSError:
            continue
        return f"descriptor {fd}"
    raise OSError(errno.EBADF, "")


def fork() -> str:
    """A second process, which could outlive the run."""
    if os.fork() == 0:
        os._exit(0)
    return "forked"


def execute() -> str:
    """Another program: it would replace this one, so a failure is what lets the self-test go on."""
    os.execv("/bin/true", ["true"])
    return "executed"


def connect(family: int, address: Any) -> str:
    """A listener of the host."""
    with socket.socket(family) as s:
        s.connect(tuple(address) if family == socket.AF_INET else "\0" + address)
    return f"connected to {address}"


def signal_any(pids: set[int]) -> str:
    """The first of these processes that may be signalled."""
    reason = OSError(errno.ESRCH, "")
    for pid in pids:
        try:
            os.kill(pid, 0)
        except OSError as e:
            reason = e
        else:
            return f"process {pid}"
    raise reason


def shared_memory() -> str:
    """Anonymous shared memory, which no memory limit counts."""
    mmap.mmap(-1, 1 << 20).close()
    return "mapped"


def stack_memory() -> str:
    """A private map that grows downward, which RLIMIT_DATA does not count."""
    private_anonymous_grows_down, read_write = 0x122, 3
    libc.mmap.restype = ctypes.c_long
    check(libc.mmap(None, ctypes.c_size_t(1 << 20), read_write, private_anonymous_grows_down, -1, ctypes.c_long(0)))
    return "mapped"


def attempts(host: dict[str, Any]) -> dict[str, Callable[[], object]]:
    """What is tried, by name."""
    others = {host["pid"], os.getppid(), 1, 2} - {os.getpid()}  # a host that is pid 1 bears a run's own number
    return {
        "read a file of the host": lambda: read_any(host["files"]),
        "read the host's environment": lambda: foreign_environment(host["environment"]),
        "find a descriptor of the host": spare_descriptors,
        "write outside its own /tmp": lambda: write_any(["", "/etc", "/dev/shm", "/var/tmp", *host["readable"]]),
        "change a file's mode": lambda: os.chmod(json.__file__, 0o644),
        "fork": fork,
        "exec": execute,
        "reach a TCP listener": lambda: connect(socket.AF_INET, host["tcp"]),
        "reach an abstract Unix socket": lambda: connect(socket.AF_UNIX, host["unix"]),
        "open a datagram socket": lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM).close(),
        "signal another process": lambda: signal_any(others),
        "signal every process": lambda: os.kill(-1, signal.SIGWINCH),
        "limit another process": lambda: resource.prlimit(os.getppid() or 1, resource.RLIMIT_NOFILE),
        "become root": lambda: os.setresuid(0, 0, 0),
        "raise a hard limit": lambda: resource.setrlimit(resource.RLIMIT_DATA, (-1, -1)),
        "make an unlimited file in memory": lambda: os.close(os.memfd_create("x")),
        "map shared memory": shared_memory,
        "map stack memory": stack_memory,
        "make a message queue": lambda: check(libc.msgget(0, 0o1600)),
        "take a lease on a file": lambda: check(libc.fcntl(os.open(json.__file__, os.O_RDONLY), 1024, 0)),
    }


def main() -> None:
    """Try everything and report."""
    report = {}
    for name, attempt in attempts(json.load(sys.stdin)).items():
        try:
            report[name] = {"got": str(attempt())}
        except (OSError, ValueError) as e:
            code = e.errno if isinstance(e, OSError) else None
            report[name] = {"stopped": errno.errorcode.get(code or 0, type(e).__name__)}
    print(json.dumps(report))


if __name__ == "__main__":
    main()
