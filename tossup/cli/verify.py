"""`tossup verify`: judge one answer, a file of answers, a file of programs, or a pool's own answer keys."""

from __future__ import annotations

from pathlib import Path

import rich_click as click

from tossup.cli.console import complete_files, json_option


@click.command()
@click.argument(
    "what",
    nargs=-1,
    metavar="FILE | VERIFIER RESPONSE | code PROBLEMS SOLUTIONS",
    shell_complete=complete_files,
)
@click.option("--reference", metavar="TEXT", help="The answer key for one response.")
@click.option("--verifier", metavar="NAME", help="The verifier of rows that name none (default: math).")
@click.option("--map", "mapping", multiple=True, metavar="FIELD=COLUMN", help="Where FIELD is in the file; repeatable.")
@click.option("--self-check", metavar="POOL", help="Judge a pool's own answers by their own verifiers.")
@click.option("--out", type=click.Path(path_type=Path), metavar="FILE", help="Write each row with its verdict (JSONL).")
@json_option
def command(
    what: tuple[str, ...],
    reference: str | None,
    verifier: str | None,
    mapping: tuple[str, ...],
    self_check: str | None,
    out: Path | None,
    as_json: bool,
) -> None:
    """Judge answers: one on the command line, or a file of them.

    VERIFIER is math, exact, choice, logic, code, or your own package.module:function. FILE holds one JSON object a line
    (.gz is read) with a response and a reference, found by their usual names; `id`, `verifier`, `prompt` and `label`
    (known to be right or wrong: shows the agreement) are used when there. RESPONSE may be - for standard input.

    \b
    tossup verify math --reference '\\frac{1}{2}' 'so it is \\boxed{0.5}'
    tossup verify answers.jsonl --map response=text --map reference=gold
    tossup verify code problems.jsonl solutions.jsonl
    tossup verify --self-check pool.parquet

    Exits with 0 when it judged, right or wrong; with 1 when the one response given could not be judged.
    """
    from tossup.cli import _answers, _verifying

    fields = _answers.parse_mapping(mapping)
    if self_check is not None:
        if what:
            raise click.UsageError("--self-check takes its pool alone: leave out the other arguments")
        _verifying.self_check(self_check, fields, out, as_json)
    elif len(what) == 1:
        _verifying.judge_file(Path(what[0]), fields, verifier or "math", out, as_json)
    elif len(what) == 3 and what[0] == "code":
        _verifying.judge_programs(Path(what[1]), Path(what[2]), fields, out, as_json)
    elif len(what) == 2 and reference is not None:
        _verifying.judge_one(what[0], what[1], reference, as_json)
    elif len(what) == 2:
        raise click.UsageError(f"tossup verify {what[0]} RESPONSE needs --reference TEXT, the answer key")
    else:
        raise click.UsageError("give FILE.jsonl, or VERIFIER --reference TEXT RESPONSE, or --self-check POOL")
