"""The demo and its page, as a user meets them: a real run on a shortened book, looked at with a real browser."""

from __future__ import annotations

import fcntl
import json
import os
import re

import pytest
from typer.testing import CliRunner

from browser import DARK, browse, check_page, look, needs_browser
from demo_outcome import whole_line
from recollect.cli.demo_page import page as make_page
from recollect.cli.main import app
from recollect.models.language import FAMILIES
from recollect.runs.config import RunConfig
from recollect.runs.run import Run
from recollect.runs.train import begin
from recollect.story.notes import DISTANCES
from recollect.views.maps import write_maps

LIGHT_PAPER, DARK_PAPER = "rgb(252, 251, 248)", "rgb(22, 24, 27)"
BOTH_MODES = pytest.mark.parametrize(
    ("options", "paper"), [((), LIGHT_PAPER), (DARK, DARK_PAPER)], ids=["light", "dark"]
)
FIGURES = 6  # losses, longer trainings, notes, attention, gates, memories
MOST = 2_500_000  # bytes of a page


@pytest.fixture(scope="module")
def shown(tmp_path_factory):
    """Make the demo once for all workers: its folder, and what it printed."""
    base = tmp_path_factory.getbasetemp()
    place = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "one-demo"
    place.mkdir(exist_ok=True)
    with (place / "lock").open("w") as lock, pytest.MonkeyPatch.context() as patch:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (place / "printed").exists():
            shorten_the_book(patch)
            patch.setenv("XDG_CACHE_HOME", str(place / "cache"))
            done = CliRunner().invoke(app, ["demo", "--seconds", "0.2", "--out", str(place / "demo")])
            assert done.exit_code == 0, done.output
            (place / "printed").write_text(done.stdout, encoding="utf-8")
    return place / "demo", (place / "printed").read_text(encoding="utf-8")


@needs_browser
@BOTH_MODES
def test_the_page_is_whole_on_phone_and_screen_in_both_languages(tmp_path, options, paper):
    page = tmp_path / "report.html"
    page.write_text(make_page(whole_line()), encoding="utf-8")
    check_page(page, tmp_path, options, paper, FIGURES)


@pytest.mark.slow
@needs_browser
@BOTH_MODES
def test_the_page_of_a_real_demo_is_whole_too(shown, tmp_path, options, paper):
    check_page(shown[0] / "report.html", tmp_path, options, paper, FIGURES)


@needs_browser
def test_what_is_cut_off_or_overlaps_is_found(tmp_path):
    """The measurement can fail: each fault is planted and must be reported."""
    page = tmp_path / "page.html"
    wide = '<pre style="overflow-x: auto; width: 100px">recollect generate demo/markov</pre>'
    names = (
        '<svg width="300" height="40"><text class="name" y="20">lstm</text><text class="name" y="22">gru</text></svg>'
    )
    page.write_text(f"<main>{wide}<div style='width: 2000px'>far</div>{names}</main>", encoding="utf-8")
    facts = look(page, tmp_path)[0][0]
    assert any("recollect generate" in cut for cut in facts["cut"])
    assert any("far" in outside for outside in facts["outside"])
    assert facts["overlapping"]


@needs_browser
def test_charts_follow_a_dark_system(tmp_path):
    page = tmp_path / "report.html"
    page.write_text(make_page(whole_line()), encoding="utf-8")
    for options, second in (((), "#0072b2"), (DARK, "#5ab0ea")):  # of style.css, --series-2
        assert look(page, tmp_path, *options)[0][0]["line"] == second


@pytest.mark.slow
@needs_browser
def test_a_page_shows_where_a_translator_looked(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    run, page = Run(tmp_path / "run"), tmp_path / "maps.html"
    recipe = RunConfig.make("reversed:count=200", "bahdanau", task="translate", max_steps=2, batch_size=8, steps=32)
    begin(recipe, run, lambda row: None)
    pairs = [("abc", "cb"), ("<b>", "")]
    looks = [run.attention(*pair) for pair in pairs]
    write_maps(page, pairs, looks, run="run", family="bahdanau", machine="here")
    check_page(page, tmp_path, (), LIGHT_PAPER, figures=2)
    became, _ = browse(page.as_uri() + "#zh")
    assert "注意力图" in became
    assert "&lt;b&gt; →" in became
    assert became.count('class="cell"') == 2 * (3 * 3 + 3 * 1)  # both layouts: "cb" and its end, and an end alone


def shorten_the_book(patch):
    from pydoc_data.topics import topics

    some = {name: topics[name] for name in ("assert", "class", "del", "for", "if", "lambda", "while", "with")}
    patch.setattr("pydoc_data.topics.topics", some)


@pytest.mark.slow
def test_the_command_tells_what_came_of_every_family(shown):
    folder, printed = shown
    shares = r" +\d+" * len(DISTANCES)
    for family in FAMILIES:
        assert re.search(rf"^{family} +test loss \d\.\d\d\d nats.*, notes \d+ %$", printed, re.MULTILINE)
        assert re.search(rf"^{family} +\d\.\d+ +\d\.\d+ +[\d,]+ +[\d,]+ +[\d,]+ +[\d,]+ *$", printed, re.MULTILINE)
        assert re.search(rf"^{family}{shares} *$", printed, re.MULTILINE)
        assert re.search(rf"^{family} +The ", printed, re.MULTILINE)
        assert (folder / family / "model.safetensors").exists()
    assert "(unigram)" in printed
    assert "More time changes nothing for markov" in " ".join(printed.split())  # wherever the line is broken
    assert f"The page: {folder / 'report.html'}\nNext: recollect generate {folder}" in printed


@pytest.mark.slow
def test_a_family_of_the_demo_goes_on_speaking(shown):
    words = ["generate", str(shown[0] / "lstm"), "The ", "--tokens", "5", "--json"]
    assert len(json.loads(CliRunner().invoke(app, words).stdout)["text"]) == 5


@pytest.mark.slow
def test_the_page_is_small_and_asks_the_network_for_nothing(shown):
    page = shown[0] / "report.html"
    assert page.stat().st_size < MOST
    source = page.read_text(encoding="utf-8")
    rows = re.findall(r'<th scope="row">([\w-]+)<', source)
    assert sorted(rows) == sorted(FAMILIES)
    assert not re.search(r"<(?:script|link|img|iframe)[^>]+(?:src|href)\s*=", source)
    assert "default-src 'none'" in source


def test_a_second_demo_takes_the_place_of_the_first(tmp_path, monkeypatch):
    shorten_the_book(monkeypatch)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr("recollect.cli.demo.FAMILIES", ("markov", "rnn"))  # two are enough to be replaced
    words = ["demo", "--seconds", "0.1", "--out", str(tmp_path / "demo")]
    assert CliRunner().invoke(app, words).exit_code == 0
    old = tmp_path / "demo" / "rnn" / "old"
    old.touch()
    result = json.loads(CliRunner().invoke(app, [*words, "--json"]).stdout)
    assert not old.exists()
    assert [found["family"] for found in result["findings"]] == ["markov", "rnn"]
    markov, rnn = result["findings"]
    assert markov["loss"] < result["unigram"]
    assert rnn["curve"][0][0] == 0
    assert rnn["curve"][-1][0] >= 0.1
    assert rnn["bytes"]["1"] == rnn["bytes"]["16384"] > 0
    assert rnn["notes"]["updates"] > 0
    assert [seconds for seconds, _ in result["outlook"]["ends"]][:2] == [0.1 / 16, 0.1 / 4]
    assert result["attention"] is None  # there is no transformer
