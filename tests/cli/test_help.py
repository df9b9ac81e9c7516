"""What people see before they know a command: its help, with examples that can be copied, and completion in their shell."""

from __future__ import annotations

import inspect
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import rich_click as click

from tossup.cli import COMMANDS, app, main

WIDTH = 80
TOSSUP = Path(sys.executable).with_name("tossup")


def command(name: str) -> click.Command:
    found = app.get_command(click.Context(app), name)
    assert found is not None
    return found


def tossup(*args: str, **environment: str) -> str:
    done = subprocess.run(
        [TOSSUP, *args], env=os.environ | environment, capture_output=True, text=True, check=True, timeout=120
    )
    return done.stdout


def examples(name: str) -> list[str]:
    """The lines of the block of examples in a command's help, as they are in its source."""
    _, _, rest = inspect.cleandoc(command(name).help or "").partition("\b\n")
    return [line.rstrip() for line in rest.split("\n\n")[0].split("\n")]


@pytest.mark.parametrize("name", COMMANDS)
def test_examples_stand_in_the_help_line_by_line_at_80_columns(name: str) -> None:
    lines = examples(name)
    assert any(line.startswith(f"tossup {name}") for line in lines)
    shown = [line.rstrip() for line in tossup(name, "--help", COLUMNS=str(WIDTH)).split("\n")]
    assert max(map(len, shown)) <= WIDTH
    for line in lines:
        assert f" {line}" in shown


@pytest.mark.parametrize("name", COMMANDS)
def test_examples_name_options_that_exist(name: str) -> None:
    known = {flag for param in command(name).params for flag in (*param.opts, *param.secondary_opts)}
    for line in "\n".join(examples(name)).replace("\\\n", " ").split("\n"):
        words = shlex.split(line.partition(" | ")[0])
        if words[0] == "torchrun":
            words = words[words.index("-m") + 1 :]
        assert words[:2] == ["tossup", name]
        for word in words[2:]:
            if word.startswith("--"):
                assert word.partition("=")[0] in known, line


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_says_what_it_is_for(name: str) -> None:
    for param in command(name).params:
        if isinstance(param, click.Option):
            assert param.help, param.name


def test_the_help_of_tossup_fits_as_well() -> None:
    shown = [line.rstrip() for line in tossup("--help", COLUMNS=str(WIDTH)).split("\n")]
    assert " tossup train                    the built-in recipe, minutes on a laptop CPU" in shown
    for name in COMMANDS:
        assert any(re.match(rf"│ {name}\s", line) for line in shown)


def completed(shell: str, line: str) -> list[str]:
    """What tossup answers a shell that asks how the last word of a line may go on."""
    words = line.split(" ")
    asked = {"_TOSSUP_COMPLETE": f"{shell}_complete", "COMP_WORDS": line, "COMP_CWORD": str(len(words) - 1)}
    if shell == "fish":
        asked |= {"COMP_WORDS": " ".join(words[:-1]), "COMP_CWORD": words[-1]}
    return tossup(**asked).split()


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_shells_are_told_commands_options_values_and_files(shell: str) -> None:
    assert any("curate" in word for word in completed(shell, "tossup cur"))
    options = " ".join(completed(shell, "tossup train --sam"))
    assert "--sampler" in options
    assert "--samples" not in options
    assert any("mopps" in word for word in completed(shell, "tossup train --sampler mo"))
    for line in ("tossup train --pool po", "tossup curate po", "tossup report ru"):
        assert any("file" in word for word in completed(shell, line)), line


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_for_a_shell_is_one_that_it_reads(shell: str, tmp_path: Path) -> None:
    script = tmp_path / "completion"
    script.write_text(tossup(_TOSSUP_COMPLETE=f"{shell}_source"), encoding="utf-8")
    assert "_TOSSUP_COMPLETE" in script.read_text(encoding="utf-8")
    if program := shutil.which(shell):
        subprocess.run([program, "-n", script], check=True)


def test_bash_completes_with_the_script(tmp_path: Path) -> None:
    script = tmp_path / "completion"
    script.write_text(tossup(_TOSSUP_COMPLETE="bash_source"), encoding="utf-8")
    line = f'. {script}; COMP_WORDS=({TOSSUP} doc); COMP_CWORD=1; _tossup_completion {TOSSUP}; echo "${{COMPREPLY[@]}}"'
    done = subprocess.run(["bash", "-c", line], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["doctor"]


@pytest.mark.skipif(shutil.which("fish") is None, reason="no fish on this machine")
def test_fish_completes_with_the_script(tmp_path: Path) -> None:
    script = tmp_path / "completion"
    script.write_text(tossup(_TOSSUP_COMPLETE="fish_source"), encoding="utf-8")
    environment = os.environ | {"PATH": f"{TOSSUP.parent}{os.pathsep}{os.environ['PATH']}", "HOME": str(tmp_path)}
    line = f"source {script}; complete -C 'tossup doc'"
    done = subprocess.run(["fish", "-c", line], env=environment, capture_output=True, text=True, check=True)
    assert [line.split()[0] for line in done.stdout.splitlines()] == ["doctor"]


def test_a_misspelled_command_names_the_one_that_was_meant() -> None:
    done = subprocess.run([TOSSUP, "trian"], capture_output=True, text=True, timeout=120)
    assert done.returncode == 2
    assert "Did you mean 'train'?" in done.stderr
    done = subprocess.run([TOSSUP, "zzzz"], capture_output=True, text=True, timeout=120)
    assert done.returncode == 2
    assert "No such command 'zzzz'" in done.stderr
    assert "mean" not in done.stderr


def test_a_wrong_choice_names_the_right_ones_and_empty_is_taken() -> None:
    """`--log ""` switches off what a recipe switches on; it is no name to be listed."""
    done = subprocess.run([TOSSUP, "train", "--preset", "dap"], capture_output=True, text=True, timeout=120)
    assert done.returncode == 2
    assert "is not one of 'dr_grpo', 'dapo', 'gspo', 'cispo'" in done.stderr
    (log,) = (option for option in command("train").params if option.name == "log")
    assert log.type.convert("", log, None) == ""
    assert log.type.convert("wandb", log, None) == "wandb"


class OutOfMemoryError(RuntimeError):
    """As torch calls it; the real one needs a GPU that is full."""


@pytest.mark.parametrize(("error", "handled"), [(OutOfMemoryError, True), (RuntimeError, False)])
def test_a_full_gpu_is_an_error_that_says_what_to_make_smaller(
    error: type[RuntimeError], handled: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail() -> None:
        raise error("CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has ...")

    monkeypatch.setattr("tossup.cli.doctor.command", click.Command("doctor", callback=fail))
    with pytest.raises(SystemExit if handled else RuntimeError):
        main(["doctor"])
    if handled:
        assert re.match(
            r"error: the GPU's memory is full \(CUDA out of memory\): lower --batch-size .*--micro-batch-tokens",
            capsys.readouterr().err,
        )
