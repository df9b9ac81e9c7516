"""The page of an audit: its figures, and the page itself in headless Chromium at a laptop's and a phone's width."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, sync_playwright
from report_ledgers import STEPS, write_run
from test_pages_in_chromium import CHROMIUM, FLAGS, LAPTOP, PHONE, opened

from tossup.curriculum.audit import audit
from tossup.curriculum.report import audit_page
from tossup.curriculum.rollouts import Rollouts, read_rollouts


def rollouts(path: Path, sets: int = 3) -> Rollouts:
    """Groups of 8 with lengths; one answer in 50 is undecided."""
    rng = random.Random(0)
    rows = [
        {
            "dataset": f"set <b>{number}</b>",
            "problem": f"{number}-{at}",
            "step": 0,
            "reward": None if rng.random() < 0.02 else float(rng.random() < rate),
            "response_tokens": 100,
        }
        for number in range(sets)
        for at in range(20)
        for rate in [rng.betavariate(0.4, 0.4)]
        for _ in range(8)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return read_rollouts([path])


def written(found: Rollouts, out: Path) -> Path:
    sets, overall = audit(found, [2, 4, 8, 16])
    audit_page.write(found, sets, overall, out, rule=">= 1", remarks=["a remark with <i>marks</i>"])
    return out


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield started
        started.close()


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine: apt-get install chromium")
@pytest.mark.parametrize(("size", "scheme"), [(LAPTOP, "light"), (PHONE, "dark")], ids=["laptop", "phone"])
def test_the_page_fits_draws_its_charts_and_sorts_by_keyboard(
    browser: Browser, tmp_path: Path, size: tuple[int, int], scheme: str
) -> None:
    path = written(rollouts(tmp_path / "r.jsonl"), tmp_path / "page.html")
    with opened(browser, path, size, scheme) as page:
        assert page.evaluate("window.shifts") == 0
        assert page.evaluate("document.documentElement.scrollWidth") <= size[0]
        charts = page.locator("[data-chart]")
        assert charts.evaluate_all("all => all.map((one) => one.dataset.chart)") == ["waste", "rates", "sets", "fates"]
        for chart in charts.all():
            assert chart.locator("svg.marks path, svg.marks rect").count() > 5
        assert page.locator("main b, main i:not(.swatch)").filter(has_text="marks").count() == 0
        head = page.get_by_role("button", name="mean rate")
        head.focus()
        page.keyboard.press("Enter")
        means = page.locator("#sets tbody tr td:nth-child(3)").all_inner_texts()
        assert means == sorted(means, reverse=True)


def test_a_ledger_shows_the_fates_of_its_tokens(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", STEPS)
    found = read_rollouts([run])
    _, overall = audit(found, [4])
    fates = audit_page.tokens_by_fate(found, overall.observed)
    assert sum(row["share"] for row in fates) == pytest.approx(1)
    assert overall.observed is not None
    assert sum(row["tokens"] for row in fates) == overall.observed.tokens
    assert "all wrong" in {row["fate"] for row in fates}


def test_bars_of_the_usual_number_of_answers_and_tenths_where_there_is_none(tmp_path: Path) -> None:
    _, overall = audit(rollouts(tmp_path / "r.jsonl"), [4])
    assert audit_page.usual(overall) == 8
    bins = audit_page.rate_bins(overall)
    assert bins["rate"].to_list() == [f"{k}/8" for k in range(9)]
    assert bins["share"].sum() == pytest.approx(1)
    many = [{"id": n, "correct": [1] * n + [0] * (30 - n)} for n in (0, 3, 30)]
    (tmp_path / "m.jsonl").write_text("".join(json.dumps(row) + "\n" for row in many))
    _, wide = audit(read_rollouts([tmp_path / "m.jsonl"]), [4])
    filled = {row["rate"]: row["kind"] for row in audit_page.rate_bins(wide).to_dicts() if row["units"]}
    assert filled == {"never": "all wrong", "10–20 %": "mixed", "always": "all right"}


def test_one_set_without_groups_or_lengths_has_neither_of_their_parts(tmp_path: Path) -> None:
    path = tmp_path / "one.jsonl"
    path.write_text("".join(json.dumps({"id": n, "correct": [1] * n + [0] * (4 - n)}) + "\n" for n in range(5)))
    text = written(read_rollouts([path]), tmp_path / "page.html").read_text()
    assert 'id="sets"' not in text
    assert 'id="fates"' not in text
    assert "Diamonds" not in text
    assert "&lt;i&gt;marks&lt;/i&gt;" in text
