"""Files that appear whole or not at all: written beside their place, flushed to the disk, then renamed over it.

A reader, and a run that is resumed after `kill -9` or a full disk, sees the old file or the new one and never a part.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from tossup.records import TossupError

TEMPORARY = ".part-"
"""How the names of unfinished files begin; leftovers of a killed process may be deleted at any time."""


@contextmanager
def replacing(path: Path, flush: bool = True) -> Iterator[IO[bytes]]:
    """A binary file to write; on leaving the block it takes the place of `path`, and on an error nothing changes.

    Without `flush` it outlives the process, but a power cut only once `flushed` was called on it.

    Raises:
        TossupError: the disk refused: full, read-only, no such folder.
    """
    temporary = path.with_name(f"{TEMPORARY}{path.name}-{uuid.uuid4().hex[:8]}")
    try:
        with temporary.open("xb") as file:
            yield file
            file.flush()
            if flush:
                os.fsync(file.fileno())
        temporary.replace(path)
        if flush:
            sync_folder(path.parent)
    except BaseException as e:
        with suppress(FileNotFoundError):
            temporary.unlink()
        if isinstance(e, OSError):
            raise TossupError(f"{path} could not be written: {e.strerror or e}; what was there before is intact") from e
        raise


def flushed(paths: Sequence[Path]) -> None:
    """Flush these files, and the folders that they are in, to the disk; what is gone by now is left out.

    Raises:
        OSError: the disk refused.
    """
    for path in paths:
        with suppress(FileNotFoundError), path.open("rb") as file:
            os.fsync(file.fileno())
    for folder in {path.parent for path in paths}:
        sync_folder(folder)


def sync_folder(folder: Path) -> None:
    """Make the rename itself survive a power cut."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
