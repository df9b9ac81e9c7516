"""`benchmarks/gpu.py` runs here as it does on a GPU: small, on the CPU, part by part in processes of their own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from benchmarks import gpu
from benchmarks.gpu_models import Setting

ROOT = Path(__file__).parents[2]
BENCHMARK = [sys.executable, "-m", "benchmarks.gpu", "--device", "cpu", "--tiny"]
ENVIRONMENT = os.environ | {"OMP_NUM_THREADS": "1"}


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, str], dict[str, Any]]:
    """The rows of a run of everything but the tests, by part and case."""
    command = [*BENCHMARK, "--parts", "machine,step,update,generate,trl", "--json"]
    command += [f"--out={tmp_path_factory.mktemp('gpu') / 'gpu.jsonl'}"]
    done = subprocess.run(command, cwd=ROOT, env=ENVIRONMENT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return {(row["part"], row["case"]): row for row in json.loads(done.stdout)}


def test_every_case_gives_figures_or_says_why_not(rows: dict[tuple[str, str], dict[str, Any]]) -> None:
    assert {part for part, _ in rows} == {"machine", "step", "update", "generate", "trl"}
    for row in rows.values():
        assert row["status"] == "ok" or (row["status"] == "skipped" and row["reason"]), row
        if row["status"] == "ok" and row["part"] != "machine":
            assert row["tokens_per_s"] > 0
            assert row["peak_gib"] >= row["state_gib"] > 0


def test_the_figures_are_of_what_they_say(rows: dict[tuple[str, str], dict[str, Any]]) -> None:
    chunked, checkpointed = (rows["update", f"tiny 300 {v}"] for v in ("chunked", "chunked, checkpointed"))
    assert chunked["tokens"] == checkpointed["tokens"] >= 300
    assert chunked["flops_per_s"] * chunked["seconds"] == pytest.approx(
        checkpointed["flops_per_s"] * checkpointed["seconds"]
    )
    assert rows["generate", "tiny ours, 16 at once"]["tokens"] == 16 * 16
    assert 0 < rows["generate", "tiny ours, 16 at once"]["mismatch_kl"] < 1e-3
    assert 0 < rows["step", "tiny"]["outside_share"] < 1
    assert rows["step", "tiny"]["metrics"]["tokens/trained"] > 0


STAND_IN = """#!{python}
import json, os, sys, time
job, out = json.loads(sys.argv[4]), open(sys.argv[6], "a")
for case in job["cases"]:
    row = dict(part=job["part"], case=case, at=time.time())
    print(json.dumps(row | dict(status="begun")), file=out, flush=True)
    if case == "bfloat16 matmul":
        {how}
    print(json.dumps(row | dict(status="ok")), file=out, flush=True)
"""
"""A process of a part that comes to grief in its second case, as an error of the device would make it."""


@pytest.mark.parametrize(
    ("how", "said"),
    [("print('a sad word'); os._exit(9)", "ended with 9: a sad word"), ("time.sleep(600)", "took over 8 s")],
)
def test_a_case_that_takes_its_process_along_is_a_row_and_the_next_one_runs(
    how: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpu, "CASE_LIMIT_S", 8.0)  # in which a Python starts on a busy machine
    python, results = tmp_path / "python", gpu.Results(tmp_path / "gpu.jsonl")
    python.write_text(
        STAND_IN.format(python=sys.executable, how=how.replace("os._exit", "sys.stdout.flush(); os._exit"))
    )
    python.chmod(0o755)
    gpu.run_part("machine", Setting("cpu", True, tmp_path, time.time() + 60), results, str(python))
    assert [row["status"] for row in results.rows()] == ["ok", "failed", "ok"]
    assert results.rows()[1]["reason"] == said


def test_the_tests_are_rows_with_what_they_found(tmp_path: Path) -> None:
    results = gpu.Results(tmp_path / "gpu.jsonl")
    gpu.run_tests(Setting("cpu", True, tmp_path, time.time() + 300), results, "chunks or (packed and (eager or flex))")
    rows = {row["case"]: row for row in results.rows()}
    assert "3 passed, 1 skipped" in rows.pop("all")["note"]
    assert [row["status"] for row in rows.values()] == ["ok", "skipped", "ok", "ok"]
    assert rows["test_packed_rows_give_the_gradient_of_padded_ones[eager-cpu]"]["note"].startswith("off by ")
    assert "compiled" in rows["test_packed_rows_give_the_gradient_of_padded_ones[flex_attention-cpu]"]["reason"]


def test_a_process_that_ends_between_cases_is_started_again_with_the_rest(tmp_path: Path) -> None:
    """As after an error of the device: its case is a row already, and what was done before it is not done again."""
    python, results = tmp_path / "python", gpu.Results(tmp_path / "gpu.jsonl")
    how = 'print(json.dumps(row | dict(status="failed")), file=out, flush=True); os._exit(1)'
    python.write_text(STAND_IN.format(python=sys.executable, how=how))
    python.chmod(0o755)
    gpu.run_part("machine", Setting("cpu", True, tmp_path, time.time() + 60), results, str(python))
    assert [row["status"] for row in results.rows()] == ["ok", "failed", "ok"]
    assert len(results.path.read_text().splitlines()) == 6
