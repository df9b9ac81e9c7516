"""Dashboards beside `metrics.jsonl`: TensorBoard, Weights & Biases, trackio. Each is imported only when it is named.

They see the same figures under the same names, and the step as the x axis; and a table `completions` of some of the step's
groups, answer by answer. A resumed run goes on in the same dashboard run; the step that a kill repeats is drawn twice with
equal values.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any, Protocol

from tossup.engine.completions import COLUMNS, Completion
from tossup.records import TossupError

TABLE = "completions"


class Dashboard(Protocol):
    """Where figures go."""

    def log(self, step: int, figures: Mapping[str, float]) -> None:
        """Show the figures of one step."""

    def show(self, step: int, rows: Sequence[Completion]) -> None:
        """Show answers of one step; called before its figures."""

    def close(self) -> None:
        """Flush and let go."""


class NoDashboard:
    """`metrics.jsonl` is enough."""

    def log(self, step: int, figures: Mapping[str, float]) -> None:
        """Nothing to show."""

    def show(self, step: int, rows: Sequence[Completion]) -> None:
        """Nothing to show."""

    def close(self) -> None:
        """Nothing to flush."""


class TensorBoard:
    """Event files in the run folder: `tensorboard --logdir runs`."""

    def __init__(self, project: str, run: Path, config: Mapping[str, Any], step: int) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self.writer = SummaryWriter(str(run / "tensorboard"), purge_step=step)

    def log(self, step: int, figures: Mapping[str, float]) -> None:
        """One scalar a figure."""
        for name, value in figures.items():
            self.writer.add_scalar(name, value, step)

    def show(self, step: int, rows: Sequence[Completion]) -> None:
        """A table in Markdown, which is what TensorBoard's text pages render."""
        lines = [COLUMNS, ["---"] * len(COLUMNS), *([_cell(value) for value in row] for row in rows)]
        self.writer.add_text(TABLE, "\n".join("| " + " | ".join(line) + " |" for line in lines), step)

    def close(self) -> None:
        """Flush the event file."""
        self.writer.close()


class WandB:
    """Weights & Biases; WANDB_MODE=offline keeps everything in the run folder until `wandb sync`."""

    def __init__(self, project: str, run: Path, config: Mapping[str, Any], step: int) -> None:
        import wandb

        self.wandb = wandb
        self.run = wandb.init(
            project=project,
            id=run.name,
            name=run.name,
            dir=str(run),
            config=dict(config),
            resume="allow",
            reinit="return_previous",
        )

    def log(self, step: int, figures: Mapping[str, float]) -> None:
        """One row a step."""
        self.run.log(dict(figures), step=step)

    def show(self, step: int, rows: Sequence[Completion]) -> None:
        """One table a step."""
        table = self.wandb.Table(columns=COLUMNS, data=[list(row) for row in rows])
        self.run.log({TABLE: table}, step=step)

    def close(self) -> None:
        """Finish the run."""
        self.run.finish()


class Trackio:
    """trackio: a local dashboard with the same calls, `trackio show`."""

    def __init__(self, project: str, run: Path, config: Mapping[str, Any], step: int) -> None:
        import trackio

        self.trackio = trackio
        with redirect_stdout(sys.stderr):  # stdout is for the command's result
            trackio.init(project=project, name=run.name, config=dict(config), resume="allow")

    def log(self, step: int, figures: Mapping[str, float]) -> None:
        """One row a step."""
        self.trackio.log(dict(figures), step=step)

    def show(self, step: int, rows: Sequence[Completion]) -> None:
        """One table a step."""
        table = self.trackio.Table(columns=COLUMNS, data=[list(row) for row in rows])
        self.trackio.log({TABLE: table}, step=step)

    def close(self) -> None:
        """Finish the run."""
        with redirect_stdout(sys.stderr):
            self.trackio.finish()


def _cell(value: str | float | None) -> str:
    """A value in a Markdown table: what a model wrote is shown as it is, and cannot end the cell or act as Markdown."""
    if value is None:
        return ""
    if not isinstance(value, str):
        return f"{value:g}"
    text = value.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return "".join(f"&#{ord(c)};" if c in "|\\`*_[]#!~$" else c for c in text).replace("\n", "<br>").replace("\r", "")


DASHBOARDS: dict[str, Callable[[str, Path, Mapping[str, Any], int], Dashboard]] = {
    "tensorboard": TensorBoard,
    "wandb": WandB,
    "trackio": Trackio,
}
"""By the names of `--log`, which are also the names of the extras that install them."""


OFFLINE = {"wandb": " (`wandb login`, or WANDB_MODE=offline for none)"}
"""What setting up means, where it takes more than a package."""


def open_dashboard(name: str, project: str, run: Path, config: Mapping[str, Any], step: int) -> Dashboard:
    """The dashboard of this name for the run, which goes on at `step`; no name, no dashboard.

    Raises:
        TossupError: its package is not installed, or it does not start: not logged in, no network.
    """
    if not name:
        return NoDashboard()
    try:
        return DASHBOARDS[name](project, run, config, step)
    except ModuleNotFoundError as e:
        raise TossupError(f"--log {name} needs {e.name}: pip install 'tossup[{name}]'") from e
    except Exception as e:  # each package has errors of its own, and none of them is one of this program
        raise TossupError(
            f"--log {name} does not start ({type(e).__name__}: {e}): set it up{OFFLINE.get(name, '')}, or leave --log away; "
            "metrics.jsonl has the same figures"
        ) from e
