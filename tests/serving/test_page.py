"""The page in a real browser: both languages, every control, every width, and nothing from outside."""

from __future__ import annotations

import json
import re

import pytest

from browser import needs_browser
from recollect.serving.page import offline_page
from serving.conftest import FAMILIES, TEXT
from tiers import slow_after

pytestmark = needs_browser
GRADIENTS = ["rnn", "lstm", "transformer", "ttt-linear"]
STATES = ["lang=en", "lang=zh&theme=dark", "lang=en&view=reach", "lang=zh&view=write&lesson=3", "view=train&theme=dark"]
KNOBS = "lang=en&t=20&pin=4&k.lstm.knock=layers.0:forget_gate&k.transformer.scale=0"  # turned, and so their panels open
AXE = [
    (KNOBS, 360),
    *((state, 1280) for state in STATES),
    (f"{KNOBS}&theme=dark", 1280),
    *((one, 360) for one in STATES),
]
OUTSIDE = """() => [...document.querySelectorAll("main *")]
    .filter((one) => one.getClientRects().length && !one.closest(".models, .scroll, .visually-hidden"))
    .filter((one) => one.getBoundingClientRect().right > innerWidth + 1).map((one) => one.outerHTML.slice(0, 80))"""


@pytest.fixture
def at(show, page_file):
    """Return a function that opens the file with a state in its address."""

    def at(state: str = "", **options):
        return show(f"{page_file.as_uri()}#{state}", **options)

    return at


def shares(page, column: str) -> list[float]:
    bars = page.locator(f'[data-column="{column}"] .bars li')
    return [float(share) for share in bars.evaluate_all("all => all.map((one) => one.dataset.share)")]


@pytest.mark.parametrize(("language", "title"), [("en", "Look inside"), ("zh", "看见记忆")])
def test_it_loads_in_both_languages(at, language, title):
    page = at(f"lang={language}&t=10")
    assert page.inner_text("h1") == title
    assert page.locator("article.column").count() == len(FAMILIES)
    assert page.locator(".symbols").inner_text() == TEXT
    assert page.locator("html").get_attribute("lang") == {"en": "en", "zh": "zh-CN"}[language]


def test_it_plays_and_stops_and_steps(at):
    page = at("lang=en&t=3")  # slowly: a busy machine must not miss the moment to stop
    page.click(".play")
    page.wait_for_function("() => Number(document.querySelector('.scrub').value) >= 5")
    page.click(".play")
    stopped = int(page.input_value(".scrub"))
    page.keyboard.press("Escape")
    page.click('[aria-label="Next symbol"]')
    assert int(page.input_value(".scrub")) == stopped + 1
    page.locator(".symbols").focus()
    page.keyboard.press("Home")
    assert page.locator(".place").inner_text() == f"1 / {len(TEXT)}"
    page.keyboard.press("End")
    assert page.locator(".symbols .now").inner_text() == TEXT[-1]


def test_scrubbing_changes_every_column(at):
    page = at("lang=en&t=4")
    before = {family: shares(page, family) for family in FAMILIES}
    page.locator(".scrub").fill("30")
    assert page.locator(".symbols .now").get_attribute("data-at") == "30"
    for family in FAMILIES:
        assert shares(page, family) != before[family]
        assert page.locator(f'[data-column="{family}"] .field .now').get_attribute("data-at") == "30"
    grown = page.locator('[data-column="transformer"] .count').inner_text()
    page.locator(".scrub").fill("10")
    assert page.locator('[data-column="transformer"] .count').inner_text() != grown
    assert "t=10" in page.url


def test_a_symbol_lights_up_in_every_column_and_a_click_shows_its_reach(at):
    page = at("lang=en&t=20")
    page.hover("#symbol-4")
    assert page.locator(".field .lit").count() == len(FAMILIES)
    page.hover('[data-column="lstm"] .field [data-at="7"]')
    assert page.locator(".symbols .lit").get_attribute("data-at") == "7"
    assert page.locator(".field .lit").evaluate_all("all => all.map((one) => one.dataset.at)") == ["7"] * len(FAMILIES)
    page.click("#symbol-4")
    assert page.locator('[data-column="lstm"] .field h4').inner_text() == "reach of “c” into later predictions"
    shaded = page.locator('[data-column="transformer"] .field .cells span').evaluate_all(
        "all => all.map((one) => Number(one.style.getPropertyValue('--share')))"
    )
    assert shaded[:4] == [0, 0, 0, 0]
    assert max(shaded[4:]) == 1
    page.keyboard.press("3")  # the view of writing
    page.keyboard.press("2")
    assert page.inner_text("#view-reach .lead").startswith("The reach of “c”, symbol 5")


def test_temperature_and_knobs_recompute(at):
    page = at("lang=en&t=20")
    before = shares(page, "lstm")
    page.locator('[aria-label="Temperature"]').first.fill("0")
    assert shares(page, "lstm")[0] > before[0]
    page.locator('[aria-label="Temperature"]').first.fill("3")
    assert shares(page, "lstm") == before
    page.click('[data-column="lstm"] summary')
    page.locator('[data-column="lstm"] .knobs input[type="range"]').fill("0")
    page.wait_for_function("() => location.hash.includes('k.lstm.forget')")
    page.wait_for_selector('[data-column="lstm"] .knobs[open]')
    turned = shares(page, "lstm")
    assert turned != before
    page.locator('[data-column="transformer"] summary').click()
    page.locator('[data-column="transformer"] .knobs select').select_option(index=1)
    page.wait_for_function("() => location.hash.includes('k.transformer.knock')")
    page.click('[data-column="lstm"] .knobs button')
    page.wait_for_function("() => !location.hash.includes('k.lstm')")
    assert shares(page, "lstm") == before


def test_every_model_writes_from_one_prompt_and_hands_over(at):
    page = at("lang=en&view=write&swap=rnn%3Elstm", reduced_motion="reduce")
    page.click("button.primary")
    page.wait_for_function("() => document.querySelector('button.primary').textContent === 'Write again'")
    texts = page.locator(".sheet .written").all_inner_texts()
    assert len(set(texts)) == len(FAMILIES)
    assert all(text.startswith("the cat sat on the mat") and len(text) > 100 for text in texts)
    assert page.locator('[data-column="rnn"] .handed').get_attribute("data-name") == "lstm"
    assert page.locator(".handed").count() == 1


def test_reach_curves_of_all_models_and_of_the_untrained(at):
    page = at("lang=en&view=reach")
    lines = page.locator("#view-reach > .figure .series[data-line]").evaluate_all(
        "all => all.map((e) => e.dataset.line)"
    )
    assert lines == GRADIENTS  # a Markov chain has none
    assert page.inner_text(".without") == "Not in the figure, having no gradient here: markov."
    now = page.inner_text(".lab .now")
    page.locator(".lab input").fill("8")
    assert page.inner_text(".lab .now") != now
    assert "bias=4" in page.url


def test_a_model_without_gradients_is_not_drawn_among_those_of_a_symbol(at):
    page = at("lang=zh&view=reach&t=30&pin=4")
    figure = page.locator("#view-reach > .figure .series[data-line]")
    assert figure.evaluate_all("all => all.map((e) => e.dataset.line)") == GRADIENTS
    assert page.locator("#view-reach details tbody th").all_text_contents() == GRADIENTS
    assert page.inner_text(".without") == "未画入图中（此处没有梯度）：markov。"
    page = at("lang=en&view=reach&t=30&pin=4&shown=markov")
    assert page.locator("#view-reach > .figure .series").count() == 0
    assert page.locator(".lab .series").count() > 4


def test_trainings_show_their_curves_and_samples(at):
    page = at("lang=en&view=train")
    assert page.locator("#view-train .series[data-line]").count() == len(FAMILIES)
    assert page.locator("#view-train h3").all_inner_texts() == list(FAMILIES)  # and nothing behind the names
    last = page.locator('[data-column="lstm"] .written').inner_text()
    page.locator("#view-train .slider input").fill("0")
    assert page.locator('[data-column="lstm"] .written').inner_text() != last
    assert page.locator('[data-column="lstm"] .facts').inner_text().startswith("update 0, loss 3.")


def test_a_model_that_counts_is_a_level_line_in_the_figure_of_trainings(at):
    page = at("lang=en&view=train")
    path = page.locator('#view-train [data-line="markov"] path').get_attribute("d")
    (left, height), (right, end) = [[float(n) for n in point.split()] for point in path[1:].split("L")]
    assert height == end
    assert right - left > 500
    ticks = page.locator("#view-train .chart .tick").evaluate_all(TICKS)
    (low, y_low), (high, y_high) = ticks
    loss = low + (height - y_low) / (y_high - y_low) * (high - low)
    facts = page.locator('[data-column="markov"] .facts').inner_text()
    assert facts.startswith("counted in one pass, loss ")
    assert float(facts.split()[-1]) == pytest.approx(loss, abs=0.02)


TICKS = """all => all.filter((one) => one.getAttribute("text-anchor") === "end").slice(0, 2)
    .map((one) => [Number(one.textContent), Number(one.getAttribute("y")) - 4])"""


def test_the_lesson_drives_the_page(at):
    page = at("lang=en")
    page.keyboard.press("l")
    for number in range(1, 11):
        assert page.locator(".lesson header p").first.inner_text() == f"{number} of 10"
        assert page.locator(".view").is_visible()
        page.click(".lesson .primary")
    assert page.locator(".lesson").is_hidden()
    assert "view=write" in page.url


COVERED = """() => {
    const panel = document.querySelector(".lesson").getBoundingClientRect();
    const parts = [...document.querySelectorAll("header.bar *, main *, footer.foot *")];
    return parts.filter((one) => one.getClientRects().length && !one.closest(".visually-hidden")).filter((one) => {
        const box = one.getBoundingClientRect();
        const isBeside = box.right <= panel.left + 1 || box.left >= panel.right - 1;
        return !isBeside && box.bottom > panel.top && box.top < panel.bottom;
    }).map((one) => one.outerHTML.slice(0, 80));
}"""
SEEN = """(one) => {
    const box = one.getBoundingClientRect();
    const found = document.elementFromPoint(box.left + box.width / 2, box.top + box.height / 2);
    return box.top >= 0 && box.bottom <= innerHeight && (one === found || one.contains(found));
}"""


def test_no_step_of_the_lesson_covers_what_it_points_at(at):
    page = at("lang=en&lesson=5", width=1280, height=720)
    assert page.locator("article.column").count() == 2  # there is no GRU among these
    assert page.locator('[data-column="lstm"] .mechanism .legend span', has_text="keep").evaluate(SEEN)
    for _ in range(5, 11):
        assert page.evaluate(COVERED) == []
        page.click(".lesson .primary")


def test_on_a_phone_the_panel_lies_below_what_it_points_at(at):
    page = at("lang=zh&lesson=5", width=360, height=740)
    assert page.locator('[data-column="lstm"] .mechanism .legend span', has_text="保留").evaluate(SEEN)
    page = at("lang=zh&lesson=4", width=360, height=740)
    chart, panel = (page.locator(one).first.bounding_box() for one in ("#view-reach .chart", ".lesson"))
    above = page.locator(".sentence").bounding_box()
    assert above["y"] + above["height"] <= chart["y"]
    assert chart["y"] + chart["height"] <= panel["y"]


def test_a_lesson_in_the_address_drives_the_page(at):
    page = at("lang=en&lesson=8")
    assert page.locator("article.column").evaluate_all("all => all.map((one) => one.dataset.column)") == ["transformer"]
    assert "k.transformer.scale=0" in page.url
    assert "Here it has been switched off." in page.inner_text(".lesson")
    page = at("lang=en&lesson=8&view=train&t=3")  # a link that someone sent shows what they saw
    assert page.locator("#view-train").is_visible()
    assert "k.transformer" not in page.url


@pytest.fixture
def part(page_file, show, tmp_path):
    """Return a function that opens a page of some of the models, without the readings of their knobs if asked for."""

    def part(names: list[str], state: str, grids: bool = True, **options):
        source = page_file.read_text(encoding="utf-8")
        data = dict(re.findall(r'<script type="application/json" id="([^"]+)">(.*?)</script>', source, re.DOTALL))
        found = {name.removeprefix("variants-"): json.loads(one) for name, one in data.items()}
        shown = found.pop("exhibit")
        columns = [one for one in shown["columns"] if one["id"] in names]
        page = tmp_path / "part.html"
        kept = {name: found[name] if grids else {} for name in names}
        page.write_text(offline_page({**shown, "columns": columns, "main": 0}, kept), encoding="utf-8", newline="")
        return show(f"{page.as_uri()}#{state}", **options)

    return part


def test_a_step_about_a_model_that_is_not_there_says_so(part):
    page = part(["lstm", "transformer"], "lang=en&lesson=2")
    assert page.locator(".lesson .quiet").last.inner_text() == "Not on this page: Markov."
    assert page.locator("article.column").count() == 2
    page.click(".lesson .primary")
    assert page.locator(".lesson .quiet").last.inner_text() == "Not on this page: RNN."
    page.keyboard.press("Escape")
    page.click('[data-lang="zh"]')
    page.evaluate("location.hash = 'lang=zh&lesson=9'")
    page.wait_for_function(
        "() => document.querySelector('.lesson .quiet:last-of-type')?.innerText === '本页没有：TTT。'"
    )


def test_knobs_that_a_file_does_not_have_are_not_offered(part, runs):
    page = part(["lstm", "transformer"], "lang=en&t=9&k.lstm.forget=-2", grids=False)
    knobs = page.locator('[data-column="lstm"] .knobs')
    assert knobs.inner_text().startswith("Knobs turn live only: this text is longer than 128 symbols")
    assert knobs.inner_text().endswith(f"recollect inspect --live {runs}")
    assert page.locator(".knobs input, .knobs select").count() == 0
    assert "k.lstm" not in page.url
    page = part(["lstm", "transformer"], "lang=zh&lesson=8", grids=False)
    assert page.locator(".lesson > p").first.inner_text() == "没有 1/√k 的缩放，得分过大，注意力会坍缩到少数符号上。"
    assert page.locator(".knobs").first.inner_text().startswith("旋钮只能实时调")


# ---- looks ---------------------------------------------------------------------------------------------


def test_five_models_stand_in_rows_of_three_and_two(at):
    page = at("lang=en&t=20")
    tops = page.locator("article.column").evaluate_all("all => all.map((one) => one.getBoundingClientRect().top)")
    assert [tops.count(top) for top in sorted(set(tops))] == [3, 2]


def test_letters_grow_where_the_page_is_projected(at):
    sizes = """() => [".facts", ".cells span", ".scale"].map(
        (one) => parseFloat(getComputedStyle(document.querySelector(one)).fontSize))"""
    assert min(at("lang=en&t=20").evaluate(sizes)) >= 13.5
    assert min(at("lang=en&t=20", width=1920, height=1080).evaluate(sizes)) >= 15


@pytest.mark.parametrize(("language", "is_latin"), [("en", True), ("zh", False)])
def test_latin_letters_have_a_latin_font(at, language, is_latin):
    """A Chinese font has full-width quotation marks, which Chinese texts need and English ones do not."""
    page = at(f"lang={language}&t=20&view=train")
    session = page.context.new_cdp_session(page)
    session.send("DOM.enable")
    session.send("CSS.enable")
    root = session.send("DOM.getDocument")["root"]["nodeId"]
    for selector, own in ((".lead", is_latin), (".written", True)):
        node = session.send("DOM.querySelector", {"nodeId": root, "selector": selector})["nodeId"]
        fonts = session.send("CSS.getPlatformFontsForNode", {"nodeId": node})["fonts"]
        most = max(fonts, key=lambda one: one["glyphCount"])["familyName"]
        assert ("CJK" not in most) == own, (selector, fonts)


@pytest.mark.parametrize(
    ("language", "words"), [("en", ("n-grams", "one row a unit")), ("zh", ("n 元组", "每行一个单元"))]
)
def test_colours_axes_and_counts_are_named(at, language, words):
    page = at(f"lang={language}&t=20")
    counted, axis = words
    assert page.inner_text('[data-column="markov"] header .facts').endswith(counted)
    assert not page.inner_text('[data-column="lstm"] header .facts').endswith(counted)
    assert page.locator(".field .scale").count() == len(FAMILIES)
    assert axis in page.inner_text('[data-column="lstm"] .state .scale')
    assert page.locator('[data-column="transformer"] .state .scale .axis').inner_text()
    assert "细胞" not in page.inner_text("main")


def test_it_survives_a_reload_from_its_address(at):
    page = at("lang=zh&theme=dark&t=12&pin=3&shown=rnn,lstm&temp=0.5&k.lstm.knock=layers.0:forget_gate")
    seen = page.inner_text("main"), page.url
    assert page.locator("article.column").count() == 2
    page.reload()
    page.wait_for_selector("html[data-ready]", state="attached")
    assert (page.inner_text("main"), page.url) == seen
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(20, 23, 26)"


@pytest.mark.parametrize("state", ["t=1.5&pin=2.5&lesson=0.5", "k.lstm=1&__proto__=x&constructor=1&k..a=2&sample=0.1"])
def test_an_address_that_nobody_wrote_breaks_nothing(at, state):
    page = at(f"lang=en&{state}")
    assert page.locator("html").get_attribute("data-ready") == "true"
    assert page.locator(".bars li").count() > 6


def test_another_link_in_the_same_tab_is_opened_with_its_knobs(at):
    page = at("lang=en&t=12")
    page.evaluate("location.hash = 'lang=zh&k.lstm.knock=layers.0:forget_gate'")
    page.wait_for_function("() => document.documentElement.lang === 'zh-CN' && document.documentElement.dataset.ready")
    assert int(page.input_value(".scrub")) > 0
    assert page.locator('[data-column="lstm"] .knobs select').input_value() != "0"


def test_keys_scroll_a_wide_table_that_has_the_focus(at):
    page = at("lang=en&view=reach&t=12", width=360, height=740)
    page.click(".reach summary")
    assert page.evaluate("document.documentElement.scrollWidth") <= 360  # the table scrolls, not the page
    page.locator(".reach .scroll").focus()
    page.keyboard.press("ArrowRight")
    page.wait_for_function("() => document.querySelector('.reach .scroll').scrollLeft > 0")
    assert page.evaluate("new URLSearchParams(location.hash.slice(1)).get('t')") == "12"


@pytest.mark.parametrize("view", slow_after(2, ["read", "write", "reach", "train"]))
def test_it_fits_a_phone(at, view):
    page = at(f"lang=en&view={view}&lesson=1", width=360, height=740)
    assert page.evaluate("document.documentElement.scrollWidth") == 360
    outside = page.evaluate(OUTSIDE)
    assert not outside
    if view == "read":
        assert page.locator(".bars .share").first.is_visible()


@pytest.mark.parametrize(("state", "width"), slow_after(2, AXE))
def test_axe_finds_no_serious_fault(at, state, width):
    from axe_playwright_python.sync_playwright import Axe

    found = Axe().run(at(state, width=width)).response["violations"]
    serious = [one for one in found if one["impact"] in ("serious", "critical")]
    assert not serious, [(one["id"], one["nodes"][0]["html"], one["nodes"][0]["any"]) for one in serious]


def test_a_fault_is_seen(show, tmp_path):
    """The watch can fail: a planted error, a request from outside and a word on the console are found."""
    page = tmp_path / "page.html"
    page.write_text('<html data-ready><img src="http://example.com/a.png"><script>console.log("a"); b()</script>')
    with pytest.raises(AssertionError):
        check_watch(show, page)


def check_watch(show, page) -> None:
    """Open a page, and end its watch at once."""
    show(page.as_uri())
    closing = show.__closure__
    opened = next(cell.cell_contents for cell in closing if isinstance(cell.cell_contents, list))
    context, watched, _ = opened.pop()
    context.close()
    assert not watched.faults
