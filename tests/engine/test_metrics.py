from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import pytest

from tossup.curriculum.batch import Batch
from tossup.curriculum.gate import Kind, fates, kind
from tossup.curriculum.ledger import Entry, Ledger
from tossup.engine.metrics import Clock, step_metrics, summary
from tossup.engine.progress import Progress
from tossup.records import Fate, Group, Problem, Rollout, Stop, Verdict, correct, undecided, wrong

R, W, U = correct("right"), wrong("wrong"), undecided("no verdict")


def group(number: int, *verdicts: Verdict, drawn_by: str = "score") -> Group:
    """Answers of 1, 2, … tokens; the last one is cut off."""
    stops = [Stop.END] * (len(verdicts) - 1) + [Stop.LENGTH]
    rollouts = [
        Rollout((1,), (5,) * n, (-1.0,) * n, "", stop, 0, verdict)
        for n, (verdict, stop) in enumerate(zip(verdicts, stops, strict=True), 1)
    ]
    return Group(number, Problem(f"p{number}", "?", "!"), tuple(rollouts), drawn_by)


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """What the clock reads, to be set by the test."""
    reading = [100.0]
    monkeypatch.setattr("time.perf_counter", lambda: reading[0])
    return reading


def test_a_lap_accounts_for_all_time_and_each_part_for_its_own(now: list[float]) -> None:
    clock = Clock()
    now[0] += 1
    with clock("curriculum"):
        now[0] += 2
        with clock("generate"):
            now[0] += 40
            clock.move(5, to="verify")
        now[0] += 1
    with clock("update"):
        now[0] += 50
    assert clock.lap() == {
        "time/curriculum": 3,
        "time/generate": 35,
        "time/other": 1,
        "time/update": 50,
        "time/verify": 5,
        "time/step": 94,
        "time/outside_share": pytest.approx(9 / 94),
    }
    now[0] += 3  # what comes after a lap is in the next
    with clock("save"):
        now[0] += 2
    with clock("update"):
        now[0] += 5
    lap = clock.lap()
    assert lap["time/step"] == 10
    assert lap["time/outside_share"] == pytest.approx(0.5)


def test_an_evaluation_makes_the_rest_look_neither_small_nor_large(now: list[float]) -> None:
    clock = Clock()
    for seconds, part in ((90, "generate"), (10, "ledger"), (900, "evaluate")):
        with clock(part):
            now[0] += seconds
    lap = clock.lap()
    assert lap["time/step"] == 1000
    assert lap["time/outside_share"] == pytest.approx(0.1)


def test_the_figures_of_a_step_count_groups_by_what_they_show() -> None:
    mixed, easy, hard = group(0, R, W, R), group(1, R, R, R, drawn_by="uniform"), group(2, W, W, U)
    unjudged, mixed_blind = group(3, U, R), group(4, W, R, drawn_by="uniform")
    groups = [mixed, easy, hard, unjudged, mixed_blind]
    assert [kind(g) for g in groups] == [Kind.MIXED, Kind.RIGHT, Kind.WRONG, Kind.UNJUDGED, Kind.MIXED]
    assert [kind(g) is not Kind.MIXED for g in groups] == [g.degenerate for g in groups]
    batch = Batch(7, (mixed, mixed_blind), tuple((g, fates(g)) for g in groups), 5, 24, 2, 1)
    figures = step_metrics(batch, groups)
    assert figures["rollout/groups"] == 5
    assert figures["rollout/kept_groups"] == 2
    assert figures["rollout/effective"] == pytest.approx(2 / 5)
    assert figures["rollout/too_easy"] == figures["rollout/too_hard"] == figures["rollout/unjudged"] == 1 / 5
    assert figures["rollout/effective_uniform"] == 1 / 2
    assert figures["rollout/undecided"] == pytest.approx(2 / 13)
    assert figures["rollout/truncated"] == pytest.approx(5 / 13)
    assert figures["rollout/mean_tokens"] == pytest.approx(24 / 13)
    assert figures["rollout/reward"] == pytest.approx(7 / 11)
    assert figures["kept/reward"] == pytest.approx(3 / 5)
    by_fate = {name: n for name, n in figures.items() if name.removeprefix("tokens/") in set(Fate)}
    assert {name: n for name, n in by_fate.items() if n} == {
        "tokens/trained": 9,
        "tokens/all_correct": 6,
        "tokens/all_wrong": 3,
        "tokens/undecided": 6,
    }
    assert len(by_fate) == len(Fate)
    assert sum(by_fate.values()) == figures["tokens/generated"] == 24


def test_a_step_without_groups_has_no_shares() -> None:
    figures = step_metrics(Batch(0, (), (), 0, 0, 0, 0), [])
    assert figures["rollout/groups"] == figures["tokens/generated"] == 0
    assert not any(
        name.startswith("rollout/") and name not in ("rollout/groups", "rollout/kept_groups") for name in figures
    )


def test_easy_and_hard_groups_are_not_mixed_up() -> None:
    groups = [group(0, R, R), group(1, R, R), group(2, R, R), group(3, W, W)]
    figures = step_metrics(Batch(0, (), tuple((g, fates(g)) for g in groups), 4, 12, 0, 1), groups)
    shares = [figures[f"rollout/{name}"] for name in ("effective", "too_easy", "too_hard", "unjudged")]
    assert shares == [0, 3 / 4, 1 / 4, 0]


def test_the_summary_counts_waste_in_all_groups_in_the_control_arm_and_late(tmp_path: Path) -> None:
    """Six steps of two groups each, one drawn uniformly; a digit is 1 where the group taught something."""
    ledger = Ledger(tmp_path, "run")
    taught = {"uniform": "000001", "score": "011111"}
    for step in range(6):
        entries: list[Entry] = []
        for i, (drawn_by, digits) in enumerate(taught.items()):
            one = group(2 * step + i, R, W if digits[step] == "1" else R, drawn_by=drawn_by)
            entries.append((one, fates(one)))
        ledger.append(step, entries)
    found = summary(ledger, asdict(Progress(step=6)), "steps")
    assert found["wasted_share"] == 0.5
    assert found["wasted_share_uniform"] == round(5 / 6, 6)
    assert found["wasted_share_late"] == 1 / 4  # of steps 4 and 5
    assert found["wasted_share_uniform_late"] == 1 / 2
    assert (found["groups"], found["groups_uniform"]) == (12, 6)
    ledger.close()
