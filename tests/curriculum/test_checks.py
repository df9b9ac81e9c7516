from __future__ import annotations

import json
from pathlib import Path

from tossup.curriculum.checks import Finding, Kind, check, summary
from tossup.curriculum.pool import Pool, read_pool


def pool(path: Path, *pairs: tuple[object, str]) -> Pool:
    lines = [json.dumps({"prompt": p, "reference": r}) for p, r in pairs]
    path.write_text("\n".join(lines))
    return read_pool(path)


def of(kind: Kind, findings: tuple[Finding, ...]) -> list[tuple[int, ...]]:
    return [f.rows for f in findings if f.kind is kind]


def test_a_clean_pool_has_no_findings(tmp_path: Path) -> None:
    found = check(pool(tmp_path / "p.jsonl", ("1 + 1?", "2"), ("2 + 2?", "4")))
    assert found == ()
    assert set(summary(found).values()) == {0}


def test_copies_that_are_typeset_anew_are_still_copies(tmp_path: Path) -> None:
    found = check(
        pool(
            tmp_path / "p.jsonl",
            ("Find $x+1$.", "\\frac{1}{27}"),
            ("something else", "5"),
            ("Find \\(x \\, + 1\\).", "1/27"),
            ("find  $x+1$.", "\\dfrac{1}{27}"),
            ("How many?", "1,000"),
            ("How many?", "1000"),
        )
    )
    assert of(Kind.DUPLICATE, found) == [(0, 2, 3), (4, 5)]
    assert of(Kind.CONFLICT, found) == []


def test_one_prompt_with_two_keys_is_a_conflict_that_names_them(tmp_path: Path) -> None:
    found = check(pool(tmp_path / "p.jsonl", ("Find $x$.", "9996"), ("Find \\(x\\).", "9960"), ("other", "1")))
    assert found == (Finding(Kind.CONFLICT, (0, 1), "9996 | 9960"),)


def test_what_is_empty(tmp_path: Path) -> None:
    found = check(pool(tmp_path / "p.jsonl", (" ", "1"), ("q", ""), ("r", " "), ("s", "$")))
    assert of(Kind.EMPTY_PROMPT, found) == [(0,)]
    assert of(Kind.EMPTY_REFERENCE, found) == [(1,), (2,)]
    assert of(Kind.DUPLICATE, found) == []


def test_answers_and_solutions_that_came_with_the_prompt(tmp_path: Path) -> None:
    found = check(
        pool(
            tmp_path / "p.jsonl",
            ("The number is $\\boxed{1513}$.", "1513"),
            ("Press the $\\boxed{x^2}$ key.", "7"),
            ("How many boxes? Answer: 28.", "28"),
            ("How many boxes? Answer: 128.", "28"),
            ("What is it? <details><summary>Solution</summary>...</details>", "3"),
            ("See ![](https://example.org/a.png)", "4"),
            ("Which? (A) one (B) two (C) three", "A"),
        )
    )
    assert of(Kind.LEAK, found) == [(0,), (2,)]
    assert of(Kind.SOLUTION, found) == [(4,)]
    assert of(Kind.LINK, found) == [(5,)]
    assert of(Kind.CHOICES, found) == [(6,)]


def test_overlap_names_the_evaluation_set_and_reads_chats(tmp_path: Path) -> None:
    chat = [{"role": "user", "content": "Find $y$."}]
    train = pool(tmp_path / "train.jsonl", (chat, "1"), ([{"role": "user", "content": "Find $z$."}], "2"))
    test = pool(tmp_path / "test.jsonl", ("find  \\(y\\).", "1"), ("", "2"))
    found = check(train, {"HELD-OUT": test})
    assert found == (Finding(Kind.OVERLAP, (0,), "HELD-OUT"),)
    assert summary(found)["overlap with HELD-OUT"] == 1
