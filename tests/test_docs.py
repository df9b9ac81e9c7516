"""The commands in README and docs run as they stand.

Every line of a block fenced as ```sh is executed, page by page, in a folder that holds the small input files which the pages
speak of (`tests/docs_inputs.py`). A block whose fence says why not (```sh no-test: needs a GPU) is only checked for options
that exist.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from docs_inputs import write_inputs

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
FENCE = re.compile(r"^```sh(?P<info>[^\n]*)\n(?P<body>.*?)^```", re.MULTILINE | re.DOTALL)


def blocks(page: Path) -> Iterator[tuple[str, list[str]]]:
    """(what follows `sh` on the fence, the commands) of each block; a trailing backslash continues a line."""
    for match in FENCE.finditer(page.read_text(encoding="utf-8")):
        lines = match["body"].replace("\\\n", " ").split("\n")
        yield match["info"].strip(), [line.strip() for line in lines if line.strip() and not line.startswith("#")]


def commands(page: Path, run: bool) -> list[str]:
    return [line for info, lines in blocks(page) if info.startswith("no-test:") != run for line in lines]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_commands_run(page: Path, tmp_path: Path) -> None:
    """From the top of the page to its end, as a reader would type them."""
    write_inputs(tmp_path)
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    for line in commands(page, run=True):
        done = subprocess.run(
            ["bash", "-c", line],
            cwd=tmp_path,
            env=os.environ | {"PATH": path, "HF_HUB_OFFLINE": "1", "COLUMNS": "120"},
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert done.returncode == 0, f"{page.name}: {line}\n{done.stdout}\n{done.stderr}"
        assert "Traceback" not in done.stderr, f"{page.name}: {line}\n{done.stderr}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_commands_that_cannot_run_here_name_options_that_exist(page: Path) -> None:
    from tossup.cli import COMMANDS, app

    for line in commands(page, run=False):
        words = shlex.split(line.split("#")[0])
        if words[:1] != ["tossup"]:
            continue
        assert words[1] in COMMANDS, f"{page.name}: {line}"
        command = app.get_command(app.make_context("tossup", ["--help"], resilient_parsing=True), words[1])
        assert command is not None
        known = {name for param in command.params for name in (*param.opts, *param.secondary_opts)}
        for word in words[2:]:
            if word.startswith("--"):
                assert word.split("=")[0] in known, f"{page.name}: {word} in {line}"


def test_links_between_pages_lead_somewhere() -> None:
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
            if "://" not in target:
                assert (page.parent / target).exists(), f"{page.name} links to {target}"
