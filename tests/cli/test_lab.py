"""`tossup lab`: a page written, or served to this machine until Ctrl-C."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tossup import cli
from tossup.cli.lab import LOOPBACK, server_of
from tossup.curriculum.pool import Pool
from tossup.records import Problem


def run(capsys: pytest.CaptureFixture[str], *args: object) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as end:
        cli.main(["lab", *map(str, args)])
    output = capsys.readouterr()
    return int(end.value.code or 0), output.out, output.err


@contextmanager
def serving(html: str) -> Iterator[str]:
    with server_of(html, 0) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://{LOOPBACK}:{server.server_port}"
        server.shutdown()
        thread.join()


def test_a_page_is_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "--out", tmp_path / "lab.html")
    assert (code, out) == (0, f"wrote {tmp_path / 'lab.html'}\n")
    assert "The group scorer" in (tmp_path / "lab.html").read_text(encoding="utf-8")


def test_a_pool_is_named_on_the_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Pool.of([Problem("a", "?", "7")]).with_counts(attempts=[4], correct=[1]).write(tmp_path / "mine.parquet")
    assert run(capsys, "--pool", tmp_path / "mine.parquet", "--out", tmp_path / "lab.html")[0] == 0
    assert "<b>mine.parquet</b>" in (tmp_path / "lab.html").read_text(encoding="utf-8")


def test_a_pool_that_is_not_there_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = run(capsys, "--pool", tmp_path / "none.parquet", "--out", tmp_path / "lab.html")
    assert code == 1
    assert "none.parquet: no such file" in err


def test_the_one_page_is_served_and_nothing_else() -> None:
    with serving("<!doctype html>é") as address:
        with urllib.request.urlopen(f"{address}/") as answer:
            assert answer.headers["Content-Type"] == "text/html; charset=utf-8"
            assert answer.read().decode() == "<!doctype html>é"
        with pytest.raises(urllib.error.HTTPError, match="404") as refused:
            urllib.request.urlopen(f"{address}/etc/passwd")
        refused.value.close()


def test_a_port_that_is_taken_is_an_error_with_advice(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as taken:
        taken.bind((LOOPBACK, 0))
        taken.listen()
        code, _, err = run(capsys, "--no-browser", "--port", taken.getsockname()[1])
    assert code == 1
    assert "choose another --port" in err


def test_it_opens_a_browser_and_ctrl_c_ends_it(tmp_path: Path) -> None:
    opened = tmp_path / "opened"
    browser = tmp_path / "browser"
    browser.write_text(f'#!/bin/sh\nprintf %s "$1" > {opened}\n', encoding="utf-8")
    browser.chmod(0o755)
    command = [str(Path(sys.executable).with_name("tossup")), "lab"]
    environment = os.environ | {"BROWSER": f"{browser} %s", "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        address = process.stdout.readline().split()[0]
        with urllib.request.urlopen(address) as answer:
            assert b"The group scorer" in answer.read()
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
    assert process.returncode == 0
    assert "Traceback" not in errors
    assert opened.read_text(encoding="utf-8") == address
