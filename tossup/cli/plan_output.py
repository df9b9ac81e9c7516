"""What `tossup train --dry-run` prints."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from rich.table import Table

from tossup.cli.console import out
from tossup.records import counted


def print_plan(found: Mapping[str, Any], settings: str) -> None:
    """The resolved settings as TOML, what they come to, and one prompt as the model will see it."""
    out.print(settings.rstrip(), highlight=False, markup=False, soft_wrap=True)
    out.print()
    table = Table(show_header=False)
    for name, value in _rows(found):
        table.add_row(name, value)
    out.print(table)
    example = found["example"]
    out.print(f"\nproblem {example['id']}, {counted(example['tokens'], 'token')}, as the model sees it:", markup=False)
    out.print(example["text"], highlight=False, markup=False, soft_wrap=True)
    out.print(f"\njudged by {example['verifier']} against:", markup=False)
    out.print(example["reference"], highlight=False, markup=False, soft_wrap=True)


def _rows(found: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    begun = f"goes on after step {found['steps_done']:,}" if found["steps_done"] else "new"
    yield "run folder", f"{found['run']} ({begun})"
    verifiers = ", ".join(f"{name} {count:,}" for name, count in found["verifiers"].items())
    yield "problems", f"{found['problems']:,} ({verifiers}); success rate known of {found['measured']:,}"
    held_out = found["held_out"]
    sets = counted(len(held_out), "dataset")
    yield "held-out problems", f"{sum(held_out.values()):,} in {sets}" if held_out else "none"
    yield "longest prompt", f"{counted(found['longest_prompt'], 'token')}; the context holds {found['context']:,}"
    if found["without_room"]:
        yield (
            "  no room for max_new_tokens",
            f"{found['without_room']:.1%} of the prompts: there, answers end where the context does",
        )
    most = found["tokens_per_step_at_most"]
    answers = counted(found["answers_per_step"], "answer")
    yield "a step", f"{answers} of at most {counted(most, 'token')} together, without refills"
    yield "parameters", f"{found['parameters']:,}, trained {found['trainable']:,}"
    unknown = False
    for name, count in found["memory"].items():
        yield (
            f"memory, {name}",
            _size(count) if count is not None else "not known: its passes cannot be followed without data",
        )
        unknown = unknown or count is None
    there = f" of {_size(found['device_memory'])} on this GPU" if found["device_memory"] else ""
    yield (
        "memory at most, about",
        _size(found["memory_at_most"]) + there + (", and what is not known" if unknown else ""),
    )


def _size(count: int) -> str:
    """Bytes in the unit that leaves one to three digits before the point."""
    value, units = float(count), ["B", "KiB", "MiB", "GiB", "TiB"]
    while value >= 1000 and len(units) > 1:
        value, units = value / 1024, units[1:]
    return f"{value:,.1f} {units[0]}" if units[0] != "B" else f"{count} B"
