"""Which backend this machine really offers: each is tried by attacking it, and none is believed without.

"auto" takes the first of ORDER that starts and lets nothing out. Where that is none, the answer is an error that says what
each one lacked; `none` is used only by name. A backend that fails for want of something that may come back (memory,
descriptors, time) is an error too, and no reason to take a weaker one.
"""

from __future__ import annotations

import errno
import os
import threading

from tossup.records import TossupError
from tossup.sandbox.selftest import Report, attack

ORDER = ("namespaces", "landlock", "chroot")
"""From the strongest."""
DOES_NOT_STOP = {
    "namespaces": "faults of the kernel itself, and measuring others through shared caches and timing",
    "landlock": "the same, and seeing the names, sizes and times of any file (never its content)",
    "chroot": "the same as namespaces, with one fence fewer: only the system call filter stands between runs",
    "none": "anything: programs run with all rights of this user",
}
"""Backend -> what a program may still do under it."""
_UNAVAILABLE = {
    errno.EPERM, errno.EACCES, errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOSPC, errno.EUSERS
}  # fmt: skip
"""What a kernel or container says when it does not offer a backend (ENOSPC: no user namespaces allowed)."""

_reports: dict[str, Report] = {}
_lock = threading.Lock()
os.register_at_fork(before=_lock.acquire, after_in_parent=_lock.release, after_in_child=_lock.release)


def check_name(name: str) -> None:
    """Raise ValueError unless a backend has this name."""
    if name not in ("auto", *ORDER, "none"):
        raise ValueError(f"backend is {name!r}, expected auto, {', '.join(ORDER)} or none")


def report(backend: str) -> Report:
    """The self-test of one backend, done once per process unless it failed for want of something that may come back."""
    with _lock:
        if backend not in _reports:
            found = attack(backend)
            if not (found.works or found.got_out or found.errno in _UNAVAILABLE):
                found = attack(backend)
            if found.works or found.got_out or found.errno in _UNAVAILABLE:
                _reports[backend] = found
            return found
        return _reports[backend]


def choose(name: str) -> str:
    """The backend to use for "auto", or the one named, if it works here.

    Raises:
        TossupError: it does not.
    """
    if name == "none":
        return name
    found = []
    for backend in ORDER if name == "auto" else (name,):
        found.append(report(backend))
        if found[-1].works:
            return backend
        if not (found[-1].got_out or found[-1].errno in _UNAVAILABLE):
            break
    why = "; ".join(f"{r.backend}: {r.summary}" for r in found)
    raise TossupError(
        f"no isolation for untrusted programs on this machine ({why}). See docs/sandbox.md for what a container needs, "
        "or name backend 'none' to run them without any."
    )
