"""SIGTERM, by which a scheduler says that it wants the machine back: the step under way is finished and saved first.

A second one ends the process at once, as does the SIGKILL that follows when the step takes longer than the grace.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def stop_asked(on: bool) -> Iterator[Callable[[], bool]]:
    """Within it, SIGTERM does nothing but let the yielded function say so.

    It needs the main thread, where Python hears signals; elsewhere, and where it is not `on`, SIGTERM does what it did.
    """
    asked = threading.Event()
    if not on or threading.current_thread() is not threading.main_thread():
        yield asked.is_set
        return

    def hear(number: int, _: object) -> None:
        asked.set()
        signal.signal(number, before)

    before = signal.getsignal(signal.SIGTERM) or signal.SIG_DFL  # None: a handler in C, which Python cannot put back
    signal.signal(signal.SIGTERM, hear)
    try:
        yield asked.is_set
    finally:
        signal.signal(signal.SIGTERM, before)
