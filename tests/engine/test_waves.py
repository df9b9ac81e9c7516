"""Adaptive sampling: more answers where the rule is undecided, the same rows however often the job is killed.

The answers come from a coin for each problem instead of a model; everything else is what runs in earnest.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from tossup.curriculum.ledger import scan_ledger
from tossup.curriculum.pool import Pool, read_pool
from tossup.engine import waves
from tossup.engine.chunks import Chunk
from tossup.engine.config import load
from tossup.engine.curate import curate
from tossup.engine.measure_config import CurateConfig
from tossup.records import Group, Problem, Rollout, Stop, TossupError, correct, undecided, wrong

CHUNK_PROBLEMS = 5
ADAPTIVE = {
    "samples": 4,
    "samples_max": 16,
    "keep": "0.1..0.9",
    "confidence": 0.9,
    "sampling.batch_size": 4 * CHUNK_PROBLEMS,
}


class Killed(BaseException):
    """What a SIGKILL is to the job: nothing after it runs."""


class Watching:
    """Looks on, and kills the job at the event of this number."""

    def __init__(self, kill_at: int = 10**9) -> None:
        self.events: list[str] = []
        self.kill_at = kill_at

    def _happened(self, what: str) -> None:
        self.events.append(what)
        if len(self.events) > self.kill_at:
            raise Killed

    def note(self, text: str) -> None:
        self._happened(text)

    def started(self, problems: int, done: int) -> None:
        self._happened("started")

    def measured(self, problems: int, tokens: int) -> None:
        self._happened("measured")


def toss(problem: Problem, rng: np.random.Generator) -> Rollout:
    """An answer of a few tokens that is right at the problem's rate; a rate of -1 cannot be judged."""
    rate = float(problem.meta["rate"])
    length = 10 * int(problem.meta["length"])
    verdict = undecided("no key") if rate < 0 else correct("yes") if rng.random() < rate else wrong("no")
    return Rollout((1,), (2,) * length, (-1.0,) * length, "", Stop.END, 0, verdict)


def here(chunks: Iterable[Chunk]) -> Iterator[tuple[Chunk, list[Group]]]:
    for chunk in chunks:
        rng = np.random.default_rng(chunk.seed)
        groups = [
            Group(chunk.first_id + i, p, tuple(toss(p, rng) for _ in range(chunk.samples)), chunk.drawn_by)
            for i, p in enumerate(chunk.problems)
        ]
        yield chunk, groups


def backwards(chunks: Iterable[Chunk]) -> Iterator[tuple[Chunk, list[Group]]]:
    """As a cluster may do it: every chunk is asked for first, and the last is done first."""
    return here(reversed(list(chunks)))


@pytest.fixture(autouse=True)
def coins(monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, here)


def use(monkeypatch: pytest.MonkeyPatch, execute: Any) -> None:
    @contextmanager
    def workers(config: Any, watcher: Any) -> Iterator[Any]:
        yield execute

    monkeypatch.setattr(waves, "workers", workers)


RATES = [0.0] * 9 + [1.0] * 6 + [0.05, 0.12, 0.5, 0.5, 0.7, 0.88, 0.93, -1.0]


@pytest.fixture
def pool(tmp_path: Path) -> Path:
    return write_pool(tmp_path / "pool.jsonl", RATES)


def write_pool(path: Path, rates: list[float]) -> Path:
    problems = [
        Problem(f"p{i}", f"Toss coin {i}.", "1", "exact", "coins", {"rate": rate, "length": 1 + i % 3})
        for i, rate in enumerate(rates)
    ]
    Pool.of(problems).write(path)
    return path


def job(pool: Path, out: Path, watcher: Watching | None = None, **changes: Any) -> dict[str, Any]:
    config = load(CurateConfig, None, {"pool": str(pool), "out": str(out)} | ADAPTIVE | changes)
    return curate(config, watcher or Watching())


def rows(out: Path) -> pl.DataFrame:
    ledger = scan_ledger(out.with_name(f"{out.stem}.curate") / "ledger").collect()
    return ledger.drop("run", "generate_seconds", "verify_seconds").sort("step", "group", "sample")


def answers(out: Path) -> dict[str, int]:
    return dict(rows(out).group_by("problem").len().iter_rows())


def test_killed_at_any_instant_it_ends_with_the_same_rows(pool: Path, tmp_path: Path) -> None:
    whole = Watching()
    report = job(pool, tmp_path / "whole.parquet", whole)
    expected = rows(tmp_path / "whole.parquet")
    assert expected["step"].n_unique() >= 9, "a first look of five chunks and several waves"
    for instant in range(len(whole.events)):
        out = tmp_path / f"killed-{instant}.parquet"
        with pytest.raises(Killed):
            job(pool, out, Watching(instant))
        again = job(pool, out)
        assert rows(out).equals(expected), f"killed at event {instant}: {whole.events[instant]}"
        same = ("kept", "dropped", "tokens_generated", "samples_mean")
        assert [again[key] for key in same] == [report[key] for key in same]
        assert read_pool(out).ids == read_pool(tmp_path / "whole.parquet").ids


def test_killed_at_every_event_in_turn_it_still_gets_there(pool: Path, tmp_path: Path) -> None:
    job(pool, tmp_path / "whole.parquet")
    out = tmp_path / "killed.parquet"
    for _ in range(100):
        try:
            job(pool, out, Watching(3))
            break
        except Killed:
            pass
    assert rows(out).equals(rows(tmp_path / "whole.parquet"))


def test_chunks_done_in_another_order_give_the_same_rows(
    pool: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job(pool, tmp_path / "whole.parquet")
    use(monkeypatch, backwards)
    job(pool, tmp_path / "backwards.parquet")
    assert rows(tmp_path / "backwards.parquet").equals(rows(tmp_path / "whole.parquet"))


def test_answers_go_to_what_is_undecided_and_stop_at_the_most(pool: Path, tmp_path: Path) -> None:
    job(pool, tmp_path / "out.parquet")
    asked = answers(tmp_path / "out.parquet")
    assert set(asked.values()) <= {4, 8, 12, 16}
    assert asked["p17"] <= 8, "a fair coin is soon settled"
    assert asked["p22"] == 4, "what cannot be judged is not asked again"
    assert max(asked.values()) > 4
    drawn = rows(tmp_path / "out.parquet").group_by("drawn_by").agg(pl.col("problem").n_unique(), pl.len())
    assert dict(drawn.select("drawn_by", "problem").iter_rows())["uniform"] == len(RATES)
    assert drawn.filter(pl.col("drawn_by") == "uniform")["len"].item() == 4 * len(RATES)


def test_groups_have_numbers_of_their_own(pool: Path, tmp_path: Path) -> None:
    job(pool, tmp_path / "out.parquet")
    table = rows(tmp_path / "out.parquet")
    assert table.select("group", "sample").is_unique().all()
    assert (table.group_by("group").agg(pl.col("problem").n_unique())["problem"] == 1).all()


def test_kept_problems_carry_all_their_answers(pool: Path, tmp_path: Path) -> None:
    report = job(pool, tmp_path / "out.parquet")
    kept, table = read_pool(tmp_path / "out.parquet"), rows(tmp_path / "out.parquet")
    assert report["kept"] == len(kept) > 0
    for problem, attempts, right in zip(kept.ids, kept.attempts, kept.correct, strict=True):
        mine = table.filter(pl.col("problem") == problem)
        assert (attempts, right) == (mine.height, mine["reward"].sum())


def test_every_problem_is_kept_or_has_a_reason(pool: Path, tmp_path: Path) -> None:
    report = job(pool, tmp_path / "out.parquet", undecided="drop")
    left_out = [json.loads(line) for line in (tmp_path / "out.dropped.jsonl").read_text().splitlines()]
    kept = read_pool(tmp_path / "out.parquet").ids
    assert sorted(kept + [row["id"] for row in left_out]) == sorted(f"p{i}" for i in range(len(RATES)))
    assert all(row["reason"] and row["why"] for row in left_out)
    why = {row["id"]: (row["reason"], row["why"]) for row in left_out}
    assert why["p0"][0] == "too hard"
    assert why["p10"][0] == "too easy"
    assert why["p22"] == ("not judged", "none of its 4 answers could be judged: no key")
    assert sum(row["problems"] for row in report["dropped"].values()) == len(left_out)
    assert all(row["remedy"] for row in report["dropped"].values())


@pytest.mark.parametrize("budget", [1, 700, 1500, 2500])
def test_a_budget_is_not_passed_by_more_than_a_chunk_and_can_be_raised(pool: Path, tmp_path: Path, budget: int) -> None:
    whole = job(pool, tmp_path / "whole.parquet")
    out = tmp_path / "out.parquet"
    report = job(pool, out, token_budget=budget)
    assert report["tokens_generated"] <= budget + 30 * 4 * CHUNK_PROBLEMS
    assert (report["ended_by"] == "the token budget") == (report["tokens_generated"] < whole["tokens_generated"])
    unseen = [row for row in left_out(out) if row["reason"] == "not measured"]
    assert len(unseen) == len(RATES) - len(answers(out))
    raised = job(pool, out, token_budget=0)
    assert rows(out).equals(rows(tmp_path / "whole.parquet"))
    assert raised["ended_by"] == ""


def left_out(out: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in out.with_name(f"{out.stem}.dropped.jsonl").read_text().splitlines()]


def test_it_stops_when_what_is_known_is_good_enough(pool: Path, tmp_path: Path) -> None:
    whole = job(pool, tmp_path / "whole.parquet")
    early = job(pool, tmp_path / "early.parquet", tolerance=0.2)
    assert early["ended_by"] == "the tolerance"
    assert early["tokens_generated"] < whole["tokens_generated"]
    at_once = job(pool, tmp_path / "once.parquet", tolerance=0.9)
    assert set(answers(tmp_path / "once.parquet").values()) == {4}
    assert at_once["tokens_generated"] == early["tokens_generated"] or at_once["samples_mean"] < early["samples_mean"]


def test_another_band_goes_on_from_what_is_measured(pool: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.parquet"
    before = job(pool, out)
    first = rows(out)
    after = job(pool, out, keep="0.4..0.6")
    assert after["tokens_generated"] >= before["tokens_generated"]
    assert rows(out).head(first.height).equals(first)
    settled_before = Watching()
    job(pool, out, settled_before, keep="0.4..0.6")
    assert "measured" not in settled_before.events


def test_a_larger_limit_looks_at_the_new_problems_first(pool: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.parquet"
    job(pool, out, limit=7)
    assert set(answers(out)) == {f"p{i}" for i in range(7)}
    job(pool, out)
    assert set(answers(out)) == {f"p{i}" for i in range(len(RATES))}
    assert rows(out).select("group", "sample").is_unique().all()
    assert max(answers(out).values()) <= 16


@pytest.mark.parametrize(
    ("rates", "says", "reason"),
    [
        ([1.0] * 40, "solved 40 problems of 40 every time", "too easy"),
        ([0.0] * 40, "solved none of 40 problems", "too hard"),
        ([-1.0] * 40, "No answer could be judged", "not judged"),
        ([1.0], "solved 1 problem of 1 every time", "too easy"),
    ],
)
def test_pools_that_cannot_train_anything(tmp_path: Path, rates: list[float], says: str, reason: str) -> None:
    report = job(write_pool(tmp_path / "pool.jsonl", rates), tmp_path / "out.parquet")
    assert says in report["verdict"]
    assert report["kept"] == 0
    assert list(report["dropped"]) == [reason]
    assert read_pool_rows(tmp_path / "out.parquet") == 0


def read_pool_rows(path: Path) -> int:
    return pl.read_parquet(path).height


def test_a_pool_of_which_nothing_is_left_is_written_empty(pool: Path, tmp_path: Path) -> None:
    report = job(pool, tmp_path / "out.parquet", against=(str(pool),))
    assert (report["kept"], report["tokens_generated"]) == (0, 0)
    assert report["dropped"]["overlap with an evaluation set"]["problems"] == len(RATES)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"confidence": 0.0}, "--confidence 0.9"),
        ({"confidence": 0.4}, "above 0.5"),
        ({"keep": ""}, "--keep or --signal"),
        ({"samples_max": 3}, "less than the first look"),
        ({"keep": "5"}, r"LOW\.\.HIGH"),
        ({"signal": "much"}, "--signal"),
    ],
)
def test_settings_that_make_no_sense_are_named(pool: Path, tmp_path: Path, changes: dict[str, Any], says: str) -> None:
    with pytest.raises(TossupError, match=says):
        job(pool, tmp_path / "out.parquet", **changes)
    assert not (tmp_path / "out.curate").exists()


def test_signal_keeps_what_pays_for_its_tokens(pool: Path, tmp_path: Path) -> None:
    changes = {"keep": "", "confidence": 0.0, "samples_max": 0, "group_size": 4}
    report = job(pool, tmp_path / "out.parquet", signal="20%", **changes)
    assert 5 <= report["kept"] <= 8, "a fifth of the 22 that were judged, and what ties with the last of them"
    dropped = left_out(tmp_path / "out.parquet")
    assert {row["reason"] for row in dropped} == {"too little signal", "not judged"}
    job(pool, tmp_path / "more.parquet", signal="60%", **changes)
    less = {row["id"]: row["signal"] for row in dropped if row["reason"] == "too little signal"}
    least = {row["id"] for row in left_out(tmp_path / "more.parquet")} & less.keys()
    assert 0 < len(least) < len(less)
    assert max(less[name] for name in least) <= min(less[name] for name in less.keys() - least)
    nothing = job(pool, tmp_path / "none.parquet", signal="1000", **changes)
    assert nothing["kept"] == 0
