"""The backend for root in a container whose kernel has no Landlock: an empty root directory.

What a program may import must be imported before, so the zygote imports the whole standard library. The root is a
directory that has been removed: nothing can be made in it, and nothing of it is left when the zygote ends. There is no
/dev/null in it.
"""

from __future__ import annotations

import importlib
import os
import pkgutil
import sys
import tempfile
import warnings

NOT_FOR_PROGRAMS = {
    "antigravity", "distutils", "ensurepip", "idlelib", "lib2to3", "test", "this", "tkinter", "turtle", "turtledemo", "venv",
}  # fmt: skip
"""They open windows or browsers, print, install, or are large and of no use to a program that computes."""


def import_everything() -> None:
    """Import every public module of the standard library, and of its packages, that can be imported on this system."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        for name in sorted(sys.stdlib_module_names - NOT_FOR_PROGRAMS):
            _import(name)


def _import(name: str) -> None:
    if name.rpartition(".")[2].startswith("_"):
        return
    try:
        module = importlib.import_module(name)
    except ImportError:
        return  # another system's module, or one whose C library is not installed
    for inner in pkgutil.iter_modules(getattr(module, "__path__", ())):
        _import(f"{name}.{inner.name}")


def enter_empty_root() -> None:
    """Make a removed directory the root of this process.

    Raises:
        OSError: EPERM without CAP_SYS_CHROOT.
    """
    path = tempfile.mkdtemp(dir="/dev/shm" if os.path.isdir("/dev/shm") else None)
    try:
        os.chdir(path)
    finally:
        os.rmdir(path)
    os.chroot(".")
    os.chdir("/")
