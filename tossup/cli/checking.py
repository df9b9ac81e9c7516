"""How `curate` shows what is wrong with a pool before anything is sampled."""

from __future__ import annotations

from typing import NamedTuple

from rich.markup import escape

from tossup.cli.console import out, print_json, table_of
from tossup.engine.measure_config import CurateConfig
from tossup.records import counted

EXAMPLES = 3
"""Findings of a kind that the table names."""


class Found(NamedTuple):
    """The findings by kind: for each, the ids of the problems that belong together."""

    problems: int
    by_kind: dict[str, list[list[str]]]

    @property
    def total(self) -> int:
        """How many there are."""
        return sum(len(groups) for groups in self.by_kind.values())


def look_over(config: CurateConfig) -> Found:
    """Check the pool, also against the evaluation sets that the settings name.

    Raises:
        TossupError: the pool or a set cannot be read.
    """
    from tossup.curriculum.checks import Kind, summary
    from tossup.engine.cleaning import clean

    cleaned = clean(config)
    ids = cleaned.pool.ids
    by_kind: dict[str, list[list[str]]] = {name: [] for name in summary(cleaned.findings)}
    for finding in cleaned.findings:
        name = f"overlap with {finding.note}" if finding.kind is Kind.OVERLAP else finding.kind.value
        by_kind[name].append([ids[row] for row in finding.rows])
    return Found(len(cleaned.pool), by_kind)


def print_findings(found: Found, as_json: bool) -> None:
    """The table of `--check-only`, or everything as JSON."""
    if as_json:
        print_json({"problems": found.problems, "findings": found.by_kind})
        return
    title = f"{counted(found.total, 'finding')} in {counted(found.problems, 'problem')}"
    table = table_of(["kind"], ["findings"], title, last="for example")
    for kind, groups in found.by_kind.items():
        shown = "; ".join(" = ".join(group[:EXAMPLES]) for group in groups[:EXAMPLES])
        table.add_row(escape(kind), f"{len(groups):,}", escape(shown))
    out.print(table)
