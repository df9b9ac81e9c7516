"""`tossup export`."""

from __future__ import annotations

from pathlib import Path

import rich_click as click

from tossup.cli.console import json_option, out, print_json, say


@click.command()
@click.argument("run", type=click.Path(path_type=Path))
@click.argument("folder", type=click.Path(path_type=Path))
@click.option("--best", is_flag=True, help="the model of the best evaluation instead of the last")
@click.option(
    "--adapter", is_flag=True, help="a LoRA adapter as it is, for peft, instead of merged into its base model"
)
@json_option
def command(run: Path, folder: Path, best: bool, adapter: bool, as_json: bool) -> None:
    """Write a run's model as a Hugging Face folder, with tokenizer, chat template and a model card.

    The card says how the model came about: pool and fingerprint, sampler, steps, accuracy before and after, tokens and what
    became of them, and all settings.

    \b
    tossup export runs/my-run my-model
    tossup export runs/my-run my-model --best
    tossup export runs/lora-run my-adapter --adapter
    """
    from tossup.engine.export import export_run

    facts = export_run(run, folder, best=best, adapter=adapter)
    if as_json:
        print_json(facts)
        return
    say(f"{folder}: the model of {facts['model_of']}, step {facts['accuracy']['step']:,}; README.md is its card", out)
