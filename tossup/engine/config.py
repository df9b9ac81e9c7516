"""One configuration for a training run: typed, frozen, read from TOML, every field overridable on the command line.

Unknown keys and wrong types are errors that name the key, what was got and the near matches. The resolved configuration is
written into the run folder, and reading that file back gives the same configuration.
"""

from __future__ import annotations

import difflib
import hashlib
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import tomli_w
from pydantic import BeforeValidator, Field, ValidationError

from tossup.engine.section import Section, fields, flatten
from tossup.engine.update_config import PRESETS, UpdateConfig
from tossup.records import TossupError


class SamplingConfig(Section):
    """How answers are sampled. top_p, top_k and min_p do not exist here: they make the importance ratio wrong."""

    temperature: float = Field(1.0, gt=0, description="sampling temperature, the same for the trainer's log-probs")
    max_new_tokens: int = Field(512, ge=1, description="token limit of one answer")
    batch_size: int = Field(256, ge=1, description="answers decoded at once")
    generator: Literal["transformers", "vllm"] = Field("transformers", description="who samples: anywhere, or faster")
    generator_memory: float = Field(0.4, gt=0, le=1, description="share of the GPU's memory that vLLM may take")
    instruction: str = Field("auto", description="text added to a chat prompt: auto (by verifier), none, or the text")
    template: tuple[str, ...] = Field(
        (),
        description="an option of the chat template, such as enable_thinking=false; repeat for several",
        json_schema_extra={"metavar": "NAME=VALUE"},
    )
    truncated: Literal["judge", "wrong", "exclude"] = Field(
        "judge", description="an answer cut off by the limit: judged as it is, called wrong, or left out of its group"
    )


class RolloutConfig(SamplingConfig):
    """How the groups of a training step are sampled."""

    group_size: int = Field(8, ge=2, description="answers sampled to one problem (G)")
    problems_per_step: int = Field(32, ge=1, description="problems drawn in one wave")


class CurriculumConfig(Section):
    """Which problems are drawn and which groups train."""

    sampler: Literal["tossup", "uniform", "greso", "last_mean", "mopps"] = Field(
        "tossup", description="tossup seeks problems near a coin flip; the others are for comparison"
    )
    aim: Literal["headroom", "half"] = Field("headroom", description="value of a problem: E[std (1-p)], or E[std]")
    uniform_share: float = Field(0.1, ge=0, le=1, description="share of draws that is uniform: the control arm")
    thompson_share: float = Field(0.15, ge=0, le=1, description="share of draws by Thompson sampling")
    rest: int = Field(60, ge=0, description="steps after a visit until a problem is worth its full value again")
    refill: bool = Field(False, description="generate further waves until problems_per_step groups are informative")
    max_waves: int = Field(4, ge=1, description="the most waves of a step when refilling")
    full_waves: bool = Field(False, description="refill by whole waves (DAPO's way), not by what is missing")
    max_age: int = Field(1, ge=0, description="steps that a surplus informative group may wait for a batch")
    patience: int = Field(512, ge=1, description="stop after this many groups in a row without an informative one")


class LoraConfig(Section):
    """Training a low-rank adapter instead of all weights; needs the extra `lora`."""

    rank: int = Field(0, ge=0, description="rank of the adapter's matrices; 0: all weights are trained")
    alpha: int = Field(32, ge=1, description="the adapter counts alpha / rank times")
    targets: str = Field("all-linear", description="all-linear, or names of layers: q_proj,v_proj")


MAP = "the column of a field, FIELD=COLUMN, such as reference=answer; repeat for several; FIELD= ignores one"


class EvalConfig(Section):
    """Held-out accuracy."""

    map: tuple[str, ...] = Field((), description=f"for the held-out pool: {MAP}")
    every: int = Field(0, ge=0, description="evaluate every so many steps; 0: only before and after")
    problems: int = Field(512, ge=1, description="held-out problems of each pool, evenly spaced over it")
    samples: int = Field(4, ge=1, description="answers a problem, at the training temperature; also the k of pass@k")


def _several(value: Any) -> Any:
    """One name, or none, where several may stand."""
    names = (value,) if isinstance(value, str) else value
    if not isinstance(names, list | tuple):
        return names
    if twice := [name for name in names if name and names.count(name) > 1]:
        raise ValueError(f"{twice[0]} is named twice, and each of its problems would count twice: name it once")
    return [name for name in names if name]


class TrainConfig(Section):
    """A training run."""

    preset: Literal["", "dr_grpo", "dapo", "gspo", "cispo"] = Field("", description="a published variant of GRPO")
    model: str = Field("builtin:arithmetic", description="Hugging Face name, folder, or builtin:arithmetic")
    pool: str = Field("builtin:arithmetic/train", description="training problems: a file, hf:NAME[:CONFIG][:SPLIT]")
    map: tuple[str, ...] = Field((), description=MAP)
    eval_pool: Annotated[tuple[str, ...], BeforeValidator(_several)] = Field(
        (),
        description="held-out problems; repeat for several pools; none: no evaluation",
        json_schema_extra={"metavar": "POOL"},
    )
    verifier: str = Field(
        "", description="overrides the pool's verifier: math, exact, code, or package.module:function"
    )
    steps: int = Field(100, ge=1, description="training steps: each samples one batch and updates on it")
    token_budget: int = Field(0, ge=0, description="stop once so many tokens were generated; 0: no limit")
    seed: int = Field(0, ge=0, description="every random choice follows from it")
    out: str = Field("", description="run folder; empty: runs/NAME-HASH, so that the same command resumes")
    device: str = Field("auto", description="auto, cpu, cuda, cuda:1")
    dtype: Literal["auto", "float32", "bfloat16"] = Field("auto", description="compute type; weights stay float32")
    attention: str = Field("", description="attention of transformers: sdpa, flash_attention_2 ...; empty: its choice")
    threads: int = Field(0, ge=0, description="CPU threads of torch; 0: one for tiny models, else torch's choice")
    save_every: int = Field(1, ge=1, description="steps between checkpoints: what a kill can lose")
    keep_checkpoints: int = Field(2, ge=1, description="newest checkpoints kept")
    keep_best: bool = Field(True, description="keep the model of the best evaluation, in RUN/best")
    timeout: float = Field(1800, gt=0, description="seconds that a process of torchrun waits for the others")
    save_text: bool = Field(False, description="keep the answers' text beside the ledger")
    log: Literal["", "tensorboard", "wandb", "trackio"] = Field("", description="a dashboard beside metrics.jsonl")
    project: str = Field("tossup", description="the dashboard's project")
    log_groups: int = Field(4, ge=0, description="groups of a step whose answers the dashboard shows as a table")
    rollout: RolloutConfig = RolloutConfig()
    curriculum: CurriculumConfig = CurriculumConfig()
    update: UpdateConfig = UpdateConfig()
    lora: LoraConfig = LoraConfig()
    eval: EvalConfig = EvalConfig()

    @property
    def decay_steps(self) -> int:
        """The step at which the learning rate's decay is at its end; 0 where it does not decay."""
        return 0 if self.update.lr_schedule == "constant" else self.update.decay_steps or self.steps


FREE_TO_CHANGE = frozenset(
    {"steps", "token_budget", "out", "save_every", "keep_checkpoints", "keep_best", "threads", "save_text", "log"}
    | {"project", "timeout", "log_groups", "keep", "limit", "k", "ray", "workers"}
    | {"confidence", "undecided", "signal", "group_size", "samples_max", "tolerance"}
    | {f"{part}.{name}" for part in ("rollout", "sampling") for name in ("generator", "generator_memory")}
)
"""Settings that a resumed run may change: they do not touch what the next step computes, but for the rounding of another
generator, so that a run whose vLLM fails can go on without it. See `shaping` for `steps` under a decaying learning rate."""


def shaping(config: Section) -> dict[str, Any]:
    """The settings that shape a run, by dotted name: two configurations that agree in them are of one run.

    A decay that ends with the run is that of a run of so many steps: `update.decay_steps` counts as what it comes to.
    """
    values = {name: value for name, value in flatten(config.model_dump()) if name not in FREE_TO_CHANGE}
    return values | ({"update.decay_steps": config.decay_steps} if isinstance(config, TrainConfig) else {})


def digest(config: Section, inputs: Mapping[str, str] | None = None) -> str:
    """Six hex digits of everything that shapes a run: all settings but those that a resumed run may change.

    A setting at its default is left out, so that one which a later version adds names no other run. `inputs` are fingerprints
    of what the settings name (see `inputs`), where these are to count too.
    """
    usual = shaping(type(config)())
    chosen = [(name, value) for name, value in sorted(shaping(config).items()) if value != usual[name]]
    found = (chosen, sorted((inputs or {}).items()))
    return hashlib.sha256(repr(found).encode()).hexdigest()[:6]


def to_toml(config: Section) -> str:
    """The whole configuration as TOML."""
    return tomli_w.dumps(config.model_dump())


Config = TypeVar("Config", bound=Section)


def load(kind: type[Config], path: Path | None = None, overrides: Mapping[str, Any] | None = None) -> Config:
    """Read a configuration of this kind from TOML and lay overrides (dotted name -> value) over it.

    Raises:
        TossupError: the file is missing or not TOML, a key is unknown (near matches are named), a value does not fit.
    """
    values: dict[str, Any] = {}
    if path is not None:
        try:
            values = tomllib.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise TossupError(f"there is no recipe {path}") from None
        except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as e:
            raise TossupError(f"recipe {path} cannot be read as TOML: {e}") from e
    for dotted, value in (overrides or {}).items():
        _put(values, dotted, value)
    for dotted, value in PRESETS.get(str(values.get("preset", "")), {}).items():
        _put(values, dotted, value, over=False)
    try:
        return kind.model_validate(values)
    except ValidationError as e:
        raise TossupError("\n".join(_explain(kind, error) for error in e.errors())) from None


def _put(values: dict[str, Any], dotted: str, value: Any, over: bool = True) -> None:
    """Set a dotted name in nested tables; without `over`, only where there is none."""
    *sections, leaf = dotted.split(".")
    table: Any = values
    for section in sections:
        table = table.setdefault(section, {})
        if not isinstance(table, dict):
            raise TossupError(f"{section} is a table of settings, got {table!r}")
    if over:
        table[leaf] = value
    else:
        table.setdefault(leaf, value)


def _explain(kind: type[Section], error: Any) -> str:
    """One line for one pydantic error, with near matches for an unknown key."""
    dotted = ".".join(str(part) for part in error["loc"])
    if error["type"] != "extra_forbidden":
        got = (
            "" if error["type"] == "value_error" else f", got {error['input']!r}"
        )  # a table's own check says it itself
        return f"{dotted}: {error['msg'].removeprefix('Value error, ')}{got}"
    known = [name for name, _ in fields(kind)]
    leaves = {name.rsplit(".", 1)[-1]: name for name in known}
    near = difflib.get_close_matches(dotted, known, n=3)
    near += [leaves[m] for m in difflib.get_close_matches(dotted.rsplit(".", 1)[-1], list(leaves), n=3)]
    hint = f"did you mean {', '.join(dict.fromkeys(near))}?" if near else f"known are {', '.join(known)}"
    return f"unknown setting {dotted}: {hint}"


def conflicts(ours: Section, theirs: Section) -> list[str]:
    """The settings that keep two configurations from being one run: "update.lr: 0.001 here, 0.0003 there"."""
    a, b = shaping(ours), shaping(theirs)
    said = [f"{name}: {a[name]!r} here, {b[name]!r} there" for name in a if a[name] != b[name]]
    if isinstance(ours, TrainConfig) and a["update.decay_steps"] == ours.steps != b["update.decay_steps"] > 0:
        said.append(
            f"the learning rate decays over the steps of the run: go on with --decay-steps {b['update.decay_steps']}"
        )
    return said
