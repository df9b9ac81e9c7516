"""What is wrong with a pool before anything is sampled: the checks, and which of two keys are one key in two spellings."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any, NamedTuple

import numpy as np

from tossup import verifiers
from tossup.curriculum.checks import Finding, Kind, check
from tossup.curriculum.dropped import SLUGS, TOGETHER, unclean
from tossup.curriculum.pool import Pool
from tossup.engine import inputs
from tossup.engine.measure_config import CurateConfig
from tossup.engine.pools import open_pool
from tossup.records import Problem, Ruling

RIVALS = 16
"""Rows with one prompt and different references, at most, whose keys are compared by the verifier; more are no copies."""


class Cleaned(NamedTuple):
    """A pool as it was read, what the checks found, and by position what is left out for it (see `dropped.COLUMNS`)."""

    pool: Pool
    findings: tuple[Finding, ...]
    dropped: dict[int, dict[str, Any]]
    fingerprints: dict[str, str]
    """Of the pool and of the evaluation sets that it was held against, by name."""

    @property
    def rest(self) -> Pool:
        """The problems that are not left out."""
        return self.pool.take(np.array([row not in self.dropped for row in range(len(self.pool))], dtype=np.bool_))


def clean(config: CurateConfig) -> Cleaned:
    """Read and check the pool of a curate job.

    Raises:
        TossupError: the pool or an evaluation set cannot be read.
    """
    pool = open_pool(config.pool, config.map, config.verifier)
    against = {name: open_pool(name) for name in config.against}
    findings = tuple(_settled(pool, check(pool, against)))
    fingerprints = {f"pool {config.pool}": inputs.of_pool(pool, counts=False)}
    fingerprints |= {f"evaluation set {name}": inputs.of_pool(one, counts=False) for name, one in against.items()}
    return Cleaned(pool, findings, unclean(pool, findings, _kinds(config)), fingerprints)


def _kinds(config: CurateConfig) -> Collection[Kind]:
    """The kinds of findings that the settings leave out."""
    kinds = {kind for slug in config.drop for kind in SLUGS[slug]} | {Kind.OVERLAP}
    return kinds | set(TOGETHER) if config.dedupe else kinds


def _settled(pool: Pool, findings: Iterable[Finding]) -> Iterable[Finding]:
    """The findings, where conflicting references that a verifier calls equal are duplicates."""
    findings = tuple(findings)
    asked = [finding for finding in findings if finding.kind is Kind.CONFLICT]
    pairs = [pair for finding in asked for pair in _pairs(pool, finding)]
    rulings = iter(verifiers.verify_many(pairs)) if pairs else iter(())
    same = {id(finding): [next(rulings).ruling is Ruling.CORRECT for _ in _pairs(pool, finding)] for finding in asked}
    for finding in findings:
        answers = same.get(id(finding), [])
        yield Finding(Kind.DUPLICATE, finding.rows) if answers and all(answers) else finding


def _pairs(pool: Pool, finding: Finding) -> list[tuple[Problem, str]]:
    """The other references as answers to the first problem; none where the verifier does not read them so."""
    if len(finding.rows) > RIVALS:
        return []
    first, *others = (pool[row] for row in finding.rows)
    if any(problem.verifier != "math" for problem in (first, *others)):
        return []
    return [(first, f"\\boxed{{{other.reference}}}") for other in others]
