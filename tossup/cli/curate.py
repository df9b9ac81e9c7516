"""`tossup curate`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import rich_click as click
from rich.markup import escape
from rich.table import Table

from tossup.cli.checking import look_over, print_findings
from tossup.cli.console import json_option, out, print_json, print_undecided, say
from tossup.cli.measuring import shown
from tossup.cli.options import config_options, configured, overrides_of
from tossup.engine.config import CurateConfig


@click.command()
@click.argument("pool")
@click.option("--check-only", is_flag=True, help="Look for what is wrong with the pool, and stop there.")
@click.option("--against", multiple=True, metavar="POOL", help="An evaluation set that the pool must not overlap.")
@json_option
def command(pool: str, check_only: bool, against: tuple[str, ...], as_json: bool, **overrides: Any) -> None:
    """Measure a pool's success rates under a model and write the pool with its counts.

    POOL is a file (Parquet, JSONL, CSV, also .gz) or hf:NAME[:CONFIG][:SPLIT]. Before anything is sampled, it is searched
    for duplicates, conflicting and empty references, and leaked answers. The same command again goes on where it
    stopped. What curate writes is what `tossup train --pool` reads.

    \b
    tossup curate pool.jsonl --model Qwen/Qwen3-1.7B --samples 16 --out pool.parquet
    tossup curate hf:openai/gsm8k --model ./my-model --keep 0.1..0.9 --out kept.parquet
    tossup curate builtin:arithmetic/train --out measured.parquet
    tossup curate pool.jsonl --check-only --against hf:HuggingFaceH4/MATH-500:test
    """
    config = configured(CurateConfig, None, {"pool": pool} | overrides_of(overrides))
    found = look_over(config, against)
    if check_only:
        print_findings(found, as_json)
        return
    if found.total:
        say(f"{found.total:,} findings in the pool before sampling (see --check-only): {found.in_words()}")
    from tossup.engine.curate import curate

    result = shown(lambda look: curate(config, look))
    if as_json:
        print_json(result)
        return
    out.print(_table(result))
    print_undecided(result["undecided_reasons"])
    out.print(result["verdict"], soft_wrap=True)
    say(f"wrote {result['kept']:,} problems to {result['pool']}; ledger in {result['run']}", out)


command.params += [option for option in config_options(CurateConfig) if option.name != "pool"]


def _table(result: Mapping[str, Any]) -> Table:
    table = Table(
        title=f"solved always, sometimes (toss-ups), never; {result['samples']} answers a problem", title_justify="left"
    )
    table.add_column("dataset", no_wrap=True)
    for name in ("problems", "mean rate", "always", "toss-ups", "never", "undecided"):
        table.add_column(name, justify="right")
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
