"""(problem, response) -> Verdict: correct, wrong, or undecided, and why.

    verdict = verify(Problem("p1", "What is 1/2?", reference="1/2"), "so it is \\boxed{0.5}")
    verdicts = verify_many([(problem, response), ...])
    with Stream() as stream:                              # as responses come in
        answers = [stream.take(problem, response) for ...]

`verify` may be called from any thread, from asyncio through `averify`, from forked and from spawned processes. What
could hang or crash runs in worker processes that are killed (see `workers`), so a verdict always comes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed

from tossup.records import Problem, TossupError, Verdict, undecided
from tossup.verifiers.cpus import default_size
from tossup.verifiers.registry import Judge, Verifier, close, get
from tossup.verifiers.workers import WithoutWaiting, WouldWait

__all__ = ["Stream", "Verifier", "averify", "close", "get", "verify", "verify_many"]


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
    waiting: dict[Future[Verdict], int] = {}
    with Stream() as stream:
        for i, (problem, response) in enumerate(pairs):
            answer = stream.take(problem, response)
            if isinstance(answer, Verdict):
                verdicts[i] = answer
                on_verdict(i)
            else:
                waiting[answer] = i
        for future in as_completed(waiting):
            i = waiting[future]
            verdicts[i] = future.result()
            on_verdict(i)
    return [verdicts[i] for i in range(len(pairs))]


class Stream:
    """Judges responses as they come in, several at a time; one that hangs holds up no other."""

    def __init__(self) -> None:
        # Twice the workers, so that none waits for the caller's Python; a thread starts when a response needs it.
        self._threads = ThreadPoolExecutor(2 * default_size(), thread_name_prefix="tossup-verify")

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Give up what has not begun, as after an error, and wait for the rest."""
        self._threads.shutdown(cancel_futures=True)

    def take(self, problem: Problem, response: str) -> Verdict | Future[Verdict]:
        """The verdict, where it takes no waiting, or what will hold it.

        Raises:
            TossupError: as in `verify`; the future may raise it too.
        """
        verdict = _at_once(problem, response)
        return verdict if verdict is not None else self._threads.submit(verify, problem, response)


def _at_once(problem: Problem, response: str) -> Verdict | None:
    """The verdict, where it takes no waiting."""
    if not get(problem.verifier).inline:
        return None
    try:
        with WithoutWaiting():
            return verify(problem, response)
    except WouldWait:
        return None


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
    # As `replace` would, in a fifth of the time: of a cheap verifier that is a good part.
    return Verdict(verdict.ruling, verdict.reason, verdict.answer, time.perf_counter() - start)
