"""What a GPU makes of the engine: its tests there, update and generation throughput, a whole step, and TRL's. One table.

    python -m benchmarks.gpu [--parts machine,tests,step,update,generate,trl] [--minutes 9.5] [--out gpu.jsonl] [--json]
    python -m benchmarks.gpu --device cpu --tiny        (the same code, small, on a machine without a GPU)
    python -m benchmarks.gpu --report --out gpu.jsonl   (the table of what is there)

Every case is a line of the file at once, so a run that is killed keeps what it has, and a later one adds to it: the newest
line of a case counts. Parts run in processes of their own. A case that fails, or runs out of memory or time, is a row that
says so; a process that dies is started again with the cases after the one it died of. After `--minutes` no case begins.

Without a network: torch, transformers, numpy, sympy and pytest are taken as given, and what else the engine imports is carried.
For Python 3.12 on x86_64, 55 MiB, of which polars is 52:

    pip download --no-deps --only-binary=:all: --python-version 3.12 --platform manylinux2014_x86_64 -d wheels \\
        polars==2.1.0 polars-runtime-32==2.1.0 pydantic==2.14.4 pydantic-core==2.50.5 annotated-types typing-inspection \\
        typing-extensions tomli-w
    pip download … trl==1.16.0 datasets dill multiprocess      (2 MiB more, for the part trl)

and there, in the root of the repository:

    python3 -m pip install -q --no-index --no-deps --target /tmp/site wheels/*.whl
    PYTHONPATH=/tmp/site python3 -m benchmarks.gpu --minutes 9.5
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.gpu_cases import PARTS
from benchmarks.gpu_models import Setting, free

ROOT = Path(__file__).parent.parent
CASE_LIMIT_S = 240.0
"""One case may take no longer."""
TESTS_LIMIT_S = 300.0
ROWS = "TOSSUP_GPU_ROWS"
"""Environment variable: the file for the rows of tests."""

Row = dict[str, Any]


class Results:
    """The file of rows; the newest of a case counts."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def add(self, part: str, case: str, status: str, **figures: Any) -> None:
        """Write a row through to the disk."""
        row = {"part": part, "case": case, "status": status, "at": time.time()} | figures
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")
            file.flush()
            os.fsync(file.fileno())
        if status != "begun":
            print(_line(row, None), file=sys.stderr, flush=True)

    def rows(self) -> list[Row]:
        """The newest row of each case, in the order in which the cases came first."""
        newest: dict[tuple[str, str], Row] = {}
        if self.path.exists():
            for line in self.path.read_text(encoding="utf-8").splitlines():
                row = json.loads(line)
                newest[row["part"], row["case"]] = row
        return list(newest.values())

    def running(self, part: str) -> Row | None:
        """The case that has begun and not ended."""
        return next((row for row in self.rows() if row["part"] == part and row["status"] == "begun"), None)


def child(part: str, cases: Sequence[str], setting: Setting, results: Results) -> None:
    """Run cases in this process. One that fails leaves the next ones a clean device, or this process ends."""
    import torch

    if setting.device == "cpu":
        torch.set_num_threads(1)
    for case in cases:
        if time.time() > setting.deadline:
            results.add(part, case, "skipped", reason="no time was left")
            continue
        results.add(part, case, "begun")
        begun = time.perf_counter()
        try:
            figures = PARTS[part][1](setting, case)
        except torch.OutOfMemoryError:
            results.add(part, case, "failed", reason="out of memory")
            free()
            continue
        except Exception as e:  # noqa: BLE001 -- whatever it is, it is this case's row
            said = str(e).strip().splitlines()
            results.add(part, case, "failed", reason=f"{type(e).__name__}: {said[0] if said else ''}"[:300])
            free()
            if setting.device != "cpu":
                torch.cuda.synchronize()  # an error of the device itself stays: then this process is of no more use
            continue
        if "skipped" in figures:
            results.add(part, case, "skipped", reason=figures["skipped"])
        else:
            results.add(part, case, "ok", wall_s=time.perf_counter() - begun, **figures)


def run_part(part: str, setting: Setting, results: Results, python: str) -> None:
    """Run a part's cases in processes, as many as it takes."""
    left = PARTS[part][0](setting)
    while left:
        started = time.time()
        job = json.dumps({"part": part, "cases": left, "setting": asdict(setting) | {"work": str(setting.work)}})
        command = [python, "-m", "benchmarks.gpu", "--child", job, "--out", str(results.path)]
        with tempfile.TemporaryFile() as errors:
            process = subprocess.Popen(command, cwd=ROOT, stdout=errors, stderr=errors, env=_environment())
            how = _watch(process, part, setting, results)
            errors.seek(0)
            said = errors.read().decode(errors="replace").strip().splitlines() or ["silently"]
        running = results.running(part)
        rows = [row for row in results.rows() if row["part"] == part and row["at"] >= started]
        ended = {row["case"] for row in rows} - ({running["case"]} if running else set())
        if running or not ended:
            case = running["case"] if running else left[0]
            reason = how or f"ended with {process.returncode}: {said[-1]}"
            results.add(part, case, "failed", reason=reason[:300])
            ended.add(case)
        left = [case for case in left if case not in ended]


def _watch(process: subprocess.Popen[bytes], part: str, setting: Setting, results: Results) -> str:
    """Wait for the process; end it when a case takes too long, and say so."""
    started = time.time()
    while process.poll() is None:
        time.sleep(0.2)
        running = results.running(part)
        since = running["at"] if running else started
        over = time.time() - max(since, started)
        if over > CASE_LIMIT_S or time.time() > setting.deadline + 20:
            process.kill()
            process.wait()
            return (
                f"ended after {over:.0f} s: no time was left"
                if over <= CASE_LIMIT_S
                else f"took over {CASE_LIMIT_S:g} s"
            )
    return ""


def _environment() -> dict[str, str]:
    paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    quiet = {"TRANSFORMERS_VERBOSITY": "error", "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
    return os.environ | quiet | {"PYTHONPATH": os.pathsep.join(paths)}


def run_tests(setting: Setting, results: Results, select: str = "") -> None:
    """The tests of `tests/engine/test_gpu.py` on this device, or those of them that pytest's -k selects."""
    chosen = " and ".join(filter(None, [f"({select})" if select else "", "cpu" if setting.device == "cpu" else "cuda"]))
    which = ["-m", "not gpu" if setting.device == "cpu" else "gpu", "-k", chosen, "-o", "timeout=100", "-W", "default"]
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "benchmarks.gpu", *which]
    limit = max(1.0, min(setting.deadline - time.time(), TESTS_LIMIT_S))
    environment = _environment() | {ROWS: str(results.path)}
    try:
        done = subprocess.run(
            [*command, "tests/engine/test_gpu.py"],
            cwd=ROOT,
            env=environment,
            capture_output=True,
            text=True,
            timeout=limit,
            check=False,
        )
    except subprocess.TimeoutExpired:
        results.add("tests", "all", "failed", reason=f"took over {limit:.0f} s")
        return
    said = (done.stdout.strip() or done.stderr.strip() or "pytest said nothing").splitlines()
    results.add(
        "tests",
        "all",
        "ok" if done.returncode == 0 else "failed",
        note=said[-1],
        reason=f"pytest ended with {done.returncode}",
    )


def pytest_runtest_logreport(report: Any) -> None:
    """As a plugin of pytest: write a row for each test as soon as it is done, with what it recorded."""
    if report.when != "call" and report.passed:
        return
    reason = ""
    if report.skipped:
        reason = str(report.longrepr[2]).removeprefix("Skipped: ")
    elif report.failed:
        reason = str(getattr(getattr(report.longrepr, "reprcrash", None), "message", report.longrepr))
    status = {"passed": "ok"}.get(report.outcome, report.outcome)
    note = ", ".join(f"{name} {value}" for name, value in report.user_properties)
    name = report.nodeid.rpartition("::")[2]
    Results(Path(os.environ[ROWS])).add(
        "tests", name, status, seconds=report.duration, note=note, reason=reason.replace("\n", " ")[:300]
    )


def _line(row: Row, ceiling: float | None) -> str:
    """A row of the table."""

    def figure(name: str, form: str, scale: float = 1.0) -> str:
        return format(row[name] * scale, form) if name in row else ""

    mfu = f"{row['flops_per_s'] / ceiling:.1%}" if ceiling and "flops_per_s" in row and row["part"] == "update" else ""
    failed = "" if row["status"] == "ok" else f"{row['status']}: {row.get('reason', '')}"
    note = "; ".join(filter(None, [row.get("note", ""), failed]))
    cells = [
        row["part"],
        row["case"],
        figure("tokens_per_s", ",.0f"),
        mfu,
        figure("seconds", ".3g"),
        figure("state_gib", ".2f"),
        figure("peak_gib", ".2f"),
        note.replace("|", "/"),
    ]
    return "| " + " | ".join(cells) + " |"


def report(results: Results) -> None:
    """Print the table; MFU is of the matrix product measured in the same file."""
    rows = results.rows()
    ceiling = next(
        (row["flops_per_s"] for row in rows if row["case"] == "bfloat16 matmul" and "flops_per_s" in row), None
    )
    print("| part | case | tokens/s | MFU | seconds | GiB before | GiB at peak | |\n|---|---|---|---|---|---|---|---|")
    for row in rows:
        print(_line(row, ceiling))


def main() -> None:
    """Run the parts, then print the table; the exit status says whether a case failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", default="machine,tests,step,update,generate,trl")
    parser.add_argument("--device", default="cuda", choices=["cuda", "cpu"])
    parser.add_argument("--tiny", action="store_true", help="shapes that a CPU can bear")
    parser.add_argument("--minutes", type=float, default=9.5)
    parser.add_argument("--out", type=Path, default=Path("gpu.jsonl"))
    parser.add_argument("--trl-python", default=sys.executable, help="the Python of an environment with TRL")
    parser.add_argument("--json", action="store_true", help="print the rows instead of the table")
    parser.add_argument("--report", action="store_true", help="run nothing")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    args = parser.parse_args()
    results = Results(args.out.absolute())
    if args.child:
        job = json.loads(args.child)
        setting = Setting(**job["setting"] | {"work": Path(job["setting"]["work"])})
        child(job["part"], job["cases"], setting, results)
        return
    failed = False
    if not args.report:
        begun = time.time()
        with tempfile.TemporaryDirectory(prefix="tossup-gpu-") as work:
            setting = Setting(args.device, args.tiny, Path(work), begun + 60 * args.minutes)
            for part in args.parts.split(","):
                if part == "tests":
                    run_tests(setting, results)
                else:
                    run_part(part, setting, results, args.trl_python if part == "trl" else sys.executable)
        failed = any(row["status"] == "failed" and row["at"] >= begun for row in results.rows())
    if args.json:
        print(json.dumps(results.rows(), indent=1))
    else:
        report(results)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
