from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from polars.testing import assert_frame_equal

from tossup.curriculum import cells, criterion
from tossup.curriculum.audit import SetAudit, audit
from tossup.curriculum.history import history
from tossup.curriculum.ledger import Ledger
from tossup.curriculum.rollouts import Rollouts, read_rollouts
from tossup.records import Fate, Group, Problem, Rollout, Stop, TossupError, correct, undecided, wrong


def table(path: Path, rows: Sequence[dict[str, Any]]) -> Path:
    if path.suffix == ".parquet":
        pl.DataFrame(rows).write_parquet(path)
    elif path.suffix == ".csv":
        pl.DataFrame(rows).write_csv(path)
    else:
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def audited(path: Path, sizes: Sequence[int] = (2, 4), **options: Any) -> dict[str, SetAudit]:
    by = options.pop("by", None)
    sets, overall = audit(read_rollouts([path], by=by or (), **options), sizes, by)
    return {"|".join(s.labels.values()): s for s in sets} | {"ALL": overall}


ANSWERS = {"a": [1, 1, 1, 0], "b": [0, 0, 0, 0], "c": [1, 1, 1, 1]}
WASTE_OF_2 = (0.5 + 1 + 1) / 3
"""Of the 6 pairs of a's answers, 3 are alike; those of b and c all are."""


@pytest.mark.parametrize("suffix", [".jsonl", ".parquet", ".csv"])
def test_a_row_a_rollout(tmp_path: Path, suffix: str) -> None:
    rows = [{"problem": k, "reward": float(r)} for k, rs in ANSWERS.items() for r in rs]
    one = audited(table(tmp_path / f"set{suffix}", rows))["set"]
    assert (one.units, one.rollouts, one.observed) == (3, 12, None)
    assert one.mean == pytest.approx(7 / 12)
    assert [e.wasted.value for e in one.expected] == pytest.approx([WASTE_OF_2, 2 / 3])
    assert one.expected[1].all_correct.value == pytest.approx(1 / 3)
    assert one.expected[1].all_wrong.value == pytest.approx(1 / 3)


def test_a_row_a_problem_with_a_list(tmp_path: Path) -> None:
    rows = [{"id": k, "dataset": "d", "correct": rs, "policies": ["x"] * 4} for k, rs in ANSWERS.items()]
    one = audited(table(tmp_path / "p.jsonl", rows))["d"]
    assert one.expected[0].wasted.value == pytest.approx(WASTE_OF_2)


def test_a_row_a_set_with_lists_of_lists_and_a_list_that_is_empty(tmp_path: Path) -> None:
    rows = [
        {"dataset": "d", "policy": "m1", "scores": [[1.0, 1.0, 1.0, 0.2], [0.0, 0.1, 0.0, 0.0], [1.0] * 4, []]},
        {"dataset": "d", "policy": "m2", "scores": [[0.0] * 4]},
    ]
    sets = audited(table(tmp_path / "p.jsonl", rows))
    assert sets["d|m1"].units == 3
    assert sets["d|m1"].expected[0].wasted.value == pytest.approx(WASTE_OF_2)
    assert sets["d|m1"].equal_reward == pytest.approx(1 / 3)
    assert sets["d|m1"].odd_rewards == 2
    assert sets["d|m2"].expected[0].all_wrong.value == 1.0
    assert sets["ALL"].units == 4


def test_lists_of_counts_are_problems_beside_ids_and_visits_without(tmp_path: Path) -> None:
    counts = [{"dataset": "d", "ids": ["a", "b", "c"], "level": ["x", "y", "y"], "correct_of_4": [3, 0, 4]}]
    problems = audited(table(tmp_path / "p.jsonl", counts))["d"]
    assert problems.observed is None
    assert problems.expected[0].wasted.value == pytest.approx(WASTE_OF_2)
    by_level = audited(tmp_path / "p.jsonl", by=["level"])
    assert by_level["x"].expected[0].wasted.value == pytest.approx(0.5)
    assert by_level["y"].expected[0].wasted.value == 1.0
    visits = [{"id": "a", "correct_of_4": [3, 0, 4]}, {"id": "b", "correct_of_4": [0]}]
    groups = audited(table(tmp_path / "v.jsonl", visits))["v"]
    assert groups.observed is not None
    assert (groups.observed.groups, groups.observed.wasted) == (4, 0.75)


def test_a_pool_with_counts(tmp_path: Path) -> None:
    rows = [{"id": k, "prompt": "q", "attempts": 4, "correct": sum(rs)} for k, rs in ANSWERS.items()]
    one = audited(table(tmp_path / "p.parquet", rows))["p"]
    assert one.expected[0].wasted.value == pytest.approx(WASTE_OF_2)
    assert one.expected[0].wasted_tokens is None
    lengths = {"mean_tokens_correct": 10.0, "mean_tokens_wrong": 30.0}
    measured = audited(table(tmp_path / "m.parquet", [{**row, **lengths} for row in rows]))["m"]
    # At G = 4 the groups of b (4 times 30) and c (4 times 10) are wasted, that of a (3 times 10, once 30) is not.
    assert measured.expected[1].wasted_tokens == pytest.approx(160 / 220)


def test_groups_are_told_by_step_and_a_problem_may_come_again(tmp_path: Path) -> None:
    rows = [
        {"step": step, "prompt": p, "reward": r, "completion_length": 10}
        for step, p, rs in [(0, "q", [1, 1]), (1, "q", [1, 0]), (1, "r", [0, 0])]
        for r in rs
    ]
    one = audited(table(tmp_path / "run.jsonl", rows), sizes=[2])["run"]
    assert one.observed is not None
    assert (one.observed.groups, one.observed.wasted) == (3, pytest.approx(2 / 3))
    assert (one.observed.tokens, one.observed.wasted_tokens) == (60, pytest.approx(2 / 3))
    assert one.expected[0].wasted_tokens == pytest.approx(2 / 3)


def test_a_ledger_and_a_run_folder_with_undecided_rollouts_left_out(tmp_path: Path) -> None:
    def group(at: int, *verdicts: Any) -> tuple[Group, tuple[Fate, ...]]:
        rollouts = tuple(Rollout((1,), (1, 2, 3), (0.0,) * 3, "", Stop.END, 0, v) for v in verdicts)
        return Group(at, Problem(f"p{at}", "q", "1", dataset="sums"), rollouts), (Fate.TRAINED,) * len(rollouts)

    ledger = Ledger(tmp_path / "run" / "ledger", "r")
    ledger.append(0, [group(0, correct(""), undecided(""), wrong("")), group(1, wrong(""), wrong(""), wrong(""))])
    ledger.append(1, [group(2, correct(""), undecided(""), undecided(""))])
    for source in (tmp_path / "run", tmp_path / "run" / "ledger"):
        one = audited(source, sizes=[2])["sums"]
        assert one.observed is not None
        assert (one.undecided, one.rollouts) == (3, 6)
        assert one.observed.groups == 3
        assert one.observed.all_wrong == pytest.approx(1 / 3)
        assert one.observed.too_few == pytest.approx(1 / 3)
        assert one.observed.wasted == pytest.approx(2 / 3)


def test_the_outcome_decides_and_not_the_shaped_reward(tmp_path: Path) -> None:
    rows = [{"problem": "a", "reward": r} for r in (0.1, 0.0, 0.1, 0.0)]
    path = table(tmp_path / "p.jsonl", rows)
    assert audited(path)["p"].expected[0].all_wrong.value == 1.0
    assert audited(path)["p"].equal_reward == 0.0
    loose = audited(path, criterion=criterion.parse(">= 0.1"))["p"]
    assert loose.mean == 0.5


def test_words_are_judged_by_a_rule_or_by_common_sense(tmp_path: Path) -> None:
    rows = [{"task_id": "a", "score": word} for word in ("pass", "Correct", "wrong", "timeout")]
    path = table(tmp_path / "p.jsonl", rows)
    assert audited(path)["p"].mean == 0.5
    assert audited(path, criterion=criterion.parse("== timeout"))["p"].mean == 0.25
    assert audited(path, criterion=criterion.parse("!= wrong"))["p"].mean == 0.75
    with pytest.raises(TossupError, match="'score' holds String"):
        audited(path, criterion=criterion.parse(">= 1"))


@pytest.mark.parametrize("text", ["1", "=> 1", ">=", "> pass", ""])
def test_a_rule_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(TossupError, match="--correct-if"):
        criterion.parse(text)


def test_the_same_problem_under_two_policies_is_two_units(tmp_path: Path) -> None:
    rows = [{"id": "a", "policy": m, "reward": r} for m, r in [("x", 1), ("x", 1), ("y", 0), ("y", 0)]]
    sets = audited(table(tmp_path / "p.jsonl", rows), sizes=[2])
    assert sets["p|x"].expected[0].all_correct.value == 1.0
    assert sets["p|y"].expected[0].all_wrong.value == 1.0
    assert sets["ALL"].units == 2


def test_files_together_hold_the_same_problem_once(tmp_path: Path) -> None:
    one = table(tmp_path / "a.jsonl", [{"id": "q", "dataset": "d", "reward": 1}])
    two = table(tmp_path / "b.parquet", [{"id": "q", "dataset": "d", "reward": 0.0}])
    sets, _ = audit(read_rollouts([one, two]), [2])
    assert (sets[0].units, sets[0].expected[0].wasted.value) == (1, 0.0)


def test_trl_rewards_go_by_the_function_that_speaks_of_the_outcome(tmp_path: Path) -> None:
    row = {"step": 1, "prompt": "q", "completion": "c", "format_reward": 0.5, "accuracy_reward": 1.0, "advantage": 0.1}
    assert audited(table(tmp_path / "p.parquet", [row, row]), sizes=[2])["p"].mean == 1.0
    unclear = [{"prompt": "q", "a_reward": 0.5, "b_reward": 1.0}]
    with pytest.raises(TossupError, match=r"several columns could hold the reward \(a_reward, b_reward\)"):
        audited(table(tmp_path / "u.jsonl", unclear))
    assert audited(tmp_path / "u.jsonl", mapping={"reward": "b_reward"})["u"].mean == 1.0


@pytest.mark.parametrize(
    ("rows", "mapping", "message"),
    [
        (
            [{"text": "q", "reward": 1}],
            {},
            "names the problem.*found reward = reward; it has text, reward; name it with",
        ),
        (
            [{"id": "q", "text": "x"}],
            {},
            "no reward column; found problem = id; it has id, text; name it with --map reward",
        ),
        ([{"id": "q", "reward": {"a": 1}}], {}, r"it has id, reward \(reward.a\); .*--map reward=COLUMN.*COLUMN.FIELD"),
        ([{"id": "q", "m": {"a": 1}}], {"reward": "m"}, "'m' holds Struct.*, which is no reward"),
        ([{"id": "q", "reward": 1}], {"reward": "score"}, "no column 'score' to map to reward"),
        ([{"id": "q", "reward": 1}], {"key": "id"}, "rollouts have no 'key'"),
        ([{"id": "q", "reward": None}], {"reward": "reward"}, "no decided rollout"),
    ],
)
def test_what_cannot_be_read_is_named(
    tmp_path: Path, rows: list[dict[str, Any]], mapping: dict[str, str], message: str
) -> None:
    with pytest.raises(TossupError, match=message):
        audited(table(tmp_path / "p.jsonl", rows), mapping=mapping)


def test_sources_that_are_none(tmp_path: Path) -> None:
    with pytest.raises(TossupError, match="no such file or folder"):
        read_rollouts([tmp_path / "x.jsonl"])
    with pytest.raises(TossupError, match=r"no rollouts in it: neither the parts of a ledger nor a \.parquet"):
        read_rollouts([tmp_path])
    with pytest.raises(TossupError, match="no rollouts given"):
        read_rollouts([])
    with pytest.raises(TossupError, match="no column 'level' to report by"):
        read_rollouts([table(tmp_path / "p.jsonl", [{"id": "q", "reward": 1}])], by=["level"])


def test_a_row_that_breaks_the_promise_of_the_first_thousands_is_told(tmp_path: Path) -> None:
    rows = [{"id": "q", "reward": 1}] * 3000 + [{"id": "q", "reward": {"score": 1}}]
    with pytest.raises(TossupError, match="cannot be read to their end"):
        audited(table(tmp_path / "p.jsonl", rows))


def test_the_method_says_what_the_share_rests_on(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    few = [{"id": f"f{i}", "correct": rng.integers(0, 2, 4).tolist()} for i in range(50)]
    many = [{"id": f"m{i}", "correct": rng.integers(0, 2, 8).tolist()} for i in range(50)]
    one = audited(table(tmp_path / "p.jsonl", few + many), sizes=[4, 8, 16])["p"]
    assert [e.method for e in one.expected] == ["unbiased", "mixed", "fitted"]
    for e in one.expected:
        assert e.wasted.low <= e.wasted.value <= e.wasted.high
        assert e.wasted.value == pytest.approx(e.all_correct.value + e.all_wrong.value)


@pytest.mark.parametrize("limit", [7, 100, 1000])
def test_folding_in_passes_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: int) -> None:
    rng = np.random.default_rng(1)
    rows = [
        {"problem": f"p{at}", "dataset": "ab"[at % 2], "step": step, "reward": float(r), "response_tokens": int(t)}
        for at in range(60)
        for step in range(3)
        for r, t in zip(rng.random(4) < at / 60, rng.integers(1, 9, 4), strict=True)
    ]
    path = table(tmp_path / "run.parquet", rows)
    whole = cells.fold(read_rollouts([path]), ["dataset"])
    passes: list[tuple[int, int]] = []
    folded = cells._folded

    def counted(rollouts: Rollouts, by: Sequence[str], first: int, end: int) -> pl.DataFrame:
        passes.append((first, end))
        return folded(rollouts, by, first, end)

    monkeypatch.setattr(cells, "_folded", counted)
    monkeypatch.setattr(cells, "UNITS_A_PASS", limit)
    assert_frame_equal(cells.fold(read_rollouts([path]), ["dataset"]), whole)
    assert [first for first, _ in passes] == [0, *(end for _, end in passes[:-1])]
    assert passes[-1][1] == cells.BUCKETS
    assert len(passes) >= 180 / limit
    assert (len(passes) == 1) == (limit == 1000)


def test_many_visits_to_few_problems_widen_the_interval(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    p = rng.beta(0.3, 0.6, 40)
    apart = [{"id": i, "correct_of_8": [int(rng.binomial(8, p[i % 40]))]} for i in range(1200)]
    together = [{"id": i, "correct_of_8": rng.binomial(8, p[i], 30).tolist()} for i in range(40)]
    widths = []
    for name, rows in (("apart", apart), ("together", together)):
        one = audited(table(tmp_path / f"{name}.jsonl", rows), sizes=[8, 16])[name]
        widths.append([e.wasted.high - e.wasted.low for e in one.expected])
    assert widths[1][0] > 2 * widths[0][0]
    assert widths[1][1] > 1.5 * widths[0][1]


def test_visits_and_what_one_tells_of_the_next(tmp_path: Path) -> None:
    rows = [{"id": "a", "level": 1, "correct_of_4": [0, 0, 2, 4]}, {"id": "b", "level": 2, "correct_of_4": [1, 2]}]
    rollouts = read_rollouts([table(tmp_path / "p.jsonl", rows)], by=["level"])
    windows, persistence = history(rollouts, [(1, 1), (2, None)], ["level"])
    shares = {(w.first, w.labels.get("level", "all")): (w.groups, w.wasted, w.mean) for w in windows}
    assert shares[(1, "all")] == (2, 0.5, 0.125)
    assert shares[(2, "all")] == (4, 0.5, 0.5)
    assert shares[(2, "1")] == (3, pytest.approx(2 / 3), 0.5)
    assert persistence.after_wasted == 0.5
    assert persistence.after_mixed == 0.5
    assert persistence.after_streak == {1: 1.0, 2: 0.0}
    flat = read_rollouts([table(tmp_path / "f.jsonl", [{"id": "a", "reward": 1}])])
    with pytest.raises(TossupError, match="visits need groups in time"):
        history(flat, [(1, None)])


CHAT = [{"role": "user", "content": "q"}]
FOREIGN: dict[str, list[dict[str, Any]]] = {
    "verl rollout dump": [
        {"input": "q", "output": "x", "gts": "1", "score": 1.0 if acc else -0.9, "step": 5, "acc": acc}
        for acc in (True, True, False, True)
    ],
    "prime-rl and verifiers traces": [
        {
            "example_id": 3,
            "prompt": CHAT,
            "completion": CHAT,
            "answer": "1",
            "task": "foreign",
            "reward": r,
            "metrics": {"f": r},
        }
        for r in (1.0, 1.0, 0.0, 1.0)
    ],
    "lm-evaluation-harness samples": [
        {"doc_id": 0, "doc": {"q": "q"}, "target": "1", "resps": [["x"]], "filter": "strict-match", "exact_match": m}
        for m in (1.0, 1.0, 0.0, 1.0)
    ],
    "chats as problems": [{"question": CHAT, "passed": p} for p in (True, True, False, True)],
}


@pytest.mark.parametrize("suffix", [".jsonl", ".parquet"])
@pytest.mark.parametrize("name", FOREIGN)
def test_what_others_write_is_read_without_a_mapping(tmp_path: Path, name: str, suffix: str) -> None:
    one = audited(table(tmp_path / f"foreign{suffix}", FOREIGN[name]), sizes=[2, 4])["foreign"]
    assert (one.units, one.rollouts, one.mean) == (1, 4, 0.75)
    assert [e.wasted.value for e in one.expected] == pytest.approx([0.5, 0.0])
    assert (one.observed is not None) == ("step" in FOREIGN[name][0])


def test_the_filters_of_a_harness_are_told_apart(tmp_path: Path) -> None:
    rows = [{"doc_id": 0, "filter": f, "exact_match": m} for f, m in [("strict", 0), ("strict", 0), ("flexible", 1)]]
    sets = audited(table(tmp_path / "p.jsonl", rows), sizes=[2])
    assert sets["p|strict"].expected[0].all_wrong.value == 1.0
    assert sets["p|flexible"].rollouts == 1
