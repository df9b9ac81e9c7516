"""The system calls that Python does not offer, each with its reason. They raise OSError; nothing here decides anything."""

from __future__ import annotations

import ctypes
import os
import struct
from collections.abc import Callable
from typing import Any

_libc = ctypes.CDLL(None, use_errno=True)

NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET = (
    0x00020000, 0x02000000, 0x04000000, 0x08000000, 0x10000000, 0x20000000, 0x40000000,
)  # fmt: skip
MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_NOATIME, MS_BIND, MS_REC, MS_PRIVATE = 0x2, 0x4, 0x8, 0x400, 0x1000, 0x4000, 0x40000
ATTR_RDONLY, ATTR_NOSUID, ATTR_NODEV = 0x1, 0x2, 0x4

LAST_DESCRIPTOR = (1 << 31) - 1

_PDEATHSIG, _SET_SECCOMP, _NO_NEW_PRIVS = 1, 22, 38
_CLOSE_RANGE, _MOUNT_SETATTR, _LANDLOCK_CREATE, _LANDLOCK_ADD, _LANDLOCK_RESTRICT = 436, 442, 444, 445, 446
_PIVOT_ROOT = {"x86_64": 155, "aarch64": 41}


def _check(result: int, what: str) -> int:
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, f"{what}: {os.strerror(code)}")
    return result


def _syscall(number: int, what: str, *arguments: Any) -> int:
    wide = [ctypes.c_long(a) if isinstance(a, int) else a for a in arguments]
    return _check(_libc.syscall(ctypes.c_long(number), *wide), what)


def _prctl(option: int, what: str, a: Any = 0, b: Any = 0) -> None:
    wide = [ctypes.c_ulong(x) if isinstance(x, int) else x for x in (a, b, 0, 0)]
    _check(_libc.prctl(option, *wide), what)


def unshare(flags: int) -> None:
    """Leave namespaces for new ones, which see nothing of the old."""
    _check(_libc.unshare(flags), f"unshare {flags:#x}")


def setns(fd: int, kind: int) -> None:
    """Enter a namespace. The zygote needs it to make a new pid namespace for every run, which only the first may else."""
    _check(_libc.setns(fd, kind), "setns")


def mount(source: str, target: str, kind: str, flags: int, options: str = "") -> None:
    """Mount a tmpfs, or bind a path of the host."""
    arguments = [x.encode() if x else None for x in (source, target, kind)]
    result = _libc.mount(*arguments, ctypes.c_ulong(flags), options.encode() if options else None)
    _check(result, f"mount {kind or source} on {target}")


def mount_setattr(path: str, attributes: int, recursive: bool) -> None:
    """Make a mount read-only, with all mounts beneath it: a plain remount changes only the one."""
    attr = struct.pack("=QQQQ", attributes, 0, 0, 0)
    at_recursive, at_fdcwd = 0x8000, -100
    _syscall(
        _MOUNT_SETATTR,
        f"mount_setattr {path}",
        at_fdcwd,
        path.encode(),
        at_recursive * recursive,
        attr,
        len(attr),
    )


def pivot_root(new: str, old: str) -> None:
    """Make another mount the root, with the old root at a directory in it."""
    _syscall(_PIVOT_ROOT[os.uname().machine], "pivot_root", new.encode(), old.encode())


def unmount(path: str) -> None:
    """Let go of a mount and all mounts in it: the old root, so that no path leads to the host, or a used /tmp."""
    detach = 2
    _check(_libc.umount2(path.encode(), detach), f"umount2 {path}")


def die_with_parent() -> None:
    """SIGKILL when the parent dies, so that no run outlives its zygote."""
    _prctl(_PDEATHSIG, "prctl PDEATHSIG", 9)


def close_range(first: int, last: int) -> None:
    """Close all descriptors from first to last: a run inherits none. Python's own falls back to a million calls."""
    _syscall(_CLOSE_RANGE, "close_range", first, last, 0)


def no_new_privileges() -> None:
    """Close the ways to gain privileges by exec; seccomp and Landlock ask for it. Children inherit it."""
    _prctl(_NO_NEW_PRIVS, "prctl NO_NEW_PRIVS", 1)


class _SockFprog(ctypes.Structure):
    _fields_ = (("len", ctypes.c_ushort), ("filter", ctypes.c_char_p))


def load_seccomp(program: bytes) -> None:
    """Filter all later system calls of this process, beside the filters that it has. There is no way back."""
    filter_mode = 2
    _prctl(_SET_SECCOMP, "prctl SECCOMP", filter_mode, ctypes.byref(_SockFprog(len(program) // 8, program)))


class Prepared:
    """A call whose arguments stand ready before the fork: in every run, making them would cost more than the call."""

    def __init__(self, what: str, function: Callable[..., int], *arguments: Any) -> None:
        self._what, self._function, self._arguments = what, function, arguments

    def __call__(self) -> None:
        """Make the call; raises OSError."""
        if self._function(*self._arguments) < 0:
            _check(-1, self._what)


def nothing() -> Prepared:
    """Asks for the process's id, to no end."""
    return Prepared("getpid", _libc.getpid)


def drop_capabilities() -> Prepared:
    """Gives up every capability. With no_new_privs there is no way to get one back."""
    version_3, own_process = 0x20080522, 0
    return Prepared("capset", _libc.capset, struct.pack("=II", version_3, own_process), bytes(24))


def close_from(first: int) -> Prepared:
    """Closes all descriptors from this one on: a run inherits none."""
    numbers = map(ctypes.c_long, (_CLOSE_RANGE, first, LAST_DESCRIPTOR, 0))
    return Prepared("close_range", _libc.syscall, *numbers)


def filter_by(program: ctypes.Array[ctypes.c_char]) -> Prepared:
    """Loads this filter, as `load_seccomp`. It stands in a buffer, so that a process can still write its own id into it."""
    fprog = _SockFprog(len(program) // 8, ctypes.cast(program, ctypes.c_char_p))
    filter_mode, zero = ctypes.c_ulong(2), ctypes.c_ulong(0)
    return Prepared("prctl SECCOMP", _libc.prctl, _SET_SECCOMP, filter_mode, ctypes.byref(fprog), zero, zero)


def landlock_abi() -> int:
    """The version of Landlock that the kernel offers.

    Raises:
        OSError: ENOSYS where the kernel has none, EOPNOTSUPP where it is switched off at boot.
    """
    return _syscall(_LANDLOCK_CREATE, "landlock_create_ruleset", None, 0, 1)


def landlock_create(handled_files: int, handled_net: int, scoped: int, abi: int) -> int:
    """A ruleset (as a descriptor) that denies all these rights where no rule grants them."""
    attr = struct.pack("=QQQ", handled_files, handled_net, scoped)
    size = 8 if abi < 4 else 16 if abi < 6 else 24
    return _syscall(_LANDLOCK_CREATE, "landlock_create_ruleset", attr[:size], size, 0)


def landlock_allow(ruleset: int, path: str, rights: int) -> None:
    """Grant rights on everything beneath a path."""
    fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        path_beneath = 1
        _syscall(_LANDLOCK_ADD, f"landlock_add_rule {path}", ruleset, path_beneath, struct.pack("=Qi", rights, fd), 0)
    finally:
        os.close(fd)


def landlock_restrict(ruleset: int) -> Prepared:
    """Puts the process under the ruleset. There is no way back."""
    numbers = map(ctypes.c_long, (_LANDLOCK_RESTRICT, ruleset, 0))
    return Prepared("landlock_restrict_self", _libc.syscall, *numbers)
