"""SIGTERM, by which a scheduler wants the machine back, and Ctrl-C: the step under way is finished and saved first.

Alone, a second signal ends the process at once, as does the SIGKILL that follows when the step takes longer than the grace.

Under torchrun the agent hears the signal and passes it on to the processes of its node; what is left of them after its grace
(30 s; `torchrun --shutdown-timeout`) it ends by SIGKILL. One of them may hear it a step before another, or alone: whatever the
ranks gather carries what each was told (`World.gather`), so all know it from the same point of a step on; rank 0 ends the step,
saves, and has every rank leave by the same way (`Learner.interrupt`). A scheduler that signals all processes of a job reaches
each of them twice, and the agent signals those that are still on their way out once the first is gone: so there a further
signal does nothing. For the same reason a rank whose peer has failed ends at its next word to the others, or by SIGKILL.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

from tossup.engine.distributed import World

SIGNALS = {signal.SIGTERM: "SIGTERM", signal.SIGINT: "Ctrl-C"}


@contextmanager
def listening(world: World) -> Iterator[None]:
    """Within it, the first SIGTERM or Ctrl-C does nothing but leave its name in `world.told`.

    It needs the main thread, where Python hears signals; elsewhere they do what they did, and so does one that is ignored, as
    Ctrl-C is in a shell's background.
    """
    world.told = ""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    found = {number: signal.getsignal(number) or signal.SIG_DFL for number in SIGNALS}  # None: a handler in C, lost
    before = {number: handler for number, handler in found.items() if handler is not signal.SIG_IGN}

    def hear(number: int, _: object) -> None:
        name = SIGNALS[signal.Signals(number)]
        if not world.told and world.leads:
            _say(f"told to stop ({name}): the step under way is finished and saved first")
        world.told = name
        if world.size == 1:
            _install(before)

    after = before
    _install(dict.fromkeys(before, hear))
    try:
        yield
    except KeyboardInterrupt:
        if world.size > 1:
            after = dict.fromkeys(before, signal.SIG_IGN)
        raise
    finally:
        _install(after)


def _install(handlers: Mapping[signal.Signals, Any]) -> None:
    for number, handler in handlers.items():
        signal.signal(number, handler)


def _say(text: str) -> None:
    """Print a line from a signal handler, past the buffers that the process may just be writing to."""
    with suppress(OSError):  # nobody reads it
        os.write(2, f"\n{text}\n".encode())
