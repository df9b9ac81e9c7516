"""The verifiers in other trainers: TRL's `reward_funcs`, verl's `compute_score`, or a plain function.

TRL, with a dataset that has a column of answer keys; an undecided completion gets None, which TRL leaves out of its
group's mean and gives no advantage:

    from tossup.verifiers.adapters import trl_reward
    trainer = GRPOTrainer(model, reward_funcs=[trl_reward("math", reference="answer")], train_dataset=dataset, ...)

verl, in its configuration:

    reward.custom_reward_function.path=pkg://tossup.verifiers.adapters
    reward.custom_reward_function.name=verl_score

A plain function, for anything else:

    score = scorer("math")
    score("so it is \\boxed{0.5}", "1/2")          # 1.0, 0.0, or None when undecided

None of this imports TRL or verl.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tossup.records import Problem, TossupError, Verdict
from tossup.verifiers import verify, verify_many

Completion = str | Sequence[Mapping[str, Any]]
"""Text, or chat messages of which the last is the model's."""


def text_of(completion: Completion) -> str:
    """What the model said: the text itself, or the content of the last message of a chat."""
    if isinstance(completion, str):
        return completion
    content = completion[-1].get("content") if completion else ""
    if isinstance(content, list):
        return "".join(part.get("text", "") for part in content)
    return content or ""


def reward_of(verdict: Verdict) -> float | None:
    """1.0, 0.0, or None when undecided."""
    return verdict.reward if verdict.decided else None


def scorer(verifier: str = "math") -> Callable[[str, str], float | None]:
    """A function (response, reference) -> 1.0, 0.0, or None when undecided."""

    def score(response: str, reference: str) -> float | None:
        return reward_of(verify(Problem("", "", reference, verifier), response))

    return score


def trl_reward(verifier: str = "math", reference: str = "answer") -> Callable[..., list[float | None]]:
    """A reward function for TRL's `GRPOTrainer` and its kin.

    `reference` names the dataset's column of answer keys. A column `verifier`, where the dataset has one, says for each
    row who judges it. All completions of a batch are judged together.
    """

    def reward(prompts: Sequence[Any], completions: Sequence[Completion], **columns: Any) -> list[float | None]:
        if reference not in columns:
            raise TossupError(
                f"the dataset has no column {reference!r} (it has {', '.join(sorted(columns))}): name the column of "
                'answer keys, trl_reward(reference="...")'
            )
        names = columns.get("verifier") or [verifier] * len(completions)
        pairs = [
            (Problem("", text_of(prompt), str(key), name), text_of(completion))
            for prompt, completion, key, name in zip(prompts, completions, columns[reference], names, strict=True)
        ]
        return [reward_of(verdict) for verdict in verify_many(pairs)]

    reward.__name__ = f"tossup_{verifier.rpartition(':')[2]}"
    return reward


def verl_score(
    data_source: str,
    solution_str: str,
    ground_truth: Any,
    extra_info: Mapping[str, Any] | None = None,
    verifier: str = "math",
    undecided: float = 0.0,
    **unused: Any,
) -> dict[str, float]:
    """verl's `compute_score`: the score, with `acc` and `undecided` beside it for verl's own metrics.

    verl has no way to leave a rollout out: an undecided one gets `undecided` as its score. Watch the metric of the same
    name, and set another value or another verifier by `reward.custom_reward_function.reward_kwargs`. `extra_info["verifier"]`,
    where a row has it, says who judges it.
    """
    info = extra_info or {}
    problem = Problem("", "", str(ground_truth), info.get("verifier") or verifier, dataset=data_source)
    reward = reward_of(verify(problem, solution_str))
    score = undecided if reward is None else reward
    return {"score": score, "acc": float(reward == 1.0), "undecided": float(reward is None)}
