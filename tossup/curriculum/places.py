"""Where rollouts lie: the files of a folder, and what a path alone says of the data set and the step.

Trainers write a file a step, and harnesses a file a run, so that a file's name is often no name for its data:

    run/completions/completions_00042.parquet          run
    dumps/17.jsonl                                     dumps
    run/rollouts/step_3/train/all/traces.jsonl         train, step 3
    tiny/samples_gsm8k_2026-01-02T03-04-05.678.jsonl   gsm8k
"""

from __future__ import annotations

import re
from pathlib import Path

from tossup.curriculum.sources import stem, suffix
from tossup.records import TossupError

READ = (".parquet", ".jsonl", ".ndjson", ".csv")
"""Formats of rollouts; the lines of `.jsonl` may be gzipped."""

PART = re.compile(r"([_-]\d{5,}(-of-\d{5,})?|[_-]\d{4}-\d\d-\d\dT[\d.:-]+)$")
"""What names a part of a data set: the number of a part or of a step, or the time of a run."""

KINDS = ("completions", "results", "traces", "all", "effective")
"""Names that say what kind of file it is and not of what."""

STEP = re.compile(r"(?:global_)?step[_-]?(\d+)")


def files_of(folder: Path) -> list[Path]:
    """The tables in a folder and below it, in the order of their numbers.

    Where a trainer keeps all rollouts (`all`) beside those that it trained on (`effective`), the second are in the first.

    Raises:
        TossupError: there is none.
    """
    found = [path for path in folder.rglob("*") if path.is_file() and suffix(path) in READ]
    found = [path for path in found if not _is_subset(path) and not path.name.startswith(".")]
    if not found:
        raise TossupError(f"{folder}: no rollouts in it: neither the parts of a ledger nor a {', '.join(READ)} file")
    return sorted(found, key=lambda path: [_number(part) for part in path.parts])


def dataset_of(path: Path) -> str:
    """What the data set of a file or of a folder is called that does not say."""
    name = stem(path).removeprefix("samples_")
    while (shorter := PART.sub("", name)) != name:
        name = shorter
    above = path.absolute().parent
    says_nothing = name in KINDS or name.isdigit() or STEP.fullmatch(name)
    return dataset_of(above) if says_nothing and above.name else name


def step_of(path: Path) -> int | None:
    """The training step that a folder above the file, or the file itself, is named after."""
    for name in (stem(path), *(parent.name for parent in path.parents)):
        if found := STEP.fullmatch(name):
            return int(found.group(1))
    return None


def _is_subset(path: Path) -> bool:
    above = path.parent
    return above.name == "effective" and (above.parent / "all" / path.name).exists()


def _number(name: str) -> tuple[str | int, ...]:
    """A name with its numbers as numbers, so that 10 comes after 2."""
    return tuple((int(part) if part.isdigit() else part) for part in re.split(r"(\d+)", name))
