"""docs/migrate.md: the options and figures that it gives as ours exist, and its values too."""

from __future__ import annotations

import json
import re
import typing
from pathlib import Path

from tossup.cli.train import command
from tossup.engine.arithmetic import recipe_path
from tossup.engine.config import TrainConfig, load
from tossup.engine.progress import Silent
from tossup.engine.section import fields
from tossup.engine.train import train

PAGE = (Path(__file__).parent.parent / "docs" / "migrate.md").read_text(encoding="utf-8")


def rows() -> list[list[str]]:
    """The cells of every row, the heads of the tables apart."""
    lines = [line.strip("| ").split(" | ") for line in PAGE.splitlines() if line.startswith("| ")]
    return [cells for cells in lines if cells[0] not in ("", "TRL", "TRL | verl | tossup")]


def test_options_of_the_page_exist_with_their_values() -> None:
    flags = {flag: param for param in command.params for flag in (*param.opts, *param.secondary_opts)}
    choices = {
        f"--{name.rsplit('.', 1)[-1].replace('_', '-')}": typing.get_args(info.annotation)
        for name, info in fields(TrainConfig)
        if typing.get_origin(info.annotation) is typing.Literal
    }
    said = re.findall(r"`(--[^`]+)`", PAGE)
    assert len(said) > 40
    for text in said:
        flag, _, value = text.partition(" ")
        assert flag in flags, text
        if value and flag in choices:
            assert value in choices[flag], text


def test_defaults_of_the_page_are_the_defaults() -> None:
    config = {name: info.default for name, info in fields(TrainConfig)}
    for text, value in re.findall(r"`--([a-z-]+)` \(([\d.e-]+)", PAGE):
        names = [name for name in config if name.rsplit(".", 1)[-1] == text.replace("-", "_")]
        names = names or [text.replace("-", ".", 1).replace("-", "_")]  # --eval-samples is eval.samples
        assert float(config[names[0]]) == float(value), text


def test_figures_of_the_page_are_logged(tmp_path: Path) -> None:
    small = {"steps": 2, "rollout.problems_per_step": 8, "threads": 1, "eval_pool": "", "out": str(tmp_path / "run")}
    train(load(TrainConfig, recipe_path(), small), Silent())
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    logged = set().union(*lines)
    ours = [cells[-1] for cells in rows() if len(cells) == 3]
    assert len(ours) > 8
    for cell in ours:
        table = ""
        for name in re.findall(r"`([a-z_]+(?:/[a-z_]+)?)`", cell):
            table = name.partition("/")[0] if "/" in name else table
            assert (name if "/" in name else f"{table}/{name}") in logged, name
