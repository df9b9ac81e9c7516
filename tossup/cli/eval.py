"""`tossup eval`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import rich_click as click
from rich.markup import escape
from rich.table import Table

from tossup.cli.console import complete_files, json_option, out, print_json, say, table_of
from tossup.cli.measuring import shown
from tossup.cli.options import check_pool_given, config_options, configured, overrides_of
from tossup.engine.measure_config import EvaluateConfig
from tossup.records import counted

ROOM, ROOM_OF_MEASURE = 40, 15
"""Columns of the terminal for what stands around the measures, and for each of them with its interval on the same line."""


@click.command()
@click.argument("model", shell_complete=complete_files)
@json_option
def command(model: str, as_json: bool, **overrides: Any) -> None:
    """Measure a model on a pool: mean@n and unbiased pass@k with 90 % intervals.

    MODEL is a run folder of `tossup train`, a model's folder, a Hugging Face name, or builtin:arithmetic. The same command
    again goes on where it stopped.

    \b
    tossup eval runs/my-run --pool hf:HuggingFaceH4/MATH-500:test --samples 8
    tossup eval Qwen/Qwen3-1.7B --pool heldout.jsonl --samples 16 --k 1,4,16
    tossup eval builtin:arithmetic --pool builtin:arithmetic/heldout --json
    """
    from tossup.engine.evaluate import evaluate

    config = configured(EvaluateConfig, None, {"model": model} | overrides_of(overrides))
    check_pool_given(config)
    result = shown(lambda look: evaluate(config, look))
    if as_json:
        print_json(result)
        return
    out.print(_table(result))
    say(f"ledger in {result['run']}", out)


command.params += [option for option in config_options(EvaluateConfig) if option.name != "model"]


def _table(result: Mapping[str, Any]) -> Table:
    measures = ["mean", *(name for name in result if name.startswith("pass@"))]
    title = f"{counted(result['samples'], 'answer')} a problem, ± half of the 90 % interval over problems"
    names = [f"mean@{result['samples']}" if name == "mean" else name for name in measures]
    between = " " if out.width >= ROOM + ROOM_OF_MEASURE * len(measures) else "\n"
    table = table_of(["dataset"], ["problems", *names, "undecided"], title)
    rows = list(result["datasets"].items())
    if len(rows) > 1:
        rows.append(("all", result))
    for name, scores in rows:
        cells = [_cell(scores[measure], between) for measure in measures]
        table.add_row(escape(name), f"{scores['problems']:,}", *cells, f"{scores['undecided_answers']:,}")
    return table


def _cell(score: Mapping[str, Any], between: str) -> str:
    """A value and the half of its interval, side by side or one above the other.

    An interval of no width (one problem, or all of them alike) tells nothing, and is not shown as certainty.
    """
    if score["value"] is None:
        return "-"
    half = max(score["high"] - score["value"], score["value"] - score["low"])
    return f"{score['value']:.3f}" + (f"{between}± {half:.3f}" if half else "")
