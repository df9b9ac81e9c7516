"""The configurations of measuring a model on a pool: `tossup curate` and `tossup eval`."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from tossup.engine.config import MAP, SamplingConfig
from tossup.engine.section import Section


class MeasureConfig(Section):
    """Sampling answers to every problem of a pool."""

    pool: str = Field("builtin:arithmetic/train", description="the problems: a file, hf:NAME[:CONFIG][:SPLIT]")
    map: tuple[str, ...] = Field((), description=MAP)
    model: str = Field("builtin:arithmetic", description="Hugging Face name, folder, or builtin:arithmetic")
    samples: int = Field(8, ge=1, description="answers a problem")
    limit: int = Field(0, ge=0, description="measure only the first so many problems; 0: all")
    verifier: str = Field("", description="overrides the pool's verifier")
    seed: int = Field(0, ge=0, description="every random choice follows from it")
    device: str = Field("auto", description="auto, cpu, cuda, cuda:1")
    dtype: Literal["auto", "float32", "bfloat16"] = Field("auto", description="compute type; weights stay float32")
    threads: int = Field(0, ge=0, description="CPU threads of torch; 0: one for tiny models, else torch's choice")
    save_text: bool = Field(False, description="keep the answers' text beside the ledger")
    ray: bool = Field(False, description="sample on a Ray cluster: that of RAY_ADDRESS, or one started here")
    workers: int = Field(
        0, ge=0, description="with --ray: workers; 0: one a GPU, or without GPUs one for --threads CPUs"
    )
    sampling: SamplingConfig = SamplingConfig()


class CurateConfig(MeasureConfig):
    """Measuring a pool to write it with its counts."""

    out: str = Field("pool.parquet", description="the pool to write (.parquet or .jsonl); the ledger lies beside it")
    keep: str = Field("", description="write only problems with a success rate in this band: 0.1..0.9")
    confidence: float = Field(
        0.0, ge=0, lt=1, description="drop what is out of band with this probability; 0: go by the observed rate"
    )
    undecided: Literal["keep", "drop", "likelier"] = Field(
        "keep", description="what becomes of problems of which --confidence cannot say"
    )
    signal: str = Field("", description="write only problems with so many informative groups per 1,000 tokens, or 30%")
    group_size: int = Field(8, ge=2, description="answers in a group (G), for --signal")
    samples_max: int = Field(0, ge=0, description="go on up to so many answers where undecided; 0: --samples")
    token_budget: int = Field(0, ge=0, description="generate at most about so many tokens; 0: no limit")
    tolerance: float = Field(
        0.0,
        ge=0,
        lt=1,
        description="stop once, called as they are, at most this share of the problems would be misjudged",
    )
    dedupe: bool = Field(False, description="drop copies, and prompts that come with different references")
    drop: tuple[Literal["empty", "leak", "solution", "link", "choices"], ...] = Field(
        (), description="drop what the checks find of this kind; repeat for several"
    )
    against: tuple[str, ...] = Field(
        (),
        description="drop what overlaps this evaluation set; repeat for several",
        json_schema_extra={"metavar": "POOL"},
    )


class EvaluateConfig(MeasureConfig):
    """Measuring a model on a pool."""

    out: str = Field("", description="folder of the ledger; empty: runs/eval-MODEL-HASH")
    k: str = Field("", description="the k of pass@k, comma-separated; empty: the number of samples")
