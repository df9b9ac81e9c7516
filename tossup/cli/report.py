"""`tossup report`: the page of a run."""

from __future__ import annotations

from pathlib import Path

import rich_click as click

from tossup.cli.console import console, json_option, out, print_json


@click.command()
@click.argument("run", type=click.Path(path_type=Path))
@click.option("--out", "page", type=click.Path(path_type=Path), metavar="PAGE.html", help="Where to write the page.")
@click.option(
    "--pool",
    type=click.Path(path_type=Path),
    help="The pool with the prompts and keys, where it is not beside the run.",
)
@click.option("--open", "show", is_flag=True, help="Open the page in a browser.")
@json_option
def command(run: Path, page: Path | None, pool: Path | None, show: bool, as_json: bool) -> None:
    """Write one page about a run, which opens without a network: report.html in the run's folder unless --out names it.

    RUN is the folder of a train run, the NAME.curate folder of a curate job, or a ledger. A run that is still going can be
    reported on. The answers themselves are on the page where the run was made with --save-text.

    \b
    tossup report runs/arithmetic-1a2b3c4d
    tossup report pool.curate --out pool.html
    tossup report rollouts/ledger --pool pool.parquet --open
    """
    from tossup.curriculum import report

    target = report.default_page(run) if page is None else page
    with console.status("folding the ledger"):
        report.write(run, target, pool)
    if as_json:
        print_json({"run": str(run), "page": str(target), "bytes": target.stat().st_size})
    else:
        out.print(f"wrote {target} ({target.stat().st_size / 1e6:.1f} MB)", soft_wrap=True, markup=False)
    if show:
        import webbrowser

        webbrowser.open(target.resolve().as_uri())
