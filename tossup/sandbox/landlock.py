"""Landlock: a read-only allow-list of paths, for any user, in any container whose kernel has it (Linux 5.13).

What it does not cover, by version: moving files between directories before ABI 2, truncation before 3, TCP before 4,
device ioctl before 5, abstract Unix sockets and signals before 6; in no version chmod, chown, utime, xattr, UDP, stat.
The system call filter refuses all of these but stat: the names, sizes and times of files stay visible.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable

from tossup.sandbox import kernel

# Bits of a file-system right, as in linux/landlock.h.
WRITE_FILE, READ_FILE, READ_DIR, REFER, TRUNCATE, IOCTL_DEV = 1 << 1, 1 << 2, 1 << 3, 1 << 13, 1 << 14, 1 << 15
READ = READ_FILE | READ_DIR
FILES_BY_ABI = {1: (1 << 13) - 1, 2: REFER, 3: TRUNCATE, 5: IOCTL_DEV}
"""ABI -> the rights that it added; bits 0 to 12 (execute, read, write, remove, make) came first."""
CHANGE = FILES_BY_ABI[1] | REFER | TRUNCATE
"""Everything that one may do in a directory of one's own, device ioctl aside."""
GAPS = {2: "renames across directories", 3: "truncation", 5: "device ioctl", 6: "signals and abstract sockets"}
"""ABI -> what an older one leaves to the system call filter alone."""


def handled_files(abi: int) -> int:
    """The file rights that this ABI can deny."""
    return sum(rights for since, rights in FILES_BY_ABI.items() if since <= abi)


def ruleset(readable: Iterable[str], devices: Iterable[str], writable: Iterable[str]) -> int:
    """A descriptor of rules: reading beneath these paths, reading and writing these devices, all beneath these directories.

    Paths that do not exist are passed over. TCP, abstract sockets and signals to others are denied where the ABI can.

    Raises:
        OSError: the kernel has no Landlock.
    """
    abi = kernel.landlock_abi()
    handled = handled_files(abi)
    bind_and_connect, abstract_sockets_and_signals = 3 if abi >= 4 else 0, 3 if abi >= 6 else 0
    rules = kernel.landlock_create(handled, bind_and_connect, abstract_sockets_and_signals, abi)
    for paths, rights in ((readable, READ), (devices, READ_FILE | WRITE_FILE), (writable, CHANGE)):
        for path in paths:
            if os.path.exists(path):
                only_for_directories = 0 if stat.S_ISDIR(os.stat(path).st_mode) else READ_DIR
                kernel.landlock_allow(rules, path, rights & handled & ~only_for_directories)
    return rules
