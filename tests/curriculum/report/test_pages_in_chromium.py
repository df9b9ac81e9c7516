"""The pages as people use them, in headless Chromium from file://, at a laptop's and a phone's width."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright
from report_ledgers import STEPS, answer, write_run

from tossup.curriculum import report
from tossup.curriculum.gate import fates
from tossup.curriculum.ledger import Ledger
from tossup.curriculum.pool import Pool
from tossup.curriculum.report import lab
from tossup.curriculum.report.browser import advantages
from tossup.curriculum.report.page import save
from tossup.records import Group, Problem, correct, wrong

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"]
FLAGS += ["--disable-component-update", "--disable-sync"]

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine: apt-get install chromium")

PATIENCE_MS = 300_000
"""For what a page does in a moment on a machine that has time; a browser takes longer to start."""
expect.set_options(timeout=PATIENCE_MS)

LAPTOP, PHONE = (1366, 850), (390, 844)

WATCH_SHIFTS = """
  window.shifts = 0;
  new PerformanceObserver((list) => {
    for (const entry of list.getEntries()) if (!entry.hadRecentInput) window.shifts += entry.value;
  }).observe({ type: "layout-shift", buffered: true });
"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS, timeout=PATIENCE_MS)
        yield started
        started.close()


@contextmanager
def opened(
    browser: Browser, path: Path, size: tuple[int, int] = LAPTOP, scheme: str = "light", hash_: str = ""
) -> Iterator[Page]:
    """The page when its charts are drawn. Fails on a console message, an uncaught error or a request to anywhere."""
    context = browser.new_context(viewport={"width": size[0], "height": size[1]}, color_scheme=scheme)
    context.set_default_timeout(PATIENCE_MS)
    page = context.new_page()
    trouble: list[str] = []
    page.on("console", lambda message: trouble.append(f"console: {message.text}"))
    page.on("pageerror", lambda error: trouble.append(f"error: {error}"))
    page.on(
        "request", lambda request: None if request.url.startswith(("file:", "data:")) else trouble.append(request.url)
    )
    page.add_init_script(WATCH_SHIFTS)
    page.goto(path.resolve().as_uri() + hash_)
    page.wait_for_selector("html[data-drawn=yes]")
    yield page
    context.close()
    assert trouble == []


@pytest.fixture(scope="module")
def run_page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("run")
    run = write_run(folder / "r", STEPS)
    watched = {"parked_easy": [], "parked_hard": ["c"], "unjudged": ["e"], "stuck": ["a"]}
    (run / "watched.json").write_text(json.dumps(watched), encoding="utf-8")
    report.write(run, folder / "report.html")
    return folder / "report.html"


@pytest.fixture(scope="module")
def lab_page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("lab")
    pool = Pool.of([Problem(str(i), "?", "7") for i in range(9)])
    pool.with_counts(attempts=[8] * 9, correct=list(range(9))).write(folder / "own.parquet")
    save(lab.html(folder / "own.parquet"), folder / "lab.html")
    return folder / "lab.html"


@pytest.mark.parametrize(("size", "scheme"), [(LAPTOP, "light"), (PHONE, "dark")], ids=["laptop", "phone"])
@pytest.mark.parametrize("which", ["run_page", "lab_page"])
def test_nothing_shifts_nothing_sticks_out_and_every_chart_is_drawn(
    browser: Browser, request: pytest.FixtureRequest, which: str, size: tuple[int, int], scheme: str
) -> None:
    with opened(browser, request.getfixturevalue(which), size, scheme) as page:
        page.wait_for_timeout(200)
        assert page.evaluate("window.shifts") == 0
        assert page.evaluate("document.documentElement.scrollWidth") <= size[0]
        for chart in page.locator("[data-chart]").all():
            svg = chart.locator("svg.marks")
            assert svg.locator("path, rect, text").count() > 10
            outer, inner = chart.bounding_box(), svg.bounding_box()
            assert outer is not None
            assert inner is not None
            assert inner["height"] <= outer["height"]
            assert inner["width"] <= outer["width"] + 1


def contrast(page: Page, selector: str) -> float:
    """The WCAG contrast of an element's text with the first painted background behind it."""
    return page.eval_on_selector(
        selector,
        """(element) => {
          const of = (text) => text.match(/[\\d.]+/g).map(Number);
          const linear = (c) => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
          const light = ([r, g, b]) => [r, g, b].map((c) => linear(c / 255))
            .reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0);
          let behind = element;
          while (of(getComputedStyle(behind).backgroundColor)[3] === 0) behind = behind.parentElement;
          const [a, b] = [getComputedStyle(element).color, getComputedStyle(behind).backgroundColor].map(of).map(light);
          return (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
        }""",
    )


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_words_can_be_read_in_light_and_dark(browser: Browser, run_page: Path, scheme: str) -> None:
    with opened(browser, run_page, scheme=scheme) as page:
        parts = (
            "p",
            "dd span",
            "nav a",
            "thead th",
            ".answer.up .push",
            ".answer.down .push",
            ".answer small",
            ".stamp.wrong",
        )
        assert {part: value for part in parts if (value := contrast(page, part)) < 4.5} == {}


def test_charts_follow_the_colours_of_the_machine_when_they_change(browser: Browser, run_page: Path) -> None:
    with opened(browser, run_page) as page:
        label = page.locator("[data-chart=rates] svg text").first
        light = label.get_attribute("fill")
        assert light is not None
        page.emulate_media(color_scheme="dark")
        expect(label).not_to_have_attribute("fill", light)


def test_groups_are_green_and_red_by_their_advantage(browser: Browser, run_page: Path) -> None:
    with opened(browser, run_page) as page:
        answers = page.locator("#browser .answer")
        expect(answers).to_have_count(4)
        assert answers.evaluate_all("all => all.map((a) => a.className)") == ["answer down"] * 3 + ["answer up"]
        assert page.locator("#browser .push").all_inner_texts() == ["▼ −0.58"] * 3 + ["▲ +1.73"]
        expect(page.locator("#browser .figures")).to_have_text("mean 0.250std 0.433pushed up 1pushed down 3")
        expect(answers.nth(0)).to_contain_text("'8' is not the reference '7'")


def test_groups_are_leafed_through_by_keyboard(browser: Browser, run_page: Path) -> None:
    with opened(browser, run_page) as page:
        place = page.locator("#browser [role=status]")
        expect(place).to_have_text("1 of 8")
        page.locator("#browser .list button").first.focus()
        page.keyboard.press("ArrowDown")
        expect(place).to_have_text("2 of 8")
        expect(page.locator("#browser .note")).to_contain_text("All right")
        page.keyboard.press("ArrowRight")
        expect(place).to_have_text("3 of 8")
        assert page.evaluate("document.activeElement.getAttribute('aria-current')") == "true"
        page.keyboard.press("ArrowUp")
        page.keyboard.press("ArrowUp")
        page.keyboard.press("ArrowUp")
        expect(place).to_have_text("1 of 8")


def test_filters_narrow_the_groups(browser: Browser, run_page: Path) -> None:
    with opened(browser, run_page) as page:
        place = page.locator("#browser [role=status]")
        kind, dataset, find = (page.locator("#browser").get_by_label(name) for name in ("kind", "data set", "find"))
        kind.select_option("too_few")
        expect(place).to_have_text("1 of 1")
        expect(page.locator("#browser .push").first).to_have_text("left out")
        dataset.select_option("=products")
        expect(place).to_have_text("no group fits")
        kind.select_option("")
        expect(place).to_have_text("1 of 2")
        find.fill("nothing like it")
        expect(place).to_have_text("no group fits")


def test_a_table_leads_to_the_group(browser: Browser, run_page: Path) -> None:
    with opened(browser, run_page) as page:
        page.locator("#browser").get_by_label("kind").select_option("all_wrong")
        page.locator("#moved a").first.click()
        expect(page.locator("#browser h3")).to_have_text("a")
        assert page.evaluate("document.activeElement.className") == "group"
    with opened(browser, run_page, hash_="#g=1-4") as page:
        expect(page.locator("#browser h3")).to_have_text("d")


def test_a_column_sorts_the_table_of_data_sets(browser: Browser, run_page: Path) -> None:
    with opened(browser, run_page) as page:
        names = page.locator("#datasets tbody th")
        page.get_by_role("button", name="wasted", exact=True).press("Enter")
        assert names.all_inner_texts() == ["products", "sums"]
        page.get_by_role("button", name="wasted", exact=True).press("Enter")
        assert names.all_inner_texts() == ["sums", "products"]
        expect(page.get_by_role("columnheader", name="wasted", exact=True)).to_have_attribute("aria-sort", "ascending")


EVIL = [
    "</script><script>window.pwned = 1</script>",
    "<img src=x onerror='window.pwned = 1'>",
    "\u2028window.pwned = 1//\u2029",
    "{{ 7 * 7 }}${window.pwned = 1}",
    '"><svg onload=window.pwned=1>',
    "javascript:window.pwned=1",
    "\u202e\x00\x1b[2J<!--",
    "Z" + "\u0301" * 5000,
    "huge " * 400_000,
]


def test_hostile_text_stays_text(browser: Browser, tmp_path: Path) -> None:
    steps = []
    for step in range(3):
        groups = []
        for i, evil in enumerate(EVIL):
            name = evil[:300].replace("\x00", "")
            key = answer(correct(f"{evil[:200]} equals the reference", evil), evil)
            miss = answer(wrong(f"'{evil[:200]}' is not the reference", evil), evil)
            rollouts = (miss, miss, miss, miss) if i % 2 else (key, miss, key, miss if step else key)
            groups.append(Group(100 * step + i, Problem(name, evil, evil, "exact", name[:200]), rollouts, name[:50]))
        steps.append(groups)
    run = tmp_path / "<b onclick=pwned>&"
    ledger = Ledger(run / "ledger", "r", keep_text=True)
    for step, groups in enumerate(steps):
        ledger.append(step, [(g, fates(g)) for g in groups])
    (run / "config.toml").write_text(
        "model = '</script><script>window.pwned=1</script>'\npool = '<img src=x>'\n", "utf-8"
    )
    Pool.of([g.problem for g in steps[0]]).write(run / "pool.parquet")
    report.write(run, tmp_path / "page.html")
    assert (tmp_path / "page.html").stat().st_size < 6_000_000
    with opened(browser, tmp_path / "page.html", PHONE) as page:
        assert page.locator("#browser .list button").count() == len(EVIL) * 3
        for _ in range(len(EVIL)):
            page.get_by_role("button", name="Next").click()
        assert page.evaluate("window.pwned") is None
        assert page.locator("img, svg[onload], [onerror], [onclick], iframe").count() == 0
        assert page.locator("script:not([type])").count() == 3
        assert page.locator("a:not([href^='#'])").count() == 0
        assert page.evaluate("document.documentElement.scrollWidth") <= PHONE[0]
        assert EVIL[0] in page.locator("body").inner_text()


def pushes(page: Page) -> list[str]:
    return page.locator("#answers .push").all_inner_texts()


def test_the_lab_starts_with_the_worked_example(browser: Browser, lab_page: Path) -> None:
    with opened(browser, lab_page) as page:
        assert page.input_value("#problem") == "What is 23 × 47?"
        assert page.input_value("#key") == "1081"
        assert page.locator("#answers .stamp").all_inner_texts() == ["RIGHT", "WRONG", "WRONG", "RIGHT"]
        assert pushes(page) == ["▲ A = +1.00", "▼ A = −1.00", "▼ A = −1.00", "▲ A = +1.00"]
        assert [page.inner_text(f"#{name}") for name in ("mean", "std", "ups", "downs")] == ["0.500", "0.500", "2", "2"]
        expect(page.locator("#readout")).to_contain_text("12.5\u00a0% of groups of 4 teach nothing at p = 0.50")
        expect(page.locator("#readout")).to_contain_text("own.parquet at G = 4")


def test_five_right_of_eight_with_and_without_the_division(browser: Browser, lab_page: Path) -> None:
    with opened(browser, lab_page) as page:
        page.fill("#size", "8")
        page.get_by_role("button", name="All wrong").click()
        for i in range(5):
            page.locator("#answers .stamp").nth(i).click()
        assert page.inner_text("#mean") == "0.625"
        assert pushes(page)[4:6] == ["▲ A = +0.77", "▼ A = −1.29"]
        page.get_by_label("divide by the standard deviation").uncheck()
        assert page.inner_text("#ups-by") == "by +0.375 each"
        assert page.inner_text("#downs-by") == "by −0.625 each"


@pytest.mark.parametrize(("button", "why"), [("All right", "too easy"), ("All wrong", "its key is wrong")])
def test_a_degenerate_group_says_why_it_teaches_nothing(
    browser: Browser, lab_page: Path, button: str, why: str
) -> None:
    with opened(browser, lab_page) as page:
        for size in (2, 3, 32):
            page.fill("#size", str(size))
            page.get_by_role("button", name=button).click()
            banner = page.locator("#banner.degenerate")
            expect(banner).to_contain_text("teaches nothing")
            expect(banner).to_contain_text(why)
            assert pushes(page) == ["A = 0.00"] * size
            page.locator("#answers .stamp").first.click()
            expect(page.locator("#banner")).to_contain_text("This group teaches.")


CHECKS = [
    ("1081", "1,081", True),
    ("1081", " 1081. ", True),
    ("1081", "$1081$", True),
    ("1/2", "0.5", True),
    ("0.5", "2/4", True),
    ("-3", "−3", True),
    ("1081", "1081.0000000000000000001", False),
    ("9007199254740993", "9007199254740992", False),
    ("1", "1/0", False),
    ("Paris", " paris", True),
    ("Paris", "Rome", False),
    ("12", "1,2", False),
    ("7", "", False),
    ("", "", False),
    ("7", "9" * 5000, False),
    ("7", "<img src=x onerror=alert(1)>", False),
]


def test_the_check_of_the_lab_is_exact(browser: Browser, lab_page: Path) -> None:
    with opened(browser, lab_page) as page:
        found = []
        for key, text, _ in CHECKS:
            page.fill("#key", key)
            page.get_by_label("Answer 1", exact=True).fill(text)
            found.append((key, text, page.locator("#answers .stamp").first.inner_text() == "RIGHT"))
        assert found == CHECKS


def test_typing_takes_the_place_of_a_stamp_by_hand(browser: Browser, lab_page: Path) -> None:
    with opened(browser, lab_page) as page:
        stamp = page.locator("#answers .stamp").nth(1)
        stamp.click()
        assert stamp.inner_text() == "RIGHT"
        page.get_by_label("Answer 2", exact=True).fill("1072")
        assert stamp.inner_text() == "WRONG"


def test_the_lab_works_by_keyboard_alone(browser: Browser, lab_page: Path) -> None:
    with opened(browser, lab_page) as page:
        page.get_by_label("Answer 1", exact=True).focus()
        page.keyboard.press("Tab")
        page.keyboard.press("Space")
        assert page.locator("#answers .stamp").first.inner_text() == "WRONG"
        page.keyboard.press("Shift+Tab")
        page.keyboard.press("Enter")
        assert page.evaluate("document.activeElement.getAttribute('aria-label')") == "Answer 2"
        page.locator("#size").focus()
        page.keyboard.press("ArrowRight")
        expect(page.locator("#answers .answer")).to_have_count(5)
        page.keyboard.press("End")
        expect(page.locator("#answers .answer")).to_have_count(32)
        page.locator("#p").focus()
        page.keyboard.press("End")
        expect(page.locator("#readout")).to_contain_text("100.0\u00a0% of groups of 32 teach nothing at p = 1.00")


def test_the_picture_can_be_dragged_along(browser: Browser, lab_page: Path) -> None:
    with opened(browser, lab_page) as page:
        chart = page.locator("[data-chart=chance]")
        chart.scroll_into_view_if_needed()
        box = chart.bounding_box()
        assert box is not None

        def place(p: float, chance: float) -> tuple[float, float]:
            """Where the picture shows this rate and this chance, in pixels of the chart."""
            x, y = page.evaluate(
                """([p, chance]) => {
                  const view = tossup.views.chance;
                  return [view.origin()[0] + view.scale("x")(p), view.origin()[1] + view.scale("y")(chance)];
                }""",
                [p, chance],
            )
            return x, y

        x, y = place(0.5, 0.5)
        page.mouse.move(box["x"] + x, box["y"] + y)
        page.mouse.down()
        x, y = place(0.9, 0.9**8 + 0.1**8)
        page.mouse.move(box["x"] + x, box["y"] + y, steps=5)
        page.mouse.up()
        assert (page.input_value("#p"), page.input_value("#g")) == ("0.9", "8")
        expect(page.locator("#readout")).to_contain_text("43.0\u00a0% of groups of 8 teach nothing at p = 0.90")
        page.mouse.move(box["x"] + 200, box["y"] + 50)
        assert page.input_value("#p") == "0.9", "without a pressed button nothing follows the pointer"


def test_reward_alone_beside_reward_minus_mean(browser: Browser, lab_page: Path) -> None:
    values = "(name) => tossup.views[name].data('answers').map((row) => [row.value, row.push])"
    with opened(browser, lab_page) as page:
        assert page.evaluate(values, "reward") == [[1, "up"], [0, "none"], [0, "none"], [1, "up"]]
        assert page.evaluate(values, "centred") == [[0.5, "up"], [-0.5, "down"], [-0.5, "down"], [0.5, "up"]]
        page.get_by_role("button", name="All right").click()
        assert page.evaluate(values, "reward") == [[1, "up"]] * 4
        assert page.evaluate(values, "centred") == [[0, "none"]] * 4


def test_an_undecided_answer_is_left_out_of_mean_and_std_as_the_engine_does(browser: Browser, lab_page: Path) -> None:
    with opened(browser, lab_page) as page:
        stamp = page.locator("#answers .stamp").first
        stamp.press("Enter")
        expect(stamp).to_have_text("WRONG")
        expect(stamp).to_have_attribute("aria-label", "Answer 1 is wrong; press for undecided")
        stamp.press("Enter")
        expect(stamp).to_have_text("UNDECIDED")
        mean, std, pushed = advantages([None, 0.0, 0.0, 1.0], divide=True)
        assert mean is not None
        assert std is not None
        assert [page.inner_text(f"#{name}") for name in ("mean", "std")] == [f"{mean:.3f}", f"{std:.3f}"]
        expect(page.locator("#mean-how")).to_have_text("1 right of 3 decided")
        words = [f"{'▲' if a > 0 else '▼'} A = {'+' if a > 0 else '−'}{abs(a):.2f}" for a in pushed if a is not None]
        assert pushes(page) == ["left out", *words]
        expect(page.locator("#banner")).to_contain_text("The undecided answer is left out")
        expect(page.locator("#readout")).to_contain_text("of groups of 3 teach nothing at p = 0.33")
        values = "tossup.views.centred.data('answers').map((row) => row.value)"
        assert page.evaluate(values)[0] is None
        assert {"1", "2", "3", "4", "?"} <= {*page.locator("[data-chart=centred] svg text").all_text_contents()}
        stamp.press("Enter")
        expect(stamp).to_have_text("RIGHT")


@pytest.mark.parametrize(("size", "says"), [(2, "Only one answer is decided"), (3, "All 2 decided answers are wrong")])
def test_a_group_that_is_degenerate_for_want_of_verdicts_says_so(
    browser: Browser, lab_page: Path, size: int, says: str
) -> None:
    with opened(browser, lab_page) as page:
        page.fill("#size", str(size))
        page.get_by_role("button", name="All right").click()
        first, *others = page.locator("#answers .stamp").all()
        first.click()
        first.click()
        for stamp in others:
            stamp.click()
        expect(page.locator("#banner.degenerate")).to_contain_text(says)
        assert pushes(page) == (["left out"] * 2 if size == 2 else ["left out", "A = 0.00", "A = 0.00"])


def test_the_problems_set_aside_are_listed_and_lead_to_their_groups(browser: Browser, run_page: Path) -> None:
    with opened(browser, run_page) as page:
        page.get_by_role("link", name="Set aside").press("Enter")
        section = page.locator("#set-aside")
        assert section.locator("h3").all_inner_texts() == ["Parked as too hard: 1", "Stuck: 1", "Parked as unjudged: 1"]
        hard = section.locator("tbody tr").first
        expect(hard.locator("td").nth(1)).to_have_text("7")
        expect(hard.locator(".visits")).to_have_text("0 0 of 4")
        hard.locator("a").press("Enter")
        expect(page.locator("#browser h3")).to_have_text("c")
