"""How `curate` and `eval` show that they are measuring."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from rich.progress import Progress, Task, TaskID

from tossup.cli.console import console, progress_bar, say
from tossup.records import counted


class Look:
    """Shows the measuring of a pool: a bar over problems with tokens per second and time left."""

    LINE_EVERY_S = 60.0

    def __init__(self, progress: Progress) -> None:
        self.progress = progress
        self.task: TaskID | None = None
        self.tokens = 0
        self.begun = self.said_at = time.monotonic()

    def note(self, text: str) -> None:
        """Print a remark."""
        say(text)

    def started(self, problems: int, done: int) -> None:
        """Set the bar up, or set it back for the next wave; problems of an earlier call count as done."""
        if done:
            self.note(f"already measured: {done:,} of {counted(problems, 'problem')}")
        if self.task is None:
            self.task = self.progress.add_task("measuring", total=problems, completed=done, speed="")
        else:
            self.progress.reset(self.task, total=problems, completed=done)

    def measured(self, problems: int, tokens: int) -> None:
        """Move the bar."""
        self.tokens += tokens
        speed = self.tokens / max(time.monotonic() - self.begun, 1e-9)
        if self.task is not None:
            self.progress.update(self.task, advance=problems, speed=f"{speed:,.0f} tok/s")
            if not console.is_terminal:
                self._say(self.progress.tasks[self.task], speed)

    def _say(self, task: Task, speed: float) -> None:
        """A line now and then where there is no terminal, and so no bar: in the log of a batch job."""
        now = time.monotonic()
        if now - self.said_at >= self.LINE_EVERY_S:
            self.said_at = now
            self.note(
                f"measured: {task.completed:,.0f} of {counted(round(task.total or 0), 'problem')}, {speed:,.0f} tok/s"
            )


def shown(job: Callable[[Look], dict[str, Any]]) -> dict[str, Any]:
    """Do a measuring job under a progress bar; an interrupt says how to go on, and goes on itself."""
    with progress_bar(rate="speed") as progress:
        try:
            return job(Look(progress))
        except KeyboardInterrupt:
            console.print(
                "interrupted; what was measured is saved: the same command goes on from there", soft_wrap=True
            )
            raise
