"""The charts, as Vega-Lite specifications made by Altair. Colours of axes and text come from the page (see pages.js).

Every chart is one layer or several layers over one plot, as wide as its container and of a fixed height, so that it fits
a phone and nothing on the page moves when it appears.
"""

from __future__ import annotations

from typing import Any

import altair as alt
import polars as pl

from tossup.curriculum.audit import Expected
from tossup.curriculum.report.folds import FATES

Spec = dict[str, Any]

HEIGHT, TALL = 280, 360
"""Pixels, axes and legend included; pages.css keeps as much room for them."""

FEW_STEPS = 6
"""So many steps or batches have a label each; of more, the axis chooses."""

RIGHT, WRONG, QUIET, ACCENT = "#2a9d6f", "#d1495b", "#8a8f98", "#3d7edb"

TAUGHT_NOTHING = "groups that teach nothing"

FATE_COLOURS = {
    "trained": RIGHT,
    "measured": "#4fb3bf",
    "all_correct": "#e0a526",
    "all_wrong": WRONG,
    "undecided": QUIET,
    "truncated": "#b07cc6",
    "surplus": ACCENT,
    "stale": "#8d6e4f",
}


def spec(chart: alt.Chart | alt.LayerChart | alt.FacetChart, height: int = HEIGHT) -> Spec:
    """A chart as every page shows it: as wide as its container, of a fixed height."""
    sized = chart.properties(
        width="container", height=height, autosize=alt.AutoSizeParams(type="fit", contains="padding")
    )
    return sized.to_dict()


def _legend() -> alt.Legend:
    return alt.Legend(orient="top", title=None, columnPadding=24, symbolOpacity=1, symbolType="square")


def _time_axis(first: int, last: int, **more: Any) -> alt.Axis:
    """An axis over steps or batches, which have no halves: a label for each where they are few."""
    few = last - first < FEW_STEPS
    return alt.Axis(values=list(range(first, last + 1)), format="d", **more) if few else alt.Axis(tickMinStep=1, **more)


def success_rates(bins: pl.DataFrame) -> Spec:
    """Problems by success rate, then beside now; `bins` as from `folds.then_and_now`."""
    seen = bins["when"].unique(maintain_order=True).to_list()
    chart = (
        alt.Chart(bins)
        .mark_bar()
        .encode(
            x=alt.X("rate:N", sort=alt.EncodingSortField("order"), title="success rate", axis=alt.Axis(labelAngle=0)),
            xOffset=alt.XOffset("when:N", sort=seen),
            y=alt.Y("problems:Q", title="problems", axis=alt.Axis(tickMinStep=1, format=",d")),
            color=alt.Color(
                "when:N",
                scale=alt.Scale(domain=["then", "now"], range=[QUIET, ACCENT]),
                legend=_legend() if len(seen) > 1 else None,
            ),
            tooltip=["when:N", "rate:N", "problems:Q"],
        )
    )
    return spec(chart)


def waste_by_size(arms: dict[str, tuple[Expected, ...]]) -> Spec:
    """The expected share of wasted groups against the group size, with its interval, one line an arm."""
    rows = [
        {
            "arm": arm,
            "G": e.group_size,
            "wasted": e.wasted.value,
            "low": e.wasted.low,
            "high": e.wasted.high,
            "right": e.all_correct.value,
            "wrong": e.all_wrong.value,
            "method": e.method,
        }
        for arm, expected in arms.items()
        for e in expected
    ]
    names = list(arms)
    sizes = sorted({e.group_size for expected in arms.values() for e in expected})
    x = alt.X("G:Q", title="group size G", scale=alt.Scale(type="log", base=2), axis=alt.Axis(values=sizes))
    y = alt.Y("wasted:Q", title=TAUGHT_NOTHING, axis=alt.Axis(format="%"), scale=alt.Scale(domain=[0, 1]))
    colour = alt.Color(
        "arm:N",
        scale=alt.Scale(domain=names, range=[QUIET, ACCENT][-len(names) :]),
        legend=_legend() if len(names) > 1 else None,
    )
    tooltip = [
        alt.Tooltip("arm:N", title="groups"),
        "G:Q",
        *(alt.Tooltip(f"{name}:Q", format=".1%") for name in ("wasted", "low", "high")),
        alt.Tooltip("right:Q", format=".1%", title="all right"),
        alt.Tooltip("wrong:Q", format=".1%", title="all wrong"),
        "method:N",
    ]
    base = alt.Chart(pl.DataFrame(rows)).encode(x=x, color=colour)
    # Layers share their axis: a band without the title would take it from the line as well.
    band = base.mark_area(opacity=0.2).encode(y=alt.Y("low:Q", title=TAUGHT_NOTHING), y2="high:Q")
    line = base.mark_line(point=alt.OverlayMarkDef(size=70)).encode(y=y, tooltip=tooltip)
    return spec(band + line)


def tokens_over_time(bars: pl.DataFrame, time: str) -> Spec:
    """The share of the generated tokens that met each fate, bar by bar; `bars` as from `folds.tokens_by_fate`."""
    present = [fate for fate in FATES if fate in set(bars["fate"])]
    top = pl.col("share").cum_sum().over("step")
    stacked = bars.with_columns(
        pl.col("fate").str.replace_all("_", " "), edge=pl.col("until") + 1, top=top, bottom=top - pl.col("share")
    )
    axis = _time_axis(bars["step"].min(), bars["until"].max(), grid=False)  # type: ignore[arg-type]
    chart = (
        alt.Chart(stacked)
        .mark_rect()
        .encode(
            x=alt.X("step:Q", title=time, scale=alt.Scale(nice=False, zero=False), axis=axis),
            x2="edge:Q",
            y=alt.Y("bottom:Q", title="share of tokens", axis=alt.Axis(format="%"), scale=alt.Scale(domain=[0, 1])),
            y2="top:Q",
            color=alt.Color(
                "fate:N",
                scale=alt.Scale(
                    domain=[f.replace("_", " ") for f in present], range=[FATE_COLOURS[f] for f in present]
                ),
                legend=None,  # the page names the colours beside the totals
            ),
            tooltip=["fate:N", "tokens:Q", alt.Tooltip("share:Q", format=".1%"), "step:Q", "until:Q"],
        )
    )
    return spec(chart)


def arms_over_time(table: pl.DataFrame, time: str) -> Spec:
    """The wasted share of the curriculum's groups and of the uniform ones; `table` as from `folds.arms`."""
    names = [name for name in ("uniform", "curriculum") if name in set(table["arm"])]
    axis = _time_axis(table["step"].min(), table["until"].max())  # type: ignore[arg-type]
    base = alt.Chart(table).encode(
        x=alt.X("middle:Q", title=time, scale=alt.Scale(zero=False, nice=False), axis=axis),
        color=alt.Color(
            "arm:N",
            scale=alt.Scale(domain=names, range=[{"uniform": QUIET, "curriculum": ACCENT}[n] for n in names]),
            legend=_legend() if len(names) > 1 else None,
        ),
    )
    y = alt.Y("wasted:Q", title=TAUGHT_NOTHING, axis=alt.Axis(format="%"), scale=alt.Scale(domain=[0, 1]))
    shares = [alt.Tooltip(f"{name}:Q", format=".1%") for name in ("wasted", "low", "high")]
    many = table["step"].n_unique() > 1  # an area over one point is nothing to see
    interval = base.mark_area(opacity=0.18) if many else base.mark_rule()
    band = interval.encode(y=alt.Y("low:Q", title=TAUGHT_NOTHING), y2="high:Q")
    line = base.mark_line(point=alt.OverlayMarkDef(size=50)).encode(
        y=y, tooltip=["arm:N", "step:Q", "until:Q", "groups:Q", *shares]
    )
    return spec(band + line)


def group_bars(title: str) -> Spec:
    """One bar an answer of the lab's group, over the named data set `answers` (answer, value, push), which the page fills.

    An undecided answer has no value: it keeps its place, with a question mark for a bar.
    """
    base = alt.Chart(alt.NamedData("answers"))
    zero = alt.Chart(pl.DataFrame({"at": [0]})).mark_rule(color=QUIET).encode(y=alt.Y("at:Q", title=None))
    x = alt.X("answer:O", title="answer", axis=alt.Axis(labelAngle=0, labelOverlap=True))
    bars = base.mark_bar(invalid="show").encode(
        x=x,
        y=alt.Y("value:Q", title=title, stack=None, scale=alt.Scale(domain=[-1, 1]), axis=alt.Axis(tickCount=5)),
        color=alt.Color(
            "push:N", scale=alt.Scale(domain=["up", "down", "none"], range=[RIGHT, WRONG, QUIET]), legend=None
        ),
        tooltip=["answer:O", alt.Tooltip("value:Q", format="+.3f"), alt.Tooltip("push:N", title="pushed")],
    )
    unknown = base.transform_filter("datum.value === null").mark_text(text="?", dy=-10, fontSize=15, color=QUIET)
    return spec(zero + bars + unknown.encode(x=x, y=alt.YDatum(0)))


def uniform_chance(pool: list[dict[str, float]]) -> Spec:
    """p^G + (1-p)^G against p: a curve a group size, that of the parameter `G` in front, with the point at `p` on it.

    `pool` lays a histogram of success rates under the curves: rows low, high, share.
    """
    p = alt.param(name="p", value=0.5)
    size = alt.param(name="G", value=4)
    rates = alt.sequence(0, 1.005, 0.01, as_="p")
    chance = "pow(datum.p, {0}) + pow(1 - datum.p, {0})"
    x_title, y_title = "p, the chance that one answer is right", "chance that all G agree"
    tenths = alt.Axis(values=[k / 10 for k in range(11)], format=".1f")
    x = alt.X("p:Q", title=x_title, axis=tenths, scale=alt.Scale(domain=[0, 1]))
    y = alt.Y("chance:Q", title=y_title, axis=alt.Axis(format="%"), scale=alt.Scale(domain=[0, 1]))
    others = [
        alt.Chart(rates)
        .transform_calculate(chance=chance.format(g), name=f"'G = {g}'")
        .mark_line(color=QUIET, opacity=0.55, strokeWidth=1.2)
        .encode(x=x, y=y, detail="name:N")
        for g in (2, 4, 8, 16, 32)
    ]
    front = (
        alt.Chart(rates)
        .transform_calculate(chance=chance.format("G"))
        .mark_line(color=ACCENT, strokeWidth=3)
        .encode(x=x, y=y)
    )
    here = (
        alt.Chart(pl.DataFrame({"here": [1]})).transform_calculate(p="p").transform_calculate(chance=chance.format("G"))
    )
    rule = here.mark_rule(color=ACCENT, strokeDash=[4, 4]).encode(x=x)
    point = here.mark_point(color=ACCENT, filled=True, size=170, opacity=1).encode(x=x, y=y)
    layers: list[alt.Chart] = [*others, front, rule, point]
    if pool:
        bars = (
            alt.Chart(pl.DataFrame(pool))
            .mark_rect(color="#e0a526", opacity=0.55)
            .encode(
                x=alt.X("low:Q", title=x_title),
                x2="high:Q",
                y=alt.Y("share:Q", title=y_title),
                y2=alt.datum(0),
                tooltip=[alt.Tooltip("share:Q", format=".1%", title="of the pool"), "low:Q", "high:Q"],
            )
        )
        layers.insert(0, bars)
    return spec(alt.layer(*layers).add_params(p, size), TALL)
