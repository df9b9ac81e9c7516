"""What `tossup verify` does once its arguments are known: judge, show the progress, sum up."""

from __future__ import annotations

import contextlib
import json
import re
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import IO, Any

from rich.markup import escape
from rich.table import Table

from tossup.cli._answers import Answer, count_rows, needed, read_answers, read_rows, text_of
from tossup.cli.console import out, print_json, progress_bar
from tossup.records import Problem, Ruling, TossupError, Verdict, counted

SHOWN = 12
"""Reasons of one ruling that the table lists; --json lists all."""

CHUNK = 1024
"""Rows judged at a time: enough to keep the workers busy, few enough to hold in memory."""

QUOTED = re.compile(r"""(?<!\w)(?:'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|`[^`]*`)(?!\w)""")
LONG = 40
NUMBER = re.compile(r"-?\d+(?:[.,/]\d+)*")

COLOURS = {Ruling.CORRECT: "green", Ruling.WRONG: "red", Ruling.UNDECIDED: "yellow"}


def plain(verdict: Verdict) -> dict[str, Any]:
    """A verdict as JSON."""
    reward = verdict.reward if verdict.decided else None
    return {
        "ruling": verdict.ruling,
        "reward": reward,
        "reason": verdict.reason,
        "answer": verdict.answer,
        "seconds": round(verdict.seconds, 6),
    }


def judge_one(verifier: str, response: str, reference: str, as_json: bool) -> None:
    """Judge one response given on the command line; exits with 1 when it could not be judged."""
    from tossup import verifiers

    text = sys.stdin.read() if response == "-" else response
    verdict = verifiers.verify(Problem("command line", "", reference, verifier), text)
    if as_json:
        print_json(plain(verdict))
    else:
        colour = COLOURS[verdict.ruling]
        out.print(f"[{colour} bold]{verdict.ruling}[/]  {escape(verdict.reason)}", soft_wrap=True)
        if verdict.answer is not None:
            out.print(f"  answer     {escape(verdict.answer)}", soft_wrap=True)
        out.print(f"  reference  {escape(reference)}", soft_wrap=True)
    if not verdict.decided:
        sys.exit(1)


def judge_file(path: Path, fields: Mapping[str, str], verifier: str, to: Path | None, as_json: bool) -> None:
    """Judge every row of a file."""
    judge_all(read_answers(path, fields, verifier), count_rows(path), to, as_json)


def judge_programs(problems: Path, solutions: Path, fields: Mapping[str, str], to: Path | None, as_json: bool) -> None:
    """Judge the programs of one file by the tests of the problems of another; they are joined by their ids."""
    from tossup.curriculum.pool import read_pool

    by_id = {problem.id: problem for problem in read_pool(problems)}

    def answers() -> Iterator[Answer]:
        for place, row in read_rows(solutions):
            response = needed(row, "response", fields, place)
            name = text_of(row[needed(row, "id", fields, place)])
            if name not in by_id:
                raise TossupError(
                    f"{place}: no problem {name!r} in {problems}, which has {', '.join(islice(by_id, 3))}, ...; "
                    "name the column that holds the problem's id with --map id=COLUMN"
                )
            yield Answer(name, by_id[name], text_of(row[response]), None, row)

    judge_all(answers(), count_rows(solutions), to, as_json)


def self_check(source: str, fields: Mapping[str, str], to: Path | None, as_json: bool) -> None:
    """Judge a pool's own answers by their own verifiers."""
    from tossup.curriculum.pool import read_pool
    from tossup.verifiers.self_check import check

    pool = read_pool(source, fields)
    summary = Summary()
    with writing(to) as write, progress_bar() as bar:
        task = bar.add_task("judging", total=len(pool))
        problems = iter(pool)
        while part := list(islice(problems, CHUNK)):
            for problem, verdict in zip(part, check(part), strict=True):
                answer = Answer(problem.id, problem, verdict.answer or "", None, {})
                summary.add(answer, verdict)
                write({"id": problem.id, "reference": problem.reference, "verdict": plain(verdict)})
            bar.advance(task, len(part))
    if as_json:
        print_json(summary.plain())
    else:
        summary.show("the pool's own answers")


def judge_all(answers: Iterable[Answer], total: int | None, to: Path | None, as_json: bool) -> None:
    """Judge answers a chunk at a time, with a progress bar; write the rows with their verdicts; print the summary."""
    from tossup import verifiers

    summary, rows = Summary(), iter(answers)
    with writing(to) as write, progress_bar() as bar:
        task = bar.add_task("judging", total=total)
        while part := list(islice(rows, CHUNK)):
            pairs = [(a.problem, a.response) for a in part]
            verdicts = verifiers.verify_many(pairs, on_verdict=lambda i: bar.advance(task))
            for answer, verdict in zip(part, verdicts, strict=True):
                summary.add(answer, verdict)
                write({**answer.row, "verdict": plain(verdict)})
    if not summary.rows:
        raise TossupError("the file holds no rows: nothing to judge")
    if as_json:
        print_json(summary.plain())
    else:
        summary.show("answers")


@contextlib.contextmanager
def writing(to: Path | None) -> Iterator[Any]:
    """A function that writes one row to the file `to`, which appears whole at the end; it does nothing for None."""
    if to is None:
        yield lambda row: None
        return
    from tossup.curriculum.atomic import replacing

    with replacing(to) as file:

        def write(row: Mapping[str, Any], file: IO[bytes] = file) -> None:
            # Not ensure_ascii=False: a lone surrogate in a model's text has no UTF-8.
            file.write(json.dumps(row, default=str).encode() + b"\n")

        yield write


def reason_kind(answer: Answer, verdict: Verdict) -> str:
    """A reason without the particulars of its row, so that equal reasons can be counted.

    Quoted text, the answer, the reference and numbers become "…".
    """
    kind = QUOTED.sub("…", verdict.reason)
    for text in sorted({verdict.answer or "", answer.problem.reference}, key=len, reverse=True):
        line = " ".join(text.split())
        if line:
            kind = re.sub(rf"(?<![\w.]){re.escape(line)}(?!\w|\.\w)", "…", kind)
        if len(line) > LONG:
            # A reason may quote only the beginning of a long answer.
            kind = re.sub(rf"{re.escape(line[:LONG])}.*?(?:\.\.\.|…)", "…", kind)
    return re.sub(r"…(?:\s*…)+", "…", NUMBER.sub("…", kind))[:100]


class Summary:
    """Counts by ruling and reason, and the agreement with labels where there are any."""

    def __init__(self) -> None:
        self.start = time.perf_counter()
        self.rows = 0
        self.reasons: Counter[tuple[Ruling, str]] = Counter()
        self.examples: dict[tuple[Ruling, str], str] = {}
        self.labelled: Counter[tuple[bool, Ruling]] = Counter()

    def add(self, answer: Answer, verdict: Verdict) -> None:
        """Count one verdict."""
        key = (verdict.ruling, reason_kind(answer, verdict))
        self.rows += 1
        self.reasons[key] += 1
        self.examples.setdefault(key, answer.id)
        if answer.label is not None:
            self.labelled[answer.label, verdict.ruling] += 1

    def total(self, ruling: Ruling) -> int:
        """Rows of one ruling."""
        return sum(n for (r, _), n in self.reasons.items() if r is ruling)

    def agreement(self) -> dict[str, int]:
        """The verdicts beside the labels: rows with a label, agreeing, and each way of not agreeing."""
        count = self.labelled
        return {
            "rows": count.total(),
            "agree": count[True, Ruling.CORRECT] + count[False, Ruling.WRONG],
            "false_positives": count[False, Ruling.CORRECT],
            "false_negatives": count[True, Ruling.WRONG],
            "undecided": count[True, Ruling.UNDECIDED] + count[False, Ruling.UNDECIDED],
        }

    def plain(self) -> dict[str, Any]:
        """The summary as JSON."""
        reasons = [
            {"ruling": ruling, "reason": reason, "rows": n, "example": self.examples[ruling, reason]}
            for (ruling, reason), n in self.reasons.most_common()
        ]
        counts = {ruling.value: self.total(ruling) for ruling in Ruling}
        seconds = round(time.perf_counter() - self.start, 3)
        labels = {"labels": self.agreement()} if self.labelled else {}
        return {"rows": self.rows, **counts, "seconds": seconds, "reasons": reasons, **labels}

    def show(self, what: str) -> None:
        """The summary as a table."""
        table = Table(title=f"{self.rows:,} {what}", title_justify="left")
        for name in ("ruling", "rows", "share", "reason", "for example"):
            table.add_column(name, justify="right" if name in {"rows", "share"} else "left")
        for ruling in Ruling:
            n = self.total(ruling)
            if not n:
                continue
            table.add_row(f"[bold {COLOURS[ruling]}]{ruling}[/]", f"{n:,}", f"{n / self.rows:.1%}", "", "")
            mine = [(reason, k) for (other, reason), k in self.reasons.most_common() if other is ruling]
            for reason, k in mine[:SHOWN]:
                example = self.examples[ruling, reason]
                table.add_row("", f"{k:,}", f"{k / self.rows:.1%}", escape(reason), escape(example))
            if rest := sum(k for _, k in mine[SHOWN:]):
                more = counted(len(mine) - SHOWN, "more reason")
                table.add_row("", f"{rest:,}", f"{rest / self.rows:.1%}", more, "")
        out.print(table)
        if self.labelled:
            a = self.agreement()
            out.print(
                f"labels: {a['agree']:,} of {a['rows']:,} agree ({a['agree'] / a['rows']:.2%}), "
                f"{counted(a['false_positives'], 'false positive')}, {counted(a['false_negatives'], 'false negative')}, "
                f"{a['undecided']} undecided"
            )
