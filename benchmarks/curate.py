"""What adaptive sampling saves: tokens for the same choices, beside the same number of answers to every problem.

    python -m benchmarks.curate simulated           six kinds of simulated pools, the truth known
    python -m benchmarks.curate recorded FILE...    real answers of real models, the truth read off all of them
    python -m benchmarks.curate model               the built-in model and pool, through `tossup curate` itself

A choice is whether a problem's success rate lies in the band (--keep, 0.1..0.9); agreement is the share of problems whose
choice is that of the truth. Every method calls by the same posterior, so that a difference is one of sampling; `plain` is
what the observed rate alone would have called. `saved` compares an adaptive run with as many answers to every problem as
give its agreement, interpolated between the sizes in FIXED, by tokens; where even the largest size does not reach it, with
that size (marked >). Run from the root of the repository.
"""

from __future__ import annotations

import argparse
import gzip
import json
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tossup.curriculum.rule import Band, Counts, Rule, parse_band

FIXED = (4, 6, 8, 12, 16, 24, 32)
CONFIDENCES = (0.8, 0.9, 0.95)
FIRST, MOST = 4, 32
VISITS = 8
"""Of a training history, the last so many visits are taken for one policy."""

Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]


class Answers(NamedTuple):
    """What each problem would answer, in order: right or not, and how many tokens, both of shape (problems, answers).

    `truth` says which problems are in the band.
    """

    right: Bools
    tokens: Floats
    truth: Bools

    def shuffled(self, rng: np.random.Generator) -> Answers:
        """The answers of each problem in another order."""
        order = rng.permuted(np.tile(np.arange(self.right.shape[1]), (len(self.right), 1)), axis=1)
        return Answers(np.take_along_axis(self.right, order, 1), np.take_along_axis(self.tokens, order, 1), self.truth)


class Outcome(NamedTuple):
    """Mean answers a problem, tokens of all, and the shares of right calls: by the posterior, and by the observed rate."""

    answers: float
    tokens: float
    agreement: float
    plain: float


def play(answers: Answers, band: Band, samples: int, most: int, confidence: float) -> Outcome:
    """Curate as `tossup curate` does, with answers from the table."""
    rule = Rule(band, confidence=confidence, undecided="likelier")
    size = len(answers.right)
    taken = np.zeros(size, np.int64)
    rows = list(range(size))
    tags = [""] * size
    tables = (answers.right.astype(np.float64), answers.tokens)
    running = [np.cumsum(np.pad(one, ((0, 0), (1, 0))), axis=1, dtype=np.float64) for one in tables]
    at = np.arange(size)
    while True:
        taken[rows] += samples
        right, tokens = running[0][at, taken], running[1][at, taken]
        counts = Counts(taken, taken, right.astype(np.int64), tokens / taken, tags)
        calls = rule.judge(counts)
        rows = rule.wanted(counts, calls, samples, most) if most > samples else []
        if not rows:
            break
    rate = right / taken
    plain = (band.low <= rate) & (rate <= band.high)
    return Outcome(
        float(taken.mean()),
        float(tokens.sum()),
        float((calls.keep == answers.truth).mean()),
        float((plain == answers.truth).mean()),
    )


def mean(outcomes: Sequence[Outcome]) -> Outcome:
    return Outcome(*np.mean(np.array(outcomes), axis=0).tolist())


def compare(name: str, tables: Sequence[Answers], band: Band) -> None:
    """Print one pool: every fixed size, then every confidence with what it saves."""
    width = min(table.right.shape[1] for table in tables)
    fixed = [mean([play(t, band, n, n, 0.9) for t in tables]) for n in FIXED if n <= width]
    print(f"\n{name}: {len(tables[0].truth)} problems, {tables[0].truth.mean():.0%} in {band}")
    print(f"  {'method':24} {'answers':>8} {'tokens':>12} {'agreement':>10} {'plain':>7} {'saved':>7}")
    for one in fixed:
        if one.answers in (8, 16, 32):
            show(f"{one.answers:.0f} each", one, "")
    for confidence in CONFIDENCES:
        found = mean([play(t, band, FIRST, min(MOST, width // FIRST * FIRST), confidence) for t in tables])
        needed, beyond = tokens_for(found.agreement, fixed)
        show(
            f"{FIRST} to {MOST}, confidence {confidence}",
            found,
            f"{'>' if beyond else ''}{1 - found.tokens / needed:.0%}",
        )


def show(method: str, one: Outcome, saved: str) -> None:
    print(f"  {method:24} {one.answers:8.1f} {one.tokens:12,.0f} {one.agreement:10.3f} {one.plain:7.3f} {saved:>7}")


def tokens_for(agreement: float, fixed: Sequence[Outcome]) -> tuple[float, bool]:
    """Tokens that answers of one number to every problem need for this agreement, and whether it is beyond the largest."""
    reached = np.maximum.accumulate([one.agreement for one in fixed])
    tokens = [one.tokens for one in fixed]
    if agreement > reached[-1]:
        return tokens[-1], True
    after = int(np.argmax(reached >= agreement))
    if after == 0:
        return tokens[0], False
    share = (agreement - reached[after - 1]) / (reached[after] - reached[after - 1])
    return tokens[after - 1] + share * (tokens[after] - tokens[after - 1]), False


def simulated_rates(size: int, rng: np.random.Generator) -> Iterator[tuple[str, Floats]]:
    """Success rates of six kinds of pools."""
    kind = rng.random(size)
    middle = rng.random(size)
    low, high = rng.beta(0.3, 6, size), 1 - rng.beta(0.3, 6, size)
    yield "U-shaped", np.where(kind < 0.45, low, np.where(kind < 0.75, high, middle))
    yield "hard", np.where(kind < 0.7, low, rng.beta(1, 2, size))
    yield "easy", np.where(kind < 0.7, high, rng.beta(2, 1, size))
    yield "middling", rng.beta(2, 2, size)
    yield "flat", middle
    yield "never, always, or any", np.where(kind < 0.4, 0.0, np.where(kind < 0.7, 1.0, middle))


def simulated(size: int, runs: int, band: Band) -> None:
    kinds = [name for name, _ in simulated_rates(1, np.random.default_rng(0))]
    tables: dict[str, list[Answers]] = {name: [] for name in kinds}
    for run in range(runs):
        rng = np.random.default_rng(run)
        for name, rates in simulated_rates(size, rng):
            length = rng.lognormal(5.5, 0.5, size)[:, None] * rng.lognormal(0, 0.3, (size, MOST))
            right = rng.random((size, MOST)) < rates[:, None]
            tables[name].append(Answers(right, np.ceil(length), (band.low <= rates) & (rates <= band.high)))
    for name, some in tables.items():
        compare(f"simulated, {name}", some, band)


def recorded(paths: Sequence[Path], runs: int, band: Band) -> None:
    for path in paths:
        answers = read_recorded(path, band)
        tables = [answers.shuffled(np.random.default_rng(run)) for run in range(runs)]
        compare(f"recorded, {path.name}, {answers.right.shape[1]} answers each", tables, band)


def read_recorded(path: Path, band: Band) -> Answers:
    """Real answers: `correct` (a list a problem) with the lengths of their texts / 4, or a history of counts of 8 a visit.

    Without texts every answer counts as one token.
    """
    data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    rows = [json.loads(line) for line in data.decode().split("\n") if line]
    if "correct_of_8" in rows[0]:
        right = np.array([[k < c for c in _list(r["correct_of_8"])[-VISITS:] for k in range(8)] for r in rows])
    else:
        right = np.array([_list(r["correct"]) for r in rows]) > 0
    texts = next((name for name in ("responses", "completions") if name in rows[0]), None)
    tokens = np.ones(right.shape)
    if texts is not None:
        tokens = np.array([[max(1, len(text) // 4) for text in _list(r[texts])] for r in rows], dtype=np.float64)
    rates = right.mean(axis=1)
    return Answers(right, tokens, (band.low <= rates) & (rates <= band.high))


def _list(value: Any) -> list[Any]:
    return list(json.loads(value) if isinstance(value, str) else value)


def model(size: int, band: Band) -> None:
    """The built-in model through the command's own code; the truth is what 64 other answers say."""
    from tossup.curriculum.ledger import scan_ledger
    from tossup.engine.config import load
    from tossup.engine.curate import curate
    from tossup.engine.measure_config import CurateConfig

    class Silent:
        def note(self, text: str) -> None: ...
        def started(self, problems: int, done: int) -> None: ...
        def measured(self, problems: int, tokens: int) -> None: ...

    common = {"limit": size, "sampling.max_new_tokens": 16, "threads": 1, "dedupe": True}
    adaptive = {"samples": FIRST, "samples_max": MOST, "keep": str(band), "undecided": "likelier"}
    with tempfile.TemporaryDirectory() as folder:

        def run(name: str, **settings: object) -> tuple[set[str], dict[str, object], float]:
            out = Path(folder) / f"{name}.parquet"
            begun = time.process_time()
            result = curate(load(CurateConfig, None, common | {"out": str(out)} | settings), Silent())
            left_out = Path(result["dropped_to"]).read_text(encoding="utf-8").splitlines()
            dropped = {json.loads(line)["id"] for line in left_out}
            measured = (
                scan_ledger(out.with_suffix(".curate") / "ledger").select("problem").unique().collect()["problem"]
            )
            return set(measured) - dropped, result, time.process_time() - begun

        truth, result, _ = run("truth", samples=64, seed=1, keep=str(band))
        problems = int(str(result["problems"]))
        print(
            f"\nbuiltin:arithmetic on its pool: {problems} problems, {len(truth) / problems:.0%} in {band} by 64 answers each"
        )
        print(f"  {'method':24} {'answers':>8} {'tokens':>12} {'agreement':>10} {'CPU s':>7}")
        for n in (8, 16, 32):
            chosen, result, seconds = run(f"fixed-{n}", samples=n, keep=str(band), confidence=0.9, undecided="likelier")
            report_run(f"{n} each", chosen ^ truth, problems, result, seconds)
        for confidence in CONFIDENCES:
            chosen, result, seconds = run(f"adaptive-{confidence}", confidence=confidence, **adaptive)
            report_run(f"{FIRST} to {MOST}, confidence {confidence}", chosen ^ truth, problems, result, seconds)


def report_run(method: str, differ: set[str], problems: int, result: dict[str, object], seconds: float) -> None:
    agreement = 1 - len(differ) / problems
    print(
        f"  {method:24} {result['samples_mean']:8.1f} {result['tokens_generated']:12,} {agreement:10.3f} {seconds:7.1f}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("simulated", "recorded", "model"))
    parser.add_argument("files", nargs="*", type=Path)
    parser.add_argument("--problems", type=int, default=1000)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--keep", default="0.1..0.9")
    given = parser.parse_args()
    band = parse_band(given.keep)
    if given.what == "simulated":
        simulated(given.problems, given.runs, band)
    elif given.what == "recorded":
        recorded(given.files, given.runs, band)
    else:
        model(given.problems, band)


if __name__ == "__main__":
    main()
