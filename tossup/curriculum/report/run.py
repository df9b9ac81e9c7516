"""The page of a run: gather the figures, say in words what they mean, hand them to the template."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import polars as pl

from tossup.curriculum import ledger
from tossup.curriculum.audit import LEVEL, SetAudit, audit_set
from tossup.curriculum.cells import fold
from tossup.curriculum.report import browser, charts, curated, folds, page, reasons, watched
from tossup.curriculum.report.show import count, percent
from tossup.curriculum.report.source import Source
from tossup.curriculum.rollouts import read_rollouts
from tossup.records import Fate, TossupError, counted

SIZES = (2, 4, 8, 16, 32, 64)
TABLE_SIZES = (4, 8, 16)
"""Group sizes of the chart, and of the columns in the table of data sets."""

DATASETS = 60
"""Data sets in the table; each costs a fit."""

MOVED, SUSPECTS, SET_ASIDE = 24, 20, 12


@dataclass(frozen=True, slots=True)
class Waste:
    """The expected waste: of all groups, of those drawn uniformly where others were not, and of the largest data sets."""

    overall: SetAudit
    uniform: SetAudit | None
    datasets: Mapping[str, SetAudit]


def html(source: Source) -> str:
    """The page of this run as one string.

    Raises:
        TossupError: the ledger has no rows yet.
    """
    rows = ledger.scan_ledger(source.ledger)
    texts = ledger.scan_texts(source.ledger)
    table = folds.groups(rows)
    if table.is_empty():
        raise TossupError(f"{source.ledger}: the ledger has no rows yet; report when the first step is written")
    has_text = bool(texts.select(pl.len()).collect().item())
    first, last = int(table["step"][0]), int(table["step"][-1])
    time = "step" if source.kind == "train" else "batch" if source.kind == "curate" else "step"
    visits = folds.of_problems(table) if source.kind == "curate" else table
    rates = folds.then_and_now(visits, _before(source))
    arms = folds.arms(table)
    bars = folds.tokens_by_fate(rows, first, folds.width_of_bars(first, last, folds.BARS))
    waste = expected_waste(source, table)
    by_dataset = folds.datasets(table)
    moved = folds.moved(visits, MOVED)
    found = reasons.suspects(rows, texts, table, 10 * SUSPECTS) if has_text else None
    suspects = None if found is None else found.filter(pl.col("score") > 0).head(SUSPECTS)
    set_aside = None if source.watched is None else watched.lists(source.watched, table, SET_ASIDE)
    listed = [moved] if suspects is None else [moved, suspects]
    linked = [key for frame in listed for key in frame.select("step", "group").iter_rows()]
    linked += [(row["step"], row["group"]) for one in set_aside or () for row in one.rows]
    chosen = browser.choose(table, linked)
    left_out = curated.left_out(source)
    listed_ids = [row["id"] for row in left_out.rows] if left_out is not None else []
    prompts = source.prompts([*chosen["problem"], *listed_ids])
    curves = {"all groups": waste.overall.expected}
    if waste.uniform is not None:
        curves = {"drawn uniformly": waste.uniform.expected} | curves
    kinds = reasons.reasons(rows)
    return page.render(
        "report.html",
        scripts=["browser.js"],
        charts={
            "rates": charts.success_rates(rates.bins),
            "waste": charts.waste_by_size(curves),
            "fates": charts.tokens_over_time(bars, time),
            "arms": charts.arms_over_time(arms, time),
        },
        data={"time": time, "groups": browser.cards(chosen, rows, texts, prompts, divide=source.divides_by_std)},
        source=source,
        title=f"{source.name} · tossup",
        time=time,
        span=(first, last),
        cards=headline(source, table, rows),
        rates=rates,
        waste=waste,
        level=LEVEL,
        table_sizes=TABLE_SIZES,
        arms=arms,
        has_control=arms["arm"].n_unique() > 1,
        totals=arm_totals(table),
        fates=_fate_totals(bars),
        datasets=by_dataset.to_dicts(),
        left_out=left_out,
        moved=moved.to_dicts(),
        suspects=None if suspects is None else suspects.to_dicts(),
        set_aside=set_aside,
        unclear=0 if found is None else found.filter(pl.col("score") <= 0).height,
        reasons=kinds.head(reasons.REASONS).to_dicts(),
        other_reasons=int(kinds["answers"][reasons.REASONS :].sum()),
        answers=int(table["answers"].sum()),
        prompts=prompts,
        has_text=has_text,
        shown=chosen.height,
        groups=table.height,
    )


def expected_waste(source: Source, table: pl.DataFrame) -> Waste:
    """What groups of other sizes would have been, from the same ledger; see `tossup.curriculum.audit`."""
    rollouts = read_rollouts([source.ledger], by=["drawn_by"])
    cells = fold(rollouts, ["dataset", "drawn_by"])
    uniform = cells.filter(pl.col("drawn_by") == "uniform")
    judged = cells.filter(pl.col("n") > 0)
    if judged.is_empty():
        raise TossupError(f"{source.ledger}: every answer is undecided; there is no waste to estimate")
    largest = folds.datasets(table).head(DATASETS)["dataset"]
    parts = {name: part for (name,), part in cells.group_by("dataset") if name in set(largest) and part["n"].max() != 0}
    has_both = 0 < uniform.height < cells.height and uniform["n"].max() != 0
    return Waste(
        audit_set({}, cells, rollouts, SIZES),
        audit_set({"drawn_by": "uniform"}, uniform, rollouts, SIZES) if has_both else None,
        {str(name): audit_set({}, part, rollouts, TABLE_SIZES) for name, part in parts.items()},
    )


def headline(source: Source, table: pl.DataFrame, rows: pl.LazyFrame) -> list[tuple[str, str, str]]:
    """The figures at the top: what, how much, and a remark."""
    totals = arm_totals(table)
    tokens = int(table["tokens"].sum())
    taught = int(
        rows.filter(pl.col("fate").is_in([Fate.TRAINED.value, Fate.MEASURED.value]))
        .select(pl.col("response_tokens").sum())
        .collect()
        .item()
    )
    wasted, size = totals["all"]
    figures = [("groups that taught nothing", percent(wasted), f"of {counted(size, 'group')}")]
    if "uniform" in totals and "curriculum" in totals:
        share, size = totals["uniform"]
        figures.append(("the same, drawn uniformly", percent(share), f"of {counted(size, 'group')}: the control arm"))
    verb = "in groups with both right and wrong" if source.kind == "curate" else "went into an update"
    figures.append(("tokens generated", count(tokens), f"{percent(taught / max(1, tokens))} {verb}"))
    before, after = source.summary.get("accuracy_before"), source.summary.get("accuracy_after")
    if isinstance(before, float) and isinstance(after, float):
        error = source.summary.get("accuracy_stderr")
        spread = f" ± {error:.3f}" if isinstance(error, float) else ""
        figures.append(("held-out accuracy", f"{after:.3f}", f"{before:.3f} before{spread and ';'}{spread}"))
    undecided = 1 - int(table["n"].sum()) / max(1, int(table["answers"].sum()))
    figures.append(("answers undecided", percent(undecided), f"of {counted(int(table['answers'].sum()), 'answer')}"))
    return figures


def arm_totals(table: pl.DataFrame) -> dict[str, tuple[float, int]]:
    """Wasted share and number of groups: of all, and of each arm that has any."""
    uniform = pl.col("drawn_by") == "uniform"
    parts = {"all": table, "uniform": table.filter(uniform), "curriculum": table.filter(~uniform)}
    return {arm: (int(part["wasted"].sum()) / part.height, part.height) for arm, part in parts.items() if part.height}


def _fate_totals(bars: pl.DataFrame) -> list[dict[str, Any]]:
    totals = bars.group_by("fate", "order").agg(pl.col("tokens").sum()).sort("order")
    whole = max(1, int(totals["tokens"].sum()))
    return [
        {"fate": fate, "tokens": tokens, "share": tokens / whole}
        for fate, tokens in totals.select("fate", "tokens").iter_rows()
    ]


def _before(source: Source) -> pl.DataFrame | None:
    """What the pool that a curate job read knew already; a train run tells its own then."""
    if source.kind != "curate" or source.before is None:
        return None
    return source.before.select("id", n="attempts", c="correct")
