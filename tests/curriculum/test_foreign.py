"""Rollouts as other tools write them: the columns and the nesting of their files, with rows of our own."""

from __future__ import annotations

import gzip
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from tossup.curriculum import places
from tossup.curriculum.audit import SetAudit, audit
from tossup.curriculum.rollouts import Rollouts, read_rollouts
from tossup.records import TossupError

RIGHT = {"two": (1, 1, 0, 1), "four": (0, 0, 0, 0), "six": (1, 1, 1, 1)}
"""Which of four answers to three problems are right: the first is mixed, the others would teach nothing."""


def write(path: Path, rows: Sequence[dict[str, Any]]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".parquet":
        pl.DataFrame(rows).write_parquet(path)
    elif path.suffix == ".csv":
        pl.DataFrame(rows).write_csv(path)
    else:
        data = "".join(json.dumps(row) + "\n" for row in rows).encode()
        path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path


def found(rollouts: Rollouts) -> dict[str, str]:
    """The columns that were taken, by role, where all sources agree."""
    layouts = {str(layout) for _, layout in rollouts.read}
    assert len(layouts) == 1
    return dict(pair.split(" = ") for pair in layouts.pop().split(", "))


def one_set(rollouts: Rollouts) -> SetAudit:
    sets, _ = audit(rollouts, [2, 4])
    assert len(sets) == 1
    return sets[0]


def is_the_three(one: SetAudit, *, observed: bool) -> None:
    assert (one.units, one.rollouts, one.undecided) == (3, 12, 0)
    assert [e.wasted.value for e in one.expected] == pytest.approx([(0.5 + 1 + 1) / 3, 2 / 3])
    assert (one.observed is not None) == observed
    if one.observed is not None:
        assert one.observed.wasted == pytest.approx(2 / 3)


def chat(question: str, answer: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]


@pytest.mark.parametrize("as_chat", [False, True], ids=["text", "chat"])
def test_trl_writes_a_parquet_a_logging_step(tmp_path: Path, as_chat: bool) -> None:
    for step, (question, rewards) in enumerate(RIGHT.items()):
        rows = [
            {
                "step": step,
                "prompt": chat(question, "")[:1] if as_chat else question,
                "completion": chat("", "x")[1:] if as_chat else "x",
                "format_reward": 0.1 * (at % 2),
                "accuracy_reward": float(reward),
                "answer": step,
                "advantage": 0.0,
            }
            for at, reward in enumerate(rewards)
        ]
        write(tmp_path / "grpo" / "completions" / f"completions_{step:05d}.parquet", rows)
    rollouts = read_rollouts([tmp_path / "grpo"])
    assert found(rollouts) == {"reward": "accuracy_reward", "problem": "prompt", "step": "step"}
    one = one_set(rollouts)
    assert one.labels == {"dataset": "grpo"}
    is_the_three(one, observed=True)


def test_a_reward_that_trl_left_empty_is_undecided(tmp_path: Path) -> None:
    rows = [{"step": 1, "prompt": "q", "accuracy_reward": r, "advantage": 0.0} for r in (1.0, None, 0.0)]
    one = one_set(read_rollouts([write(tmp_path / "completions_00001.parquet", rows)]))
    assert (one.rollouts, one.undecided) == (2, 1)


@pytest.mark.parametrize("trainer", ["ray", "v1"])
def test_verl_dumps_a_file_a_step_and_its_uid_is_another_for_each_answer(tmp_path: Path, trainer: str) -> None:
    for step, (question, rewards) in enumerate(RIGHT.items(), start=9):
        rows = [
            {
                "input": f"user\n{question}\nassistant\n",
                "output": "x",
                "gts": "1",
                "score": 1.0 if reward else -0.5,
                "step": step,
                **(
                    {"uid": f"0c5{step}-e1_{at}_0"} if trainer == "v1" else {"acc": bool(reward), "request_id": f"{at}"}
                ),
            }
            for at, reward in enumerate(rewards)
        ]
        write(tmp_path / "dumps" / f"{step}.jsonl", rows)
    rollouts = read_rollouts([tmp_path / "dumps"])
    assert [Path(source).name for source, _ in rollouts.read] == ["9.jsonl", "10.jsonl", "11.jsonl"]
    assert found(rollouts) == {"reward": "score" if trainer == "v1" else "acc", "problem": "input", "step": "step"}
    one = one_set(rollouts)
    assert one.labels == {"dataset": "dumps"}
    is_the_three(one, observed=True)


def trace(rewards: dict[str, Any], **more: Any) -> dict[str, Any]:
    agent = {"config": {"model": "tiny", "timeout": {}}, "name": "agent", "trainable": True}
    nodes = [{"message": m, "sampled": m["role"] == "assistant"} for m in chat("q", "x")]
    return {
        "version": 1,
        "agent": agent,
        "nodes": nodes,
        "rewards": rewards,
        "ok": True,
        "num_output_tokens": 7,
        **more,
    }


def task(question: str) -> dict[str, Any]:
    return {"type": "Sum", "data": {"prompt": question, "skills": [], "answer": "1"}, "key": f"key of {question}"}


def scored(right: int) -> dict[str, Any]:
    return {"correct": {"score": float(right), "weight": 1.0}, "format": {"score": 1.0, "weight": 0.0}}


def test_verifiers_and_prime_rl_write_episodes_of_traces(tmp_path: Path) -> None:
    rows = [
        {
            "id": f"{question}{at}",
            "env": {"id": "sums"},
            "task": task(question),
            "group": {"id": f"group of {question}"},
            "run": {"type": "train", "id": "r", "work": {"type": "train", "step": 3}},
            "errors": [],
            "traces": [{**trace(scored(right)), "task": task(question)}],
            "num_output_tokens": 7,
        }
        for question, rewards in RIGHT.items()
        for at, right in enumerate(rewards)
    ]
    rollouts = read_rollouts([write(tmp_path / "traces.jsonl", rows)])
    roles = ("reward", "problem", "dataset", "policy", "group", "step")
    assert found(rollouts) == {**{role: role for role in roles}, "tokens": "num_tokens"}
    one = one_set(rollouts)
    assert one.labels == {"dataset": "sums"}
    is_the_three(one, observed=True)
    assert one.observed is not None
    assert (one.observed.tokens, one.observed.wasted_tokens) == (84, pytest.approx(2 / 3))


def test_a_trace_that_was_not_scored_is_undecided_and_others_agents_do_not_count(tmp_path: Path) -> None:
    other = {**trace(scored(1)), "agent": {"config": {}, "name": "user", "trainable": False}}
    traces: list[list[dict[str, Any]]] = [[trace(scored(1))], [trace({}, ok=False)], [trace(scored(0)), other], []]
    rows = [{"env": {"id": "sums"}, "task": task("two"), "traces": part} for part in traces]
    _, overall = audit(read_rollouts([write(tmp_path / "traces.jsonl", rows)]), [2])
    assert (overall.units, overall.rollouts, overall.mean, overall.undecided) == (1, 2, 0.5, 1)


def test_prime_rl_writes_a_folder_a_step_and_repeats_what_it_trained_on(tmp_path: Path) -> None:
    for step, (question, rewards) in enumerate(RIGHT.items()):
        rows = [
            {**trace({"correct": right}), "task": task(question), "env_name": "sums", "group_id": "g"}
            for right in rewards
        ]
        for kind, part in (("all", rows), ("effective", rows[:2])):
            write(tmp_path / "rollouts" / f"step_{step}" / "train" / kind / "traces.jsonl", part)
    rollouts = read_rollouts([tmp_path / "rollouts"])
    assert len(rollouts.read) == 3
    one = one_set(rollouts)
    assert one.labels == {"dataset": "sums"}
    is_the_three(one, observed=True)


def test_results_of_verifiers_before_that_and_an_answer_that_ended_in_an_error(tmp_path: Path) -> None:
    rows = [
        {
            "example_id": at,
            "prompt": chat(question, "")[:1],
            "completion": chat("", "x")[1:],
            "reward": right + 0.1,
            "error": None,
            "is_completed": True,
            "stop_condition": "done",
            "metrics": {"correct_answer": float(right)},
            "token_usage": {"input_tokens": 3.0, "output_tokens": 5.0},
            "correct_answer": float(right),
        }
        for at, (question, rewards) in enumerate(RIGHT.items())
        for right in rewards
    ]
    failed = {**rows[0], "reward": 0.0, "error": {"error": "APIError", "error_chain_repr": "APIError()"}}
    path = write(tmp_path / "sums--tiny" / "7f3a" / "results.jsonl", [*rows, failed])
    rollouts = read_rollouts([path])
    assert found(rollouts) == {"reward": "reward", "problem": "example_id", "tokens": "token_usage.output_tokens"}
    assert one_set(rollouts).undecided == 1
    strict = one_set(read_rollouts([path], mapping={"reward": "metrics.correct_answer"}))
    assert (strict.rollouts, strict.odd_rewards) == (13, 0)


def test_runs_of_a_harness_are_told_by_task_and_their_answers_put_together(tmp_path: Path) -> None:
    for at in range(4):
        rows = [
            {"doc_id": doc, "doc": {"q": q}, "target": "1", "filter": f, "metrics": ["exact_match"], "exact_match": m}
            for doc, (q, rewards) in enumerate(RIGHT.items())
            for f, m in (("strict", float(rewards[at])), ("loose", 1.0))
        ]
        write(tmp_path / "tiny" / f"samples_gsm8k_2026-01-0{at + 1}T03-04-05.678901.jsonl", rows)
    write(tmp_path / "tiny" / "other.jsonl", [{"loss": 0.5}])
    rollouts = read_rollouts([tmp_path])
    assert found(rollouts) == {"reward": "exact_match", "problem": "doc_id", "policy": "filter"}
    sets, _ = audit(rollouts, [2, 4])
    strict = next(one for one in sets if one.labels == {"dataset": "gsm8k", "policy": "strict"})
    is_the_three(strict, observed=False)
    assert len(rollouts.left_out) == 1
    assert "other.jsonl: no reward column" in rollouts.left_out[0]


def test_a_harness_with_a_metric_of_its_own_name(tmp_path: Path) -> None:
    rows = [{"doc_id": 0, "filter": "none", "metrics": ["pass@1"], "pass@1": r} for r in (1.0, 0.0)]
    assert found(read_rollouts([write(tmp_path / "samples_code.jsonl", rows)]))["reward"] == "pass@1"


@pytest.mark.parametrize("suffix", [".jsonl", ".jsonl.gz", ".parquet"])
def test_chats_that_end_with_the_answer(tmp_path: Path, suffix: str) -> None:
    system = {"role": "system", "content": "Be brief."}
    rows = [
        {"messages": [system, *chat(q, f"answer {at}")], "score": r, "usage": {"completion_tokens": 9}}
        for q, rewards in RIGHT.items()
        for at, r in enumerate(rewards)
    ]
    rollouts = read_rollouts([write(tmp_path / f"chats{suffix}", rows)])
    assert found(rollouts) == {"reward": "score", "problem": "prompt", "tokens": "usage.completion_tokens"}
    is_the_three(one_set(rollouts), observed=False)


def test_a_plain_table_with_names_of_its_own(tmp_path: Path) -> None:
    rows = [{"who": "m", "q": q, "verdict": "pass" if r else "fail"} for q, rewards in RIGHT.items() for r in rewards]
    path = write(tmp_path / "t.csv", rows)
    with pytest.raises(TossupError, match="no reward column; it has who, q, verdict; name it with --map reward=COLUMN"):
        read_rollouts([path])
    is_the_three(one_set(read_rollouts([path], mapping={"reward": "verdict", "problem": "q"})), observed=False)


def test_lists_of_token_ids_are_not_counts(tmp_path: Path) -> None:
    rows = [{"id": "q", "reward": r, "response_tokens": [5, 6]} for r in (0, 1)]
    rollouts = read_rollouts([write(tmp_path / "t.jsonl", rows)])
    assert not rollouts.has_tokens
    assert one_set(rollouts).mean == 0.5


def test_a_folder_without_rollouts(tmp_path: Path) -> None:
    write(tmp_path / "losses.jsonl", [{"loss": 1.0}])
    with pytest.raises(
        TossupError, match=r"no file of it can be read as rollouts; the first: .*losses.jsonl: no reward"
    ):
        read_rollouts([tmp_path])


@pytest.mark.parametrize(
    ("path", "name", "step"),
    [
        ("math-500.jsonl", "math-500", None),
        ("run/completions/completions_00042.parquet", "run", None),
        ("dumps/17.jsonl", "dumps", None),
        ("run/step_3/train/all/traces.jsonl", "train", 3),
        ("run/global_step_12/9.jsonl", "run", 12),
        ("tiny/samples_gsm8k_2026-01-02T03-04-05.678901.jsonl.gz", "gsm8k", None),
        ("data/train-00000-of-00012.parquet", "train", None),
    ],
)
def test_what_a_path_says(path: str, name: str, step: int | None) -> None:
    assert places.dataset_of(Path(path)) == name
    assert places.step_of(Path(path)) == step
