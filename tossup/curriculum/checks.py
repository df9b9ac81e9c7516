"""What is wrong with a pool before a single answer is sampled: a wrong key looks exactly like a very hard problem.

Prompts are compared without white space, LaTeX spacing, math delimiters and case, so that a copy that was typeset anew is
still a copy. Findings are suspicions for a person to look at, with the rows they concern; nothing is dropped here.
What is left out: paraphrases, and whether two keys that are written differently are equal (a verifier can tell).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

import polars as pl

from tossup.curriculum.pool import Pool


class Kind(StrEnum):
    """What a finding says of its rows."""

    EMPTY_PROMPT = "empty prompt"
    EMPTY_REFERENCE = "empty reference"
    DUPLICATE = "duplicate"
    """The same prompt with the same reference; all but the first may go."""
    CONFLICT = "conflicting references"
    """The same prompt with different references: at most one of them is right, unless they are written differently."""
    LEAK = "leaked answer"
    """The prompt gives the reference as the answer, in a box or after "answer"."""
    SOLUTION = "pasted solution"
    """The prompt carries a folded section, as forums use for solutions."""
    LINK = "link"
    """The prompt refers to a picture or a page, which a model does not see."""
    CHOICES = "choices"
    """The prompt lists choices; the reference may be a letter or a value."""
    OVERLAP = "overlap with an evaluation set"


@dataclass(frozen=True, slots=True)
class Finding:
    """Rows of a pool (positions, in order) that belong together under one suspicion; `note` says more where there is more."""

    kind: Kind
    rows: tuple[int, ...]
    note: str = ""


SPACING = r"\\(?:[,;:!> ()\[\]]|quad|qquad|hspace\{[^}]*\})|[~$\s]"
"""What does not change what a text says: LaTeX spacing, math delimiters, white space."""

PATTERNS = {
    Kind.SOLUTION: r"(?i)</?details\b|\[/?hide\b",
    Kind.LINK: r"(?i)https?://|www\.",
    Kind.CHOICES: r"(?s)\(A\).{1,400}\(B\).{1,400}\(C\)",
}


def check(pool: Pool, evaluations: Mapping[str, Pool] | None = None) -> tuple[Finding, ...]:
    """Everything suspicious in the pool; `evaluations` names sets that must not be trained on.

    Duplicates and conflicts are one finding a group of rows, all else one finding a row.
    """
    table = _comparable(pool)
    found = [Finding(Kind.EMPTY_PROMPT, (row,)) for row in _where(table, pl.col("text").str.strip_chars() == "")]
    found += [Finding(Kind.EMPTY_REFERENCE, (row,)) for row in _where(table, pl.col("key").str.strip_chars() == "")]
    found += _repeated(table)
    found += [Finding(Kind.LEAK, (row,)) for row in _where(table, _leaked())]
    for kind, pattern in PATTERNS.items():
        found += [Finding(kind, (row,)) for row in _where(table, pl.col("text").str.contains(pattern))]
    for name, evaluation in (evaluations or {}).items():
        seen = _comparable(evaluation)["prompt"].unique()
        rows = _where(table, (pl.col("prompt") != "") & pl.col("prompt").is_in(seen.implode()))
        found += [Finding(Kind.OVERLAP, (row,), name) for row in rows]
    return tuple(found)


def summary(findings: tuple[Finding, ...]) -> dict[str, int]:
    """The number of findings of each kind, every kind named; overlaps one number for each evaluation set."""
    counts = {kind.value: 0 for kind in Kind if kind is not Kind.OVERLAP}
    for finding in findings:
        name = f"overlap with {finding.note}" if finding.kind is Kind.OVERLAP else finding.kind.value
        counts[name] = counts.get(name, 0) + 1
    return counts


def _comparable(pool: Pool) -> pl.DataFrame:
    """Per row: the text of the prompt, and prompt and reference reduced to what they say."""
    prompt = pl.col("prompt")
    if pool.frame.schema["prompt"] != pl.String:
        prompt = prompt.list.eval(pl.element().struct.field("content")).list.join("\n")
    return pool.frame.select(
        row=pl.int_range(pl.len()),
        text=prompt,
        key=pl.col("reference"),
        prompt=_reduced(prompt),
        reference=_reference(pl.col("reference")),
    )


def _reduced(text: pl.Expr) -> pl.Expr:
    return text.str.replace_all(SPACING, "").str.to_lowercase()


def _reference(text: pl.Expr) -> pl.Expr:
    """As a prompt, with the usual spellings of a fraction and thousands commas made one."""
    text = _reduced(text).str.replace_all(r"\\[dt]frac", r"\frac")
    text = text.str.replace_all(r"\\frac\{(\d+)\}\{(\d+)\}", "$1/$2").str.replace_all(r"\\left|\\right", "")
    return pl.when(text.str.contains(r"^\d{1,3}(,\d{3})+$")).then(text.str.replace_all(",", "")).otherwise(text)


def _where(table: pl.DataFrame, rule: pl.Expr) -> list[int]:
    return table.filter(rule)["row"].to_list()


def _repeated(table: pl.DataFrame) -> list[Finding]:
    groups = (
        table.filter(pl.col("prompt") != "")
        .group_by("prompt", maintain_order=True)
        .agg("row", pl.col("reference").n_unique().alias("keys"), pl.col("reference").unique(maintain_order=True))
        .filter(pl.col("row").list.len() > 1)
    )
    found = []
    for rows, keys, references in groups.select("row", "keys", "reference").iter_rows():
        if keys == 1:
            found.append(Finding(Kind.DUPLICATE, tuple(rows)))
        else:
            found.append(Finding(Kind.CONFLICT, tuple(rows), " | ".join(references)))
    return found


def _leaked() -> pl.Expr:
    """The reduced reference in a box, or at the end after "answer is" or "answer:", in the reduced prompt."""
    prompt, reference = pl.col("prompt"), pl.col("reference")
    box = pl.concat_str(pl.lit("\\boxed{"), reference, pl.lit("}"))
    boxed = prompt.str.contains(box, literal=True)
    ends = pl.any_horizontal(
        prompt.str.strip_suffix(".").str.ends_with(pl.lit(lead) + reference)
        for lead in ("answer:", "answeris", "answer=")
    )
    return (reference != "") & (boxed | ends)
