"""The file itself: nothing from outside, scripts allowed by their hash only, hostile text only ever as text."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from pathlib import Path

import pytest
from report_ledgers import STEPS, group, write_ledger, write_run

from tossup.curriculum import report
from tossup.curriculum.ledger import Ledger
from tossup.curriculum.pool import Pool
from tossup.curriculum.report import lab
from tossup.records import Problem, TossupError

SCRIPT = re.compile(r"<script>(.*?)</script>", re.DOTALL)


def page_of(run: Path, tmp_path: Path) -> str:
    report.write(run, tmp_path / "page.html")
    return (tmp_path / "page.html").read_text(encoding="utf-8")


def test_every_section_is_there_for_a_run(tmp_path: Path) -> None:
    page = page_of(write_run(tmp_path / "r", STEPS), tmp_path)
    ids = ("rates", "waste", "fates", "arms", "datasets", "moved", "keys", "reasons", "groups")
    assert [name for name in ids if f'<section id="{name}">' not in page] == []
    assert "drawn uniformly" in page
    assert "builtin" not in page


def test_the_figures_at_the_top_are_those_of_the_ledger(tmp_path: Path) -> None:
    run = write_run(tmp_path / "r", STEPS)
    (run / "summary.json").write_text(
        json.dumps({"accuracy_before": 0.5, "accuracy_after": 0.625, "accuracy_stderr": 0.01, "ended_by": "steps"}),
        "utf-8",
    )
    page = page_of(run, tmp_path)
    cards = re.findall(r"<dt>(.*?)</dt><dd><b>(.*?)</b><span>(.*?)</span>", page)
    assert [(label, value.replace("\u00a0", " ")) for label, value, _ in cards] == [
        ("groups that taught nothing", "62.5 %"),
        ("the same, drawn uniformly", "66.7 %"),
        ("tokens generated", "96"),
        ("held-out accuracy", "0.625"),
        ("answers undecided", "15.6 %"),
    ]
    assert cards[3][2] == "0.500 before; ± 0.010"
    assert [remark for _, _, remark in cards[:2]] == ["of 8 groups", "of 3 groups: the control arm"]


def test_one_group_in_one_batch_is_told_in_the_singular(tmp_path: Path) -> None:
    page = " ".join(page_of(write_run(tmp_path / "r", [[group(0, "a", "01")]]), tmp_path).split())
    for text in ("1 group, 2 answers, step 0. ", "1 problem with at least", "of 1 group<", "1 of 1 group:"):
        assert text in page
    assert re.search(r"\b1 (groups|problems|answers)\b", page) is None


def test_steps_have_no_halves_and_a_band_leaves_the_axis_its_title(tmp_path: Path) -> None:
    page = page_of(write_run(tmp_path / "r", [[group(0, "a", "01")]]), tmp_path)
    found = re.search(r'<script type="application/json" id="charts">(.*?)</script>', page, re.DOTALL)
    assert found is not None
    charts = json.loads(found[1])
    axes = [charts["fates"]["encoding"]["x"]["axis"], charts["arms"]["layer"][0]["encoding"]["x"]["axis"]]
    assert [(axis["values"], axis["format"]) for axis in axes] == [([0], "d")] * 2
    for name in ("waste", "arms"):
        assert [layer["encoding"]["y"]["title"] for layer in charts[name]["layer"]] == ["groups that teach nothing"] * 2


def test_a_page_names_nothing_outside_and_allows_its_own_scripts_only(tmp_path: Path) -> None:
    for page in (page_of(write_run(tmp_path / "r", STEPS), tmp_path), lab.html()):
        assert re.findall(r"<(?:script|img|iframe|link)[^>]*\b(?:src|href)=[\"'](?!data:,)", SCRIPT.sub("", page)) == []
        policy = re.search(r'Content-Security-Policy" content="([^"]*)"', page)
        assert policy is not None
        rules = policy[1].replace("&#39;", "'")
        assert rules.startswith("default-src 'none'")
        script_rule = rules.split("script-src ")[1]
        hashes = {base64.b64encode(hashlib.sha256(s.encode()).digest()).decode() for s in SCRIPT.findall(page)}
        assert len(hashes) == 3
        assert set(script_rule.split()) == {f"'sha256-{value}'" for value in hashes}


def test_the_charts_hold_numbers_that_json_knows(tmp_path: Path) -> None:
    page = page_of(write_run(tmp_path / "r", STEPS), tmp_path)
    for name in ("charts", "data"):
        text = re.search(rf'<script type="application/json" id="{name}">(.*?)</script>', page, re.DOTALL)
        assert text is not None
        json.loads(text[1], parse_constant=pytest.fail)


def test_without_texts_the_page_says_so(tmp_path: Path) -> None:
    page = page_of(write_run(tmp_path / "r", STEPS, text=False), tmp_path)
    assert "made without <code>save_text</code>" in page
    assert "nothing can be said of its keys" in page


def test_without_a_pool_the_page_says_so_and_shows_no_prompts(tmp_path: Path) -> None:
    page = page_of(write_ledger(tmp_path / "l", STEPS), tmp_path)
    assert "No pool was found near this ledger" in page
    assert "What is a?" not in page


def test_one_arm_is_called_one_arm(tmp_path: Path) -> None:
    page = page_of(write_run(tmp_path / "r", [[group(0, "a", "01"), group(1, "b", "11")]]), tmp_path)
    assert "There is one arm: every group was drawn uniformly" in page
    assert "goes back to toss-ups" not in page


def test_an_undecided_answer_is_no_wrong_one_and_a_run_of_them_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(TossupError, match="every answer is undecided"):
        page_of(write_run(tmp_path / "r", [[group(0, "a", "??")]]), tmp_path)


def test_an_empty_ledger_is_an_error_that_says_when_to_come_back(tmp_path: Path) -> None:
    Ledger(tmp_path / "l", "r").append(0, [])
    with pytest.raises(TossupError, match="no rows yet"):
        page_of(tmp_path / "l", tmp_path)


def test_a_suspect_key_is_listed_with_what_the_answers_say(tmp_path: Path) -> None:
    page = page_of(
        write_run(tmp_path / "r", [[group(0, "odd", "0000"), group(1, "b", "1111"), group(2, "c", "1101")]]), tmp_path
    )
    keys = page.split('<section id="keys">')[1].split("</section>")[0]
    assert "What is odd?" in keys
    assert "<code>7</code>" in keys
    assert "<code>8</code>" in keys
    assert "4 of 4" in keys


def test_the_lab_lays_the_pool_under_its_curves(tmp_path: Path) -> None:
    problems = [Problem(str(i), "?", "7") for i in range(4)]
    pool = Pool.of(problems).with_counts(attempts=[8, 8, 8, 0], correct=[0, 4, 8, 0])
    pool.write(tmp_path / "p.parquet")
    found = lab.overlay(tmp_path / "p.parquet")
    assert (found["problems"], found["unmeasured"], found["mean"]) == (3, 1, 0.5)
    assert sum(bar["share"] for bar in found["bars"]) == pytest.approx(1.0)
    assert [bar["low"] for bar in found["bars"] if bar["share"] > 0] == pytest.approx([0.0, 0.5, 0.95])
    assert found["waste"]["4"]["value"] == pytest.approx((1 + 2 / 70 + 1) / 3), "C(4,4)/C(8,4) twice, and two sure ones"
    assert sorted(map(int, found["waste"])) == list(range(2, 33))


def test_a_pool_without_counts_cannot_be_laid_under(tmp_path: Path) -> None:
    Pool.of([Problem("a", "?", "7")]).write(tmp_path / "p.parquet")
    with pytest.raises(TossupError, match="tossup curate"):
        lab.html(tmp_path / "p.parquet")


def test_the_table_of_the_lab_is_the_known_one() -> None:
    rows = re.findall(r'<tr><th scope="row" class="n">(.*?)</th>(.*?)</tr>', lab.html())
    found = {p: [v.replace("\u00a0", " ") for v in re.findall(r">([\d.]+\u00a0%)<", cells)] for p, cells in rows}
    assert found == {
        "0.5": ["12.5 %", "0.8 %", "0.0 %", "0.0 %"],
        "0.7": ["24.8 %", "5.8 %", "0.3 %", "0.0 %"],
        "0.9": ["65.6 %", "43.0 %", "18.5 %", "3.4 %"],
        "0.95": ["81.5 %", "66.3 %", "44.0 %", "19.4 %"],
        "0.99": ["96.1 %", "92.3 %", "85.1 %", "72.5 %"],
    }
