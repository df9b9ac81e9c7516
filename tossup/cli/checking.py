"""How `curate` shows what is wrong with a pool before anything is sampled."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from rich.markup import escape
from rich.table import Table

from tossup.cli.console import out, print_json
from tossup.engine.config import CurateConfig

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

    def in_words(self) -> str:
        """The kinds that occur, with their numbers."""
        return ", ".join(f"{kind} {len(groups):,}" for kind, groups in self.by_kind.items() if groups)


def look_over(config: CurateConfig, against: Sequence[str]) -> Found:
    """Check the pool, also against the evaluation sets of these names.

    Raises:
        TossupError: the pool or a set cannot be read.
    """
    from tossup.curriculum.checks import Kind, check, summary
    from tossup.engine.pools import open_pool

    pool = open_pool(config.pool, config.map, config.verifier)
    findings = check(pool, {name: open_pool(name) for name in against})
    ids = pool.ids
    by_kind: dict[str, list[list[str]]] = {name: [] for name in summary(findings)}
    for finding in findings:
        name = f"overlap with {finding.note}" if finding.kind is Kind.OVERLAP else finding.kind.value
        by_kind[name].append([ids[row] for row in finding.rows])
    return Found(len(pool), by_kind)


def print_findings(found: Found, as_json: bool) -> None:
    """The table of `--check-only`, or everything as JSON."""
    if as_json:
        print_json({"problems": found.problems, "findings": found.by_kind})
        return
    table = Table(title=f"{found.total:,} findings in {found.problems:,} problems", title_justify="left")
    table.add_column("kind", no_wrap=True)
    table.add_column("findings", justify="right")
    table.add_column("for example")
    for kind, groups in found.by_kind.items():
        shown = "; ".join(" = ".join(group[:EXAMPLES]) for group in groups[:EXAMPLES])
        table.add_row(escape(kind), f"{len(groups):,}", escape(shown))
    out.print(table)
