"""`tossup export`: a run's model as a folder that any Hugging Face user can load, with a card that says how it came about."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tossup.curriculum import atomic
from tossup.engine import lora
from tossup.engine.config import TrainConfig, load
from tossup.engine.folder import RunFolder
from tossup.engine.policy import export
from tossup.engine.policy import load as load_policy
from tossup.engine.progress import ended
from tossup.records import TossupError


def export_run(root: Path, out: Path, *, best: bool = False, adapter: bool = False) -> dict[str, Any]:
    """Write the trained model of the run in `root` to the new folder `out`, with tokenizer, chat template and model card.

    `best` takes the model of the run's best evaluation instead of the last. An adapter is merged into its base model, in
    float32 as it was trained; with `adapter` it is written as it is, for peft. Returns what the card says, as plain data.

    Raises:
        TossupError: this is no run, it is not done, there is no such model in it, `out` holds something, or the disk
            refused.
    """
    run = RunFolder(root)
    if not run.config.is_file():
        raise TossupError(f"{root} is no run of `tossup train`: there is no config.toml in it")
    if not run.summary.is_file():
        raise TossupError(f"{root} has not come to its end yet: let its command run on first")
    source = _source(run, best)
    if adapter and not lora.is_saved(source):
        raise TossupError(f"{source} is a whole model, not an adapter: leave --adapter off")
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise TossupError(f"{out} is there already: choose another folder, or delete it")
    facts = _facts(run, best)
    with atomic.renewing(out) as part:
        if adapter:
            _copy(source, part)
        else:
            export(load_policy(str(source), "cpu", "float32"), part)
        (part / "README.md").write_text(_card(facts, adapter), encoding="utf-8")
    return facts | {"folder": str(out)}


def _source(run: RunFolder, best: bool) -> Path:
    if not best:
        return run.model
    if run.best.is_dir():
        return run.best
    summary = json.loads(run.summary.read_text(encoding="utf-8"))
    if summary.get("best") is None:
        raise TossupError(f"{run.root} was never evaluated, so none of its models is the best: give an --eval-pool")
    raise TossupError(
        f"{run.root} holds no best model: no evaluation was better than the start model's, or --no-keep-best was given"
    )


def _copy(source: Path, part: Path) -> None:
    for path in source.iterdir():
        if path.is_file() and path.name not in ("README.md", "best.json"):
            shutil.copyfile(path, part / path.name)


def _facts(run: RunFolder, best: bool) -> dict[str, Any]:
    config = load(TrainConfig, run.config)
    summary = json.loads(run.summary.read_text(encoding="utf-8"))
    inputs = json.loads(run.inputs.read_text(encoding="utf-8")) if run.inputs.exists() else {}
    after = {"step": summary["steps"], "mean": summary["accuracy_after"], "stderr": summary["accuracy_stderr"]}
    return {
        "base_model": config.model,
        "lora": config.lora.model_dump() if config.lora.rank else None,
        "pool": config.pool,
        "eval_pool": list(config.eval_pool),
        "inputs": inputs,
        "sampler": config.curriculum.sampler,
        "objective": config.preset or config.update.objective,
        "group_size": config.rollout.group_size,
        "model_of": "the best evaluation" if best else "the last step",
        "accuracy_before": summary["accuracy_before"],
        "accuracy": json.loads((run.best / "best.json").read_text(encoding="utf-8")) if best else after,
        "steps": summary["steps"],
        "ended_by": summary["ended_by"],
        "tokens_generated": summary["tokens_generated"],
        "tokens": summary["tokens"],
        **{name: summary[name] for name in ("wasted_share", "groups", "wasted_share_uniform", "groups_uniform")},
        "undecided_reasons": summary["undecided_reasons"],
        "config": run.config.read_text(encoding="utf-8"),
    }


def _card(facts: Mapping[str, Any], adapter: bool) -> str:
    """The model card. Everything in it is read off the run; nothing is said of what was not measured."""
    base = facts["base_model"]
    front = ["---", "library_name: " + ("peft" if adapter else "transformers"), "pipeline_tag: text-generation"]
    if "/" in base and not Path(base).exists():  # a name on the Hub; a path would mean nothing to a reader
        front.append(f"base_model: {base}")
    front += ["tags: [grpo, reinforcement-learning, tossup" + (", lora]" if facts["lora"] else "]"), "---"]
    start = base if not Path(base).exists() else Path(base).name
    rows = [
        ("start model", start + (f", LoRA of rank {facts['lora']['rank']}" if facts["lora"] else "")),
        ("training problems", _named(facts, "pool", facts["pool"])),
        ("objective", f"{facts['objective']}, groups of {facts['group_size']}"),
        ("sampler", facts["sampler"]),
        ("steps", f"{facts['steps']:,}" + ended(facts["ended_by"])),
        ("this model", f"{facts['model_of']}, step {facts['accuracy']['step']:,}"),
        *_accuracy(facts),
        ("tokens generated in training", f"{facts['tokens_generated']:,}"),
        ("groups that taught nothing", f"{facts['wasted_share']:.1%} of {facts['groups']:,}" + _control(facts)),
    ]
    fates = ", ".join(f"{name} {count:,}" for name, count in facts["tokens"].items() if count)
    table = ["| | |", "|---|---|", *(f"| {name} | {value} |" for name, value in rows), f"| tokens by fate | {fates} |"]
    use = ["from transformers import AutoModelForCausalLM, AutoTokenizer", ""]
    if adapter:
        use.insert(0, "from peft import PeftModel")
        use.append('model = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained("BASE"), "FOLDER")')
    else:
        use.append('model = AutoModelForCausalLM.from_pretrained("FOLDER")')
    code = ["```python", *use, 'tokenizer = AutoTokenizer.from_pretrained("FOLDER")', "```"]
    text = [*front, "", f"# {start}, trained with tossup", "", *table, "", *code, "", "All settings:", "", "```toml"]
    return "\n".join([*text, facts["config"].rstrip(), "```", ""])


def _named(facts: Mapping[str, Any], key: str, name: str) -> str:
    """A pool's name, without the folders of a path, and the fingerprint of its content."""
    fingerprint = facts["inputs"].get(f"{key} {name}")
    return (name if name.startswith(("hf:", "builtin:")) else Path(name).name) + (
        f" (fingerprint {fingerprint})" if fingerprint else ""
    )


def _accuracy(facts: Mapping[str, Any]) -> list[tuple[str, str]]:
    if facts["accuracy_before"] is None:
        return [("held-out accuracy", "not measured")]
    after = facts["accuracy"]
    note = "; chosen by this figure, which flatters it a little" if facts["model_of"] == "the best evaluation" else ""
    return [
        ("held-out problems", ", ".join(_named(facts, "eval_pool", name) for name in facts["eval_pool"])),
        ("accuracy before", f"{facts['accuracy_before']:.3f}"),
        ("accuracy of this model", f"{after['mean']:.3f} ± {after['stderr']:.3f} (standard error over problems{note})"),
    ]


def _control(facts: Mapping[str, Any]) -> str:
    """The share that uniform draws would have wasted, where both kinds were drawn."""
    uniform = facts["groups_uniform"]
    if not 0 < uniform < facts["groups"]:
        return ""
    return f"; {facts['wasted_share_uniform']:.1%} of the {uniform:,} among them that were drawn uniformly"
