"""What a report is about: the ledger of a run or a curate job, with what lies around it.

Only the ledger is needed. The configuration, the summary and the pool (which alone knows the prompts and the references)
are taken where they are found; what is missing is said on the page instead of failing.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import polars as pl

from tossup.curriculum import ledger
from tossup.curriculum.pool import read_pool
from tossup.curriculum.schemas import messages
from tossup.curriculum.sources import SUFFIXES, suffix
from tossup.records import TossupError, prompt_text

Kind = Literal["train", "curate", "ledger"]


@dataclass(frozen=True, slots=True)
class Source:
    """A run to report on; `notes` say what could not be read.

    `pool` has id, prompt, reference, attempts and correct, `before` the same of the pool that the job read.
    """

    root: Path
    ledger: Path
    kind: Kind
    config: Mapping[str, Any]
    summary: Mapping[str, Any]
    pool: pl.DataFrame | None
    before: pl.DataFrame | None
    notes: tuple[str, ...]
    watched: Mapping[str, Any] | None
    """The problems that the curriculum set aside, by list; None while a run goes on, and where nothing is set aside."""

    @property
    def name(self) -> str:
        """How the run is called on the page."""
        return self.root.resolve().name

    @property
    def divides_by_std(self) -> bool:
        """Whether the run divided its advantages by the group's standard deviation; so it does unless it says otherwise."""
        return bool(self.config.get("update", {}).get("std_norm", True))

    def prompts(self, problems: Iterable[str]) -> dict[str, tuple[str, str]]:
        """Prompt and reference, as text, of those of the problems that the pool knows."""
        if self.pool is None:
            return {}
        rows = self.pool.filter(pl.col("id").is_in(sorted(set(problems)))).select("id", "prompt", "reference")
        return {name: (as_text(prompt), reference) for name, prompt, reference in rows.iter_rows()}


def as_text(prompt: Any) -> str:
    """A prompt as one text: a chat turn by turn, each under its role."""
    return prompt_text(messages(prompt))


def locate(run: Path, pool: Path | None = None) -> Source:
    """Find the parts of a run folder, of a curate job's folder, or of a ledger alone; `pool` names the pool by hand.

    Raises:
        TossupError: no ledger there, or a pool that was named by hand cannot be read.
    """
    root, parts = _folders(run)
    config = _toml(root / "config.toml")
    summary = _json(root / "summary.json")
    kind: Kind = "ledger" if root == parts else "curate" if "samples" in config else "train"
    watched = _json(root / "watched.json") if (root / "watched.json").is_file() else None
    notes: list[str] = []
    if pool is not None:
        return Source(root, parts, kind, config, summary, _columns(pool), None, (), watched)
    read = _pools(root, config, notes)
    frame = pl.concat(read.values()).unique("id", keep="first", maintain_order=True) if read else None
    return Source(root, parts, kind, config, summary, frame, read.get(_named(config)), tuple(notes), watched)


def default_page(run: Path) -> Path:
    """Where the page of this run goes: into its folder, or beside a ledger that stands alone."""
    root, parts = _folders(run)
    return root / "report.html" if root != parts else root.with_name(f"{root.name}.report.html")


def _folders(run: Path) -> tuple[Path, Path]:
    if ledger.is_ledger(run / "ledger"):
        return run, run / "ledger"
    if ledger.is_ledger(run):
        around = run.parent
        return (around, run) if run.name == "ledger" and (around / "config.toml").exists() else (run, run)
    if run.is_file() and ledger.is_ledger(run.with_name(f"{run.stem}.curate") / "ledger"):
        raise TossupError(
            f"{run} is a pool; its ledger is in {run.with_name(f'{run.stem}.curate')}: report on that folder"
        )
    what = (
        "no such folder" if not run.exists() else "there is no ledger (no step-*.parquet in it or in its ledger folder)"
    )
    raise TossupError(f"{run}: {what}; expected the folder of a train run, NAME.curate of a curate job, or a ledger")


def _pools(root: Path, config: Mapping[str, Any], notes: list[str]) -> dict[Path, pl.DataFrame]:
    """The pools near a run, the one with the newest counts first; the source pool has prompts that --keep left out."""
    near = [root / "pool.parquet"]
    if root.suffix == ".curate":
        near += [root.with_suffix(kind) for kind in (".parquet", ".jsonl")]
    if suffix(_named(config)) in SUFFIXES:
        near.append(_named(config))
    found = {}
    for path in near:
        if not path.is_file():
            continue
        try:
            found[path] = _columns(path)
        except TossupError as e:
            notes.append(f"A pool could not be read, so its prompts are missing: {e}")
    return found


def _named(config: Mapping[str, Any]) -> Path:
    return Path(str(config.get("pool", "")))


def _columns(path: Path) -> pl.DataFrame:
    frame = read_pool(path).frame.select("id", "prompt", "reference", "attempts", "correct")
    if frame.schema["prompt"] != pl.String:
        prompts = [as_text(p) for p in frame["prompt"]]
        frame = frame.with_columns(pl.Series("prompt", prompts, dtype=pl.String))
    return frame


def _toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    except ValueError as e:
        raise TossupError(f"{path} is not TOML: {e}") from e


def _json(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    except ValueError as e:
        raise TossupError(f"{path} is not JSON: {e}") from e
    return value if isinstance(value, dict) else {}
