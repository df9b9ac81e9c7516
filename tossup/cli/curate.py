"""`tossup curate`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import rich_click as click
from rich.markup import escape
from rich.table import Table

from tossup.cli.checking import look_over, print_findings
from tossup.cli.console import complete_files, json_option, out, print_json, print_undecided, say, table_of
from tossup.cli.measuring import shown
from tossup.cli.options import config_options, configured, overrides_of
from tossup.engine.measure_config import CurateConfig
from tossup.records import TossupError, counted


@click.command()
@click.argument("pool", shell_complete=complete_files)
@click.option("--check-only", is_flag=True, help="Look for what is wrong with the pool, and stop there.")
@json_option
def command(pool: str, check_only: bool, as_json: bool, **overrides: Any) -> None:
    """Measure a pool under a model, choose what can train it, and say of each other problem why not.

    POOL is a file (Parquet, JSONL, CSV, also .gz) or hf:NAME[:CONFIG][:SPLIT]. Before anything is sampled, it is searched
    for duplicates, conflicting and empty references, and leaked answers. The same command again goes on where it
    stopped. What curate writes is what `tossup train --pool` reads; what it leaves out is in NAME.dropped.jsonl.

    \b
    tossup curate pool.jsonl --model Qwen/Qwen3-1.7B --samples 16
    tossup curate pool.jsonl --model ./my-model --samples 4 --samples-max 32 \\
        --keep 0.1..0.9 --confidence 0.9 --dedupe --out kept.parquet
    tossup curate pool.jsonl --signal 30% --group-size 16 --token-budget 20000000
    tossup curate pool.jsonl --check-only --against hf:HuggingFaceH4/MATH-500:test
    tossup curate pool.jsonl --model Qwen/Qwen3-1.7B --ray
    """
    config = configured(CurateConfig, None, {"pool": pool} | overrides_of(overrides))
    if check_only:
        print_findings(look_over(config), as_json)
        return
    from tossup.engine.curate import curate, rule_of

    try:
        rule_of(config)
    except TossupError as e:
        raise click.UsageError(str(e)) from e
    result = shown(lambda look: curate(config, look))
    page = _page(result)
    if as_json:
        print_json(result | {"page": page})
        return
    out.print(_table(result))
    if result["dropped"]:
        out.print(_dropped(result))
    print_undecided(result["undecided_reasons"])
    out.print(result["verdict"], soft_wrap=True)
    if result["ended_by"]:
        say(f"sampling was ended by {result['ended_by']}", out)
    say(_wrote(result), out)
    if result["kept_wrongly"] or result["dropped_wrongly"]:
        say(_doubt(result, config.undecided), out)
    say(f"ledger in {result['run']}" + (f", page {page}" if page else ""), out)


command.params += [option for option in config_options(CurateConfig) if option.name != "pool"]


def _page(result: Mapping[str, Any]) -> str | None:
    """Write the page of the job into its folder; None where there is nothing to draw."""
    from tossup.curriculum import report

    page = report.default_page(Path(result["run"]))
    try:
        report.write(Path(result["run"]), page)
    except TossupError as e:
        say(f"no page: {e}")
        return None
    return str(page)


def _wrote(result: Mapping[str, Any]) -> str:
    left_out = sum(row["problems"] for row in result["dropped"].values())
    text = f"wrote {counted(result['kept'], 'problem')} to {result['pool']}"
    if left_out:
        text += f"; {left_out:,} left out, why is in {result['dropped_to']}"
    return text


def _doubt(result: Mapping[str, Any], undecided: str) -> str:
    """How sure the choice is, where there was one."""
    kept, dropped = result["kept_wrongly"], result["dropped_wrongly"]
    still = result["undecided_problems"]
    goes = {"keep": "kept", "drop": "left out", "likelier": "called the likelier way"}
    text = f"{counted(still, 'problem')} undecided and {goes[undecided]} (--undecided); " if still else ""
    return (
        f"{text}expected: {kept:.1%} of the kept are not what was asked for, {dropped:.1%} of the measured others are"
    )


def _dropped(result: Mapping[str, Any]) -> Table:
    table = table_of(["reason"], ["problems"], "left out", last="for example")
    table.add_column("what to do", overflow="fold", ratio=1)
    for reason, row in result["dropped"].items():
        table.add_row(escape(reason), f"{row['problems']:,}", escape(row["examples"][0]), row["remedy"])
    return table


def _table(result: Mapping[str, Any]) -> Table:
    answers = counted(result["samples"], "answer")
    if result["samples_most"] > result["samples"]:
        answers = f"{result['samples']} to {result['samples_most']} answers, {result['samples_mean']:.1f} on average,"
    title = f"solved always, sometimes (toss-ups), never; {answers} a problem"
    table = table_of(["dataset"], ["problems", "mean rate", "always", "toss-ups", "never", "undecided"], title)
    rows = list(result["datasets"].items())
    if len(rows) > 1:
        rows.append(("all", result))
    for name, counts in rows:
        table.add_row(
            escape(name),
            f"{counts['problems']:,}",
            f"{counts['mean_rate']:.3f}",
            f"{counts['always_solved']:,}",
            f"{counts['toss_ups']:,}",
            f"{counts['never_solved']:,}",
            f"{counts['undecided_answers']:,}",
        )
    return table
