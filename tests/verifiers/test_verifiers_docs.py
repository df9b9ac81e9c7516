"""docs/verifiers.md does what it says: its Python runs, its commands print what stands below them."""

import re
import shlex
import sys
from pathlib import Path

import pytest

from tossup import cli, verifiers

PAGE = (Path(__file__).parents[2] / "docs" / "verifiers.md").read_text()
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)


def blocks(language):
    return [body for name, body in BLOCKS if name == language]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """An empty working folder with the page's own module in it; Python does not import from there by itself."""
    for body in blocks("python"):
        if name := re.match(r"# (\w+\.py)\n", body):
            (tmp_path / name[1]).write_text(body)
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    verifiers.close()


@pytest.mark.parametrize("body", blocks("python"), ids=lambda body: body.split("\n")[0])
def test_python(body, folder):
    exec(compile(body, "docs/verifiers.md", "exec"), {})


@pytest.mark.parametrize("body", blocks("console"), ids=lambda body: body.split("\n")[0])
def test_commands(body, folder, capsys):
    for part in re.split(r"^\$ ", body, flags=re.MULTILINE)[1:]:
        line, _, shown = part.partition("\n")
        program, *args = shlex.split(line)
        if program == "cat":
            (folder / args[0]).write_text(shown)
            continue
        assert program == "tossup"
        with pytest.raises(SystemExit):
            cli.main(args)
        printed = capsys.readouterr().out
        pattern = re.escape(shown).replace(r"\.\.\.\}", ".*}")
        assert re.fullmatch(pattern, printed), printed


def test_there_is_something_to_run():
    assert len(blocks("python")) >= 4
    assert len(blocks("console")) >= 4
    assert "own" not in sys.modules
