"""What `tossup audit --plan` reads and prints."""

from __future__ import annotations

import re
from dataclasses import asdict
from typing import Any

import rich_click as click

from tossup.cli.audit_output import print_table, rounded, table_of
from tossup.cli.console import out
from tossup.curriculum.planner import BANDS, Band, Option, Plan

UNITS = {"": 1.0, "k": 1e3, "m": 1e6, "b": 1e9, "g": 1e9}


def parse_budget(text: str) -> float:
    """`50M` as 50 million tokens; k, M and B (or G) are understood."""
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([kmbg]?)\s*", text.lower())
    if found is None or float(found.group(1)) == 0:
        raise click.UsageError(f"--budget {text!r}: expected a number of tokens such as 50M")
    return float(found.group(1)) * UNITS[found.group(2)]


def parse_keep(text: str) -> tuple[Band, ...]:
    """`auto`, or a band such as 0.1..0.9, which is compared with the whole pool."""
    if text == "auto":
        return BANDS
    found = re.fullmatch(r"\s*(0(?:\.\d+)?|1(?:\.0+)?)\s*\.\.\s*(0(?:\.\d+)?|1(?:\.0+)?)\s*", text)
    if found is None or float(found.group(1)) > float(found.group(2)):
        raise click.UsageError(f"--keep {text!r}: expected auto or a band of success rates such as 0.1..0.9")
    return (BANDS[0], (float(found.group(1)), float(found.group(2))))


def as_dict(plan: Plan, budget: float) -> dict[str, Any]:
    """The plan as plain JSON data."""
    value: dict[str, Any] = rounded({"budget": budget, **asdict(plan)})
    return value


def show(plan: Plan, budget: float, max_visits: float) -> None:
    """Print the options and the recommendation."""
    out.print(f"A budget of {budget:,.0f} generated tokens, drawing uniformly from the problems kept:", soft_wrap=True)
    numbers = ["  G", "keep rates", "problems", "informative groups/M tokens", "in budget", "visits", "gain"]
    table = table_of([], numbers)
    for one in plan.options:
        table.add_row(
            f"  {one.group_size}",
            _band(one),
            f"{one.problems:,}",
            f"{one.per_million:,.1f} ({one.low:,.1f} to {one.high:,.1f})",
            f"{one.informative:,.0f}",
            f"{one.visits:.1f}",
            f"x{one.gain:.2f}",
        )
    print_table(table)
    if plan.best is None:
        out.print(f"No option stays under {max_visits:g} visits a problem: the pool is too small.", soft_wrap=True)
        return
    best = plan.best
    out.print(
        f"Most informative groups: G = {best.group_size}, keeping success rates {_band(best)}; x{plan.margin:.2f} the next "
        f"band at that size (ahead in {plan.confidence:.0%} of resampled pools), x{best.gain:.2f} the whole pool.",
        soft_wrap=True,
    )
    out.print(
        "Small groups always give more groups for the tokens; choose G for the precision of a group's mean, then the band.",
        soft_wrap=True,
    )


def _band(one: Option) -> str:
    return "all" if one.band == (0.0, 1.0) else f"{one.band[0]:g} to {one.band[1]:g}"
