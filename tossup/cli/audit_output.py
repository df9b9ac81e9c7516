"""What `tossup audit` prints: tables for people, one JSON value for scripts, and remarks on what the data cannot say."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from tossup.cli.console import out
from tossup.curriculum.audit import KINDS, LEVEL, Expected, SetAudit, Share
from tossup.curriculum.history import Persistence, Window
from tossup.curriculum.rollouts import Rollouts
from tossup.records import counted

WIDTH = 132
"""Columns of a table that goes to a file or a pipe, where there is no terminal to fit."""

BLOCKS = 6
"""With more sets than this, each gets one line."""

DIGITS = 6


def name_of(labels: dict[str, str]) -> str:
    """How a set is called in tables and as a key: its labels joined by `|`; `all` without any."""
    return "|".join(labels.values()) if labels else "all"


def read_as(rollouts: Rollouts) -> dict[str, list[str]]:
    """The sources by what their columns were taken for."""
    found: dict[str, list[str]] = {}
    for source, layout in rollouts.read:
        found.setdefault(str(layout), []).append(source)
    return found


def remarks(rollouts: Rollouts, sets: Sequence[SetAudit], overall: SetAudit, rule: str) -> list[str]:
    """What a reader must know before believing the figures."""
    notes = [
        f"read {paths[0]}{f' and {len(paths) - 1} more' if len(paths) > 1 else ''} as {columns}"
        for columns, paths in read_as(rollouts).items()
    ]
    notes += [f"left out {refused}" for refused in rollouts.left_out]
    if overall.odd_rewards:
        share = overall.odd_rewards / overall.rollouts
        notes.append(
            f"{share:.1%} of the rewards are neither 0 nor 1; an answer counts as right if its reward is {rule} "
            "(--correct-if changes that)"
        )
    if overall.undecided:
        share = overall.undecided / (overall.undecided + overall.rollouts)
        notes.append(f"{counted(overall.undecided, 'rollout')} undecided ({share:.1%}) and left out")
    if max(overall.cells.cells.n) == 1:
        notes.append(
            "every problem has one answer, which says next to nothing of waste; if that is not so, name the "
            "column that is the same for all answers to a problem with --map problem=COLUMN"
        )
    fitted = [e.group_size for e in overall.expected if e.method != "unbiased"]
    if fitted:
        sizes = ", ".join(map(str, fitted))
        notes.append(
            f"group size {sizes}: some problems have fewer answers than that, so the shares come from a fitted model"
        )
    if len(sets) == 1 and overall.units < 30:
        notes.append(f"{counted(overall.units, 'problem')}: that is few, take the intervals as rough")
    return notes


def as_dict(
    sets: Sequence[SetAudit],
    overall: SetAudit,
    sizes: Sequence[int],
    rule: str,
    notes: Sequence[str],
    past: tuple[list[Window], Persistence] | None,
) -> dict[str, Any]:
    """The audit as plain JSON data. Shares are fractions with six decimals."""
    value: dict[str, Any] = {
        "group_sizes": list(sizes),
        "level": LEVEL,
        "correct_if": rule,
        "datasets": {name_of(s.labels): _set(s) for s in sets},
        "all": _set(overall),
        "remarks": list(notes),
    }
    if past is not None:
        windows, persistence = past
        value["visits"] = [{**asdict(w), "labels": w.labels} for w in windows]
        value["persistence"] = asdict(persistence)
    return rounded(value)  # type: ignore[no-any-return]


def _set(one: SetAudit) -> dict[str, Any]:
    return {
        "labels": one.labels,
        "unit": "problem" if one.observed is None else "group",
        "units": one.units,
        "rollouts": one.rollouts,
        "undecided": one.undecided,
        "mean": one.mean,
        "equal_reward": one.equal_reward,
        "observed": None if one.observed is None else asdict(one.observed),
        "group_size": {str(e.group_size): _expected(e) for e in one.expected},
    }


def _expected(one: Expected) -> dict[str, Any]:
    value: dict[str, Any] = {kind: getattr(one, kind).value for kind in KINDS}
    for kind in KINDS:
        share: Share = getattr(one, kind)
        value[f"{kind}_interval"] = [share.low, share.high]
    return {**value, "wasted_tokens": one.wasted_tokens, "method": one.method}


def rounded(value: Any) -> Any:
    """Plain JSON data with floats at six decimals, keys as text and tuples as lists."""
    if isinstance(value, float):
        return round(value, DIGITS)
    if isinstance(value, dict):
        return {str(k): rounded(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [rounded(v) for v in value]
    return value


def show(sets: Sequence[SetAudit], overall: SetAudit, past: tuple[list[Window], Persistence] | None) -> None:
    """Print the tables: a block a set while there are few, a line a set where there are many."""
    rows = [*sets, overall] if len(sets) > 1 else list(sets)
    if len(rows) <= BLOCKS:
        for one in rows:
            out.print(_headline(one), soft_wrap=True)
            print_table(_expected_table(one))
    else:
        print_table(_compact_table(rows))
        for one in rows[-1:]:
            out.print(_headline(one), soft_wrap=True)
            print_table(_expected_table(one))
    if past is not None:
        print_table(_visits_table(past[0]))
        _print_persistence(past[1])


def print_table(table: Table) -> None:
    """Print to the terminal's width, or to WIDTH columns where there is no terminal."""
    if out.is_terminal:
        out.print(table)
    else:
        Console(width=WIDTH, highlight=False).print(table)


def table_of(first: Sequence[str], numbers: Sequence[str]) -> Table:
    """A plain table: text columns that fold, then numbers to the right that do not."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for name in first:
        table.add_column(name, overflow="fold")
    for name in numbers:
        table.add_column(name, justify="right", no_wrap=True)
    return table


def _headline(one: SetAudit) -> str:
    unit = "problem" if one.observed is None else "group"
    text = f"[bold]{escape(name_of(one.labels))}[/]: {counted(one.units, unit)}, mean success rate {one.mean:.3f}"
    if one.observed is None:
        return text
    seen = one.observed
    text += (
        f"\n  observed, groups of up to {seen.group_size}: {seen.wasted:.1%} wasted ({seen.all_correct:.1%} all right, "
        f"{seen.all_wrong:.1%} all wrong, {seen.too_few:.1%} with fewer than two judged)"
    )
    if seen.tokens is not None:
        text += f"; {_percent(seen.wasted_tokens)} of {counted(seen.tokens, 'token')}"
    return text


def _expected_table(one: SetAudit) -> Table:
    has_tokens = any(e.wasted_tokens is not None for e in one.expected)
    numbers = ["  G", "wasted", "90 % interval", "all right", "all wrong", *(["tokens"] if has_tokens else [])]
    table = table_of([], [*numbers, "method"])
    for e in one.expected:
        table.add_row(
            f"  {e.group_size}",
            _percent(e.wasted.value),
            _range(e.wasted.low, e.wasted.high),
            _percent(e.all_correct.value),
            _percent(e.all_wrong.value),
            *([_percent(e.wasted_tokens)] if has_tokens else []),
            e.method,
        )
    return table


def _compact_table(sets: Sequence[SetAudit]) -> Table:
    sizes = [e.group_size for e in sets[-1].expected]
    unit = "problems" if sets[-1].observed is None else "groups"
    table = table_of(["wasted share of"], [unit, "mean", *(f"G = {size}" for size in sizes)])
    for one in sets:
        shares = [f"{e.wasted.value:.1%} ({100 * e.wasted.low:.0f} to {100 * e.wasted.high:.0f})" for e in one.expected]
        table.add_row(escape(name_of(one.labels)), f"{one.units:,}", f"{one.mean:.3f}", *shares)
    return table


def _visits_table(windows: Sequence[Window]) -> Table:
    numbers = ["problems", "groups", "mean", "wasted", "all right", "all wrong"]
    table = table_of(["visits", "set"], numbers)
    for w in windows:
        span = str(w.first) if w.last == w.first else f"{w.first} to {w.last or 'the end'}"
        shares = [_percent(v) for v in (w.wasted, w.all_correct, w.all_wrong)]
        table.add_row(span, escape(name_of(w.labels)), f"{w.problems:,}", f"{w.groups:,}", f"{w.mean:.3f}", *shares)
    return table


def _print_persistence(one: Persistence) -> None:
    streaks = ", ".join(f"{k}: {v:.1%}" for k, v in one.after_streak.items())
    out.print(
        f"The next visit is wasted after a wasted one {_percent(one.after_wasted)}, after a mixed one "
        f"{_percent(one.after_mixed)}; after a streak of wasted visits of length {streaks or 'none'} (the last: or more).",
        soft_wrap=True,
    )


def _percent(share: float | None) -> str:
    return "" if share is None else f"{share:.1%}"


def _range(low: float, high: float) -> str:
    return f"{low:.1%} to {high:.1%}"
