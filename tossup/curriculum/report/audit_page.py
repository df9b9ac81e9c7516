"""The page of an audit: what share of groups would teach nothing, as one file that opens without a network."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import altair as alt
import numpy as np
import polars as pl

from tossup.curriculum import ledger
from tossup.curriculum.audit import LEVEL, Expected, Observed, SetAudit
from tossup.curriculum.report import charts, page
from tossup.curriculum.report.charts import ACCENT, FATE_COLOURS, RIGHT, WRONG, Spec
from tossup.curriculum.report.show import legible, percent
from tossup.curriculum.rollouts import Rollouts
from tossup.records import counted

KINDS = {"wasted": "wasted", "all_correct": "all right", "all_wrong": "all wrong"}
COLOURS = {"wasted": ACCENT, "all right": FATE_COLOURS["all_correct"], "all wrong": WRONG, "mixed": RIGHT}

FEW, NEARLY = 16, 0.8
"""Where this share of the units has the same few answers, each count of right ones has a bar of its own."""

LINE_COLOURS = ("#4c78a8", "#f58518", "#e45756", "#72b7b2", "#54a24b", "#d6b42c", "#b279a2", "#ff9da6")
LINES = len(LINE_COLOURS)
"""So many sets at most have a line in the chart; the table holds all."""

SETS = 300
"""Rows of the table."""


def write(
    rollouts: Rollouts, sets: Sequence[SetAudit], overall: SetAudit, out: Path, *, rule: str, remarks: Sequence[str]
) -> None:
    """Write the page of an audit to `out`; it appears whole or not at all."""
    page.save(html(rollouts, sets, overall, rule=rule, remarks=remarks), out)


def html(rollouts: Rollouts, sets: Sequence[SetAudit], overall: SetAudit, *, rule: str, remarks: Sequence[str]) -> str:
    """The page as one string; `rule` is what counted as right, `remarks` what a reader must know."""
    several = len(sets) > 1
    largest = sorted(sets, key=lambda one: -one.units)
    fates = tokens_by_fate(rollouts, overall.observed)
    specs = {"waste": waste(overall), "rates": success_rates(overall)}
    if several:
        specs["sets"] = waste_of_sets(largest[:LINES])
    if fates:
        specs["fates"] = fate_bars(fates)
    return page.render(
        "audit.html",
        scripts=[],
        charts=specs,
        data={},
        title=f"{name_of(rollouts)} · tossup audit",
        name=name_of(rollouts),
        unit=unit_of(overall),
        usual=usual(overall),
        overall=overall,
        cards=headline(overall),
        kinds=KINDS,
        ends=_ends(overall),
        sets=[(label(one), one) for one in largest[:SETS]] if several else [],
        more=max(0, len(sets) - SETS),
        lines=[(label(one), colour) for one, colour in zip(largest, LINE_COLOURS, strict=False)] if several else [],
        fates=fates,
        colours=COLOURS,
        rule=rule,
        remarks=remarks,
        level=LEVEL,
    )


def name_of(rollouts: Rollouts) -> str:
    """What was audited: the file or folder, or how many of them."""
    paths = [Path(path) for path, _ in rollouts.read]
    folders = {path.parent for path in paths}
    if len(paths) == 1:
        return paths[0].name
    return folders.pop().absolute().name if len(folders) == 1 else f"{len(paths)} sources"


def label(one: SetAudit) -> str:
    """A set by its labels."""
    return " | ".join(value for value in one.labels.values() if value) or "(no name)"


def headline(overall: SetAudit) -> list[tuple[str, str, str]]:
    """The figures at the top: what, how much, and a remark."""
    seen = overall.observed
    nearest = _nearest(overall.expected, 8 if seen is None else seen.group_size)
    found = []
    if seen is not None:
        found.append(
            ("groups that taught nothing", percent(seen.wasted), f"of {counted(seen.groups, 'group')}, as they were")
        )
    span = f"{percent(nearest.wasted.low, 0)} to {percent(nearest.wasted.high, 0)}"
    found += [
        (f"expected waste at G = {nearest.group_size}", percent(nearest.wasted.value), f"{span}, {nearest.method}"),
        ("all wrong", percent(nearest.all_wrong.value), f"at G = {nearest.group_size}: too hard, or a wrong key"),
        ("all right", percent(nearest.all_correct.value), f"at G = {nearest.group_size}: too easy"),
    ]
    tokens = nearest.wasted_tokens if seen is None else seen.wasted_tokens
    if tokens is not None:
        of = f"at G = {nearest.group_size}" if seen is None else f"of {counted(seen.tokens or 0, 'token')}"
        found.append(("tokens wasted", percent(tokens), of))
    return found


def tokens_by_fate(rollouts: Rollouts, seen: Observed | None) -> list[dict[str, Any]]:
    """The generated tokens by fate: a ledger's own, else those of mixed and of wasted groups; none without lengths."""
    folders = [ledger.ledger_of(Path(path)) for path, _ in rollouts.read]
    totals: dict[str, int] = {}
    if all(folder is not None for folder in folders):
        parts = [ledger.scan_ledger(folder) for folder in folders if folder is not None]
        sums = pl.concat(parts).group_by("fate").agg(pl.col("response_tokens").sum()).collect()
        totals = {str(fate): int(tokens) for fate, tokens in sums.iter_rows()}
    elif seen is not None and seen.tokens and seen.wasted_tokens is not None:
        lost = round(seen.tokens * seen.wasted_tokens)
        totals = {"mixed groups": seen.tokens - lost, "wasted groups": lost}
    whole = sum(totals.values())
    fallback = {"mixed groups": RIGHT, "wasted groups": WRONG}
    order = [fate for fate in [*FATE_COLOURS, *fallback] if totals.get(fate)]
    return [
        {
            "fate": fate.replace("_", " "),
            "tokens": totals[fate],
            "share": totals[fate] / whole,
            "colour": (FATE_COLOURS | fallback)[fate],
        }
        for fate in order
    ]


def waste(one: SetAudit) -> Spec:
    """Wasted, all-right and all-wrong share against G with their intervals, and what was observed as diamonds."""
    rows = [
        {
            "kind": name,
            "G": e.group_size,
            "share": share.value,
            "low": share.low,
            "high": share.high,
            "method": e.method,
        }
        for e in one.expected
        for kind, name in KINDS.items()
        for share in [getattr(e, kind)]
    ]
    sizes = [e.group_size for e in one.expected]
    seen = one.observed
    ticks = sorted({*sizes, *([seen.group_size] if seen else [])})
    x = alt.X("G:Q", title="group size G", scale=alt.Scale(type="log", base=2), axis=alt.Axis(values=ticks))
    y = alt.Y("share:Q", title="share of groups", axis=alt.Axis(format="%"), scale=alt.Scale(domain=[0, 1]))
    names = list(KINDS.values())
    scale = alt.Scale(domain=names, range=[COLOURS[name] for name in names])
    colour = alt.Color("kind:N", scale=scale, legend=None)  # the page names the colours beside the figures
    shares = [alt.Tooltip(f"{name}:Q", format=".1%") for name in ("share", "low", "high")]
    base = alt.Chart(pl.DataFrame(rows)).encode(x=x, color=colour)
    band = base.mark_area(opacity=0.16) if len(sizes) > 1 else base.mark_rule()
    layers: list[alt.Chart] = [
        # Layers share their axis: a band without the title would take it from the lines as well.
        band.encode(y=alt.Y("low:Q", title="share of groups"), y2="high:Q"),
        base.mark_line(point=alt.OverlayMarkDef(size=60)).encode(y=y, tooltip=["kind:N", "G:Q", *shares, "method:N"]),
    ]
    if seen is not None:
        points = [{"kind": name, "G": seen.group_size, "share": getattr(seen, kind)} for kind, name in KINDS.items()]
        layers.append(
            alt.Chart(pl.DataFrame(points))
            .mark_point(shape="diamond", size=190, filled=False, strokeWidth=2.5, opacity=1)
            .encode(x=x, y=y, color=colour, tooltip=[alt.Tooltip("kind:N", title="observed"), "G:Q", shares[0]])
        )
    return charts.spec(alt.layer(*layers))


def waste_of_sets(sets: Sequence[SetAudit]) -> Spec:
    """The wasted share of each set against G."""
    rows = [
        {
            "set": legible(label(one), 40),
            "G": e.group_size,
            "share": e.wasted.value,
            "low": e.wasted.low,
            "high": e.wasted.high,
        }
        for one in sets
        for e in one.expected
    ]
    sizes = sorted({e.group_size for one in sets for e in one.expected})
    x = alt.X("G:Q", title="group size G", scale=alt.Scale(type="log", base=2), axis=alt.Axis(values=sizes))
    y = alt.Y("share:Q", title="wasted groups", axis=alt.Axis(format="%"), scale=alt.Scale(domain=[0, 1]))
    shares = [alt.Tooltip(f"{name}:Q", format=".1%") for name in ("share", "low", "high")]
    names = [legible(label(one), 40) for one in sets]
    scale = alt.Scale(domain=names, range=list(LINE_COLOURS[: len(names)]))
    colour = alt.Color("set:N", scale=scale, legend=None)  # the page names the colours above the chart
    line = alt.Chart(pl.DataFrame(rows)).mark_line(point=alt.OverlayMarkDef(size=50))
    return charts.spec(line.encode(x=x, y=y, color=colour, tooltip=["set:N", "G:Q", *shares]))


def success_rates(one: SetAudit) -> Spec:
    """Units by the share of their answers that are right, with those at either end in colours of their own."""
    bins = rate_bins(one)
    kinds = ["all wrong", "mixed", "all right"]
    axis = alt.Axis(labelAngle=0, labelExpr="width < 500 ? split(split(datum.label, '–')[0], '/')[0] : datum.label")
    x = alt.X("rate:N", sort=alt.EncodingSortField("order"), title="right answers", axis=axis)
    colour = alt.Color("kind:N", scale=alt.Scale(domain=kinds, range=[COLOURS[k] for k in kinds]), legend=None)
    unit = unit_of(one)
    tooltip = ["rate:N", "kind:N", alt.Tooltip("units:Q", title=unit, format=","), alt.Tooltip("share:Q", format=".1%")]
    bars = alt.Chart(bins).mark_bar().encode(x=x, y=alt.Y("units:Q", title=unit), color=colour, tooltip=tooltip)
    return charts.spec(bars)


def rate_bins(one: SetAudit) -> pl.DataFrame:
    """Bars of the histogram: k of n for units with the usual n (see `usual`); else never, tenths between, always."""
    n, c, units = one.cells.cells.n, one.cells.cells.c, one.cells.weights
    if (size := usual(one)) is not None:
        labels, at = [f"{k}/{size}" for k in range(size + 1)], c
        units = np.where(n == size, units, 0.0)
        at = np.minimum(c, size)
    else:
        labels = ["never", *(f"{k}0–{k + 1}0 %" if k else "0–10 %" for k in range(10)), "always"]
        at = np.where(c == 0, 0, np.where(c == n, 11, 1 + np.clip(c * 10 // n, 0, 9)))
    totals = np.bincount(at, weights=units, minlength=len(labels))
    ends = {0: "all wrong", len(labels) - 1: "all right"}
    return pl.DataFrame(
        {
            "order": range(len(labels)),
            "rate": labels,
            "kind": [ends.get(k, "mixed") for k in range(len(labels))],
            "units": totals.astype(np.int64),
            "share": totals / units.sum(),
        }
    )


def usual(one: SetAudit) -> int | None:
    """The number of judged answers that nearly every unit has, if it is small: tenths would bin eighths unevenly."""
    answers = np.bincount(one.cells.cells.n, weights=one.cells.weights)
    size = int(answers.argmax())
    return size if size <= FEW and answers[size] >= NEARLY * answers.sum() else None


def unit_of(one: SetAudit) -> str:
    """What the figures count."""
    return "problems" if one.observed is None else "groups"


def fate_bars(fates: Sequence[dict[str, Any]]) -> Spec:
    """One bar a fate."""
    names = [row["fate"] for row in fates]
    x = alt.X(
        "share:Q",
        title="share of the generated tokens",
        axis=alt.Axis(format="%", tickCount=5, labelOverlap="greedy", labelSeparation=14),
    )
    y = alt.Y("fate:N", sort=names, title=None, axis=alt.Axis(minExtent=110))
    colour = alt.Color("fate:N", scale=alt.Scale(domain=names, range=[row["colour"] for row in fates]), legend=None)
    tooltip = ["fate:N", alt.Tooltip("tokens:Q", format=","), alt.Tooltip("share:Q", format=".1%")]
    return charts.spec(alt.Chart(pl.DataFrame(fates)).mark_bar(size=26).encode(x=x, y=y, color=colour, tooltip=tooltip))


def _ends(one: SetAudit) -> tuple[float, float]:
    """The shares of units that were never and always solved."""
    cells, units = one.cells.cells, one.cells.weights
    never, always = (float(units[end].sum() / units.sum()) for end in (cells.c == 0, cells.c == cells.n))
    return never, always


def _nearest(expected: Sequence[Expected], size: int) -> Expected:
    return min(expected, key=lambda e: (abs(np.log(e.group_size / size)), e.group_size))
