"""The demo and its page, as a user meets them: a real run on a shortened book, looked at with a real browser."""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from typer.testing import CliRunner

from recollect.cli.main import app
from recollect.models.language import FAMILIES
from recollect.runs.config import RunConfig
from recollect.runs.run import Run
from recollect.runs.train import begin
from recollect.views.maps import write_maps

CHROMIUM = shutil.which("chromium")
needs_browser = pytest.mark.skipif(CHROMIUM is None and "CI" not in os.environ, reason="chromium is not installed")
DARK = ("--force-dark-mode", "--blink-settings=preferredColorScheme=0")
SEEN = '<iframe id="page" src="{page}" style="width: {width}px; height: 900px; border: 0"></iframe>'
MEASURE = """<script>
const page = document.getElementById("page");
page.addEventListener("load", () => setTimeout(() => {
  const seen = page.contentDocument;
  const hidden = [...seen.querySelectorAll("main [lang]")].filter((part) => part.offsetParent === null);
  const facts = {
    scrolls: seen.documentElement.scrollWidth,
    width: page.clientWidth,
    hidden: [...new Set(hidden.map((part) => part.lang))],
    paper: page.contentWindow.getComputedStyle(seen.body).backgroundColor,
  };
  document.title = JSON.stringify(facts);
}, 1000));
</script>"""


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
    seen, said = browse(page.as_uri() + "#zh")
    assert seen.count('class="hm"') == 2  # plotly's heat maps
    assert "注意力图" in seen
    assert "&lt;b&gt; →" in seen
    assert "Uncaught" not in said


def shorten_the_book(patch):
    from pydoc_data.topics import topics

    some = {name: topics[name] for name in ("assert", "class", "del", "for", "if", "lambda", "while", "with")}
    patch.setattr("pydoc_data.topics.topics", some)


def browse(address: str, *options: str) -> tuple[str, str]:
    """Give what the page became, and what the browser had to say about it."""
    assert CHROMIUM, "chromium is not installed; try: apt-get install chromium fonts-noto-cjk"
    command = [CHROMIUM, "--headless=new", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr", "--v=0"]
    command += [
        "--hide-scrollbars",
        "--virtual-time-budget=8000",
        "--allow-file-access-from-files",
        *options,
        "--dump-dom",
        address,
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    return done.stdout, done.stderr


def measured(page: Path, folder: Path, width: int, *options: str, language: str = "en") -> dict[str, object]:
    """Look at the page through a frame of some width."""
    frame = folder / "frame.html"
    frame.write_text(SEEN.format(page=f"{page.as_uri()}#{language}", width=width) + MEASURE, encoding="utf-8")
    found = re.search(
        r"<title>(.*?)</title>", browse(frame.as_uri(), f"--user-data-dir={folder / 'user'}", *options)[0]
    )
    assert found, "the frame did not load"
    return json.loads(found[1])


@pytest.mark.slow
def test_the_command_tells_what_came_of_every_family(shown):
    folder, printed = shown
    for family in FAMILIES:
        assert re.search(rf"^{family} +test loss \d\.\d\d\d nats", printed, re.MULTILINE)
        assert re.search(rf"^{family} +\d\.\d+ +\d\.\d+ +[\d,]+ +[\d,]+ +[\d,]+ +[\d,]+ *$", printed, re.MULTILINE)
        assert re.search(rf"^{family} +The ", printed, re.MULTILINE)
        assert (folder / family / "model.safetensors").exists()
    assert "(unigram)" in printed
    assert f"The page: {folder / 'report.html'}\nNext: recollect generate {folder}" in printed


@pytest.mark.slow
def test_a_family_of_the_demo_goes_on_speaking(shown):
    words = ["generate", str(shown[0] / "lstm"), "The ", "--tokens", "5", "--json"]
    assert len(json.loads(CliRunner().invoke(app, words).stdout)["text"]) == 5


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


@pytest.mark.slow
@needs_browser
def test_the_page_is_drawn_and_asks_the_network_for_nothing(shown, tmp_path):
    page = shown[0] / "report.html"
    became, words = browse(page.as_uri(), f"--user-data-dir={tmp_path}")
    assert "CONSOLE" not in words
    for chart in ("losses", "memories"):
        drawn = became.partition(f'id="{chart}"')[2]
        assert drawn.index('class="main-svg"') < drawn.index("</figure>")
        assert drawn.partition("</figure>")[0].count('class="trace scatter') == len(FAMILIES)
    rows = re.findall(r'<th scope="row">([\w-]+)<', became)
    assert sorted(rows) == sorted(FAMILIES)
    source = page.read_text(encoding="utf-8")
    assert not re.search(r"<(?:script|link|img|iframe)[^>]+(?:src|href)\s*=", source)
    assert "default-src 'none'" in source


@pytest.mark.slow
@needs_browser
@pytest.mark.parametrize(("language", "other"), [("en", "zh"), ("zh", "en")])
def test_the_page_speaks_one_language_at_a_time_and_fits_a_phone(shown, tmp_path, language, other):
    seen = measured(shown[0] / "report.html", tmp_path, 390, language=language)
    assert seen["hidden"] == [other]
    assert seen["scrolls"] == seen["width"] == 390


@pytest.mark.slow
@needs_browser
def test_charts_speak_the_page_s_language(shown, tmp_path):
    became, _ = browse((shown[0] / "report.html").as_uri() + "#zh", f"--user-data-dir={tmp_path}")
    assert '<html lang="zh">' in became
    titles = re.findall(r'class="[xy]title"[^>]*>([^<]+)<', became)
    assert titles == ["训练秒数", "每字符奈特数", "已读字符数", "记忆字节数"]


@pytest.mark.slow
@needs_browser
def test_the_page_follows_a_dark_system(shown, tmp_path):
    light = measured(shown[0] / "report.html", tmp_path, 800)
    dark = measured(shown[0] / "report.html", tmp_path, 800, *DARK)
    assert light["paper"] == "rgb(252, 251, 248)"
    assert dark["paper"] == "rgb(22, 24, 27)"


@pytest.mark.slow
@needs_browser
def test_charts_follow_a_dark_system(shown, tmp_path):
    page = (shown[0] / "report.html").as_uri()
    for options, second in (((), "rgb(0, 114, 178)"), (DARK, "rgb(90, 176, 234)")):  # of style.css, --series-2
        became, _ = browse(page, f"--user-data-dir={tmp_path / second[4:7]}", *options)
        assert second in became.partition('id="losses"')[2].partition("</figure>")[0]
