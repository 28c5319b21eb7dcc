"""Texts that are long, empty, of other scripts, or markup: shown as they are, and nothing in them is run."""

from __future__ import annotations

import pytest

from browser import needs_browser
from recollect.serving.exhibit import exhibit, grid
from recollect.serving.page import MODULES, STATIC, data_block, offline_page, script
from recollect.serving.shown_model import open_some, text_of
from tiers import slow_after

STEP = 0.1  # seconds within which an answer seems immediate
HTML = "</script><script>window.ran = 1</script><img src=x onerror='window.ran = 1'>&amp;<b>"
TEXTS = {
    "emoji": "a cat 😀 sat 👩‍👩‍👧 on e\u0301 mat",
    "markup": HTML,
    "chinese": "猫坐在垫子上，狗坐在木头上。",
    "right-to-left": "שלום עולם, the cat",
    "lines": "the cat\nsat\ton\r\nthe mat ",
}


@pytest.fixture(scope="module")
def models(runs):
    return open_some([runs / "lstm", runs / "markov"], "cpu")[0]


@pytest.fixture
def shown(models, show, tmp_path):
    """Return a function that shows a page of a text."""

    def shown(text: str, state: str = "lang=en", **options):
        page = tmp_path / "page.html"
        page.write_text(offline_page(exhibit(models, text), {}), encoding="utf-8", newline="")
        return show(f"{page.as_uri()}#{state}", **options)

    return shown


@needs_browser
@pytest.mark.parametrize("name", slow_after(2, TEXTS))
def test_any_text_is_shown_as_it_is_and_nothing_is_run(shown, name):
    page = shown(TEXTS[name])
    symbols = page.locator(".symbols [data-at]").all_text_contents()
    assert "".join(symbols).replace("↵\n", "\n") == TEXTS[name]
    assert page.evaluate("window.ran") is None
    assert page.locator("main img, main b, main script").count() == 0
    page.locator(".scrub").fill(str(len(symbols) - 1))
    assert page.locator(".bars li").count() > 6
    assert page.locator(".symbols").get_attribute("dir") == "auto"


@pytest.mark.slow
@needs_browser
def test_unknown_symbols_are_marked_as_such(shown):
    page = shown(TEXTS["emoji"])
    unknown = page.locator(".symbols .unknown").all_text_contents()
    assert "😀" in unknown
    assert not {"a", "c", "t"} & set(unknown)


@pytest.mark.slow
@needs_browser
def test_a_text_of_unknown_symbols_only_is_shown_with_the_reason(shown):
    page = shown("ЖЖЖ <b>")
    assert page.inner_text(".symbols") == "ЖЖЖ <b>"
    page = shown("ЖЖЖ")
    assert page.inner_text(".symbols") == "ЖЖЖ"
    assert (
        page.locator('article [role="alert"]').first.inner_text().startswith("lstm: text: none of its symbols is known")
    )


@needs_browser
def test_symbols_of_a_script_that_runs_to_the_left_run_to_the_left(shown):
    page = shown("שלום עולם abc")
    for cells in (".symbols", '[data-column="lstm"] .field .cells', '[data-column="markov"] .chips'):
        places = page.locator(f"{cells} > *").evaluate_all("all => all.map((one) => one.getBoundingClientRect().x)")
        assert places[0] > places[1] > places[2], cells


@needs_browser
def test_a_model_too_large_for_gradients_says_so(shown, monkeypatch):
    monkeypatch.setattr("recollect.serving.reading.PATIENCE", 0)
    page = shown("the cat sat", "lang=en&t=5")
    said = "too large to compute gradients on this page; a shorter sentence may do"
    assert page.inner_text('[data-column="lstm"] .field .quiet') == said


@needs_browser
def test_an_empty_text_is_said_to_be_empty(shown):
    page = shown("")
    assert page.inner_text(".symbols").startswith("An empty sentence: nothing was read")
    assert page.locator("article.column .count").all_inner_texts()[0] != ""
    page.keyboard.press("ArrowRight")
    page.keyboard.press(" ")
    for view in ("2", "3", "4", "1"):
        page.keyboard.press(view)


@needs_browser
def test_two_thousand_symbols_stay_responsive(shown):
    page = shown("the cat sat on the mat. " * 83 + "end.....")
    assert (
        page.inner_text(".sentence .quiet")
        == "The first 1744 symbols were read into memory; the page shows the last 256."
    )
    assert page.locator(".symbols [data-at]").count() == 256
    assert page.locator(".symbols .before").inner_text().startswith("the cat sat")
    session = page.context.new_cdp_session(page)
    session.send("Performance.enable", {"timeDomain": "threadTicks"})
    before = busy(session)
    shown = page.evaluate(
        """() => {
            const scrub = document.querySelector(".scrub"), shown = [];
            for (let at = 0; at < 256; at += 4) {
                scrub.value = at;
                scrub.dispatchEvent(new Event("input"));
                document.body.offsetHeight;  // the layout is part of a step
                shown.push(document.querySelector('[data-column="lstm"] .field .now').dataset.at);
            }
            return shown;
        }"""
    )
    seconds = (busy(session) - before) / 64  # of the page's own thread: other programs do not count
    assert shown == [str(at) for at in range(0, 256, 4)]
    assert 0.0001 < seconds < STEP, f"{1000 * seconds:.1f} ms for a step"
    page.locator(".scrub").fill("3")  # before the predictions that gradients explain
    assert "gradients explain the last 64 predictions only" in page.inner_text('[data-column="lstm"] .field')
    assert page.evaluate("document.documentElement.scrollWidth") <= 1280


@needs_browser
def test_the_first_picture_takes_less_than_two_seconds_of_computing(show, page_file):
    """Of the page's own thread, so that other programs on the machine do not count; seconds by the clock are measured
    on the demo's page by benchmarks/page_speed.py."""
    page = show(page_file.as_uri())
    assert page.locator("article.column .bars li").count() > 0
    session = page.context.new_cdp_session(page)
    session.send("Performance.enable", {"timeDomain": "threadTicks"})
    before = busy(session)
    page.reload()
    page.wait_for_selector("html[data-ready]", state="attached")
    page.evaluate("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
    seconds = busy(session) - before
    print(f"{seconds:.2f} s of the page's thread")
    assert 0.001 < seconds < 2
    marks = page.evaluate("performance.getEntriesByName('first-picture').length")
    assert marks == 1


def busy(session) -> float:
    """Return the seconds that a page's thread has computed."""
    found = session.send("Performance.getMetrics")["metrics"]
    return next(one["value"] for one in found if one["name"] == "TaskDuration")


def test_our_script_is_small_and_needs_no_node():
    assert sum(path.stat().st_size for path in STATIC.glob("*.js")) < 200_000
    assert sorted(path.stem for path in STATIC.glob("*.js")) == sorted(MODULES)
    assert "import " not in script().replace("// ", "")
    for path in STATIC.glob("*.js"):
        source = path.read_text(encoding="utf-8")
        assert not [
            word for word in ("innerHTML", "outerHTML", "insertAdjacentHTML", "eval(", "http://cdn") if word in source
        ]


def test_a_block_of_data_cannot_be_ended_by_its_text():
    assert data_block("a", {"text": HTML}).count("</script>") == 1


def test_long_texts_and_large_models_have_their_knobs_live_only(models, monkeypatch):
    assert grid(models[0], "the cat " * 17) == {}
    monkeypatch.setattr("recollect.serving.exhibit.GRID_PARAMETERS", 10)
    assert grid(models[0], "the cat") == {}


def test_without_a_text_the_held_out_text_is_read(models):
    text = text_of(models)
    assert 20 < len(text) <= 72
    assert "\n" not in text
