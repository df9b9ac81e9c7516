"""What the commands share in printing: people read stderr and tables, scripts read one JSON value on stdout."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import rich_click as click
from click.shell_completion import CompletionItem
from rich.cells import cell_len
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table

from tossup.records import counted

console = Console(stderr=True, highlight=False)
"""For progress and remarks."""

out = Console(highlight=False)
"""For the result a person asked for."""

json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON for scripts instead of tables.")


SHORT = 12
"""Columns that a text folds to at the least."""


def complete_files(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Have the shell complete a path, as for any program."""
    return [CompletionItem(incomplete, type="file")]


def print_json(value: Any) -> None:
    """Print one line of JSON on stdout. NaN and infinities are refused: no parser but Python's reads them."""
    click.echo(json.dumps(value, ensure_ascii=False, allow_nan=False))


def say(text: str, to: Console = console) -> None:
    """Print a line as it is: names of folders and data sets, and verifiers' reasons, may hold brackets."""
    to.print(text, soft_wrap=True, markup=False)


NARROW = 80
"""A terminal with fewer columns has no room for two blanks between those of a table."""


def table_of(texts: Sequence[str], numbers: Sequence[str], title: str = "", last: str = "") -> Table:
    """A plain table: columns of text, then of numbers, then perhaps one more of text.

    Where the terminal is narrow texts fold and headings break between words, so that nothing is cut off.
    """
    gap = 1 if out.width < NARROW else 2
    table = Table(box=None, pad_edge=False, padding=(0, gap, 0, 0), header_style="bold", title=title or None)
    table.title_justify = "left"
    for name in texts:
        table.add_column(name, overflow="fold", min_width=min(SHORT, cell_len(name)))
    for name in numbers:
        table.add_column(name, justify="right", min_width=max(map(cell_len, name.split())))
    if last:
        table.add_column(last, overflow="fold", min_width=SHORT)
    return table


def print_undecided(reasons: Mapping[str, int]) -> None:
    """Say why answers could not be judged."""
    for reason, answers in reasons.items():
        say(f"undecided, {counted(answers, 'answer')}: {reason}", out)


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
    # Without a terminal there is no bar to move, and rich would leave an empty line for it.
    return Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
