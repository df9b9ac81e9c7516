"""The commands. Thin: parse, call, print.

Each command lives in a module of its own and is imported only when it is called, so that `tossup audit` never waits for
torch and `tossup --help` answers at once.

Exit codes: 0 done, 1 failed, 2 wrong usage, 130 interrupted (and resumable where the command says so).
"""

from __future__ import annotations

import difflib
import importlib
import os
import signal
import sys
from collections.abc import Sequence

import rich_click as click

from tossup.records import TossupError

COMMANDS = {
    "train": "Train a model with GRPO on the problems that it can learn from.",
    "curate": "Measure a pool's success rates under a model and write the pool with its counts.",
    "audit": "Report how many groups of G answers would teach nothing, per dataset.",
    "eval": "Measure a model on a pool: mean@n and pass@k.",
    "export": "Write a run's model as a Hugging Face folder with a model card.",
    "verify": "Judge answers: one on the command line, or a file of them.",
    "report": "Write a page about a run: rates, waste, tokens, suspect keys, the groups themselves.",
    "lab": "Score a group of answers by hand, as a page.",
    "doctor": "Show what this machine can do, and which isolation untrusted programs get on it.",
}
"""Name -> the line in `tossup --help`. `tossup.cli.NAME.command` is the command."""

EXTRAS = {"torch": "train", "transformers": "train", "safetensors": "train", "datasets": "hf", "ray": "ray"}
"""Package that may be missing -> the extra that brings it."""


SMALLER = (
    "lower --batch-size or --max-new-tokens for generation, --micro-batch-tokens for the update, or use "
    "--gradient-checkpointing or --lora-rank; tossup train --dry-run says which part is the largest"
)
"""What to do where a model does not fit."""


class LazyCommands(click.RichGroup):
    """A group whose commands are imported when they are used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names, in the order of the three jobs."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the module of one command."""
        if cmd_name not in COMMANDS:
            near = difflib.get_close_matches(cmd_name, COMMANDS, n=1)
            if near and not ctx.resilient_parsing:  # completion in a shell has not been told to run anything
                ctx.fail(f"No such command '{cmd_name}'. Did you mean '{near[0]}'?")
            return None
        command: click.Command = importlib.import_module(f"tossup.cli.{cmd_name}").command
        command.name, command.short_help = cmd_name, COMMANDS[cmd_name]
        return command


SETTINGS = {
    "help_option_names": ["-h", "--help"],
    "rich_help_config": {"text_paragraph_linebreaks": "\n\n", "padding_helptext_first_line": (0, 0, 1, 0)},
}
"""Of every command; the help's paragraphs are set apart."""


@click.group(cls=LazyCommands, context_settings=SETTINGS)
@click.version_option(package_name="tossup")
def app() -> None:
    """Reinforcement learning on checkable problems that wastes nothing on the way.

    \b
    tossup train                    the built-in recipe, minutes on a laptop CPU
    tossup audit rollouts.jsonl     what share of groups teaches nothing
    tossup curate pool.jsonl --model NAME --out pool.parquet
    tossup verify math --reference 1/2 'so it is \\boxed{0.5}'
    """


def main(argv: Sequence[str] | None = None) -> None:
    """The entry point of the `tossup` command. Never returns: it exits with one of the codes above."""
    try:
        app.main(args=None if argv is None else list(argv), prog_name="tossup", standalone_mode=False)
    except click.ClickException as e:
        e.show()
        sys.exit(e.exit_code)
    except TossupError as e:
        click.echo(f"error: {e}", err=True)
        sys.exit(1)
    except ModuleNotFoundError as e:
        extra = EXTRAS.get((e.name or "").split(".")[0])
        if extra is None:
            raise
        click.echo(f"error: this command needs {e.name}: pip install 'tossup[{extra}]'", err=True)
        sys.exit(1)
    except (click.Abort, KeyboardInterrupt):
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # a second Ctrl-C must not break the way out
        click.echo("interrupted", err=True)
        sys.exit(130)
    except RuntimeError as e:  # after click.Abort, which is one
        if type(e).__name__ != "OutOfMemoryError":  # torch's, which is not imported for this
            raise
        click.echo(f"error: the GPU's memory is full ({str(e).partition('. ')[0]}): {SMALLER}", err=True)
        sys.exit(1)
    except OSError as e:
        _forget_stdout()
        if not isinstance(e, BrokenPipeError):  # `| head` has read all that it wanted
            click.echo(f"error: {e}", err=True)
        sys.exit(1)
    sys.exit(0)


def _forget_stdout() -> None:
    """Drop what is still to be written there, or the interpreter would try once more while it ends, and complain."""
    stdout = sys.__stdout__
    if stdout is not None and sys.stdout is stdout:
        os.dup2(os.open(os.devnull, os.O_WRONLY), stdout.fileno())
