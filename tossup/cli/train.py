"""`tossup train`."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import rich_click as click
from rich.progress import Progress, TaskID
from rich.table import Table

from tossup.cli.console import console, json_option, out, print_json, print_undecided, progress_bar, say
from tossup.cli.options import check_pool_given, config_options, configured, overrides_of
from tossup.engine import config as configuration
from tossup.records import TossupError, counted

CUT_OFF = 0.1
"""From this share of answers on that end at the token limit, the line of a step says so."""

MOST_DATASETS = 8
"""More of them than this are left to `summary.json`."""


class Look:
    """Shows a run in the terminal: a bar, and a line for a step at most every two seconds."""

    LINE_EVERY_S = 2.0

    def __init__(self, progress: Progress, steps: int) -> None:
        self.progress = progress
        self.task: TaskID = progress.add_task("training", total=steps, speed="")
        self.answers = 0
        self.line_at = 0.0

    def note(self, text: str) -> None:
        """Print a remark."""
        say(text)

    def generated(self, answers: int) -> None:
        """Count answers, for the speed beside the bar."""
        self.answers += answers

    def step(self, step: int, metrics: Mapping[str, float]) -> None:
        """Move the bar and, now and then, print what the step was like."""
        speed = metrics["tokens/generated"] / max(metrics["time/generate"], 1e-9)
        self.progress.update(self.task, completed=step, speed=f"{speed:,.0f} tok/s")
        now = time.monotonic()
        if "eval/accuracy" in metrics:
            shown = f"step {step}: held-out accuracy {metrics['eval/accuracy']:.3f} ± {metrics['eval/stderr']:.3f}"
            passed = [f", {name.removeprefix('eval/')} {metrics[name]:.3f}" for name in metrics if "/pass@" in name]
            console.print(shown + "".join(passed))
        if now - self.line_at < self.LINE_EVERY_S:
            return
        self.line_at = now
        m: dict[str, float] = {"rollout/reward": 0.0} | dict(metrics)
        share = m.get("rollout/unjudged", 0)
        unjudged = f", {share:.0%} unjudged" if share else ""
        cut = m.get("rollout/truncated", 0)
        cut_off = f" ({cut:.0%} of the answers cut off)" if cut >= CUT_OFF else ""
        console.print(
            f"step {step:>5}  reward {m['rollout/reward']:.2f}  "
            f"groups: {m.get('rollout/effective', 0):.0%} effective, {m.get('rollout/too_easy', 0):.0%} too easy, "
            f"{m.get('rollout/too_hard', 0):.0%} too hard{unjudged}  "
            f"tokens: {m['tokens/generated']:,.0f} generated{cut_off}, {m['tokens/trained']:,.0f} trained  "
            f"time: {m['time/generate']:.2f} s generate, {m['time/verify']:.2f} verify, {m['time/update']:.2f} update",
            soft_wrap=True,
        )


@click.command(context_settings={"show_default": False})
@click.argument("recipe", required=False, type=click.Path(path_type=Path))
@click.option("--dry-run", is_flag=True, help="show settings, problems, memory and one prompt, and do nothing")
@json_option
def command(recipe: Path | None, dry_run: bool, as_json: bool, **overrides: Any) -> None:
    """Train a model with GRPO on the problems that it can learn from.

    Without RECIPE and --model, the built-in arithmetic recipe runs: a tiny model, minutes on a laptop CPU. Every setting
    of a recipe (TOML) is an option below. The same command again resumes an interrupted run, or shows a finished one.

    \b
    tossup train
    tossup train --steps 50 --out runs/short
    tossup train recipe.toml --dry-run
    tossup train --model Qwen/Qwen3-1.7B --pool hf:openai/gsm8k --group-size 8
    tossup train recipe.toml --sampler uniform --seed 1 --json
    torchrun --nproc-per-node 8 -m tossup train recipe.toml
    """
    from tossup.engine import arithmetic, distributed
    from tossup.engine.train import train

    given = overrides_of(overrides)
    if recipe is None and "model" not in given:
        recipe = arithmetic.recipe_path()
    config = configured(configuration.TrainConfig, recipe, given)
    check_pool_given(config)
    console.quiet = distributed.follows()
    if dry_run:
        if not distributed.follows():
            _show_plan(config, as_json)
        return
    with progress_bar(rate="speed") as progress:
        look = Look(progress, config.steps)
        try:
            summary = train(config, look)
        except KeyboardInterrupt:
            console.print("the same command resumes the run where its last checkpoint is", soft_wrap=True)
            raise
        except OSError as e:
            raise TossupError(f"{e}; the checkpoints are safe: free what is missing and run the same command") from e
    if not summary:  # a process of torchrun that follows the one that prints
        return
    if as_json:
        print_json(summary)
    else:
        out.print(_table(summary))
        print_undecided(summary["undecided_reasons"])
        page = write_page(summary["run"])
        say(f"run folder: {summary['run']}   (tossup audit {summary['run']})\nreport: {page}", out)


def _show_plan(config: configuration.TrainConfig, as_json: bool) -> None:
    from tossup.cli.plan_output import print_plan
    from tossup.engine.plan import plan

    found = plan(config)
    if as_json:
        print_json(found | {"settings": config.model_dump(mode="json")})
    else:
        print_plan(found, configuration.to_toml(config))


def write_page(run: str) -> Path:
    """Write the run's page and return its path."""
    from tossup.curriculum import report

    page = report.default_page(Path(run))
    report.write(Path(run), page)
    return page


command.params += config_options(configuration.TrainConfig)


def _parts(evaluations: Sequence[Mapping[str, float]]) -> Iterator[tuple[str, float, float]]:
    """pass@k, and the accuracy of each dataset where they are few: before the run and after it."""
    before, after = evaluations[0], evaluations[-1]
    datasets = [name for name in after if name.startswith("accuracy/")]
    passed = [name for name in after if name.startswith("pass@")]
    for name in [*passed, *(datasets if len(datasets) <= MOST_DATASETS else ())]:
        if name in before:
            yield name.removeprefix("accuracy/"), before[name], after[name]


def _share(share: float, of: int) -> str:
    return f"{share:.1%} of {of:,}" if of else "none drawn"


def _table(s: Mapping[str, Any]) -> Table:
    """The result of a run."""
    from tossup.engine.progress import ended

    table = Table(title=counted(s["steps"], "step") + ended(s["ended_by"]), title_justify="left", show_header=False)
    table.add_column(justify="left")
    table.add_column(justify="left")
    if s["accuracy_before"] is not None:
        table.add_row("held-out accuracy before", f"{s['accuracy_before']:.3f}")
        table.add_row("held-out accuracy after", f"{s['accuracy_after']:.3f} ± {s['accuracy_stderr']:.3f}")
        for name, before, after in _parts(s["evaluations"]):
            table.add_row(f"  {name}", f"{before:.3f} before, {after:.3f} after")
    table.add_row("wasted groups", f"{s['wasted_share']:.1%} of {s['groups']:,}")
    if 0 < s["groups_uniform"] < s["groups"]:
        table.add_row(
            "  uniform sampling, same policies", f"{s['wasted_share_uniform']:.1%} of {s['groups_uniform']:,}"
        )
        table.add_row("  in the last third of the run", f"{s['wasted_share_late']:.1%} of {s['groups_late']:,}")
        table.add_row(
            "  uniform sampling, last third", _share(s["wasted_share_uniform_late"], s["groups_uniform_late"])
        )
    total = max(1, s["tokens_generated"])
    table.add_row("generated tokens", f"{s['tokens_generated']:,}")
    for fate, count in s["tokens"].items():
        if count:
            table.add_row(f"  {fate.replace('_', ' ')}", f"{count:,} ({count / total:.1%})")
    for name, count in s["watched"].items():
        if count:
            table.add_row(f"problems {name.replace('_', ' ')}", f"{count:,}")
    table.add_row("time", f"{s['seconds']:.0f} s")
    for part in ("generate", "verify", "update"):
        table.add_row(f"  {part}", f"{s['seconds_' + part]:.0f} s")
    table.add_row("peak memory", f"{s['peak_memory_mb']:,} MB")
    return table
