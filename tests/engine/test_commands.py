"""`tossup train`, `curate` and `eval` as typed: exit codes, one JSON value on stdout, names that hold brackets."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tossup.cli import main

SMALL = ["--max-new-tokens", "8", "--threads", "1"]
TRAIN = [
    "train",
    "--model",
    "builtin:arithmetic",
    "--steps",
    "1",
    "--problems-per-step",
    "2",
    "--group-size",
    "2",
    *SMALL,
]


def run(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as exit_:
        main(arguments)
    printed = capsys.readouterr()
    return int(exit_.value.code or 0), printed.out, printed.err


@pytest.fixture
def pool(tmp_path: Path) -> Path:
    path = tmp_path / "[bold] pool.jsonl"
    row = '{"q": "a1+a1=", "reference": "a2", "dataset": "[/x]"}\n'
    path.write_text(row + row.replace("[/x]", "other"))
    return path


@pytest.mark.parametrize("json_", [["--json"], []])
def test_names_with_brackets_and_columns_by_name(
    tmp_path: Path, pool: Path, json_: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    common = ["--map", "prompt=q", "--verifier", "exact", *json_]
    out = tmp_path / "[bold] run"
    commands = [
        [*TRAIN, *common, "--pool", str(pool), "--out", str(out)],
        ["curate", str(pool), "--samples", "2", "--out", f"{out}.jsonl", *SMALL, *common],
        ["eval", str(out), "--pool", str(pool), "--samples", "2", "--out", f"{out}.eval", *SMALL, *common],
    ]
    for command in commands:
        code, printed, err = run(command, capsys)
        assert code == 0, err
        if json_:
            assert printed.count("\n") == 1
            assert json.loads(printed)["run"].startswith(str(out))
        else:
            assert str(out) in printed


@pytest.mark.parametrize(
    ("extra", "says"),
    [
        (["--group-size", "1"], "rollout.group_size"),
        (["--temperature", "nan"], "rollout.temperature"),
        (["--dtype", "float16"], "--dtype"),
        (["--lrr", "1"], "--lr"),
        (["--pool", "a.jsonl", "--pool", "b.jsonl"], "takes one pool, got a.jsonl, b.jsonl"),
        (["--clip-dual", "1"], "Error: update: clip_dual has to be more than 1 + clip_high (1.2)"),
        (["none.toml"], "none.toml"),
    ],
)
def test_wrong_usage_is_2(extra: list[str], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, printed, err = run([*TRAIN, *extra], capsys)
    assert (code, printed) == (2, "")
    assert says in err


def test_a_model_without_problems_is_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    recipe = tmp_path / "recipe.toml"
    recipe.write_text('model = "some/model"\n')
    for given in ([str(recipe)], ["--model", "some/model"]):
        code, _, err = run(["train", *given, "--dry-run"], capsys)
        assert code == 2
        assert "--pool builtin:arithmetic/train" in err
    code, _, err = run(["eval", "some/model"], capsys)
    assert code == 2
    assert "no problems are named for some/model" in err
    code, _, err = run(["train", str(recipe), "--pool", str(tmp_path / "none.jsonl"), "--dry-run"], capsys)
    assert code == 1
    assert "none.jsonl" in err


def test_a_recipe_with_an_unknown_setting_is_2_and_names_the_near_matches(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recipe = tmp_path / "recipe.toml"
    recipe.write_text("[update]\nlrr = 1\n")
    code, _, err = run([*TRAIN, str(recipe)], capsys)
    assert code == 2
    assert "did you mean update.lr" in err


def test_a_missing_pool_is_1(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "run"
    code, printed, err = run([*TRAIN, "--pool", str(tmp_path / "none.jsonl"), "--out", str(out)], capsys)
    assert (code, printed) == (1, "")
    assert "none.jsonl" in err
    assert not out.exists()


def start(arguments: list[str], out: int) -> subprocess.Popen[bytes]:
    # A shell's background job starts with SIGINT ignored, and its children inherit that.
    code = "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler); "
    code += "from tossup.cli import main; main(sys.argv[1:])"
    return subprocess.Popen([sys.executable, "-c", code, *arguments], stdout=out, stderr=subprocess.PIPE)


def test_every_further_interrupt_leaves_the_way_out_alone(tmp_path: Path) -> None:
    endless = [*TRAIN, "--steps", "100000", "--out", str(tmp_path / "run")]
    with start(endless, subprocess.DEVNULL) as process:
        while not list(tmp_path.glob("run/checkpoints/step-*")):
            assert process.poll() is None
            time.sleep(0.01)
        process.send_signal(signal.SIGINT)
        assert process.stderr is not None
        assert b"interrupted\n" in iter(process.stderr.readline, b"")  # reads no further; it may have ended by then
        while process.poll() is None:
            process.send_signal(signal.SIGINT)
            time.sleep(0.005)
        assert b"Traceback" not in process.stderr.read()
    assert process.returncode == 130


def test_a_reader_that_goes_and_a_full_disk_end_without_a_traceback(tmp_path: Path) -> None:
    command = [*TRAIN, "--out", str(tmp_path / "run"), "--json"]
    read, write = os.pipe()
    os.close(read)
    for out, says in ((write, b""), (os.open("/dev/full", os.O_WRONLY), b"error: [Errno 28]")):
        process = start(command, out)
        os.close(out)
        _, errors = process.communicate()
        assert process.returncode == 1
        assert b"Traceback" not in errors
        assert b"Exception ignored" not in errors
        assert says in errors
