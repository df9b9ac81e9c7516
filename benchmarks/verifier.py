"""The math verifier beside Math-Verify, by the same scoring script; and the same verdicts whoever asks.

    python -m benchmarks.verifier --script SCORE_VERIFIER.py --data FOLDER --peer VENV/bin/python
    python -m benchmarks.verifier --concurrency 10000

The first form runs the script on `eval.jsonl`, `hack.jsonl`, `hang.jsonl` and `long.jsonl` of the folder, once for ours
and once for Math-Verify in an environment of its own (`pip install 'math-verify[antlr4_13_2]==0.9.0'`); then again on
the rows of `eval.jsonl` that are real model outputs, for items per CPU second and percentiles; then it measures what
importing each costs. Without `--peer` it shows ours alone.

The second form judges that many mixed items, 5 % of which hang in a verifier of the user's, one by one, with
`verify_many`, from 32 threads, from asyncio, in a forked and in a spawned process, and compares the verdicts.
"""

from __future__ import annotations

import argparse
import asyncio
import datetime
import json
import multiprocessing
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path
from typing import Any

from tossup import verifiers
from tossup.records import Problem, Verdict

PROJECT = Path(__file__).resolve().parents[1]
SETS = ("eval", "hack", "hang", "long")
OURS, PEER = "benchmarks.adapters:math_score", "math-verify"
CALLERS = ("many", "threads", "asyncio", "forked", "spawned")
Plain = list[tuple[str, str, str | None]]


def machine() -> str:
    """Where and when this was measured."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    model = next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), "unknown CPU")
    today = datetime.date.today().isoformat()
    return f"{model}, {os.cpu_count()} cores, Python {platform.python_version()}, {today}"


def score(
    python: str, script: Path, grader: str, files: Sequence[Path], out: Path | None = None
) -> list[dict[str, Any]]:
    """One run of the scoring script; its figures for each file."""
    command = [python, str(script), "--fn", grader, "--json", *map(str, files)]
    if grader == OURS:
        command += ["--path", str(PROJECT)]
    if out is not None:
        command += ["--out", str(out)]
    sets: list[dict[str, Any]] = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)[
        "sets"
    ]
    return sets


def real_outputs(data: Path, to: Path) -> int:
    """Write the rows of eval.jsonl that are real model outputs; how many there are."""
    rows = [json.loads(line) for line in (data / "eval.jsonl").read_text("utf-8").split("\n") if line]
    real = [row for row in rows if row["type"] == "response" and row["label_src"].startswith("upstream")]
    to.write_text("".join(json.dumps(row) + "\n" for row in real))
    return len(real)


def speed(python: str, script: Path, grader: str, real: Path, folder: Path) -> dict[str, float]:
    """Items per CPU second and percentiles in milliseconds on real model outputs."""
    each = folder / f"{grader.partition(':')[0]}.jsonl"
    figures = score(python, script, grader, [real], each)[0]
    times = sorted(json.loads(line)["t"] * 1000 for line in each.read_text().split("\n") if line)
    cuts = statistics.quantiles(times, n=1000)
    return {
        "items_per_cpu_s": figures["items_per_cpu_s"],
        "p50_ms": cuts[499],
        "p99_ms": cuts[989],
        "max_ms": times[-1],
    }


def import_cpu_ms(python: str, module: str) -> float:
    """CPU milliseconds of a fresh interpreter that imports the module, less those of one that imports nothing."""

    def cpu_ms(code: str) -> float:
        end = "\nimport os; t = os.times(); print(1000 * (t.user + t.system))"
        environment = {**os.environ, "PYTHONPATH": str(PROJECT)}
        runs = [
            subprocess.run([python, "-c", code + end], env=environment, stdout=subprocess.PIPE, check=True)
            for _ in range(7)
        ]
        return min(float(run.stdout) for run in runs)

    return cpu_ms(f"import {module}") - cpu_ms("pass")


def compare(script: Path, data: Path, peer: str | None) -> dict[str, Any]:
    """Ours and, where there is one, the peer: accuracy, speed, import."""
    graders = {"tossup": (sys.executable, OURS, "tossup.verifiers.math")}
    if peer:
        graders["math-verify"] = (peer, PEER, "math_verify")
    result: dict[str, Any] = {"machine": machine()}
    with tempfile.TemporaryDirectory() as scratch:
        real = Path(scratch) / "real.jsonl"
        result["real_outputs"] = real_outputs(data, real)
        for name, (python, grader, module) in graders.items():
            sets = score(python, script, grader, [data / f"{s}.jsonl" for s in SETS])
            figures = speed(python, script, grader, real, Path(scratch))
            result[name] = {"sets": sets, **figures, "import_cpu_ms": import_cpu_ms(python, module)}
    return result


def show(result: dict[str, Any]) -> None:
    """The comparison as a table, one grader a column."""
    names = [name for name in ("tossup", "math-verify") if name in result]
    rows: list[tuple[str, list[str]]] = []
    for i, label in enumerate(SETS):
        first = result[names[0]]["sets"][i]
        keys = [key for key in first if key != "set" and isinstance(first[key], int | float)]
        rows += [(f"{label} {key}", [f"{result[n]['sets'][i][key]:g}" for n in names]) for key in keys]
    for key in ("items_per_cpu_s", "p50_ms", "p99_ms", "max_ms", "import_cpu_ms"):
        rows.append((f"real outputs {key}" if "import" not in key else key, [f"{result[n][key]:.3g}" for n in names]))
    print(f"{result['machine']}; {result['real_outputs']} real outputs\n")
    print(f"{'':32}" + "".join(f"{name:>16}" for name in names))
    for label, values in rows:
        print(f"{label:32}" + "".join(f"{value:>16}" for value in values))


def on_request(problem: Problem, response: str) -> bool:
    """A user's verifier that hangs when it is told to."""
    while response == "hang":
        pass
    return response == problem.reference


def items(n: int) -> list[tuple[Problem, str]]:
    """`n` mixed pairs; every twentieth hangs."""
    own = "benchmarks.verifier:on_request"
    kinds = [
        (own, "7", "hang"),
        *((own, "7", answer) for answer in "7897"),
        *(
            ("math", r"\frac{1}{2}", rf"so \boxed{{{answer}}}")
            for answer in ("0.5", r"\frac{2}{4}", "0.6", "x", "50\\%")
        ),
        *(
            ("math", r"\sqrt{2}", rf"\boxed{{{answer}}}")
            for answer in (r"2^{1/2}", r"\frac{2}{\sqrt{2}}", "1.41", "10^{10^{10}}")
        ),
        *(("exact", "7", answer) for answer in "78"),
        *(("choice", "B", answer) for answer in ("(B)", r"\boxed{C}")),
        *(("logic", "a b c", answer) for answer in ("a b c", "c b a")),
    ]
    assert len(kinds) == 20
    return [(Problem(str(i), "", *kinds[i % 20][1:2], kinds[i % 20][0]), kinds[i % 20][2]) for i in range(n)]


def plain(verdicts: Sequence[Verdict]) -> Plain:
    return [(v.ruling.value, v.reason, v.answer) for v in verdicts]


def by_many(n: int) -> Plain:
    return plain(verifiers.verify_many(items(n)))


def by_threads(n: int) -> Plain:
    with ThreadPoolExecutor(32) as threads:
        return plain(list(threads.map(lambda pair: verifiers.verify(*pair), items(n))))


def by_asyncio(n: int) -> Plain:
    async def ask() -> list[Verdict]:
        return await asyncio.gather(*(verifiers.averify(*pair) for pair in items(n)))

    return plain(asyncio.run(ask()))


def in_process(method: str) -> Callable[[int], Plain]:
    def judge(n: int) -> Plain:
        with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context(method)) as processes:
            return processes.submit(by_many, n).result()

    return judge


def processes() -> set[str]:
    """Ids of all worker processes on the machine that descend from this program or were left behind by it."""
    found = set()
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if b"_worker.py" in (entry / "cmdline").read_bytes():
                    found.add(entry.name)
            except OSError:
                continue
    return found


def concurrency(n: int) -> dict[str, Any]:
    """The verdicts from every kind of caller against those one by one."""
    from tossup.verifiers._user import SECONDS_VARIABLE

    os.environ.setdefault(SECONDS_VARIABLE, "0.05")
    before, callers = (
        processes(),
        dict(zip(CALLERS, (by_many, by_threads, by_asyncio, in_process("fork"), in_process("spawn")), strict=True)),
    )
    start = time.perf_counter()
    expected = plain([verifiers.verify(*pair) for pair in items(n)])
    result: dict[str, Any] = {"machine": machine(), "items": n, "hangs": sum(pair[1] == "hang" for pair in items(n))}
    print("one by one", round(time.perf_counter() - start, 1), flush=True)
    result["one by one"] = {
        "seconds": round(time.perf_counter() - start, 1),
        "undecided": sum(e[0] == "undecided" for e in expected),
    }
    for name, judge in callers.items():
        start = time.perf_counter()
        verdicts = judge(n)
        different = sum(a != b for a, b in zip(verdicts, expected, strict=True))
        result[name] = {"seconds": round(time.perf_counter() - start, 1), "different": different}
        print(name, result[name], flush=True)
    verifiers.close()
    result["processes left"] = len(processes() - before)
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--script", type=Path, help="score_verifier.py")
    parser.add_argument("--data", type=Path, help="the folder with eval.jsonl, hack.jsonl, hang.jsonl, long.jsonl")
    parser.add_argument("--peer", help="a Python that has Math-Verify")
    parser.add_argument("--concurrency", type=int, metavar="N", help="judge N items from every kind of caller")
    parser.add_argument("--json", action="store_true", help="print JSON")
    args = parser.parse_args()
    if args.concurrency:
        print(json.dumps(concurrency(args.concurrency), indent=1))
    elif args.script and args.data:
        result = compare(args.script, args.data, args.peer)
        print(json.dumps(result, indent=1)) if args.json else show(result)
    else:
        parser.error("give --script and --data, or --concurrency")


if __name__ == "__main__":
    main()
