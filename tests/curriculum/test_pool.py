from __future__ import annotations

import gzip
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tossup.curriculum.pool import Pool, read_pool
from tossup.curriculum.reading import FIELDS
from tossup.curriculum.sources import as_text, column_of
from tossup.records import TossupError, content_id

ROWS = [
    {"id": "a", "question": "1 + 1?", "answer": "2", "level": 1},
    {"id": "b", "question": "2 + 2?", "answer": "4", "level": 3},
]


def jsonl(path: Path, rows: list[Any]) -> Path:
    path.write_text("\n".join(json.dumps(row, ensure_ascii=False) for row in rows) + "\n", encoding="utf-8")
    return path


def test_jsonl_becomes_problems_with_meta_and_the_files_name(tmp_path: Path) -> None:
    pool = read_pool(jsonl(tmp_path / "sums.jsonl", ROWS))
    assert len(pool) == 2
    problem = pool[1]
    assert (problem.id, problem.prompt, problem.reference) == ("b", "2 + 2?", "4")
    assert (problem.verifier, problem.dataset, dict(problem.meta)) == ("math", "sums", {"level": 3})
    assert pool.extra == ("level",)
    assert pool.frame.columns[: len(FIELDS)] == list(FIELDS)


@pytest.mark.parametrize("name", ["p.jsonl.gz", "p.json", "p.csv", "p.csv.gz", "p.parquet", "p.parquet.gz"])
def test_every_format_gives_the_same_problems(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    frame = pl.DataFrame(ROWS)
    plain = tmp_path / name.removesuffix(".gz")
    if ".csv" in name:
        frame.write_csv(plain)
    elif ".parquet" in name:
        frame.write_parquet(plain)
    elif ".jsonl" in name:
        frame.write_ndjson(plain)
    else:
        plain.write_text(json.dumps(ROWS))
    if name.endswith(".gz"):
        path.write_bytes(gzip.compress(plain.read_bytes()))
    pool = read_pool(path)
    assert [(p.id, p.prompt, p.reference, p.dataset) for p in pool] == [
        ("a", "1 + 1?", "2", "p"),
        ("b", "2 + 2?", "4", "p"),
    ]


def test_a_line_separator_inside_a_string_does_not_split_the_line(tmp_path: Path) -> None:
    rows = [{"question": "one\u2028two\u0085three", "answer": "3"}, {"question": "x", "answer": "y"}]
    pool = read_pool(jsonl(tmp_path / "p.jsonl", rows))
    assert pool[0].prompt == "one\u2028two\u0085three"
    assert len(pool) == 2


def test_keys_of_several_types_stay_what_was_written(tmp_path: Path) -> None:
    big = 10**30
    rows = [{"problem": "q", "answer": a} for a in (7, "x+1", 2.5, True, big, ["1", "2"], None)]
    pool = read_pool(jsonl(tmp_path / "p.jsonl", rows))
    assert [p.reference for p in pool] == ["7", "x+1", "2.5", "true", str(big), '["1", "2"]', ""]


scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=3)
nested = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner), max_leaves=6
)


def same(column: Any, written: Any) -> bool:
    """Whether a column's value is what was written: a record may have further keys that are null, a number be a float."""
    if isinstance(written, dict) and isinstance(column, dict):
        return all(same(column[key], written.get(key)) for key in {*column, *written})
    if isinstance(written, list) and isinstance(column, list):
        return len(column) == len(written) and all(map(same, column, written))
    return bool(column == written)


@given(st.lists(nested, min_size=1, max_size=5))
def test_no_value_of_a_column_is_lost(values: list[Any]) -> None:
    for column, written in zip(column_of("x", values).to_list(), values, strict=True):
        assert same(column, written) or column == as_text(written)


def test_text_in_csv_is_never_read_as_a_number(tmp_path: Path) -> None:
    path = tmp_path / "p.csv"
    path.write_text("id,question,answer\n007,how many?,1e5\n")
    assert (read_pool(path)[0].id, read_pool(path)[0].reference) == ("007", "1e5")


def test_mapping_names_columns_also_inside_structs(tmp_path: Path) -> None:
    path = jsonl(tmp_path / "p.jsonl", [{"body": "q", "gold": {"value": "4"}, "answer": "noise", "set": "s"}])
    pool = read_pool(path, {"prompt": "body", "reference": "gold.value", "dataset": "set"})
    assert (pool[0].prompt, pool[0].reference, pool[0].dataset) == ("q", "4", "s")
    assert pool.extra == ("gold", "answer")


@pytest.mark.parametrize(
    ("mapping", "message"),
    [
        ({"reference": "gold"}, "no column 'gold' to map to reference; it has id, question, answer, level"),
        ({"key": "answer"}, "a pool has no field 'key'"),
        ({"reference": "answer.value"}, "no such field"),
    ],
)
def test_a_mapping_that_leads_nowhere_says_so(tmp_path: Path, mapping: dict[str, str], message: str) -> None:
    with pytest.raises(TossupError, match=message):
        read_pool(jsonl(tmp_path / "p.jsonl", ROWS), mapping)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (
            {"foo": 1, "bar": 2},
            "its prompt or reference; it has foo, bar; .*--map prompt=COLUMN --map reference=COLUMN",
        ),
        ({"Prompt": "q", "key": 2}, "its reference; it has Prompt, key; name with --map reference=COLUMN the one"),
        ({"text": "q", "answer": 2}, "its prompt; it has text, answer; name with --map prompt=COLUMN the one"),
    ],
)
def test_columns_that_no_schema_knows_are_listed_with_the_way_out(
    tmp_path: Path, row: dict[str, object], message: str
) -> None:
    with pytest.raises(TossupError, match=message):
        read_pool(jsonl(tmp_path / "p.jsonl", [row]))


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("missing.jsonl", None, "no such file"),
        ("empty.jsonl", "", "no rows"),
        ("blank.jsonl", "\n\n", "no rows"),
        ("empty.csv", "", "no rows"),
        (
            "broken.jsonl",
            '{"question": "q", "answer": "1"}\n{"question": "q',
            r"line 2: not JSON .*starts with '\{\"que",
        ),
        ("list.jsonl", "[1, 2]\n", r"line 1: expected an object"),
        ("p.parquet", "not parquet", "not a readable Parquet file"),
        ("p.json", '{"a": 1}', "expected a list of objects"),
        ("p.txt", "hello", r"cannot tell the format from \.txt"),
        ("p.jsonl.gz", "not gzip", "cannot be read"),
    ],
)
def test_a_source_that_cannot_be_read_is_an_error_that_names_it(
    tmp_path: Path, name: str, content: str | None, message: str
) -> None:
    if content is not None:
        (tmp_path / name).write_text(content)
    with pytest.raises(TossupError, match=message) as raised:
        read_pool(tmp_path / name)
    assert name in str(raised.value)


def test_a_folder_is_no_pool(tmp_path: Path) -> None:
    with pytest.raises(TossupError, match="is a folder"):
        read_pool(tmp_path)


def test_ids_are_made_from_the_content_and_copies_told_apart(tmp_path: Path) -> None:
    rows = [{"question": "q", "answer": "1"}, {"question": "q", "answer": "1"}, {"question": "q", "answer": "2"}]
    pool = read_pool(jsonl(tmp_path / "p.jsonl", rows))
    assert pool.ids == [content_id("q", "1"), content_id("q", "1") + "-2", content_id("q", "2")]


def test_the_same_id_twice_is_an_error_unless_ids_are_made(tmp_path: Path) -> None:
    path = jsonl(tmp_path / "p.jsonl", [{"id": 5, "question": q, "answer": "1"} for q in "xy"])
    with pytest.raises(TossupError, match=r"1 ids stand on more than one row \(5\)"):
        read_pool(path)
    assert len(set(read_pool(path, {"id": ""}).ids)) == 2


def test_chats_stay_chats_also_beside_a_text(tmp_path: Path) -> None:
    chat = [{"role": "system", "content": "be brief"}, {"role": "user", "content": "q"}]
    rows = [{"prompt": chat, "reference": "1"}, {"prompt": "plain", "reference": "2"}]
    pool = read_pool(jsonl(tmp_path / "p.jsonl", rows))
    assert pool[0].prompt == tuple(chat)
    assert pool[1].prompt == "plain"
    for name in ("out.parquet", "out.jsonl"):
        pool.write(tmp_path / name)
        again = read_pool(tmp_path / name)
        assert again[0] == pool[0]
        assert again[1] == pool[1]


def counted(tmp_path: Path) -> Pool:
    return read_pool(jsonl(tmp_path / "p.jsonl", ROWS)).with_counts(
        attempts=[8, 7],
        correct=np.array([3, 0]),
        undecided=[0, 1],
        mean_tokens_correct=[12.5, math.nan],
        mean_tokens_wrong=[20.0, 31.0],
        policy="tiny@3",
        measured_at="2026-01-02T03:04:05Z",
    )


def test_an_unmeasured_pool_has_counts_of_zero(tmp_path: Path) -> None:
    pool = read_pool(jsonl(tmp_path / "p.jsonl", ROWS))
    assert pool.attempts.tolist() == [0, 0]
    assert pool.correct.dtype == np.int64
    assert pool.frame["mean_tokens_wrong"].null_count() == 2


@pytest.mark.parametrize("name", ["out.parquet", "out.jsonl"])
def test_counts_survive_being_written_and_read(tmp_path: Path, name: str) -> None:
    pool = counted(tmp_path)
    pool.write(tmp_path / name)
    again = read_pool(tmp_path / name)
    assert again.frame.equals(pool.frame)
    assert again.schema == "tossup"
    assert again.correct.tolist() == [3, 0]
    assert again.frame["mean_tokens_correct"].to_list() == [12.5, None]
    assert dict(again[1].meta) == {"level": 3}


def test_counts_of_another_length_or_order_are_refused(tmp_path: Path) -> None:
    pool = read_pool(jsonl(tmp_path / "p.jsonl", ROWS))
    with pytest.raises(ValueError, match="attempts has 1 values for a pool of 2"):
        pool.with_counts(attempts=[1], correct=[1, 1])
    with pytest.raises(ValueError, match="between 0 and attempts"):
        pool.with_counts(attempts=[1, 1], correct=[1, 2])


def test_take_by_positions_and_by_mask(tmp_path: Path) -> None:
    pool = counted(tmp_path)
    assert pool.take([1, 0]).ids == ["b", "a"]
    assert pool.take(pool.correct > 0).ids == ["a"]
    assert len(pool.take([])) == 0


def test_rollouts_given_as_a_pool_are_named_as_such(tmp_path: Path) -> None:
    path = jsonl(tmp_path / "p.jsonl", [{"question": "q", "answer": "1", "correct": [0, 1, 1]}])
    with pytest.raises(TossupError, match="looks like rollouts"):
        read_pool(path)
    assert read_pool(path, {"correct": ""}).correct.tolist() == [0]


def test_writing_replaces_a_file_whole_and_knows_two_formats(tmp_path: Path) -> None:
    pool = counted(tmp_path)
    target = tmp_path / "out.parquet"
    target.write_text("old")
    pool.write(target)
    assert read_pool(target).ids == ["a", "b"]
    assert not list(tmp_path.glob(".part-*"))
    with pytest.raises(TossupError, match=r"written as \.parquet or \.jsonl"):
        pool.write(tmp_path / "out.csv")
    with pytest.raises(TossupError, match="could not be written"):
        pool.write(tmp_path / "nowhere" / "out.parquet")
