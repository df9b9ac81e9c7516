"""Which column of a rollouts table is what, told from names and types alone, so that a table is never read twice."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

import polars as pl

from tossup.records import TossupError

ROLES: dict[str, tuple[str, ...]] = {
    "reward": ("correct", "is_correct", "acc", "exact_match", "passed", "reward", "rewards", "score", "scores"),
    "problem": (
        *("ids", "problem", "problem_id", "id", "task_id", "question_id", "unique_id", "example_id", "doc_id"),
        *("prompt_id", "prompt", "question", "input", "uid", "idx", "index"),
    ),
    "dataset": ("dataset", "data_source", "task", "env_id", "env_name", "environment"),
    "policy": ("policy", "model", "filter"),
    "group": ("group", "group_id", "group_index"),
    "step": ("step", "global_step", "iteration"),
    "tokens": (
        *("response_tokens", "completion_tokens", "response_length", "completion_length", "num_tokens"),
        *("token_usage.output_tokens", "usage.completion_tokens", "usage.output_tokens"),
    ),
}
"""What a column can be and the names it goes by, the likeliest first. lm-evaluation-harness scores each answer once a
`filter`, so that the filters are told apart as policies are. verl's `uid` is another for each answer, so it comes last."""

MEAN_TOKENS = ("mean_tokens_correct", "mean_tokens_wrong")
"""The columns of a counted pool that hold the mean length of right and of wrong answers."""

OUTCOME = "correct|acc|exact|pass|verify|solved|success"
"""What a column about the outcome has in its name."""

FIELDS = 8
"""Fields of a struct that an error lists."""

COUNT_LIST = re.compile(r"correct_of_(\d+)$")


@dataclass(frozen=True, slots=True)
class Layout:
    """The columns of a table by role; None where there is no such column.

    `count_of` is the number of answers behind each count of a `correct_of_N` list, else 0. `attempts` is the column of
    a counted pool, which may also have `mean_tokens` of right and of wrong answers. An empty `problem` means that each
    row is a problem of its own.
    """

    reward: str
    problem: tuple[str, ...]
    dataset: str | None = None
    policy: str | None = None
    group: str | None = None
    step: str | None = None
    tokens: str | None = None
    count_of: int = 0
    attempts: str | None = None
    mean_tokens: bool = False

    @property
    def has_tokens(self) -> bool:
        """Whether the lengths of answers are known."""
        return self.tokens is not None or self.mean_tokens

    def __str__(self) -> str:
        named = {"reward": self.reward, "problem": "+".join(self.problem), "attempts": self.attempts}
        named |= {role: getattr(self, role) for role in ("dataset", "policy", "group", "step", "tokens")}
        return ", ".join(f"{role} = {column}" for role, column in named.items() if column)

    @property
    def grouped(self) -> bool:
        """Whether the answers that were generated as one group are known."""
        return self.group is not None or self.step is not None


def find_layout(schema: pl.Schema, mapping: Mapping[str, str], source: str) -> Layout:
    """The layout of a table with these columns; `mapping` gives the column of a role and overrides what is found.

    Raises:
        TossupError: an unknown role or column in `mapping`, or no column for the reward or the problem.
    """
    for role, column in mapping.items():
        if role not in ROLES:
            raise TossupError(f"--map {role}={column}: rollouts have no {role!r}; map one of {', '.join(ROLES)}")
        if column and column not in schema:
            raise TossupError(f"{source}: no column {column!r} to map to {role}; it has {listed(schema)}")
        if column and not _fits(role, schema[column]):
            raise TossupError(
                f"{source}: {column!r} holds {schema[column]}, which is no {role}; it has {listed(schema)}"
            )
    found = {role: _find(role, schema, mapping) for role in ROLES}
    counted = _counted_pool(schema, mapping)
    count_of = 0
    if counted is None and found["reward"] is None:
        found["reward"], count_of = _count_list(schema)
    reward = counted or found["reward"] or _other_reward(schema, source, found)
    matched = COUNT_LIST.search(reward)
    if matched is not None and isinstance(schema[reward], pl.List):
        count_of = int(matched.group(1))
    problem, tokens = found["problem"], found["tokens"]
    if problem is None and not isinstance(schema[reward], pl.List):
        found["reward"] = reward
        raise TossupError(
            f"{source}: cannot tell which column names the problem, the one that is the same for all answers to it; "
            f"{_told(found)}it has {listed(schema)}; name it with --map problem=COLUMN"
        )
    if tokens is not None and isinstance(schema[tokens], pl.List) and not isinstance(schema[reward], pl.List):
        tokens = None  # the tokens themselves, not their number
    return Layout(
        reward=reward,
        problem=() if problem is None else (problem,),
        dataset=found["dataset"],
        policy=found["policy"],
        group=None if counted else found["group"],
        step=None if counted else found["step"],
        tokens=None if counted else tokens,
        count_of=count_of,
        attempts="attempts" if counted else None,
        mean_tokens=counted is not None and all(name in schema for name in MEAN_TOKENS),
    )


def listed(schema: pl.Schema) -> str:
    """The columns as an error shows them: a struct with the names that `--map` takes for its fields."""
    names = []
    for name, dtype in schema.items():
        fields = [f"{name}.{f.name}" for f in dtype.fields] if isinstance(dtype, pl.Struct) else []
        more = ", …" if len(fields) > FIELDS else ""
        names.append(f"{name} ({', '.join(fields[:FIELDS])}{more})" if fields else name)
    return ", ".join(names)


def _told(found: Mapping[str, str | None]) -> str:
    """What was found so far, for an error about what was not."""
    known = ", ".join(f"{role} = {column}" for role, column in found.items() if column is not None)
    return f"found {known}; " if known else ""


def inner_type(dtype: pl.DataType | None) -> pl.DataType | None:
    """What a list column holds; None for any other column."""
    if not isinstance(dtype, pl.List):
        return None
    inner: pl.DataType = pl.Series(dtype=dtype).list.first().dtype
    return inner


def _find(role: str, schema: pl.Schema, mapping: Mapping[str, str]) -> str | None:
    if role in mapping:
        return mapping[role] or None
    return next((name for name in ROLES[role] if name in schema and _fits(role, schema[name])), None)


def _fits(role: str, dtype: pl.DataType) -> bool:
    """Whether a column of this type can play the role: a list of texts is no policy, a struct no reward."""
    if role == "problem":
        return True
    if role == "reward":
        inner: pl.DataType | None = dtype
        while (deeper := inner_type(inner)) is not None:
            inner = deeper
        return inner is not None and (inner.is_numeric() or inner in (pl.Boolean, pl.String, pl.Null))
    if role in ("tokens", "step"):
        numeric = dtype.is_numeric() if role == "tokens" else dtype.is_integer()
        return numeric or isinstance(dtype, pl.List)
    return not dtype.is_nested()


def _counted_pool(schema: pl.Schema, mapping: Mapping[str, str]) -> str | None:
    """The column of right answers, where the table is a pool with counts."""
    names = ("attempts", "correct")
    is_pool = "reward" not in mapping and all(name in schema and schema[name].is_integer() for name in names)
    return "correct" if is_pool else None


def _count_list(schema: pl.Schema) -> tuple[str | None, int]:
    for name, dtype in schema.items():
        found = COUNT_LIST.search(name)
        if found is not None and isinstance(dtype, pl.List):
            return name, int(found.group(1))
    return None, 0


def _other_reward(schema: pl.Schema, source: str, found: Mapping[str, str | None]) -> str:
    """A reward column under a name of its own: TRL calls each by its function, such as `accuracy_reward`.

    Of several, the one that speaks of the outcome; shaped parts such as a format reward would hide waste.
    """
    plain = [name for name, dtype in schema.items() if dtype.is_numeric() or dtype == pl.Boolean]
    named = [name for name in plain if re.search(rf"reward|score|{OUTCOME}", name.lower())]
    outcome = [name for name in named if re.search(OUTCOME, name.lower())]
    for group in (outcome, named):
        if len(group) == 1:
            return group[0]
    what = f"several columns could hold the reward ({', '.join(outcome or named)})" if named else "no reward column"
    raise TossupError(
        f"{source}: {what}; {_told(found)}it has {listed(schema)}; name it with --map reward=COLUMN, and a field of a "
        "struct as COLUMN.FIELD"
    )
