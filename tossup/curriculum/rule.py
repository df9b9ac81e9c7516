"""Which problems of a measured pool are kept, and which are worth more answers before that can be said.

A rule asks for success rates in a band, for a signal per token, or for both:

    band      low <= p <= high
    signal    (1 - p^G - (1-p)^G) / (G x mean tokens) x 1000: informative groups of G per thousand generated tokens

For a given answer length a bound on the signal is a band as well, around one half. So each problem has one stretch of
rates that it must lie in, and the posterior probability of lying there decides: keep at `confidence` or more, drop at
1 - confidence or less, and in between the question is open. Without a confidence the observed rate, and the posterior
mean of the signal, decide outright.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from tossup.curriculum.estimate import Floats, Ints, uniform_share
from tossup.curriculum.posterior import DIGITS, Posterior
from tossup.records import TossupError

Bools = npt.NDArray[np.bool_]

WORTH = 0.002
"""A problem gets no further answers if less than this share of a decision is expected to be mended by one of typical length.

Such a problem lies on an edge of its band, where being right or wrong about it matters least. Over six kinds of simulated
pools this bought as much agreement with the truth for fewer tokens than asking as long as there was room, and than
asking where the answers were likely to settle the question (benchmarks/curate.py).
"""


class Band(NamedTuple):
    """A band of success rates, both ends in it."""

    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.low:g}..{self.high:g}"


def parse_band(text: str) -> Band:
    """Read "0.1..0.9".

    Raises:
        TossupError: it is not LOW..HIGH with 0 <= LOW <= HIGH <= 1.
    """
    low, dots, high = text.partition("..")
    try:
        band = Band(float(low), float(high))
    except ValueError:
        band = Band(1.0, 0.0)
    if not dots or not 0 <= band.low <= band.high <= 1:
        raise TossupError(f"a band of success rates is LOW..HIGH between 0 and 1, such as 0.1..0.9; got {text!r}")
    return band


class Signal(NamedTuple):
    """What is asked of the signal: at least `least` groups per thousand tokens, or to be among the best `share`."""

    least: float = 0.0
    share: float | None = None

    def __str__(self) -> str:
        return f"{self.least:g}" if self.share is None else f"{100 * self.share:g}%"


def parse_signal(text: str) -> Signal:
    """Read "0.5" (groups per thousand tokens) or "30%" (the best 30 % of the problems).

    Raises:
        TossupError: it is neither a positive number nor a percentage up to 100.
    """
    try:
        signal = Signal(share=float(text[:-1]) / 100.0) if text.endswith("%") else Signal(float(text))
    except ValueError:
        signal = Signal(-1.0)
    fine = 0 < signal.least < np.inf if signal.share is None else 0 < signal.share <= 1
    if not fine:
        raise TossupError(
            f"--signal is a bound in informative groups per thousand tokens, such as 0.5, or a share of the problems, such "
            f"as 30%; got {text!r}"
        )
    return signal


@dataclass(frozen=True, slots=True)
class Counts:
    """What was measured of each problem, by position: `answers` sampled, `attempts` of them judged, `correct` right.

    `mean_tokens` is the mean length of all its answers, 0 where there are none; `tags` says whose rates are alike.
    """

    answers: Ints
    attempts: Ints
    correct: Ints
    mean_tokens: Floats
    tags: Sequence[str]


@dataclass(frozen=True, slots=True)
class Calls:
    """What a rule says of each problem.

    `inside` is the probability that the problem is what the rule asks for, `low` and `high` its stretch of rates, `signal`
    the posterior mean. `sure` is 1 for keep, -1 for drop, 0 where the question is open; `keep` is what follows.
    """

    inside: Floats
    low: Floats
    high: Floats
    signal: Floats
    sure: npt.NDArray[np.int8]
    keep: Bools
    posterior: Posterior

    @property
    def doubt(self) -> float:
        """The share of the judged problems that one would expect to call wrongly, if each had to be called now."""
        return self._mean(np.minimum(self.inside, 1.0 - self.inside), self.posterior.n > 0)

    @property
    def kept_wrongly(self) -> float:
        """The expected share of what is kept that is not what the rule asks for."""
        return self._mean(1.0 - self.inside, self.keep)

    @property
    def dropped_wrongly(self) -> float:
        """The expected share of what was judged and is dropped that is what the rule asks for."""
        return self._mean(self.inside, ~self.keep & (self.posterior.n > 0))

    def _mean(self, values: Floats, where: Bools) -> float:
        return float(values[where].mean()) if where.any() else 0.0


@dataclass(frozen=True, slots=True)
class Rule:
    """What problems must be like. `undecided` says what becomes of those that are still open at the end."""

    band: Band | None = None
    signal: Signal | None = None
    confidence: float | None = None
    group_size: int = 8
    undecided: Literal["keep", "drop", "likelier"] = "keep"

    @property
    def asks(self) -> bool:
        """Whether the rule asks for anything at all."""
        return self.band is not None or self.signal is not None

    def judge(self, counts: Counts) -> Calls:
        """Say of every problem whether it is kept. Those without a judged answer are not, if the rule asks for anything."""
        posterior = Posterior(counts.attempts, counts.correct, counts.tags)
        known = posterior.n > 0
        signal = self._signal(posterior, counts.mean_tokens)
        least = self._least(signal[known])
        low, high = self._stretch(counts.mean_tokens, least)
        inside = posterior.inside(low, high)
        sure = self._sure(posterior, signal, least, inside)
        keep = (sure == 1) | ((sure == 0) & self._when_open(inside))
        return Calls(inside, low, high, signal, sure, keep & (known | (not self.asks)), posterior)

    def _least(self, of_known: Floats) -> float:
        """The signal that a problem must have: as given, or that of the last one among the best share."""
        if self.signal is None or self.signal.share is None:
            return 0.0 if self.signal is None else self.signal.least
        if len(of_known) == 0:
            return 0.0
        return float(np.sort(of_known)[::-1][int(np.ceil(self.signal.share * len(of_known))) - 1])

    def _signal(self, posterior: Posterior, mean_tokens: Floats) -> Floats:
        """The posterior mean of the signal, 0 where no length is known."""
        right, wrong = uniform_share(posterior.points, self.group_size)
        mixed = posterior.mean(1.0 - right - wrong)
        spent = self.group_size * np.maximum(mean_tokens, 1.0) / 1000.0
        signal: Floats = np.where(mean_tokens > 0, np.round(mixed / spent, DIGITS), 0.0)
        return signal

    def _stretch(self, mean_tokens: Floats, least: float) -> tuple[Floats, Floats]:
        """The rates that each problem must lie between; low above high where no rate will do."""
        band = self.band or Band(0.0, 1.0)
        low, high = np.full(len(mean_tokens), band.low), np.full(len(mean_tokens), band.high)
        if least <= 0:
            return low, high
        edge = mixed_from(least * self.group_size * np.maximum(mean_tokens, 1.0) / 1000.0, self.group_size)
        return np.maximum(low, edge), np.minimum(high, 1.0 - edge)

    def _sure(self, posterior: Posterior, signal: Floats, least: float, inside: Floats) -> npt.NDArray[np.int8]:
        if not self.asks:
            return np.ones(len(inside), np.int8)
        if self.confidence is not None:
            keep, drop = inside >= self.confidence, inside <= round(1.0 - self.confidence, DIGITS)
            return keep.astype(np.int8) - drop.astype(np.int8)
        keep = signal >= least
        if self.band is not None:
            rate = posterior.c / np.maximum(posterior.n, 1)
            keep &= (self.band.low <= rate) & (rate <= self.band.high)
        return np.where(keep, 1, -1).astype(np.int8)

    def _when_open(self, inside: Floats) -> Bools:
        if self.undecided == "likelier" or (self.signal is not None and self.signal.share is not None):
            return inside >= 0.5
        return np.full(len(inside), self.undecided == "keep")

    def wanted(self, counts: Counts, calls: Calls, samples: int, samples_max: int) -> list[int]:
        """The problems to ask `samples` more answers of, those that mend most per token first.

        They are open, have a judged answer, and have room for so many more under `samples_max`; and their answers mend enough
        for their length (see WORTH).
        """
        if self.confidence is None:
            return []
        room = (samples_max - counts.answers) // samples * samples
        rows = np.flatnonzero((calls.sure == 0) & (calls.posterior.n > 0) & (room > 0))
        if len(rows) == 0:
            return []
        lengths = np.maximum(counts.mean_tokens, 1.0)
        typical = lengths[counts.answers > 0].mean()
        mended = calls.posterior.mended(rows, calls.low, calls.high, room, samples)
        worth = np.round(mended * typical / lengths[rows], DIGITS)
        order = np.lexsort((rows, -worth))
        return [int(row) for row in rows[order][worth[order] >= WORTH]]


def mixed_from(chance: Floats, group_size: int) -> Floats:
    """The rate from which on, up to one half, a group is mixed with at least this chance; 1 where no rate is enough.

    Rounded to a thousandth, so that problems of about one length share their work, but never down to 0.
    """
    rates = 0.5 * np.linspace(0.0, 1.0, 2001) ** 2  # dense near 0
    right, wrong = uniform_share(rates, group_size)
    mixed = 1.0 - right - wrong
    rate = np.maximum(np.round(np.interp(chance, mixed, rates), 3), 1e-6)
    found: Floats = np.where(chance > mixed[-1], 1.0, rate)
    return found
