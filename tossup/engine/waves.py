"""Adaptive sampling: a first look at every problem, then more answers where the rule cannot decide yet.

Theory of operation. The first look is what `measure` does. After it, and after every wave, the counts are folded from the
ledger, the rule judges them, and the problems that it wants more answers of (see `rule.wanted`) become the next wave:
`samples` further answers each. A wave is written to `wave.json` before its first chunk is begun, and nothing else is
remembered: whoever is killed, at whatever instant, finds the wave and the parts of the ledger that it has, does the chunks
that are missing, and plans the next wave from the same counts. So a job that was killed ends with the rows of one that
was not.

Numbers of chunks name the parts of the ledger and seed the answers. Those of the first look are places in the pool and
stay free for a larger --limit; those of the waves count up behind them.

The budget is looked at before each chunk: none is begun that would pass it, if its answers are as long as those so far
(on a cluster, chunks that are under way come on top).
The ledger of such a job shows what was undecided more often than the pool holds it. So the groups of the first look are
`drawn_by` "uniform", the others "undecided", and whoever estimates something about the pool takes the first kind.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import polars as pl

from tossup.curriculum.ledger import Ledger
from tossup.curriculum.pool import Pool
from tossup.curriculum.rule import Calls, Rule
from tossup.engine.chunks import Chunk, Execute
from tossup.engine.folder import write_atomically
from tossup.engine.measure import Watcher, chunk, chunk_size, enter, first_look, workers
from tossup.engine.measure_config import CurateConfig
from tossup.engine.pools import counts
from tossup.records import counted

UNDECIDED = "undecided"
"""Why the problems of a wave were drawn."""


@dataclass(frozen=True, slots=True)
class Wave:
    """Positions of the problems that get further answers, the first chunk's number, and the settings that chose them."""

    rows: list[int]
    first: int
    chosen_by: str


@dataclass
class Spending:
    """What was generated so far, and whether there is enough left; a budget of 0 has no end."""

    budget: int
    tokens: int
    answers: int

    @classmethod
    def of(cls, ledger: Ledger, budget: int) -> Spending:
        """As the ledger has it."""
        totals = ledger.scan().select(tokens=pl.col("response_tokens").sum(), answers=pl.len()).collect()
        tokens, answers = totals.row(0)
        return cls(budget, int(tokens), int(answers))

    def allows(self, chunk: Chunk) -> bool:
        """Whether a chunk of answers as long as those so far stays within the budget."""
        answers = len(chunk.problems) * chunk.samples
        expected = answers * self.tokens / self.answers if self.answers else 1
        return not self.budget or self.tokens + expected <= self.budget


class Waves:
    """One adaptive job. `sample` does it, and `ended_by` says then what ended it, empty if nothing was left to ask."""

    def __init__(
        self, config: CurateConfig, pool: Pool, first: int, ledger: Ledger, plan: Path, rule: Rule, watcher: Watcher
    ) -> None:
        self.config, self.pool, self.ledger, self.rule, self.watcher = config, pool, ledger, rule, watcher
        self.plan = plan
        self.first = first
        """The first number that the waves may use."""
        self.spending = Spending.of(ledger, config.token_budget)
        self.ended_by = ""

    def sample(self) -> float:
        """Sample what the ledger does not hold yet; returns the seconds that it took."""
        begun = time.perf_counter()
        with workers(self.config, self.watcher) as execute:
            going = self._enter(execute, first_look(self.config, self.pool, self.ledger, self.watcher))
            while going and (wave := self._in_flight() or self._next()) is not None:
                going = self._enter(execute, self._missing(wave))
        return time.perf_counter() - begun

    def _enter(self, execute: Execute, chunks: Iterator[Chunk]) -> bool:
        """Have the chunks done as far as the budget goes; whether it went to their end."""
        refused: list[Chunk] = []

        def affordable() -> Iterator[Chunk]:
            for one in chunks:
                if not self.spending.allows(one):
                    refused.append(one)
                    return
                yield one

        enter(execute, affordable(), self.ledger, self)
        if refused:
            self.ended_by = "the token budget"
        return not refused

    def _in_flight(self) -> Wave | None:
        """The wave that an earlier call, or this one, has begun under the same settings and not finished."""
        if not self.plan.exists():
            return None
        wave = Wave(**json.loads(self.plan.read_text(encoding="utf-8")))
        if wave.chosen_by != self._settings() or next(self._numbers(wave), None) is None:
            return None
        return wave

    def _next(self) -> Wave | None:
        """The next wave, written down; None when there is nothing to ask, or when what is known is good enough."""
        most = self.config.samples_max
        if most <= self.config.samples:
            return None
        known = counts(self.pool, self.ledger.scan())
        calls = self.rule.judge(known)
        if self.config.tolerance and calls.doubt <= self.config.tolerance:
            self.ended_by = "the tolerance"
            return None
        rows = self.rule.wanted(known, calls, self.config.samples, most)
        if not rows:
            return None
        self.watcher.note(_in_words(calls, len(rows)))
        first = max([self.first, *(step + 1 for step in self.ledger.steps())])
        wave = Wave(rows, first, self._settings())
        write_atomically(self.plan, json.dumps(asdict(wave)) + "\n")
        return wave

    def _settings(self) -> str:
        """What, beside the counts, decides which problems make up a wave."""
        names = ("keep", "confidence", "signal", "group_size", "samples_max", "limit")
        return ", ".join(f"{name} {getattr(self.config, name)}" for name in names)

    def _numbers(self, wave: Wave) -> Iterator[tuple[int, list[int]]]:
        """Number and rows of the chunks that the ledger lacks of a wave."""
        size, done = chunk_size(self.config), set(self.ledger.steps())
        for at, start in enumerate(range(0, len(wave.rows), size)):
            if wave.first + at not in done:
                yield wave.first + at, wave.rows[start : start + size]

    def _missing(self, wave: Wave) -> Iterator[Chunk]:
        missing = list(self._numbers(wave))
        left = sum(len(rows) for _, rows in missing)
        self.watcher.started(len(wave.rows), len(wave.rows) - left)
        for number, rows in missing:
            first_id = number * chunk_size(self.config)
            yield chunk(self.config, self.pool, number, rows, first_id=first_id, drawn_by=UNDECIDED)

    def note(self, text: str) -> None:
        """Pass a remark on."""
        self.watcher.note(text)

    def started(self, problems: int, done: int) -> None:
        """Pass it on."""
        self.watcher.started(problems, done)

    def measured(self, problems: int, tokens: int) -> None:
        """Count what was spent, and pass it on."""
        self.spending.tokens += tokens
        self.spending.answers += problems * self.config.samples
        self.watcher.measured(problems, tokens)


def _in_words(calls: Calls, asked: int) -> str:
    still = int((calls.sure == 0).sum())
    return (
        f"undecided: {still:,} of {counted(len(calls.sure), 'problem')}; further answers go to {asked:,}; "
        f"called now, {calls.doubt:.1%} of all would be misjudged"
    )
