"""`tossup verify` as people and scripts use it."""

import gzip
import io
import json
import sys

import pytest

from tossup import cli
from tossup.cli._answers import COLUMNS, Answer
from tossup.cli._verifying import reason_kind
from tossup.records import Problem, wrong


@pytest.fixture
def tossup(capsys):
    """Runs the command line; returns (exit code, stdout, stderr)."""

    def run(*args):
        with pytest.raises(SystemExit) as end:
            cli.main(["verify", *map(str, args)])
        output = capsys.readouterr()
        return end.value.code, output.out, output.err

    return run


def rows_file(path, *rows):
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
    return path


def test_one_right_response(tossup):
    code, out, _ = tossup("exact", "--reference", "5", " 5")
    assert code == 0
    assert out.startswith("correct  equals the reference")


def test_one_wrong_response_is_judged_too(tossup):
    code, out, _ = tossup("exact", "--reference", "[bold]5", "[red]6", "--json")
    assert code == 0
    verdict = json.loads(out)
    assert (verdict["ruling"], verdict["reward"], verdict["answer"]) == ("wrong", 0.0, "[red]6")


def test_brackets_in_an_answer_are_no_markup(tossup):
    assert "[red]6" in tossup("exact", "--reference", "[bold]5", "[red]6")[1]


def test_one_that_cannot_be_judged_fails(tossup):
    code, out, _ = tossup("exact", "--reference", "", "5", "--json")
    assert code == 1
    assert json.loads(out)["reward"] is None


def test_a_response_from_standard_input(tossup, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.StringIO("5\n"))
    assert tossup("exact", "--reference", "5", "-")[0] == 0


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ((), "give FILE.jsonl"),
        (("exact", "5"), "needs --reference"),
        (("--self-check", "pool.jsonl", "more"), "leave out the other arguments"),
    ],
)
def test_wrong_usage(tossup, args, message):
    code, _, err = tossup(*args)
    assert code == 2
    assert message in " ".join(err.split())


def test_an_unknown_verifier(tossup):
    code, _, err = tossup("exat", "--reference", "5", "5")
    assert code == 1
    assert "did you mean 'exact'?" in err


def test_a_file(tossup, tmp_path):
    file = rows_file(
        tmp_path / "answers.jsonl",
        {"id": "a", "response": "5", "reference": "5", "label": 1},
        {"id": "b", "response": "6", "reference": "5", "label": 0},
        {"id": "c", "response": "line\u2028break", "reference": "line\u2028break", "label": False},
        {"id": "d", "response": "7", "reference": "5", "label": True},
        {"id": "e", "response": "7", "reference": ""},
    )
    code, out, _ = tossup(file, "--verifier", "exact", "--json", "--out", tmp_path / "judged.jsonl")
    assert code == 0
    summary = json.loads(out)
    assert {k: summary[k] for k in ("rows", "correct", "wrong", "undecided")} == {
        "rows": 5, "correct": 2, "wrong": 2, "undecided": 1,
    }  # fmt: skip
    assert summary["labels"] == {"rows": 4, "agree": 2, "false_positives": 1, "false_negatives": 1, "undecided": 0}
    assert summary["reasons"][0] == {"ruling": "correct", "reason": "equals the reference", "rows": 2, "example": "a"}
    judged = [json.loads(line) for line in (tmp_path / "judged.jsonl").read_text().split("\n") if line]
    assert [row["id"] for row in judged] == ["a", "b", "c", "d", "e"]
    assert [row["verdict"]["ruling"] for row in judged] == ["correct", "wrong", "correct", "wrong", "undecided"]


def test_a_file_as_a_table(tossup, tmp_path):
    file = rows_file(
        tmp_path / "answers.jsonl", *[{"response": str(i), "gold": "5", "label": i == 5} for i in range(10)]
    )
    code, out, _ = tossup(file, "--verifier", "exact")
    assert code == 0
    assert "10 answers" in out
    assert "10 of 10 agree (100.00%)" in out


def test_more_rows_than_one_chunk(tossup, tmp_path, monkeypatch):
    monkeypatch.setattr("tossup.cli._verifying.CHUNK", 3)
    file = rows_file(tmp_path / "answers.jsonl", *[{"response": str(i), "gold": str(i)} for i in range(10)])
    assert json.loads(tossup(file, "--verifier", "exact", "--json")[1])["correct"] == 10


@pytest.mark.parametrize("column", COLUMNS["response"])
def test_usual_names_of_the_response(tossup, tmp_path, column):
    file = rows_file(tmp_path / "answers.jsonl", {column: "5", "answer": "5", "verifier": "exact"})
    assert json.loads(tossup(file, "--json")[1])["correct"] == 1


@pytest.mark.parametrize("column", COLUMNS["reference"])
def test_usual_names_of_the_reference(tossup, tmp_path, column):
    file = rows_file(tmp_path / "answers.jsonl", {"response": "5", column: 5, "verifier": "exact"})
    assert json.loads(tossup(file, "--json")[1])["correct"] == 1


def test_a_chat_as_response(tossup, tmp_path):
    chat = [{"role": "user", "content": "6"}, {"role": "assistant", "content": "5"}]
    file = rows_file(tmp_path / "answers.jsonl", {"completion": chat, "gold": "5", "verifier": "exact"})
    assert json.loads(tossup(file, "--json")[1])["correct"] == 1


def test_mapped_names_and_gzip(tossup, tmp_path):
    plain = rows_file(tmp_path / "answers.jsonl", {"said": "5", "response": "no", "key": "5"})
    zipped = tmp_path / "answers.jsonl.gz"
    zipped.write_bytes(gzip.compress(plain.read_bytes()))
    out = tossup(zipped, "--map", "response=said", "--map", "reference=key", "--verifier", "exact", "--json")[1]
    assert json.loads(out)["correct"] == 1


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b'{"response": "5", "answer": "5"}\n{"response": \n', "line 2: not JSON"),
        (b'{"response": "5", "answer": "5"}\n[1]\n', "line 2: expected an object"),
        (b'{"x": "5", "answer": "5"}\n', "line 1: no column for response"),
        (b'{"text": "5", "y": "5"}\n', "line 1: no column for reference"),
        (b'{"text": "5", "answer": "5", "label": "maybe"}\n', "line 1: a label is true, false, 1 or 0"),
        (b"\n\n", "the file holds no rows"),
    ],
)
def test_a_broken_file_names_the_line(tossup, tmp_path, content, message):
    file = tmp_path / "answers.jsonl"
    file.write_bytes(content)
    code, _, err = tossup(file, "--verifier", "exact")
    assert code == 1
    assert message in err
    assert "Traceback" not in err


def test_a_broken_file_leaves_the_output_as_it_was(tossup, tmp_path):
    file, judged = tmp_path / "answers.jsonl", tmp_path / "judged.jsonl"
    file.write_bytes(b'{"response": "5", "answer": "5"}\nbroken\n')
    judged.write_text("from before")
    assert tossup(file, "--verifier", "exact", "--out", judged)[0] == 1
    assert judged.read_text() == "from before"


def test_missing_and_truncated_files(tossup, tmp_path):
    assert "no such file" in tossup(tmp_path / "none.jsonl")[2]
    cut = tmp_path / "cut.jsonl.gz"
    cut.write_bytes(gzip.compress(b'{"response": "5", "answer": "5"}\n' * 1000)[:-20])
    code, _, err = tossup(cut, "--verifier", "exact")
    assert code == 1
    assert "cut.jsonl.gz: cannot be read" in err


def test_a_bad_map(tossup, tmp_path):
    file = rows_file(tmp_path / "answers.jsonl", {"response": "5", "answer": "5"})
    assert "write it as FIELD=COLUMN" in tossup(file, "--map", "response")[2]
    assert "no such field" in tossup(file, "--map", "reply=response")[2]


def test_self_check_names_keys_that_only_equal_themselves(tossup, tmp_path):
    keys = ["1/2", "\\sqrt{2}", "614.519...", "(0,1) and then (2", "east"]
    pool = rows_file(tmp_path / "pool.jsonl", *[{"prompt": f"{i}?", "reference": key} for i, key in enumerate(keys)])
    summary = json.loads(tossup("--self-check", pool, "--json")[1])
    assert (summary["correct"], summary["undecided"]) == (3, 2)
    assert all("only this very text" in r["reason"] for r in summary["reasons"] if r["ruling"] == "undecided")


def test_self_check(tossup, tmp_path):
    pool = rows_file(
        tmp_path / "pool.jsonl",
        {"id": "a", "prompt": "2 + 3 =", "reference": "5", "verifier": "exact"},
        {"id": "b", "prompt": "2 + 4 =", "reference": "", "verifier": "exact"},
    )
    code, out, _ = tossup("--self-check", pool, "--json")
    assert code == 0
    summary = json.loads(out)
    assert (summary["correct"], summary["undecided"]) == (1, 1)
    assert summary["reasons"][1]["reason"] == "the problem has no reference"
    assert summary["reasons"][1]["example"] == "b"


def test_self_check_of_a_file_that_mixes_formats(tossup, tmp_path):
    add, total = "def add(a, b):\n    return a + b\n", "print(sum(map(int, input().split())))"
    runs = {"inputs": ["2 3\n"], "outputs": ["5\n"]}
    check = "def check(candidate):\n    assert candidate(2, 3) == 5\n"
    pool = rows_file(
        tmp_path / "pool.jsonl",
        {"id": "a", "format": "mbpp", "prompt": "Add.", "test_list": ["assert add(2, 3) == 5"], "code": add},
        {"id": "b", "format": "apps", "question": "Add.", "input_output": runs, "code": total},
        {"id": "c", "format": "stdin", "prompt": "Add.", **runs, "limits": {"cpu_seconds": 2}, "code": total},
        {"id": "d", "format": "stdin", "prompt": "Add.", **runs, "limits": {"memory_mb": 256}, "code": "print(6)"},
        {"id": "e", "format": "humaneval", "prompt": "", "entry_point": "add", "test": check, "code": add},
        {"id": "f", "format": "stdin", "prompt": "Add.", **runs, "limits": {"patience": 1}, "code": total},
    )
    judged = tmp_path / "judged.jsonl"
    assert tossup("--self-check", pool, "--out", judged)[0] == 0
    rulings = {row["id"]: row["verdict"] for row in map(json.loads, judged.read_text().splitlines())}
    assert [rulings[name]["ruling"] for name in "abcdef"] == ["correct"] * 3 + ["wrong", "correct", "undecided"]
    assert "unknown limits ['patience']" in rulings["f"]["reason"]


def test_rare_reasons_share_a_line(tossup, tmp_path, monkeypatch):
    monkeypatch.setattr("tossup.cli._verifying.SHOWN", 1)
    rows = [{"response": r, "gold": g, "verifier": "exact"} for r, g in [("7", "7"), ("", "7"), ("", "7"), ("8", "7")]]
    out = tossup(rows_file(tmp_path / "answers.jsonl", *rows))[1]
    assert "empty response" in out
    assert "1 more reason " in out
    assert "is not the reference" not in out


@pytest.mark.parametrize(
    ("reason", "answer", "reference", "kind"),
    [
        ("boxed 1081 equals the reference", "1081", "1081", "boxed … equals the reference"),
        ("x+1 is not x-1", "x+1", "x-1", "… is not …"),
        ("'it isn\\'t' is not the reference \"don't\"", "it isn't", "don't", "… is not the reference …"),
        ("a b is not a c", "a", "c", "… b is not …"),
        ("not " + "x + 1 + " * 9 + "...: another sum", "x + 1 + " * 20, "5", "not …: another sum"),
        ("timeout after 1.5 s of CPU time", None, "5", "timeout after … s of CPU time"),
    ],
)
def test_equal_reasons_count_as_equal(reason, answer, reference, kind):
    assert reason_kind(Answer("a", Problem("a", "", reference), "", None, {}), wrong(reason, answer)) == kind


PROBLEMS = [
    {
        "id": "double",
        "prompt": "Write double(x).",
        "reference": {"format": "mbpp", "text": "", "test_list": ["assert double(4) == 8"]},
    },
    {
        "id": "half",
        "prompt": "Write half(x).",
        "reference": {"format": "mbpp", "text": "", "test_list": ["assert half(4) == 2"]},
    },
]


@pytest.fixture
def programs(tmp_path):
    """Two code problems, in a pool file."""
    rows = [{**p, "reference": json.dumps(p["reference"]), "verifier": "code"} for p in PROBLEMS]
    return rows_file(tmp_path / "problems.jsonl", *rows)


def test_programs(tossup, tmp_path, programs):
    solutions = rows_file(
        tmp_path / "solutions.jsonl",
        {"task_id": "double", "completion": "```python\ndef double(x):\n    return 2 * x\n```"},
        {"task_id": "half", "completion": "```python\ndef half(x):\n    return x\n```"},
    )
    code, out, _ = tossup("code", programs, solutions, "--json")
    assert code == 0
    summary = json.loads(out)
    assert (summary["correct"], summary["wrong"], summary["undecided"]) == (1, 1, 0)


def test_a_program_for_no_problem(tossup, tmp_path, programs):
    solutions = rows_file(tmp_path / "solutions.jsonl", {"id": "treble", "solution": "x"})
    code, _, err = tossup("code", programs, solutions)
    assert code == 1
    assert "line 1: no problem 'treble' in" in err
    assert "has double, half" in err


def test_self_check_of_a_solution_indented_unlike_its_stub(tossup, tmp_path):
    row = {
        "task_id": "HumanEval/x",
        "prompt": "def double(x):\n    '''Twice x.'''\n",
        "entry_point": "double",
        "test": "def check(candidate):\n    assert candidate(4) == 8\n",
        "canonical_solution": "  y = x\n  return x + y\n",
    }
    summary = json.loads(tossup("--self-check", rows_file(tmp_path / "problems.jsonl", row), "--json")[1])
    assert (summary["correct"], summary["reasons"][0]["reason"]) == (1, "… of … tests passed")


def test_self_check_of_programs(tossup, tmp_path):
    rows = [{**p, "reference": json.dumps(p["reference"]), "verifier": "code"} for p in PROBLEMS]
    rows[0]["canonical_solution"] = "def double(x):\n    return x + x"
    summary = json.loads(tossup("--self-check", rows_file(tmp_path / "problems.jsonl", *rows), "--json")[1])
    assert (summary["correct"], summary["undecided"]) == (1, 1)
    assert summary["reasons"][1]["reason"] == "the problem holds no solution to check with"
