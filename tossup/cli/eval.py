"""`tossup eval`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import rich_click as click
from rich.markup import escape
from rich.table import Table

from tossup.cli.console import complete_files, json_option, out, print_json, say
from tossup.cli.measuring import shown
from tossup.cli.options import check_pool_given, config_options, configured, overrides_of
from tossup.engine.measure_config import EvaluateConfig


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
    title = f"{result['samples']} answers a problem, ± half of the 90 % interval over problems"
    table = Table(title=title, title_justify="left")
    table.add_column("dataset", no_wrap=True)
    table.add_column("problems", justify="right")
    for name in measures:
        table.add_column(f"mean@{result['samples']}" if name == "mean" else name, justify="right", no_wrap=True)
    table.add_column("undecided", justify="right")
    rows = list(result["datasets"].items())
    if len(rows) > 1:
        rows.append(("all", result))
    for name, scores in rows:
        cells = [_cell(scores[measure]) for measure in measures]
        table.add_row(escape(name), f"{scores['problems']:,}", *cells, f"{scores['undecided_answers']:,}")
    return table


def _cell(score: Mapping[str, Any]) -> str:
    if score["value"] is None:
        return "-"
    half = max(score["high"] - score["value"], score["value"] - score["low"])
    return f"{score['value']:.3f} ± {half:.3f}"
