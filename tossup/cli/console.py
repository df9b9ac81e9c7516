"""What the commands share in printing: people read stderr and tables, scripts read one JSON value on stdout."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import rich_click as click
from click.shell_completion import CompletionItem
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

console = Console(stderr=True, highlight=False)
"""For progress and remarks."""

out = Console(highlight=False)
"""For the result a person asked for."""

json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON for scripts instead of tables.")


def complete_files(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Have the shell complete a path, as for any program."""
    return [CompletionItem(incomplete, type="file")]


def print_json(value: Any) -> None:
    """Print one line of JSON on stdout. NaN and infinities are refused: no parser but Python's reads them."""
    click.echo(json.dumps(value, ensure_ascii=False, allow_nan=False))


def say(text: str, to: Console = console) -> None:
    """Print a line as it is: names of folders and data sets, and verifiers' reasons, may hold brackets."""
    to.print(text, soft_wrap=True, markup=False)


def print_undecided(reasons: Mapping[str, int]) -> None:
    """Say why answers could not be judged."""
    for reason, answers in reasons.items():
        say(f"undecided {answers:,} times: {reason}", out)


def progress_bar(rate: str = "") -> Progress:
    """A progress bar on stderr with count, time spent and time left; `rate` names a task field shown beside them."""
    columns = [
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    ]
    if rate:
        columns.append(TextColumn("{task.fields[" + rate + "]}"))
    return Progress(*columns, console=console, transient=True)
