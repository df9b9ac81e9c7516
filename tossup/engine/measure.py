"""Sampling answers to every problem of a pool into a ledger, resumably: what `curate` and `eval` share.

Problems are taken in the order of the pool, a batch at a time; each batch becomes one part of the ledger, written whole or
not at all. A killed job loses the batch in flight: started again, it skips what the ledger holds and goes on, and since the
seed of a batch is a function of its number, it samples what it would have sampled. Batches are done in this process or by
the workers of a Ray cluster, see `chunks`; only this process writes.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from typing import Protocol

from tossup.curriculum.gate import fates
from tossup.curriculum.ledger import Ledger
from tossup.curriculum.pool import Pool
from tossup.engine import inputs
from tossup.engine.chunks import Chunk, Execute, Here
from tossup.engine.measure_config import MeasureConfig
from tossup.engine.pools import open_pool
from tossup.engine.rollouts import stream
from tossup.records import Fate, Group, tokens

MEASURE_STREAM = 3
"""Keeps these seeds apart from those of training and of evaluation during training."""


class Watcher(Protocol):
    """Whoever looks on."""

    def note(self, text: str) -> None:
        """Something worth a line."""

    def started(self, problems: int, done: int) -> None:
        """So many problems are to be measured, and so many of them were done before."""

    def measured(self, problems: int, tokens: int) -> None:
        """A batch of problems is measured and saved; it took so many generated tokens."""


def open_inputs(config: MeasureConfig) -> tuple[Pool, dict[str, str]]:
    """The problems to measure, and the fingerprints of the whole pool and of the model."""
    pool = open_pool(config.pool, config.map, config.verifier)
    found = {f"pool {config.pool}": inputs.of_pool(pool, counts=False)} | inputs.of_model(config.model)
    return pool.take(range(min(config.limit, len(pool)))) if config.limit else pool, found


def measure(config: MeasureConfig, pool: Pool, ledger: Ledger, watcher: Watcher) -> float:
    """Sample what the ledger does not hold yet; returns the seconds that it took."""
    begun = time.perf_counter()
    with workers(config, watcher) as execute:
        enter(execute, first_look(config, pool, ledger, watcher), ledger, watcher)
    return time.perf_counter() - begun


def first_look(config: MeasureConfig, pool: Pool, ledger: Ledger, watcher: Watcher) -> Iterator[Chunk]:
    """The chunks that the ledger lacks of `config.samples` answers to every problem, in the order of the pool."""
    size = chunk_size(config)
    batches = range(-(-len(pool) // size))
    done = set(ledger.scan().select("problem").unique().collect()["problem"])
    ids = pool.ids
    todo = [b for b in batches if any(i not in done for i in ids[b * size : (b + 1) * size])]
    watcher.started(len(pool), len(pool) - sum(len(ids[b * size : (b + 1) * size]) for b in todo))
    for b in todo:
        yield chunk(config, pool, b, range(b * size, min(len(pool), (b + 1) * size)), first_id=b * size)


def chunk_size(config: MeasureConfig) -> int:
    """Problems in a chunk."""
    return max(1, config.sampling.batch_size // config.samples)


def chunk(
    config: MeasureConfig, pool: Pool, number: int, rows: Iterable[int], *, first_id: int, drawn_by: str = "uniform"
) -> Chunk:
    """Some problems of the pool as a chunk, whose seed follows from its number."""
    return Chunk(
        number=number,
        problems=tuple(pool[i] for i in rows),
        samples=config.samples,
        seed=stream(config.seed, MEASURE_STREAM, number),
        first_id=first_id,
        drawn_by=drawn_by,
    )


def enter(execute: Execute, chunks: Iterable[Chunk], ledger: Ledger, watcher: Watcher) -> None:
    """Have the chunks done and enter each in the ledger as it comes back. The next one is asked for after that."""
    for done, groups in execute(chunks):
        ledger.append(done.number, [(group, _measured_fates(group)) for group in groups])
        watcher.measured(len(groups), sum(tokens(group.rollouts) for group in groups))


@contextmanager
def workers(config: MeasureConfig, watcher: Watcher) -> Iterator[Execute]:
    """Whoever does the chunks: this process, or with `config.ray` the workers of a cluster."""
    if not config.ray:
        with closing(Here(config, watcher.note)) as here:
            yield here
        return
    from tossup.engine.ray_pool import on_ray

    with on_ray(config, inputs.of_model(config.model), watcher) as execute:
        yield execute


def _measured_fates(group: Group) -> tuple[Fate, ...]:
    return tuple(Fate.MEASURED if fate is Fate.TRAINED else fate for fate in fates(group))
