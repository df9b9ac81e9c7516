"""What a plain install, without torch, can do; and what the commands that need it say."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from docs_inputs import write_inputs

WITHOUT = """
import sys
for name in ("torch", "transformers", "safetensors", "datasets"):
    sys.modules[name] = None  # importing it raises ModuleNotFoundError, as where it is not installed
from tossup.cli import main
main(sys.argv[1:])
"""


def tossup(place: Path, *args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", WITHOUT, *args], cwd=place, capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize(
    "args",
    [
        ("audit", "rollouts.jsonl"),
        ("verify", "answers.jsonl"),
        ("verify", "math", "--reference", "1/2", "so it is \\boxed{0.5}"),
        ("curate", "pool.jsonl", "--check-only"),
        ("lab", "--out", "lab.html"),
        ("train", "--help"),
    ],
    ids=" ".join,
)
def test_it_works_without(tmp_path: Path, args: tuple[str, ...]) -> None:
    write_inputs(tmp_path)
    done = tossup(tmp_path, *args)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("args", [("train",), ("curate", "pool.jsonl"), ("eval", "builtin:arithmetic")], ids=" ".join)
def test_it_says_what_to_install(tmp_path: Path, args: tuple[str, ...]) -> None:
    write_inputs(tmp_path)
    done = tossup(tmp_path, *args)
    assert (done.returncode, done.stdout) == (1, "")
    assert "this command needs" in done.stderr
    assert "tossup[train]" in done.stderr
    assert "Traceback" not in done.stderr
