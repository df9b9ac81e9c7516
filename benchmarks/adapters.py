"""The small callables through which the shared scoring scripts run tossup, the same way as they run a peer."""

from __future__ import annotations

from typing import Any


def make_curriculum(n_problems: int, group_size: int, features: Any, seed: int) -> Any:
    """score_curriculum.py: `TossUp` without measured counts; of the features only the coarse tag (columns 24 to 26)."""
    from tossup.curriculum.sampler import Observation, TossUp

    tags = [str(row.argmax()) for row in features[:, 24:27]] if features.shape[1] > 27 else None
    none = [0] * n_problems
    sampler = TossUp(none, none, tags, group_size, seed)

    class Curriculum:
        step = -1

        def select(self, n: int) -> list[int]:
            self.step += 1
            return [draw.index for draw in sampler.choose(n, self.step)]

        def observe(self, ids: Any, correct: Any, n: int, mean_tokens: Any) -> None:
            rows = zip(ids, correct, mean_tokens, strict=True)
            sampler.observe(self.step, [Observation(int(i), int(c), n, float(t)) for i, c, t in rows])

    return Curriculum()


def math_score(response: str, reference: str) -> float | None:
    """For score_verifier.py: 1.0, 0.0, or None when undecided."""
    from tossup.verifiers.math import judge

    verdict = judge(response, reference)
    return verdict.reward if verdict.decided else None


def judge_row(problem: dict[str, Any], solution: str, format: str) -> str:  # noqa: A002  (the script's own word)
    """For score_code.py: 'correct', 'wrong' or 'undecided'. TOSSUP_SANDBOX chooses the backend."""
    from tossup.verifiers.code import judge

    return judge({**problem, "limits": {"cpu_seconds": 10, "wall_seconds": 50}}, solution, format).ruling.value


def judge_program(code: str, tests: dict[str, Any]) -> str:
    """For score_sandbox.py: 'correct', 'wrong' or 'undecided'."""
    from tossup.verifiers.code import judge

    limits = {"cpu_seconds": 4, "wall_seconds": 12, "memory_mb": 512}
    return judge({**tests, "limits": limits}, code, tests["kind"]).ruling.value


def close_sandboxes() -> None:
    """For score_sandbox.py, which calls it last: end the workers."""
    from tossup.verifiers.code import close

    close()


judge_program.close = close_sandboxes  # type: ignore[attr-defined]
