"""(problem, response) -> Verdict: correct, wrong, or undecided, and why.

    verdict = verify(Problem("p1", "What is 1/2?", reference="1/2"), "so it is \\boxed{0.5}")
    verdicts = verify_many([(problem, response), ...])

`verify` may be called from any thread, from asyncio through `averify`, from forked and from spawned processes. What
could hang or crash runs in worker processes that are killed (see `workers`), so a verdict always comes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import replace

from tossup.records import Problem, TossupError, Verdict, undecided
from tossup.verifiers.cpus import default_size
from tossup.verifiers.registry import Judge, Verifier, close, get
from tossup.verifiers.workers import WouldWait, without_waiting

__all__ = ["Verifier", "averify", "close", "get", "verify", "verify_many"]


def verify(problem: Problem, response: str) -> Verdict:
    """Judge one response by the problem's own verifier.

    A verifier that fails is UNDECIDED: it has not shown the answer to be wrong.

    Raises:
        TossupError: the problem names a verifier that does not exist or cannot be set up.
    """
    return _guarded(get(problem.verifier).judge, problem, response)


async def averify(problem: Problem, response: str) -> Verdict:
    """`verify` for asyncio: the event loop goes on meanwhile."""
    import asyncio  # here, because each worker process pays for what this package imports

    return await asyncio.to_thread(verify, problem, response)


def verify_many(
    pairs: Sequence[tuple[Problem, str]], on_verdict: Callable[[int], None] = lambda index: None
) -> list[Verdict]:
    """Judge many responses; the verdicts keep the order of the pairs.

    What can be judged at once is judged in the calling thread, the rest several at a time. A response that hangs holds
    up no other: each has its own time, which starts when its work starts. `on_verdict` is called in the calling thread
    with the position of each pair as it is judged, for a progress bar.

    Raises:
        TossupError: as in `verify`; the remaining pairs are not judged.
    """
    verdicts: dict[int, Verdict] = {}
    rest: list[int] = []
    for i, (problem, response) in enumerate(pairs):
        verdict = _at_once(problem, response)
        if verdict is None:
            rest.append(i)
        else:
            verdicts[i] = verdict
            on_verdict(i)
    for i, verdict in _several_at_a_time(pairs, rest):
        verdicts[i] = verdict
        on_verdict(i)
    return [verdicts[i] for i in range(len(pairs))]


def _at_once(problem: Problem, response: str) -> Verdict | None:
    """The verdict, where it takes no waiting."""
    if not get(problem.verifier).inline:
        return None
    try:
        with without_waiting():
            return verify(problem, response)
    except WouldWait:
        return None


def _several_at_a_time(pairs: Sequence[tuple[Problem, str]], rest: Sequence[int]) -> Iterator[tuple[int, Verdict]]:
    """Judge the pairs at these positions in threads: twice the workers, so that none waits for the caller's Python."""
    if not rest:
        return
    executor = ThreadPoolExecutor(min(len(rest), 2 * default_size()), thread_name_prefix="tossup-verify")
    try:
        futures = {executor.submit(verify, *pairs[i]): i for i in rest}
        for future in as_completed(futures):
            yield futures[future], future.result()
    finally:
        executor.shutdown(cancel_futures=True)


def _guarded(judge: Judge, problem: Problem, response: str) -> Verdict:
    """Call a judge and turn whatever it raises into UNDECIDED, but for what the user can fix.

    A judge that has waited for a worker says itself how long the work took; for the others the time is taken here.
    """
    start = time.perf_counter()
    try:
        verdict = judge(problem, response)
    except TossupError:
        raise
    except Exception as e:  # noqa: BLE001 -- not swallowed: it is the verdict's reason, and counted as undecided
        verdict = undecided(f"the {problem.verifier} verifier failed: {type(e).__name__}: {' '.join(str(e).split())}")
    if verdict.seconds:
        return verdict
    return replace(verdict, seconds=time.perf_counter() - start)
