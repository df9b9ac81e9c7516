"""Files, and folders, that appear whole or not at all: written beside their place, flushed to the disk, then renamed over it.

A reader, and a run that is resumed after `kill -9` or a full disk, sees the old file or the new one and never a part.
"""

from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from polars.exceptions import PolarsError

from tossup.records import TossupError

TEMPORARY = ".part-"
"""How the names of unfinished files begin; leftovers of a killed process may be deleted at any time."""


@contextmanager
def replacing(path: Path) -> Iterator[IO[bytes]]:
    """A binary file to write; on leaving the block it takes the place of `path`, and on an error nothing changes.

    Raises:
        TossupError: the disk refused: full, read-only, no such folder.
    """
    temporary = path.with_name(f"{TEMPORARY}{path.name}-{uuid.uuid4().hex[:8]}")
    try:
        with temporary.open("xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
        sync(path.parent)
    except BaseException as e:
        with suppress(FileNotFoundError):
            temporary.unlink()
        if isinstance(e, OSError | PolarsError):  # a frame that writes itself hides the disk's complaint in its own
            raise _refused(path, e) from e
        raise


@contextmanager
def renewing(folder: Path) -> Iterator[Path]:
    """An empty folder to fill; on leaving the block it takes the place of `folder`, and on an error nothing changes.

    A kill in the instant between the two renames leaves none.

    Raises:
        TossupError: the disk refused.
    """
    part = folder.with_name(f"{TEMPORARY}{folder.name}-{uuid.uuid4().hex[:8]}")
    try:
        part.mkdir(parents=True)
        yield part
        sync_all(part)
        old = _set_aside(folder) if folder.exists() else None
        part.rename(folder)
        sync(folder.parent)
    except BaseException as e:
        shutil.rmtree(part, ignore_errors=True)
        if isinstance(e, OSError):
            raise _refused(folder, e) from e
        raise
    if old is not None:
        shutil.rmtree(old)


def remove(folder: Path) -> None:
    """Delete a folder; its name goes first, so that a kill leaves no half of it."""
    shutil.rmtree(_set_aside(folder))


def _refused(path: Path, e: Exception) -> TossupError:
    cause = getattr(e, "strerror", None) or e
    return TossupError(
        f"{path} could not be written: {cause}; what was there before is intact: mend this and run the same command"
    )


def _set_aside(folder: Path) -> Path:
    gone = folder.with_name(f"{TEMPORARY}{folder.name}-old")
    shutil.rmtree(gone, ignore_errors=True)
    folder.rename(gone)
    return gone


def sync_all(folder: Path) -> None:
    """Wait until the folder, and all that is in it, is on the disk.

    Raises:
        OSError: the disk refused.
    """
    for path in folder.rglob("*"):
        sync(path)
    sync(folder)


def sync(path: Path) -> None:
    """Wait until a file's content, or a folder's names, are on the disk: a rename in it, too, survives a power cut then.

    Raises:
        OSError: the disk refused.
    """
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
