"""Anonymous files in memory: how programs and their input reach a run without a temporary file and without a zygote."""

from __future__ import annotations

import fcntl
import os
from types import TracebackType

_ADD_SEALS = 1033  # F_ADD_SEALS
_SEAL_ALL = 0xF  # no more seals, shrinking, growing, writing


class MemoryFile:
    """A descriptor for bytes in memory, at its start. Unless `sealed` is False, nobody can change them any more."""

    def __init__(self, data: bytes, sealed: bool = True) -> None:
        self._fd = os.memfd_create("tossup", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        try:
            written = 0
            while written < len(data):
                written += os.pwrite(self._fd, memoryview(data)[written:], written)
            if sealed:
                fcntl.fcntl(self._fd, _ADD_SEALS, _SEAL_ALL)
        except BaseException:
            self.close()
            raise

    def fileno(self) -> int:
        """The descriptor."""
        return self._fd

    def size(self) -> int:
        """In bytes, now."""
        return os.fstat(self._fd).st_size

    def close(self) -> None:
        """Give the memory back, as soon as nobody else has it open."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def __enter__(self) -> MemoryFile:
        return self

    def __exit__(self, kind: type[BaseException] | None, e: BaseException | None, tb: TracebackType | None) -> None:
        self.close()
