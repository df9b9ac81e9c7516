from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from tossup.cli import main
from tossup.cli.audit import parse_sizes, parse_windows
from tossup.curriculum.ledger import Ledger
from tossup.records import Fate, Group, Problem, Rollout, Stop, correct, wrong


def run(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as exit_:
        main(arguments)
    printed = capsys.readouterr()
    return int(exit_.value.code or 0), printed.out, printed.err


@pytest.fixture
def rollouts(tmp_path: Path) -> Path:
    path = tmp_path / "r.jsonl"
    rows = [
        {"id": f"{i}", "dataset": "odd" if i % 2 else "even", "correct": [1] * (i % 9) + [0] * (8 - i % 9)}
        for i in range(40)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_json_gives_every_share_by_dataset_and_group_size(rollouts: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(["audit", str(rollouts), "--group-size", "4..16", "--json"], capsys)
    assert code == 0
    value = json.loads(out)
    assert value["group_sizes"] == [4, 8, 16]
    assert set(value["datasets"]) == {"odd", "even"}
    share = value["datasets"]["odd"]["group_size"]["8"]
    assert share["wasted"] == pytest.approx(share["all_correct"] + share["all_wrong"], abs=2e-6)
    assert share["wasted_interval"][0] <= share["wasted"] <= share["wasted_interval"][1]
    assert share["method"] == "unbiased"
    assert value["all"]["units"] == 40
    # Problems 0, 9, 18, 27 and 36 are solved 0 of 8 times, problems 8, 17, 26 and 35 always.
    assert value["all"]["group_size"]["8"]["wasted"] == pytest.approx(9 / 40)
    assert any("fitted model" in remark for remark in value["remarks"])


def test_the_table_names_sets_and_sizes(rollouts: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(["audit", str(rollouts), "--group-size", "4,16"], capsys)
    assert code == 0
    assert "odd: 20 problems" in out
    assert "all: 40 problems" in out
    assert "unbiased" in out
    assert "fitted model" in err


def test_many_sets_get_a_line_each(rollouts: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(["audit", str(rollouts), "--by", "id"], capsys)
    assert code == 0
    assert "G = 32" in out
    assert len(out.splitlines()) < 60


def test_visits_are_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "v.jsonl"
    path.write_text(json.dumps({"id": "a", "correct_of_4": [0, 0, 2, 4]}) + "\n")
    code, out, _ = run(["audit", str(path), "--visits", "1,2.."], capsys)
    assert code == 0
    assert "2 to the end" in out
    assert "after a mixed one 100.0%" in out
    _, out, _ = run(["audit", str(path), "--visits", "1", "--json"], capsys)
    assert json.loads(out)["visits"][0]["wasted"] == 1.0


@pytest.mark.parametrize(
    ("extra", "code", "message"),
    [
        (["--group-size", "1"], 2, "at least 2"),
        (["--group-size", "four"], 2, "expected numbers"),
        (["--map", "problem"], 2, "expected ROLE=COLUMN"),
        (["--visits", "0..3"], 2, "count from 1"),
        (["--visits", "a"], 2, "expected ranges"),
        (["--correct-if", "maybe"], 1, "expected a comparison"),
        (["--visits", "1.."], 1, "visits need groups"),
        (["--map", "reward=nope"], 1, "no column 'nope'"),
    ],
)
def test_wrong_use_is_told(
    rollouts: Path, capsys: pytest.CaptureFixture[str], extra: list[str], code: int, message: str
) -> None:
    got, out, err = run(["audit", str(rollouts), *extra], capsys)
    assert got == code
    assert out == ""
    assert message in err


def test_a_missing_and_a_broken_file_end_without_a_traceback(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["audit", str(tmp_path / "none.jsonl")], capsys)[0] == 1
    broken = tmp_path / "broken.jsonl"
    broken.write_text('{"id": "a", "reward": 1}\n{"id": "b", "rew')
    code, _, err = run(["audit", str(broken)], capsys)
    assert code == 1
    assert "broken.jsonl" in err
    assert "Traceback" not in err


def test_sizes_and_windows() -> None:
    assert parse_sizes("4..32,5") == [4, 8, 16, 32, 5]
    assert parse_sizes("3..10") == [3, 6]
    assert parse_windows("1,2..4,7..") == [(1, 1), (2, 4), (7, None)]


def test_a_plan_for_a_budget(rollouts: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plan = ["audit", str(rollouts), "--group-size", "4,8", "--plan", "--answer-tokens", "100", "--budget", "50k"]
    code, out, _ = run(plan, capsys)
    assert code == 0
    assert "Most informative groups: G = 4" in out
    _, out, _ = run([*plan, "--keep", "0.2..0.8", "--json"], capsys)
    options = json.loads(out)["plan"]["options"]
    assert [(o["group_size"], o["band"]) for o in options[:2]] == [(4, [0.0, 1.0]), (4, [0.2, 0.8])]
    assert options[0]["informative"] == pytest.approx(0.05 * options[0]["per_million"], abs=1e-4)
    code, _, err = run(["audit", str(rollouts), "--plan"], capsys)
    assert code == 1
    assert "--answer-tokens" in err


@pytest.mark.parametrize(
    ("option", "value"), [("--budget", "lots"), ("--budget", "0"), ("--keep", "0.9..0.1"), ("--keep", "x")]
)
def test_a_plan_that_cannot_be_read(
    rollouts: Path, capsys: pytest.CaptureFixture[str], option: str, value: str
) -> None:
    assert run(["audit", str(rollouts), "--plan", option, value], capsys)[0] == 2


PAGE = Path(__file__).parents[2] / "docs" / "audit.md"


def test_every_command_of_the_page_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    lists = [{"id": f"{i}", "correct": [1] * (i % 9) + [0] * (8 - i % 9)} for i in range(20)]
    lines("rollouts.jsonl", lists)
    lines("scores.jsonl", [{"id": row["id"], "scores": row["correct"]} for row in lists])
    lines("history.jsonl", [{"id": str(i), "level": i % 2, "correct_of_8": [i % 9] * 12} for i in range(20)])
    flat = pl.DataFrame(
        [(row["id"], r) for row in lists for r in row["correct"]], schema=["prompt", "right"], orient="row"
    )
    flat.select("prompt", accuracy_reward="right").write_parquet("completions.parquet")
    outcome = pl.when(pl.col("right") == 1).then(pl.lit("pass")).otherwise(pl.lit("fail"))
    flat.select("prompt", outcome=outcome).write_csv("outcomes.csv")
    pool = {"id": [row["id"] for row in lists], "attempts": 8, "correct": [sum(row["correct"]) for row in lists]}
    pl.DataFrame({**pool, "mean_tokens_correct": 20.0, "mean_tokens_wrong": 40.0}).write_parquet("pool.parquet")
    ledger = Ledger(tmp_path / "run" / "ledger", "r")
    rollouts = tuple(Rollout((1,), (1,), (0.0,), "", Stop.END, 0, verdict) for verdict in (correct(""), wrong("")))
    ledger.append(0, [(Group(0, Problem("p", "q", "1"), rollouts), (Fate.TRAINED,) * 2)])
    foreign_files(lists)
    commands = re.findall(r"^tossup (audit .*)$", PAGE.read_text(), flags=re.MULTILINE)
    assert len(commands) >= 17
    for command in commands:
        words = shlex.split(command, comments=True)
        expanded = [path for word in words for path in (sorted(map(str, Path().glob(word))) if "*" in word else [word])]
        code, out, err = run(expanded, capsys)
        assert (code, bool(out)) == (0, True), (command, err)
    assert Path("waste.html").read_text().startswith("<!doctype html>")


def foreign_files(lists: list[dict[str, Any]]) -> None:
    """What "Audit any run" speaks of; the shapes themselves are tested in tests/curriculum/test_foreign.py."""
    answers = [(row["id"], right) for row in lists for right in row["correct"]]
    for folder in ("grpo_output/completions", "rollout_dumps", "evals/sums--tiny", "harness_output/tiny", "runs"):
        Path(folder).mkdir(parents=True)
    Path("run").rename("runs/sums")
    trl = pl.DataFrame([{"step": 1, "prompt": q, "accuracy_reward": float(r)} for q, r in answers])
    trl.write_parquet("grpo_output/completions/completions_00001.parquet")
    lines("rollout_dumps/1.jsonl", [{"input": q, "score": r, "step": 1, "uid": f"{q}_{r}"} for q, r in answers])
    traces = [{"task": {"key": q}, "rewards": {"correct": {"score": float(r), "weight": 1.0}}} for q, r in answers]
    lines("evals/sums--tiny/traces.jsonl", [{"task": t["task"], "traces": [t]} for t in traces])
    for step in (1, 2):
        place = Path(f"prime_outputs/rollouts/step_{step}/train/all")
        place.mkdir(parents=True)
        lines(f"{place}/traces.jsonl", traces)
    lines("results.jsonl", [{"example_id": q, "reward": r, "metrics": {"correct_answer": r}} for q, r in answers])
    lines("harness_output/tiny/samples_sums_2026-01-02T03-04-05.6.jsonl", [{"doc_id": q, "acc": r} for q, r in answers])
    asked = [({"role": "user", "content": q}, r) for q, r in answers]
    lines("chats.jsonl", [{"messages": [q, {"role": "assistant", "content": "x"}], "score": r} for q, r in asked])
    table = pl.DataFrame([{"question": q, "verdict": "pass" if r else "fail"} for q, r in answers])
    table.write_csv("table.csv")


def lines(name: str, rows: list[dict[str, Any]]) -> None:
    Path(name).write_text("".join(json.dumps(row) + "\n" for row in rows))
