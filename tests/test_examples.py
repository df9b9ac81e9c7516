"""The examples for clusters: their files are well formed, and what they run is run here, each node a process on loopback."""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import kubernetes_validate
import polars as pl
import pytest
import yaml
from docs_inputs import write_inputs

from tossup.curriculum.ledger import scan_ledger

EXAMPLES = Path(__file__).parent.parent / "examples"
SLURM = sorted((EXAMPLES / "slurm").glob("*.sbatch"))
KUBERNETES = sorted((EXAMPLES / "kubernetes").glob("*.yaml"))
WAIT_S = 400

STARTS, TOO_SLOW = 3, "The current node timed out during startup"
"""Ray gives a node half a minute to start, which a busy machine may not; a site would submit the job again."""

SRUN = """#!/usr/bin/env bash
# What srun does, with every node on this machine: all tasks at once, and none left when one fails or the step is ended.
set -m
while [[ $1 == --* ]]; do shift; done
end() { for task in $(jobs -p); do kill -- "-$task" 2>/dev/null; done; wait; exit "$1"; }
trap 'end 143' TERM
for ((i = 0; i < SLURM_JOB_NUM_NODES; i++)); do SLURM_PROCID=$i "$@" & done
for ((i = 0; i < SLURM_JOB_NUM_NODES; i++)); do wait -n || end $?; done
"""
CURATE = ["--samples=4", "--batch-size=16", "--max-new-tokens=16", "--threads=1"]
TRAIN = ["--steps=2", "--group-size=4", "--threads=1", "--device=cpu", "--out=runs/mine"]


@pytest.mark.parametrize("script", SLURM, ids=lambda path: path.name)
def test_the_slurm_scripts_are_sound(script: Path) -> None:
    subprocess.run(["bash", "-n", script], check=True)
    options = re.findall(r"^#SBATCH (--[a-z-]+)", script.read_text(encoding="utf-8"), re.MULTILINE)
    assert {"--nodes", "--ntasks-per-node", "--gpus-per-node", "--requeue"} <= set(options)
    if checker := shutil.which("shellcheck"):
        subprocess.run([checker, script], check=True)


@pytest.mark.parametrize("file", KUBERNETES, ids=lambda path: path.name)
def test_the_manifests_fit_the_schemas_of_kubernetes(file: Path) -> None:
    resources = list(yaml.safe_load_all(file.read_text(encoding="utf-8")))
    for resource in resources:
        for version in ("1.31", "1.37"):
            kubernetes_validate.validate(resource, version, strict=True)
    job, service = (next(r for r in resources if r["kind"] == kind) for kind in ("Job", "Service"))
    pod = job["spec"]["template"]["spec"]
    assert job["spec"]["completions"] == job["spec"]["parallelism"]
    assert pod["subdomain"] == service["metadata"]["name"]
    assert service["spec"]["selector"] == {"batch.kubernetes.io/job-name": job["metadata"]["name"]}
    (container,) = pod["containers"]
    assert {m["name"] for m in container["volumeMounts"]} == {v["name"] for v in pod["volumes"]}
    assert f"{job['metadata']['name']}-0.{service['metadata']['name']}" in str(container["env"])
    subprocess.run(["bash", "-n", "-c", container["args"][0]], check=True)


def test_kubernetes_hands_the_number_of_pods_on() -> None:
    job = manifest("train.yaml", "Job")
    assert variables(job)["NODES"] == str(job["spec"]["completions"])


def manifest(name: str, kind: str) -> Any:
    resources = yaml.safe_load_all((EXAMPLES / "kubernetes" / name).read_text(encoding="utf-8"))
    return next(r for r in resources if r["kind"] == kind)


def variables(job: Any) -> dict[str, str]:
    (container,) = job["spec"]["template"]["spec"]["containers"]
    return {v["name"]: v["value"] for v in container["env"] if "value" in v}


def free_port() -> int:
    """One that nobody has, of those from which the system takes none for a connection that begins meanwhile."""
    while True:
        port = random.SystemRandom().randrange(20_000, 32_000)
        with socket.socket() as tried, suppress(OSError):
            tried.bind(("127.0.0.1", port))
            return port


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A folder with the inputs of the docs, and a `bin` with what the scripts call."""
    write_inputs(tmp_path)
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "srun").write_text(SRUN, encoding="utf-8")
    (programs / "scontrol").write_text("#!/usr/bin/env bash\necho localhost\n", encoding="utf-8")
    for program in programs.iterdir():
        program.chmod(0o755)
    return tmp_path


def environment(place: Path, **more: str) -> dict[str, str]:
    path = os.pathsep.join([str(place / "bin"), str(Path(sys.executable).parent), os.environ["PATH"]])
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("RAY_", "SLURM_"))}
    return clean | {"PATH": path, "OMP_NUM_THREADS": "1", "RAY_USAGE_STATS_ENABLED": "0"} | more


def slurm(place: Path, script: str, nodes: int, *options: str) -> str:
    """Run a script as sbatch would, in a job of so many nodes; returns what it printed."""
    job = {
        "SLURM_JOB_ID": str(free_port() - 20_000),  # to which the scripts add this
        "SLURM_JOB_NUM_NODES": str(nodes),
        "SLURM_JOB_NODELIST": f"localhost[1-{nodes}]",
        "SLURM_CPUS_ON_NODE": "1",
    }
    command = ["bash", str(EXAMPLES / "slurm" / script), *options]
    for _ in range(STARTS):
        process = subprocess.Popen(command, cwd=place, env=environment(place, **job), **PIPES)
        printed, _ = process.communicate(timeout=WAIT_S)
        if TOO_SLOW not in printed:
            break
    assert process.returncode == 0, printed
    return printed


PIPES: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}


def finished(process: subprocess.Popen[str]) -> str:
    printed, _ = process.communicate(timeout=WAIT_S)
    assert process.returncode == 0, printed
    return printed


def rows(folder: Path) -> pl.DataFrame:
    return scan_ledger(folder).drop("run", "generate_seconds", "verify_seconds").sort("group", "sample").collect()


def locally(place: Path) -> pl.DataFrame:
    command = ["tossup", "curate", "pool.jsonl", *CURATE, "--out=here.parquet"]
    finished(subprocess.Popen(command, cwd=place, env=environment(place), **PIPES))
    return rows(place / "here.curate" / "ledger")


def test_slurm_curates_on_two_nodes_what_one_machine_does(place: Path) -> None:
    printed = slurm(place, "curate.sbatch", 2, "pool.jsonl", *CURATE, "--out=there.parquet")
    assert "Ray:" in printed
    assert rows(place / "there.curate" / "ledger").equals(locally(place))
    assert list((place / "there.curate" / "ledger").glob("step-*.parquet"))


def trained(place: Path) -> None:
    """The run is whole, and two processes made it."""
    summary = json.loads((place / "runs" / "mine" / "summary.json").read_text(encoding="utf-8"))
    assert (summary["steps"], summary["ended_by"]) == (2, "steps")


def test_slurm_trains_on_two_nodes(place: Path) -> None:
    slurm(place, "train.sbatch", 2, "recipe.toml", *TRAIN)
    trained(place)


def test_kubernetes_trains_with_two_pods(place: Path) -> None:
    job = manifest("train.yaml", "Job")
    (container,) = job["spec"]["template"]["spec"]["containers"]
    (script,) = container["args"]
    short = script.replace("train recipe.toml --out runs/mine", " ".join(["train recipe.toml", *TRAIN]))
    short = short.replace("$HEAD:29500", f"$HEAD:{free_port()}")
    assert TRAIN[0] in short
    given = variables(job) | {"HEAD": "localhost", "GPUS": "1"}
    pods = [
        subprocess.Popen([*container["command"], short], cwd=place, env=environment(place, **given), **PIPES)
        for _ in range(job["spec"]["completions"])
    ]
    for pod in pods:
        finished(pod)
    trained(place)


def test_kubernetes_curates_with_two_pods_what_one_machine_does(place: Path) -> None:
    job = manifest("curate.yaml", "Job")
    (container,) = job["spec"]["template"]["spec"]["containers"]
    (script,) = container["args"]
    short = script.replace("--model Qwen/Qwen3-1.7B --samples 16", " ".join(CURATE)).replace(
        "ray start", "ray start --num-cpus=1"
    )
    assert short.count(" ".join(CURATE)) == 1
    given = variables(job) | {"RAY_ADDRESS": f"localhost:{free_port()}", "RAY_AUTH_TOKEN": "a" * 32}

    def started(index: int) -> subprocess.Popen[str]:
        own = environment(place, **given, JOB_COMPLETION_INDEX=str(index))
        return subprocess.Popen([*container["command"], short], cwd=place, env=own, start_new_session=True, **PIPES)

    pods = [started(index) for index in range(job["spec"]["completions"])]
    try:
        for _ in range(STARTS):
            printed, _ = pods[0].communicate(timeout=WAIT_S)
            if TOO_SLOW not in printed:
                break
            pods[0] = started(0)  # restartPolicy: OnFailure
        assert pods[0].returncode == 0, printed
        assert rows(place / "measured.curate" / "ledger").equals(locally(place))
    finally:
        stop(pods, given["RAY_ADDRESS"].rpartition(":")[2])


def stop(pods: list[subprocess.Popen[str]], port: str) -> None:
    """What Kubernetes does with the pods of a job that is done: every process goes, those of this cluster's port included."""
    for pod in pods:
        if pod.poll() is None:
            os.killpg(pod.pid, signal.SIGKILL)
        pod.communicate()
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(OSError):  # it is gone already
                if re.search(rf"gcs.*[:=]{port}\b", (entry / "cmdline").read_bytes().decode(errors="replace")):
                    os.kill(int(entry.name), signal.SIGKILL)
