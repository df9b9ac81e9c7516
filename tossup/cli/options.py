"""Options of a command from the fields of its configuration: each setting is declared once, in `engine.config`."""

from __future__ import annotations

import typing
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import rich_click as click

from tossup.cli.console import complete_files
from tossup.engine.config import Config, TrainConfig, load
from tossup.engine.measure_config import EvaluateConfig
from tossup.engine.section import Section, fields
from tossup.records import TossupError

BUILTIN_MODEL = "builtin:arithmetic"
"""The one model that the default pool was made for."""

FILES = {"model", "pool", "eval_pool", "out", "against"}
"""Settings that may be the path of a file or a folder."""


def config_options(kind: type[Section]) -> list[click.Option]:
    """One option for each field of a configuration: `--update.lr`, in short `--lr`; also `--eval-every`, `--lora-rank`."""
    options = []
    for dotted, info in fields(kind):
        section, _, leaf = dotted.rpartition(".")
        short = f"{section}-{leaf}" if section in ("eval", "lora") else leaf
        flag = short.replace("_", "-")
        names = [dotted.replace(".", "__"), f"--{flag}"] + ([f"--{dotted}"] if section else [])
        annotation = info.annotation
        settings: dict[str, Any] = {"default": None, "help": _help(info)}
        if annotation is bool:
            names = [names[0], f"--{flag}/--no-{flag}"]
        elif typing.get_origin(annotation) is tuple:
            settings |= {"multiple": True} | _repeated(info)
        elif typing.get_origin(annotation) is typing.Literal:
            settings["type"] = _Choice(typing.get_args(annotation))
        else:
            settings["metavar"] = getattr(annotation, "__name__", "value").upper()
        if leaf in FILES:
            settings["shell_complete"] = complete_files
        if leaf == "pool":
            settings |= {"multiple": True, "callback": _one}
        options.append(click.Option(names, **settings))
    return options


class _Choice(click.Choice[str]):
    """One of some names; where a setting may also be empty, that is taken without being listed as a name."""

    def __init__(self, values: Sequence[str]) -> None:
        super().__init__([value for value in values if value])
        self.may_be_empty = "" in values

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        return "" if self.may_be_empty and value == "" else super().convert(value, param, ctx)


def _repeated(info: Any) -> dict[str, Any]:
    """What one value of a repeatable option may be."""
    kind, _ = typing.get_args(info.annotation)
    if typing.get_origin(kind) is typing.Literal:
        return {"type": click.Choice(typing.get_args(kind))}
    return {"metavar": (info.json_schema_extra or {}).get("metavar", "FIELD=COLUMN")}


def _one(ctx: click.Context, option: click.Parameter, values: tuple[str, ...]) -> str | None:
    """The value of an option that may not be repeated, where click would take the last and drop the others unsaid."""
    if len(values) > 1:
        raise click.BadParameter(
            f"takes one pool, got {', '.join(values)}: put their rows into one file with a column dataset, or give the "
            "command once for each",
            ctx,
            option,
        )
    return values[0] if values else None


def _help(info: Any) -> str:
    """The field's description and its default, if it has one that says something."""
    if info.is_required() or info.default in ("", ()):
        return str(info.description)
    return f"{info.description} [default: {info.default}]"


def overrides_of(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options that were given, as dotted names of settings."""
    return {name.replace("__", "."): value for name, value in options.items() if value is not None and value != ()}


def configured(kind: type[Config], recipe: Path | None, given: Mapping[str, Any]) -> Config:
    """The configuration of a command: its recipe with the options laid over it. What does not fit is wrong usage."""
    try:
        return load(kind, recipe, given)
    except TossupError as e:
        raise click.UsageError(str(e)) from e


def check_pool_given(config: TrainConfig | EvaluateConfig) -> None:
    """See that a model of the user's is not put to the built-in problems for want of others.

    Raises:
        UsageError: there is such a model and no pool was named.
    """
    if config.model != BUILTIN_MODEL and "pool" not in config.model_fields_set:
        raise click.UsageError(
            f"no problems are named for {config.model}: give --pool FILE or --pool hf:NAME; the built-in ones are --pool "
            "builtin:arithmetic/train and builtin:arithmetic/heldout"
        )
