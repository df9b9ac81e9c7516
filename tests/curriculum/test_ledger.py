from __future__ import annotations

import resource
from collections.abc import Iterator
from pathlib import Path

import polars as pl
import pytest

from tossup.curriculum import atomic
from tossup.curriculum.ledger import SCHEMA, Entry, Ledger, scan_ledger, scan_texts
from tossup.records import Fate, Group, Problem, Rollout, Stop, TossupError, correct, undecided, wrong


def rollout(tokens: int, verdict=None) -> Rollout:
    return Rollout((1, 2), tuple(range(tokens)), (-0.5,) * tokens, f"text of {tokens}", Stop.END, 3, verdict, 0.25)


def entry(group_id: int, *parts: tuple[int, object, Fate]) -> Entry:
    problem = Problem(f"p{group_id}", "2 + 2?", "4", dataset="sums")
    rollouts = tuple(rollout(n, verdict) for n, verdict, _ in parts)
    return Group(group_id, problem, rollouts, "score"), tuple(fate for *_, fate in parts)


MIXED = entry(7, (5, correct("same", "4"), Fate.TRAINED), (9, wrong("other"), Fate.TRAINED))
BROKEN = entry(8, (4, undecided("timeout"), Fate.UNDECIDED), (6, wrong("other"), Fate.UNDECIDED))


def test_one_row_a_rollout_with_the_columns_of_the_schema(tmp_path: Path) -> None:
    Ledger(tmp_path, "r1").append(2, [MIXED, BROKEN])
    rows = scan_ledger(tmp_path).collect()
    assert rows.schema == SCHEMA
    assert rows.select("group", "sample", "ruling", "reward", "response_tokens", "fate").rows() == [
        (7, 0, "correct", 1.0, 5, "trained"),
        (7, 1, "wrong", 0.0, 9, "trained"),
        (8, 0, "undecided", None, 4, "undecided"),
        (8, 1, "wrong", 0.0, 6, "undecided"),
    ]
    assert rows["drawn_by"].unique().to_list() == ["score"]
    assert rows["step"].unique().to_list() == [2]


def test_every_token_has_one_fate_and_the_fates_add_up(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path, "r1")
    ledger.append(0, [MIXED])
    ledger.append(1, [BROKEN])
    fates = ledger.tokens_by_fate()
    assert set(fates) == set(Fate)
    assert fates[Fate.TRAINED] == 14
    assert fates[Fate.UNDECIDED] == 10
    assert sum(fates.values()) == 24


def test_the_same_step_again_replaces_its_part(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path, "r1", keep_text=True)
    ledger.append(0, [MIXED, BROKEN])
    ledger.append(0, [BROKEN])
    assert scan_ledger(tmp_path).collect()["group"].unique().to_list() == [8]
    assert scan_texts(tmp_path).collect()["group"].unique().to_list() == [8]


def test_truncate_drops_later_steps_and_half_written_parts(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path, "r1", keep_text=True)
    for step in range(4):
        ledger.append(step, [MIXED])
    (tmp_path / f"{atomic.TEMPORARY}step-00000009.parquet-x").write_bytes(b"half")
    ledger.truncate(2)
    assert ledger.steps() == [0, 1]
    assert sorted(p.name for p in tmp_path.iterdir()) == [
        "step-00000000.parquet",
        "step-00000001.parquet",
        "text-00000000.parquet",
        "text-00000001.parquet",
    ]


def test_text_lies_in_a_part_of_its_own_and_joins_back(tmp_path: Path) -> None:
    Ledger(tmp_path, "r1", keep_text=True).append(0, [MIXED])
    assert "text" not in scan_ledger(tmp_path).collect_schema().names()
    joined = scan_ledger(tmp_path).join(scan_texts(tmp_path), on=["step", "group", "sample"]).sort("sample").collect()
    assert joined["text"].to_list() == ["text of 5", "text of 9"]
    assert joined["answer"].to_list() == ["4", None]


def test_without_parts_there_are_no_rows_and_no_error(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "new", "r1")
    assert ledger.scan().collect().height == 0
    assert sum(ledger.tokens_by_fate().values()) == 0
    assert scan_texts(tmp_path / "new").collect().height == 0
    with pytest.raises(TossupError, match="no such ledger folder"):
        scan_ledger(tmp_path / "missing")


def test_a_step_without_groups_is_a_part_without_rows(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path, "r1")
    ledger.append(0, [])
    ledger.append(1, [MIXED])
    assert ledger.steps() == [0, 1]
    assert ledger.scan().collect().height == 2


def test_a_missing_fate_or_verdict_is_refused_and_nothing_is_written(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path, "r1")
    with pytest.raises(ValueError, match="2 rollouts and 1 fates"):
        ledger.append(0, [(MIXED[0], (Fate.TRAINED,))])
    with pytest.raises(ValueError, match="no verdict"):
        ledger.append(0, [entry(1, (3, None, Fate.TRAINED))])
    assert ledger.steps() == []


@pytest.fixture
def no_room() -> Iterator[None]:
    """The kernel refuses to let any file of this process grow beyond 2 kB, as a full disk would."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2048, hard))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_disk_that_refuses_leaves_the_old_part(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    ledger = Ledger(tmp_path, "r1")
    ledger.append(0, [MIXED])
    request.getfixturevalue("no_room")
    with pytest.raises(TossupError, match=r"step-00000000\.parquet could not be written: .*File too large"):
        ledger.append(0, [BROKEN])
    assert [p.name for p in tmp_path.iterdir()] == ["step-00000000.parquet"]
    assert pl.read_parquet(tmp_path / "step-00000000.parquet")["group"].unique().to_list() == [7]


def test_a_disk_that_cannot_flush_leaves_the_old_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger = Ledger(tmp_path, "r1")
    ledger.append(0, [MIXED])

    def full(handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(TossupError, match="No space left on device"):
        ledger.append(0, [BROKEN])
    assert [p.name for p in tmp_path.iterdir()] == ["step-00000000.parquet"]
    assert pl.read_parquet(tmp_path / "step-00000000.parquet")["group"].unique().to_list() == [7]


def test_a_part_that_is_written_meanwhile_is_there_once_settled(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path, "r1", keep_text=True)
    for step in range(5):
        ledger.append_soon(step, [MIXED, BROKEN])
    ledger.settle()
    assert len(list(tmp_path.glob("step-*.parquet"))) == len(list(tmp_path.glob("text-*.parquet"))) == 5
    ledger.append_soon(5, [MIXED])
    assert ledger.scan().collect().height == 5 * 4 + 2
    ledger.append_soon(6, [MIXED])
    assert ledger.steps() == list(range(7))
    ledger.append_soon(7, [MIXED])
    ledger.truncate(1)
    assert ledger.steps() == [0]


@pytest.mark.parametrize("ask", ["settle", "append_soon", "append", "scan", "steps", "truncate"])
def test_what_the_disk_refuses_meanwhile_is_raised_by_the_next_call(tmp_path: Path, ask: str) -> None:
    folder = tmp_path / "ledger"
    ledger = Ledger(folder, "r1")
    ledger.append(0, [MIXED])
    folder.rename(tmp_path / "elsewhere")
    ledger.append_soon(1, [MIXED])
    arguments = {"append_soon": (2, [BROKEN]), "append": (2, [BROKEN]), "truncate": (2,)}
    with pytest.raises(TossupError, match=r"step-00000001\.parquet could not be written: No such file"):
        getattr(ledger, ask)(*arguments.get(ask, ()))
    (tmp_path / "elsewhere").rename(folder)
    ledger.append(1, [BROKEN])
    assert ledger.steps() == [0, 1]
