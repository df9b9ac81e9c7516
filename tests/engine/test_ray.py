"""Measuring on a local Ray cluster: the rows of the local path, whoever is killed on the way."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from test_curate import POOL, Counting, config, rows

from tossup.engine.curate import curate
from tossup.records import TossupError

OPTIONS = {"samples": 4, "limit": 48, "batch-size": 32, "max-new-tokens": 12, "threads": 1, "workers": 2}
PROBLEMS = 48
CODE = "import sys; from tossup.cli import main; main(sys.argv[1:])"
WAIT_S = 600
"""A loaded machine takes a minute to start a cluster; a hang is longer."""


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[pl.DataFrame, dict[str, Any]]:
    """What the local path measures."""
    out = tmp_path_factory.mktemp("whole") / "pool.parquet"
    report = curate(config(out), Counting())
    return rows(out), report


def started(out: Path, pool: str = POOL, **options: Any) -> subprocess.Popen[str]:
    """`tossup curate --ray` with a cluster of its own."""
    flags = [f"--{name.replace('_', '-')}={value}" for name, value in (OPTIONS | options).items()]
    command = [sys.executable, "-c", CODE, "curate", pool, f"--out={out}", "--ray", "--json", *flags]
    alone = {k: v for k, v in os.environ.items() if k != "RAY_ADDRESS"}
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True, text=True, env=alone
    )
    STARTED.append(process)
    return process


STARTED: list[subprocess.Popen[str]] = []


@pytest.fixture(autouse=True)
def nothing_left() -> Iterator[None]:
    """A test that fails leaves no cluster behind: it ends with the command that started it."""
    yield
    for process in STARTED:
        if process.poll() is None:
            process.kill()
        process.communicate()
    STARTED.clear()


def processes() -> dict[int, tuple[int, str]]:
    """Every process: its parent, and its title, in which Ray writes what an actor does."""
    found = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            title = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
        except OSError:  # it is gone
            continue
        found[int(entry.name)] = (parent, title)
    return found


def below(pid: int) -> dict[int, str]:
    """The titles of the processes that descend from this one."""
    everything = processes()
    family = {pid}
    while more := {p for p, (parent, _) in everything.items() if parent in family} - family:
        family |= more
    return {p: everything[p][1] for p in family - {pid}}


def until(true: Any, process: subprocess.Popen[str]) -> Any:
    """Wait until `true()` gives something, while the process runs."""
    end = time.monotonic() + WAIT_S
    while not (found := true()):
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < end
        time.sleep(0.01)
    return found


def parts(out: Path) -> int:
    return len(list(out.with_name(f"{out.stem}.curate").glob("ledger/step-*.parquet")))


def working(process: subprocess.Popen[str]) -> list[int]:
    return [pid for pid, title in below(process.pid).items() if title.startswith("ray::Measurer.do")]


def test_a_cluster_gives_the_rows_of_the_local_path_though_a_worker_is_killed(
    whole: tuple[pl.DataFrame, dict[str, Any]], tmp_path: Path
) -> None:
    for attempt in range(5):  # on a busy machine the worker can be done before it is killed
        out = tmp_path / str(attempt) / "pool.parquet"
        out.parent.mkdir()
        process = started(out)
        victim = until(lambda p=process: working(p), process)[0]
        with suppress(ProcessLookupError):
            os.kill(victim, signal.SIGKILL)
        printed, remarks = process.communicate(timeout=WAIT_S)
        assert process.returncode == 0, remarks
        if lost := "a Ray worker was lost" in remarks:
            break
    assert lost
    assert "2 workers" in remarks
    assert rows(out).equals(whole[0])
    report = json.loads(printed)
    for name in ("problems", "judged", "toss_ups", "tokens_generated", "datasets"):
        assert report[name] == whole[1][name]


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_a_stopped_driver_takes_its_cluster_along_and_the_local_path_goes_on(
    whole: tuple[pl.DataFrame, dict[str, Any]], tmp_path: Path, number: signal.Signals
) -> None:
    out = tmp_path / "pool.parquet"
    process = started(out, limit=2000)
    until(lambda: parts(out), process)
    family = below(process.pid)
    assert any(title.startswith("ray::Measurer") for title in family.values())
    if number == signal.SIGKILL:
        process.kill()
    else:
        os.killpg(process.pid, number)
    _, remarks = process.communicate(timeout=WAIT_S)
    if number == signal.SIGINT:
        assert process.returncode == 130
        assert "goes on from there" in remarks
    end = time.monotonic() + WAIT_S
    while left := {pid: t for pid, t in family.items() if processes().get(pid, (0, ""))[1] == t}:
        assert time.monotonic() < end, left
        time.sleep(0.1)
    before = set(rows(out)["problem"])
    assert before
    after = Counting()
    curate(config(out), after)
    first = whole[0]["problem"].unique().to_list()
    assert after.problems == PROBLEMS - len(before & set(first))
    assert rows(out).filter(pl.col("problem").is_in(first)).equals(whole[0])


def test_a_chunk_that_kills_its_workers_ends_the_command(tmp_path: Path) -> None:
    """A worker that dies at once, as one does whose machine has too little memory for the model."""
    out = tmp_path / "pool.parquet"
    process = started(out, workers=1)
    killed: set[int] = set()
    end = time.monotonic() + WAIT_S
    while process.poll() is None:
        assert time.monotonic() < end
        for pid, title in below(process.pid).items():
            if title.startswith("ray::Measurer") and pid not in killed:
                with suppress(ProcessLookupError):  # it has gone with the one before
                    os.kill(pid, signal.SIGKILL)
                killed.add(pid)
        time.sleep(0.01)
    _, remarks = process.communicate()
    assert process.returncode == 1
    assert "3 Ray workers in a row died at loading the model" in remarks
    assert len(killed) >= 3


def test_what_the_user_can_mend_comes_back_from_the_workers(tmp_path: Path) -> None:
    chats = tmp_path / "chats.jsonl"
    message = [{"role": "user", "content": "1+1="}]
    chats.write_text(json.dumps({"id": "a", "prompt": message, "reference": "2"}) + "\n")
    process = started(tmp_path / "pool.parquet", str(chats))
    _, remarks = process.communicate(timeout=WAIT_S)
    assert process.returncode == 1
    assert "error: problem a is a chat, but the model's tokenizer has no chat template" in remarks


def test_a_cluster_that_is_not_there_is_said_plainly(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"  # nobody listens there
        monkeypatch.setenv("RAY_ADDRESS", address)
        with pytest.raises(TossupError, match=f"Ray cannot use RAY_ADDRESS={address}: .*refused"):
            curate(config(tmp_path / "pool.parquet", ray=True), Counting())


def test_with_nothing_to_do_no_cluster_is_looked_for(
    whole: tuple[pl.DataFrame, dict[str, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "pool.parquet"
    curate(config(out), Counting())
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:1")
    again = curate(config(out, ray=True), Counting())
    assert again["toss_ups"] == whole[1]["toss_ups"]
