"""`tossup audit`: what share of groups would teach nothing."""

from __future__ import annotations

import os
from pathlib import Path

import rich_click as click

from tossup.cli.console import console, json_option, print_json, say


@click.command()
@click.argument("sources", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option(
    "--group-size",
    default="4,8,16,32",
    show_default=True,
    metavar="SIZES",
    help="Group sizes, as 4,8,16 or as 4..32, which doubles from 4 to 32.",
)
@click.option("--by", multiple=True, metavar="COLUMN", help="Report by this column; repeat for several. [dataset]")
@click.option(
    "--map",
    "mapping",
    multiple=True,
    metavar="ROLE=COLUMN",
    help="Name the column of a role: reward, problem, dataset, policy, group, step or tokens; an empty COLUMN means that "
    "there is none, and a dot leads into a struct: reward=metrics.correct.",
)
@click.option("--correct-if", metavar="RULE", help="What counts as right, e.g. '>= 1' (the default) or '== pass'.")
@click.option(
    "--visits", metavar="RANGES", help="Also waste by visit, e.g. 1..10,11..: for runs whose groups are known."
)
@click.option("--plan", is_flag=True, help="Also what a token budget buys, by group size and by band of success rates.")
@click.option("--budget", default="50M", show_default=True, metavar="TOKENS", help="For --plan.")
@click.option(
    "--keep", default="auto", show_default=True, metavar="BAND", help="For --plan: auto, or such as 0.1..0.9."
)
@click.option(
    "--answer-tokens", type=click.FloatRange(min=1), help="For --plan: mean length, where rollouts hold none."
)
@click.option(
    "--max-visits", default=8.0, show_default=True, type=click.FloatRange(min=0), help="For --plan: per problem."
)
@click.option("--html", "page", type=click.Path(path_type=Path), metavar="PAGE.html", help="Also write it as one page.")
@json_option
def command(
    sources: tuple[Path, ...],
    group_size: str,
    by: tuple[str, ...],
    mapping: tuple[str, ...],
    correct_if: str | None,
    visits: str | None,
    plan: bool,
    budget: str,
    keep: str,
    answer_tokens: float | None,
    max_visits: float,
    page: Path | None,
    as_json: bool,
) -> None:
    """Report how many groups of G answers would teach nothing, per dataset, with 90 % intervals.

    SOURCES are rollouts as a trainer or an evaluation wrote them (Parquet, JSONL or CSV; gzipped JSONL too), folders of
    such files, ledgers, run folders, or pools with counts: what TRL, verl, prime-rl, verifiers and lm-evaluation-harness
    write is known. Columns are found by name, and a note says what each was taken for; --map names them otherwise.

    \b
    tossup audit rollouts.jsonl --group-size 4,8,16,32
    tossup audit grpo_output/completions --html waste.html
    tossup audit runs/2026-01-02/ --by dataset --by drawn_by
    tossup audit results.jsonl --map reward=metrics.correct --json
    tossup audit pool.parquet --plan --budget 50M --group-size 4..32
    """
    # Small matrices: threads that wait for each other would cost more than they bring. Read when numpy is first imported.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    from tossup.cli import audit_output, audit_plan
    from tossup.curriculum import criterion, history, planner
    from tossup.curriculum.audit import audit
    from tossup.curriculum.rollouts import read_rollouts

    sizes = parse_sizes(group_size)
    rule = criterion.parse(correct_if) if correct_if is not None else criterion.Criterion()
    windows = parse_windows(visits) if visits is not None else []
    tokens, bands = audit_plan.parse_budget(budget), audit_plan.parse_keep(keep)
    rollouts = read_rollouts(sources, by=by, mapping=parse_mapping(mapping), criterion=rule)
    with console.status("auditing"):
        sets, overall = audit(rollouts, sizes, list(by) or None)
        past = history.history(rollouts, windows, by) if windows else None
        options = (
            planner.plan(overall.cells, sizes, tokens, bands=bands, answer_tokens=answer_tokens, max_visits=max_visits)
            if plan
            else None
        )
    remarks = audit_output.remarks(rollouts, sets, overall, str(rule))
    if page is not None:
        from tossup.curriculum.report.audit_page import write as write_page

        write_page(rollouts, sets, overall, page, rule=str(rule), remarks=remarks)
    if as_json:
        value = audit_output.as_dict(sets, overall, sizes, str(rule), remarks, past)
        print_json(value if options is None else {**value, "plan": audit_plan.as_dict(options, tokens)})
    else:
        audit_output.show(sets, overall, past)
        if options is not None:
            audit_plan.show(options, tokens, max_visits)
        for remark in remarks:
            say(f"note: {remark}")
        if page is not None:
            say(f"wrote {page}")


def parse_sizes(text: str) -> list[int]:
    """`4,8,16` as it stands; `4..32` doubling from the first to the last."""
    sizes: list[int] = []
    try:
        for part in text.split(","):
            first, dots, last = part.partition("..")
            size = int(first)
            sizes.append(size)
            while dots and 0 < 2 * size <= int(last):
                size *= 2
                sizes.append(size)
    except ValueError as e:
        raise click.UsageError(
            f"--group-size {text!r}: expected numbers such as 4,8,16 or a range such as 4..32"
        ) from e
    if min(sizes) < 2:
        raise click.UsageError(f"--group-size {text!r}: a group has at least 2 answers")
    return sizes


def parse_mapping(pairs: tuple[str, ...]) -> dict[str, str]:
    """`role=column` pairs as a mapping."""
    mapping = {}
    for pair in pairs:
        role, equals, column = pair.partition("=")
        if not equals:
            raise click.UsageError(f"--map {pair!r}: expected ROLE=COLUMN, such as reward=score")
        mapping[role] = column
    return mapping


def parse_windows(text: str) -> list[tuple[int, int | None]]:
    """`1..10,41..,7` as [(1, 10), (41, None), (7, 7)]."""
    windows: list[tuple[int, int | None]] = []
    try:
        for part in text.split(","):
            first, dots, last = part.partition("..")
            windows.append((int(first), int(last) if last else None if dots else int(first)))
    except ValueError as e:
        raise click.UsageError(f"--visits {text!r}: expected ranges of visits such as 1..10,11..") from e
    if any(first < 1 or (last is not None and last < first) for first, last in windows):
        raise click.UsageError(f"--visits {text!r}: visits count from 1, and a range goes upwards")
    return windows
