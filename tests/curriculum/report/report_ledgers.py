"""Ledgers as the engine writes them, built from a few lines of rewards."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tossup.curriculum.gate import fates
from tossup.curriculum.ledger import Ledger
from tossup.curriculum.pool import Pool
from tossup.records import Group, Problem, Rollout, Stop, Verdict, correct, undecided, wrong

RULINGS = {
    "1": correct("equals the reference", "7"),
    "0": wrong("'8' is not the reference '7'", "8"),
    "?": undecided("timeout"),
}


def answer(verdict: Verdict, text: str = "", tokens: int = 3, stop: Stop = Stop.END) -> Rollout:
    return Rollout((1,), tuple(range(tokens)), (-0.5,) * tokens, text or f"so {verdict.answer}", stop, 0, verdict)


def group(number: int, problem: str, rewards: str, by: str = "uniform", dataset: str = "sums") -> Group:
    """A group of answers written as one character each: 1 right, 0 wrong, ? undecided."""
    of = Problem(problem, f"What is {problem}?", "7", "exact", dataset)
    return Group(number, of, tuple(answer(RULINGS[r]) for r in rewards), by)


def write_ledger(folder: Path, steps: Sequence[Sequence[Group]], *, text: bool = True) -> Path:
    ledger = Ledger(folder, "a run", keep_text=text)
    for step, groups in enumerate(steps):
        ledger.append(step, [(g, fates(g)) for g in groups])
    return folder


def write_run(folder: Path, steps: Sequence[Sequence[Group]], *, text: bool = True, config: str = "") -> Path:
    """A run folder: configuration, ledger, and the pool of its problems."""
    write_ledger(folder / "ledger", steps, text=text)
    (folder / "config.toml").write_text(
        config or 'model = "m"\npool = "p"\n[update]\nstd_norm = true\n', encoding="utf-8"
    )
    problems = {g.problem.id: g.problem for groups in steps for g in groups}
    Pool.of(list(problems.values())).write(folder / "pool.parquet")
    return folder


STEPS = [
    [group(0, "a", "0001"), group(1, "b", "1111", "score"), group(2, "c", "0000", "score", "products")],
    [group(3, "a", "0111", "score"), group(4, "d", "0??1", "thompson"), group(5, "e", "???0")],
    [group(6, "a", "1111", "score"), group(7, "c", "0000", "uniform", "products")],
]
"""Three steps, both arms, every kind of group."""
