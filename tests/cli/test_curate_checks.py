"""`tossup curate --check-only` finds what is wrong with a pool, without a model."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tossup.cli import main

ROWS = [
    {"id": "a", "prompt": "What is 1 + 1?", "reference": "2"},
    {"id": "b", "prompt": "What is  1+1 ?", "reference": "2"},
    {"id": "c", "prompt": "What is 2 + 2?", "reference": "4"},
    {"id": "d", "prompt": "What is 2 + 2?", "reference": "5"},
    {"id": "e", "prompt": "What is [3] + 3?", "reference": ""},
    {"id": "f", "prompt": "What is 4 + 4?", "reference": "8"},
]


def run(capsys: pytest.CaptureFixture[str], *argv: str) -> str:
    with pytest.raises(SystemExit) as exit_:
        main(argv)
    assert exit_.value.code == 0
    return capsys.readouterr().out


def test_findings_name_their_problems(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pool, held_out = tmp_path / "pool.jsonl", tmp_path / "held_out.jsonl"
    pool.write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    held_out.write_text(json.dumps(ROWS[5]) + "\n")
    found = json.loads(run(capsys, "curate", str(pool), "--check-only", "--against", str(held_out), "--json"))
    assert found["problems"] == 6
    named = {kind: groups for kind, groups in found["findings"].items() if groups}
    assert named == {
        "empty reference": [["e"]],
        "duplicate": [["a", "b"]],
        "conflicting references": [["c", "d"]],
        f"overlap with {held_out}": [["f"]],
    }
    table = run(capsys, "curate", str(pool), "--check-only")
    assert "a = b" in table
    assert "c = d" in table
