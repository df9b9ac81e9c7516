"""The dashboards that install here receive every figure of every step; a resumed run goes on in the same one."""

from __future__ import annotations

import html
import json
import os
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from test_train import Silent, config

from tossup.curriculum.gate import fates
from tossup.curriculum.ledger import scan_ledger
from tossup.engine.completions import COLUMNS, LONGEST, Completion, completions
from tossup.engine.dashboards import DASHBOARDS, open_dashboard
from tossup.engine.train import train
from tossup.records import Fate, Group, Problem, Rollout, Stop, TossupError, correct, undecided, wrong

FIGURE = "rollout/effective"


def expected(run: Path) -> dict[int, float]:
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return {line["step"]: line[FIGURE] for line in lines}


def check_table(run: Path, step: int, table: list[dict[str, Any]], groups: int = 4) -> None:
    """The rows are whole groups of the step, as the ledger has them, and advantages add up to zero in each that trained."""
    frame = scan_ledger(run / "ledger").filter(pl.col("step") == step).collect()
    size = frame.height // frame["group"].n_unique()
    assert len(table) == min(groups, frame["group"].n_unique()) * size
    for start in range(0, len(table), size):
        shown = table[start : start + size]
        (problem,) = {row["problem"] for row in shown}
        same = frame.filter(pl.col("problem") == problem).sort("sample")
        for name in ("reward", "reason", "fate", "dataset"):
            assert [row[name] for row in shown] == same[name].to_list()
        assert [row["tokens"] for row in shown] == same["response_tokens"].to_list()
        pushes = [row["advantage"] for row in shown]
        assert (pushes.count(None) == size) == (shown[0]["fate"] != "trained")
        assert sum(push or 0 for push in pushes) == pytest.approx(0)


def test_tensorboard_shows_what_metrics_jsonl_holds(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    run = tmp_path / "run"
    train(config(run, steps=2, eval_pool="", log="tensorboard"), Silent())
    train(config(run, steps=4, eval_pool="", log="tensorboard"), Silent())
    events = EventAccumulator(str(run / "tensorboard"))
    events.Reload()
    seen = {event.step: event.value for event in events.Scalars(FIGURE)}
    assert seen == pytest.approx(expected(run))
    assert len(seen) == 4
    for event in events.Tensors("completions/text_summary"):
        (text,) = event.tensor_proto.string_val
        lines = [[html.unescape(cell.strip()) for cell in line.split("|")[1:-1]] for line in text.decode().split("\n")]
        assert lines[0] == COLUMNS
        typed = [dict(zip(COLUMNS, line, strict=True)) for line in lines[2:]]
        for row in typed:
            row |= {name: float(row[name]) if row[name] else None for name in ("reward", "advantage")}
            row["tokens"] = int(row["tokens"])
        check_table(run, event.step, typed)


def test_wandb_writes_offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    for patience in ("WANDB_X_SERVICE_WAIT", "WANDB_INIT_TIMEOUT"):  # seconds for its own process to start
        monkeypatch.setenv(patience, "300")
    run = tmp_path / "run"
    train(config(run, steps=2, eval_pool="", log="wandb"), Silent())
    (recorded,) = run.glob("wandb/offline-run-*/run-run.wandb")
    content = b""
    for _ in range(3000):  # wandb's own process flushes the file; how soon is its business
        content = recorded.read_bytes()
        if b"update/loss" in content:
            break
        time.sleep(0.1)
    assert FIGURE.encode() in content
    assert b"update/loss" in content
    tables = [json.loads(path.read_text()) for path in run.glob("wandb/offline-run-*/files/media/table/*.json")]
    assert len(tables) == 2
    for table in tables:
        assert table["columns"] == COLUMNS
        shown = [dict(zip(COLUMNS, row, strict=True)) for row in table["data"]]
        check_table(run, shown[0]["step"], shown)


def test_trackio_keeps_figures_and_answers_and_leaves_stdout_alone(
    tmp_path: Path,
) -> None:
    run, kept = tmp_path / "run", tmp_path / "trackio"
    recipe = ["--steps=2", "--problems-per-step=6", "--group-size=4", "--eval-pool=", "--threads=1"]
    code = "import sys; from tossup.cli import main; main(sys.argv[1:])"
    command = [sys.executable, "-c", code, "train", *recipe, f"--out={run}", "--log=trackio", "--json"]
    done = subprocess.run(command, env=os.environ | {"TRACKIO_DIR": str(kept)}, capture_output=True, check=True)
    assert json.loads(done.stdout)["steps"] == 2
    with closing(sqlite3.connect(kept / "tossup.db")) as database:
        logged = [
            (step, json.loads(metrics)) for step, metrics in database.execute("select step, metrics from metrics")
        ]
    assert {step: m[FIGURE] for step, m in logged if FIGURE in m} == pytest.approx(expected(run))
    tables = {step: m["completions"]["_value"] for step, m in logged if "completions" in m}
    assert set(tables) == {0, 1}
    for step, table in tables.items():
        check_table(run, step, table)


def entry(marks: str, text: str = "x", prompt: Any = "q") -> tuple[Group, tuple[Fate, ...]]:
    said = {"1": correct("right"), "0": wrong("not right"), "?": undecided("broken")}
    rollouts = tuple(Rollout((1,), (2, 3), (-1.0, -1.0), text, Stop.END, 0, said[mark]) for mark in marks)
    group = Group(0, Problem("p", prompt, "1", dataset="d"), rollouts)
    return group, fates(group)


def test_an_undecided_answer_has_neither_reward_nor_advantage_and_is_not_in_the_mean() -> None:
    rows = completions(7, [entry("10?1")], 4, std_norm=False)
    assert [row.reward for row in rows] == [1, 0, None, 1]
    assert [row.advantage for row in rows] == pytest.approx([1 / 3, -2 / 3, None, 1 / 3])
    assert [row.fate for row in rows] == ["trained", "trained", "undecided", "trained"]
    assert [row.advantage for row in completions(7, [entry("1?11")], 4, std_norm=True)] == [None] * 4


def test_the_groups_shown_are_spread_and_bounded_and_long_texts_are_cut() -> None:
    entries = [entry("10", text=str(i)) for i in range(10)]
    assert [row.completion for row in completions(0, entries, 5, True)[::2]] == ["0", "2", "4", "6", "8"]
    assert completions(0, entries, 0, True) == []
    (row, _) = completions(0, [entry("10", text="a" * 10 * LONGEST)], 1, True)
    assert len(row.completion) < 1.1 * LONGEST
    chat = ({"role": "system", "content": "s"}, {"role": "user", "content": "u"})
    assert completions(0, [entry("10", prompt=chat)], 1, True)[0].prompt == "system: s\n\nuser: u"


def test_what_a_model_wrote_stays_in_its_cell(tmp_path: Path) -> None:
    from markdown import markdown
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    hostile = "a | b\n| --- |\n<script>alert(1)</script> **bold** [x](http://y) `c` \\| &amp;"
    board = open_dashboard("tensorboard", "p", tmp_path, {}, 0)
    row = Completion(0, "p", "d", "q", hostile, 1.0, None, "correct", "r", "trained", 3)
    board.show(0, [row])
    board.close()
    events = EventAccumulator(str(tmp_path / "tensorboard"))
    events.Reload()
    (event,) = events.Tensors("completions/text_summary")
    page = markdown(event.tensor_proto.string_val[0].decode(), extensions=["markdown.extensions.tables"])
    assert page.count("<tr>") == 2
    assert page.count("<td>") == len(COLUMNS)
    for tag in ("<script", "<strong", "<a ", "<code"):
        assert tag not in page
    (cell,) = [cell for cell in page.split("<td>") if "alert" in cell]
    assert html.unescape(cell.partition("</td>")[0]) == hostile.replace("\n", "<br>")


def test_a_dashboard_that_is_not_installed_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "trackio", None)
    with pytest.raises(TossupError, match=r"tossup\[trackio\]"):
        open_dashboard("trackio", "p", tmp_path, {}, 0)
    assert set(DASHBOARDS) == {"tensorboard", "wandb", "trackio"}


def test_a_dashboard_that_does_not_start_says_what_to_do(tmp_path: Path) -> None:
    """A log folder that is a file: stands for no login and no network, which cannot be had at will."""
    (tmp_path / "tensorboard").write_text("", "utf-8")
    with pytest.raises(TossupError, match=r"--log tensorboard does not start \(\w+: .*leave --log away"):
        open_dashboard("tensorboard", "p", tmp_path, {}, 0)
