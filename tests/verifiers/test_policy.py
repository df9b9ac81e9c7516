"""The policy of the verifiers, row by row, and the page that shows it.

`policy.jsonl` is the one source; the table in docs/verifiers.md is written from it by running this file.
"""

import json
import sys
from itertools import groupby
from pathlib import Path

import pytest

from tossup.records import Problem
from tossup.verifiers import verify

PAGE = Path(__file__).parents[2] / "docs" / "verifiers.md"
BEGIN, END = "<!-- policy: written by `python tests/verifiers/test_policy.py` -->\n", "<!-- end of policy -->\n"
ROWS = [json.loads(line) for line in Path(__file__).with_name("policy.jsonl").read_text().split("\n") if line]


def response(row):
    return row["response"] if "response" in row else rf"\boxed{{{row['answer']}}}"


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row['reference']} - {row.get('answer', row.get('response'))}")
def test_row(row):
    verdict = verify(Problem("p", "", row["reference"], row["verifier"], meta=row.get("meta", {})), response(row))
    assert verdict.ruling == row["ruling"], f"{verdict.reason}; expected {row['ruling']}: {row['why']}"


def code(text):
    """Text as it stands, in a cell of a Markdown table."""
    text = text.replace("\n", "↵").replace("|", "\\|")
    return f"`` {text} ``" if "`" in text else f"`{text}`" if text else "(empty)"


def table():
    lines = []
    for section, rows in groupby(ROWS, key=lambda row: row["section"]):
        lines += [f"\n### {section}\n", "| key | answer | ruling | why |", "|---|---|---|---|"]
        for row in rows:
            said = row["answer"] if "answer" in row else row["response"]
            lines.append(f"| {code(row['reference'])} | {code(said)} | {row['ruling']} | {row['why']} |")
    return "\n".join(lines) + "\n\n"


def test_the_page_shows_this_policy():
    page = PAGE.read_text()
    assert page.split(BEGIN)[1].split(END)[0] == table(), f"run {sys.executable} {__file__} to write the page"


if __name__ == "__main__":
    before, rest = PAGE.read_text().split(BEGIN)
    PAGE.write_text(before + BEGIN + table() + END + rest.split(END)[1])
