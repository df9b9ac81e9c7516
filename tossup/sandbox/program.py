"""A program as the host keeps it, to be handed to one run or to many."""

from __future__ import annotations

import contextlib
import os
import weakref
from collections.abc import Iterator
from threading import Lock
from types import TracebackType

from tossup.sandbox.files import MemoryFile


class Program:
    """A program to hand over: its source and, where it runs more than once (`many`), a place for its compiled form.

    The files are made on first use, so that a host without memory is noticed where a run can fail, and again on the first use
    after `close`. Safe to use from many threads; a fork of the host makes files of its own.
    """

    def __init__(self, text: str, many: bool = False) -> None:
        self._text = text.encode("utf-8", "surrogatepass")
        self._many = many
        self._source: MemoryFile | None = None
        self._code: MemoryFile | None = None
        self._writer: object = None
        self._lock = Lock()
        _programs.add(self)

    @contextlib.contextmanager
    def handed_to(self, run: object) -> Iterator[tuple[int, int | None]]:
        """Descriptors for this run, open until the end of the block: of the source and of the compiled form, None

        for those that start while the first run makes it.

        Raises:
            OSError: the host is out of descriptors or memory.
        """
        with self._lock:
            self._source = self._source or MemoryFile(self._text)
            code = None
            if self._many and self._writer is None:
                self._code = self._code or MemoryFile(b"", sealed=False)
                code = self._code.fileno()
                if not self._code.size():
                    self._writer = run
            yield self._source.fileno(), code

    def was_run(self, run: object, undisturbed: bool) -> None:
        """The compiled form is there for others once the run that made it is over, unless that was killed.

        Then the next run gets another file to leave it in: of a worker that has gone, the run may still be writing.
        """
        with self._lock:
            if self._writer is run:
                self._writer = None
                if self._code is not None and not undisturbed:
                    self._code.close()
                    self._code = None

    def close(self) -> None:
        """Give the memory back."""
        with self._lock:
            for file in (self._source, self._code):
                if file is not None:
                    file.close()
            self._source = self._code = None

    def start_over(self) -> None:
        """In a fork of the host: a thread that is not here may hold the lock, and a run of the parent's writes to the file."""
        self._lock = Lock()
        self._writer = None
        self.close()

    def __enter__(self) -> Program:
        return self

    def __exit__(self, kind: type[BaseException] | None, e: BaseException | None, tb: TracebackType | None) -> None:
        self.close()


_programs: weakref.WeakSet[Program] = weakref.WeakSet()


def _after_fork() -> None:
    for program in list(_programs):
        program.start_over()


os.register_at_fork(after_in_child=_after_fork)
