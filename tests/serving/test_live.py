"""The live page: its routes, who may call them, and what it says when something is wrong."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time

import pytest
from fastapi.testclient import TestClient

from browser import needs_browser
from command_line import ask
from recollect.core.serialize import FileError
from recollect.data.error import DataError
from recollect.runs.run import Run
from recollect.serving import shown_model
from recollect.serving.app import create_app, listen
from recollect.serving.live import Live
from recollect.serving.shown_model import open_some, text_of
from serving.conftest import TEXT, served
from serving.served import serving

PORT = 8642
HOME = f"http://127.0.0.1:{PORT}"
LSTM = {"column": "lstm", "text": "a"}


@pytest.fixture(scope="module")
def live(runs) -> Live:
    return Live(open_some([runs / "markov", runs / "lstm"], "cpu")[0], TEXT, "recollect inspect --live runs")


@pytest.fixture
def client(live):
    with TestClient(create_app(live, PORT), base_url=HOME) as client:
        yield client


def test_the_page_and_its_modules_are_served_with_a_strict_policy(client):
    page = client.get("/")
    policy = page.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert "frame-ancestors 'none'" in policy
    assert 'src="static/main.js"' in page.text
    assert client.get("/static/main.js").headers["content-type"].startswith("text/javascript")
    for name in ("page.html.j2", "..%2Fpage.py", "nothing.js"):
        assert client.get(f"/static/{name}").status_code == 404
    for path in ("/docs", "/openapi.json", "/redoc"):
        assert client.get(path).status_code == 404


@pytest.mark.parametrize(
    ("headers", "words"),
    [
        ({"Host": "evil.example"}, "Host: got 'evil.example'"),
        ({"Host": f"evil.example:{PORT}"}, "Host: got"),
        ({"Host": "127.0.0.1:1"}, "Host: got '127.0.0.1:1', expected one of 127.0.0.1:8642"),
        ({"Origin": "http://evil.example"}, "Origin: got 'http://evil.example'"),
        ({"Origin": "null"}, "Origin: got 'null'"),
        ({"Origin": f"https://127.0.0.1:{PORT}"}, "Origin: got"),
        ({"Sec-Fetch-Site": "cross-site"}, "Sec-Fetch-Site"),
    ],
)
def test_foreign_hosts_and_origins_are_refused_on_every_route(client, headers, words):
    for path in ("/", "/static/main.js", "/api/exhibit", "/api/training"):
        answer = client.get(path, headers=headers)
        assert answer.status_code == 403
        assert answer.json()["detail"].startswith(words)


def test_each_reason_to_refuse_is_told_once_on_the_terminal(runs):
    told: list[str] = []
    app = create_app(Live([], "", notice=told.append), PORT)
    with TestClient(app, base_url=HOME) as client:
        for _ in range(2):
            assert client.get("/", headers={"Host": "evil.example"}).status_code == 403
            assert client.get("/", headers={"Origin": "http://evil.example\x1b[2J"}).status_code == 403
        assert len(told) == 2
        assert told[0].startswith("refused a request: Host: got 'evil.example', expected one of 127.0.0.1:8642")
        assert told[1].startswith(r"refused a request: Origin: got 'http://evil.example\x1b[2J'")
        for number in range(40):  # who asks cannot fill the terminal
            client.get("/", headers={"Host": f"{number}.{'e' * 2000}"})
    assert len(told) == 21
    assert told[-1] == "further reasons to refuse requests are not printed"
    assert max(map(len, told)) < 400


def test_own_names_and_origins_are_served(client):
    for name in ("127.0.0.1", "localhost", "[::1]"):
        headers = {"Host": f"{name}:{PORT}", "Origin": f"http://{name}:{PORT}"}
        assert client.get("/", headers=headers).status_code == 200


def test_a_knob_changes_a_reading_and_another_page_is_not_disturbed(client):
    first = client.get("/api/exhibit").json()["columns"][1]["reading"]
    asked = {"column": "lstm", "text": TEXT, "knobs": {"knock": "layers.0:forget_gate"}}
    turned = client.post("/api/reading", json=asked).json()
    assert turned["arrays"]["reach"] != first["arrays"]["reach"]
    assert client.get("/api/exhibit").json()["columns"][1]["reading"] == first
    assert client.post("/api/reading", json={**asked, "knobs": {}}).json()["arrays"] == first["arrays"]


def test_another_text_is_read_by_every_model(client):
    found = client.post("/api/exhibit", json={"text": "a dog"}).json()
    assert [column["symbols"]["texts"] for column in found["columns"]] == [list("a dog")] * 2
    assert client.get("/api/exhibit").json()["text"] == TEXT


@pytest.mark.parametrize(
    ("path", "body", "status", "en", "zh"),
    [
        ("reading", {"column": "gone", "text": "a"}, 404, "column: got 'gone', expected one of markov, lstm", "column"),
        ("reading", {**LSTM, "knobs": {"scale": "0"}}, 422, "scale: no knob of this model", "这个模型没有旋钮 scale"),
        ("reading", {**LSTM, "knobs": {"knock": "x"}}, 422, "knock: got 'x', expected one of", "knock 得到 'x'，应为"),
        ("write", {"column": "lstm", "prompt": ""}, 422, "prompt: got an empty text", "提示为空，至少需要一个符号"),
        ("exhibit", {"text": "a" * 20_001}, 422, "text: String should have at most 20000", "出错：text: String should"),
        ("write", {"column": "lstm", "prompt": "a", "temperature": 0}, 422, "temperature: Input", "出错：temperature"),
    ],
)
def test_what_cannot_be_computed_is_refused_with_the_reason_in_both_languages(client, path, body, status, en, zh):
    answer = client.post(f"/api/{path}", json=body)
    assert answer.status_code == status
    assert answer.json()["detail"].startswith(en)
    assert answer.json()["zh"].startswith(zh)


def test_a_continuation_is_streamed_and_is_that_of_the_run(client, runs):
    asked = {"column": "lstm", "prompt": "the cat", "temperature": 0.8, "seed": 3}
    lines = client.post("/api/write", json=asked).text.splitlines()
    text = "".join(json.loads(line)["chunk"] for line in lines)
    assert "the cat" + text == Run(runs / "lstm", "cpu").generate("the cat", tokens=120, temperature=0.8, seed=3)
    assert len(lines) > 50


def test_a_run_that_vanished_is_told_once_on_the_terminal_and_on_the_page(runs, tmp_path):
    shutil.copytree(runs / "rnn", tmp_path / "rnn")
    told: list[str] = []
    live = Live(open_some([tmp_path / "rnn"], "cpu")[0], TEXT, notice=told.append)
    assert live.training()["rnn"]["curve"]
    shutil.rmtree(tmp_path / "rnn")
    for _ in range(2):
        problem = live.training()["rnn"]["problem"]
    assert problem == {
        "en": f"{tmp_path / 'rnn'}: the run's folder is gone; the model that was loaded from it still runs",
        "zh": f"{tmp_path / 'rnn'}：运行目录已不存在；已载入的模型仍可使用",
    }
    assert told == [problem["en"]]
    assert live.exhibit()["columns"][0]["reading"]


def test_a_training_in_another_process_is_seen(runs, tmp_path):
    shutil.copytree(runs / "rnn", tmp_path / "rnn")
    live = Live(open_some([tmp_path / "rnn"], "cpu")[0], TEXT)
    before = live.training()["rnn"]
    assert not before["running"]
    with Run(tmp_path / "rnn").lock():
        assert live.training()["rnn"]["running"]
    Run(tmp_path / "rnn").log({"step": 9, "valid_loss": 1.25})
    assert live.training()["rnn"]["curve"] == [*before["curve"], [before["curve"][-1][0], 1.25]]
    with pytest.raises(FileError, match="another process"), Run(tmp_path / "rnn").lock(), Run(tmp_path / "rnn").lock():
        pass  # looking leaves the lock as it is


# ---- the command ---------------------------------------------------------------------------------------


def test_a_port_in_use_is_refused_with_the_next_command(runs):
    with listen(0) as taken:
        port = str(taken.getsockname()[1])
        done = ask("inspect", "--live", str(runs / "rnn"), "a cat", "--port", port, code=2)
    assert f"--port: {port} cannot be used (Address already in use) · 端口 {port} 无法使用." in done.stderr
    assert done.stderr.endswith(f"Try: recollect inspect --live {runs / 'rnn'} 'a cat' --port 0\n")


def test_a_model_that_is_too_large_or_of_another_task_is_refused(runs, monkeypatch, tmp_path):
    monkeypatch.setattr(shown_model, "MOST_PARAMETERS", 1000)
    with pytest.raises(DataError, match=r"rnn: [0-9,]+ parameters are too many to trace, expected at most 1,000"):
        open_some([runs / "rnn"])
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match="holds no run; train one with: recollect train DATA"):
        open_some([tmp_path / "empty"])
    monkeypatch.setattr(shown_model, "MOST_MODELS", 4)
    with pytest.raises(DataError, match="got 5 models, expected at most 4 on one page"):
        open_some([runs])


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["nowhere at all"], "RUN: got 'nowhere at all', which is no folder"),
        (["{runs}/rnn", "{runs}/gone"], "gone: not a run, config.json is missing"),
        (
            ["{runs}/rnn", "a", "--out", "{runs}/gone/page.html"],
            "--out: got {runs}/gone/page.html, but there is no such",
        ),
        (["{runs}/rnn", "a", "--live", "--port", "70000"], "--port: got 70000, expected 0 to 65535"),
        (["{runs}/rnn", "a", "--device", "tpu"], "--device: got 'tpu'"),
    ],
)
def test_bad_input_is_refused(runs, words, said):
    done = ask("inspect", *(word.format(runs=runs) for word in words), code=2)
    assert said.format(runs=runs) in done.stderr


# ---- in a browser --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def address(live):
    with served(live) as address:
        yield address


@needs_browser
def test_the_live_page_recomputes_writes_and_reads_another_sentence(show, address):
    page = show(f"{address}#lang=en&t=20", offline=False)
    bars = page.locator('[data-column="lstm"] .bars')
    before = bars.inner_text()
    page.click('[data-column="lstm"] summary')
    page.locator('[data-column="lstm"] .knobs select').select_option(index=2)
    page.wait_for_function(
        "(before) => document.querySelector('[data-column=\"lstm\"] .bars').innerText !== before", arg=before
    )
    page.fill("#own-text", "a <b>dog</b>")
    page.click("form button")
    page.wait_for_function("() => document.querySelector('.symbols').innerText === 'a <b>dog</b>'")
    other = show(page.url, offline=False)  # two pages on one server
    assert other.inner_text(".symbols") == "a <b>dog</b>"
    page.keyboard.press("Escape")
    page.locator('[data-view="write"]').click()
    page.fill("#prompt", "the cat")
    page.locator('[data-column="lstm"] select').select_option("markov")
    page.click("button.primary")
    page.wait_for_function("() => document.querySelector('button.primary').textContent === 'Write again'")
    assert len(page.locator('[data-column="lstm"] .written').inner_text()) > 60
    assert page.locator('[data-column="lstm"] .handed').count() == 1
    page.locator('[data-view="train"]').click()
    page.wait_for_selector('#view-train [data-line="lstm"]')


def look_again(page) -> None:
    """Open the view anew, which looks at once: the two seconds between two looks have been waited for before."""
    page.keyboard.press("1")
    page.keyboard.press("4")


ALERT = '#view-train [role="alert"]'


@needs_browser
def test_trainings_that_begin_go_on_and_vanish_are_seen_on_the_open_page(show, runs, tmp_path):
    shutil.copytree(runs / "rnn", tmp_path / "rnn")
    told: list[str] = []
    live = Live(open_some([tmp_path / "rnn"], "cpu")[0], TEXT, notice=told.append, folders=[tmp_path])
    with served(live) as address:
        page = show(f"{address}#lang=en&view=train", offline=False)
        assert page.locator("#view-train .sheet").count() == 1
        shutil.copytree(runs / "lstm", tmp_path / "later")
        later = Run(tmp_path / "later")
        with later.lock():
            sheet = page.locator('[data-column="+later"]')
            sheet.get_by_text("training now").wait_for()
            later.log({"step": 9, "seconds": 2.0, "valid_loss": 1.25})
            later.log({"step": 9, "prompt": "the", "text": " best so far"}, "samples")
            look_again(page)
            sheet.get_by_text("best so far").wait_for()
            assert sheet.locator(".facts").inner_text() == "update 9, loss 1.250"
            assert page.locator('#view-train [data-line="+later"]').count() == 1
        shutil.rmtree(tmp_path / "rnn")
        look_again(page)
        page.locator(ALERT).wait_for()
        assert "the run's folder is gone; the model that was loaded from it still runs" in page.inner_text(ALERT)
        assert told == [page.inner_text(ALERT)]
        page.click('[data-lang="zh"]')
        page.get_by_text("运行目录已不存在；已载入的模型仍可使用").wait_for()


@pytest.mark.slow
@needs_browser
def test_a_training_in_a_process_of_its_own_gets_better_on_the_open_page(show, runs, tmp_path):
    shutil.copytree(runs / "markov", tmp_path / "markov")
    words = ["train", str(runs.parent / "words.txt"), "-m", "gru", "--budget", "1000000steps", "--device", "cpu"]
    words += ["--width", "16", "--layers", "1", "--evaluate-every", "20", "--out", str(tmp_path / "gru")]
    with served(Live(open_some([tmp_path / "markov"], "cpu")[0], TEXT, folders=[tmp_path])) as address:
        page = show(f"{address}#lang=en&view=train", offline=False)
        process = subprocess.Popen([sys.executable, "-m", "recollect", *words], stderr=subprocess.DEVNULL)
        try:
            facts = page.locator('[data-column="+gru"] .facts')
            facts.wait_for()
            first = facts.inner_text()
            page.wait_for_function(BETTER, arg=float(first.rpartition(" ")[2]))
        finally:
            process.terminate()
            process.wait()


BETTER = """(before) => {
    const facts = document.querySelector('[data-column="+gru"] .facts');
    return Number(facts?.textContent.split(" ").at(-1)) < before;
}"""


@needs_browser
def test_a_server_that_ended_is_named_with_the_command_that_starts_it(show, live):
    with served(live) as address:
        page = show(f"{address}#lang=en&t=20", offline=False, expected="ERR_CONNECTION_REFUSED")
        page.click('[data-column="lstm"] summary')
    page.locator('[data-column="lstm"] .knobs select').select_option(index=2)
    said = page.get_by_text("The server does not answer. Start it again: recollect inspect --live runs")
    said.first.wait_for()
    page.keyboard.press("Escape")
    page.click('[data-view="write"]')
    page.click(".write .primary")
    page.locator(".sheets .problem").first.wait_for()
    assert page.locator(".sheets .problem").first.inner_text().startswith("The server does not answer. Start it again")


@needs_browser
def test_what_cannot_be_shown_is_named_on_the_page_and_in_the_terminal(show, runs, monkeypatch, tmp_path):
    monkeypatch.setattr(shown_model, "MOST_PARAMETERS", 3000)
    page = tmp_path / "page.html"
    done = ask("inspect", str(runs / "markov"), str(runs / "lstm"), "a cat", "--out", str(page), "--device", "cpu")
    problem = f"not on the page: {runs / 'lstm'}: "
    assert problem in done.stderr
    shown = show(f"{page.as_uri()}#lang=en")
    assert shown.inner_text('.intro [role="alert"]').startswith(problem)
    assert shown.locator("article.column").count() == 1
    shown.click('[data-lang="zh"]')
    said = shown.inner_text('.intro [role="alert"]')
    assert said.startswith(f"未显示在页面上：{runs / 'lstm'}：")
    assert said.endswith("个参数，太大，无法追踪；最多 3,000 个")


# ---- taken over by the server of all protocols ---------------------------------------------------------


@needs_browser
def test_the_server_of_all_protocols_shows_the_whole_page(show, runs, tmp_path, monkeypatch):
    for family in ("rnn", "lstm"):
        shutil.copytree(runs / family, tmp_path / family)
    size = sum(p.numel() for p in Run(tmp_path / "rnn", "cpu").model.parameters())
    monkeypatch.setattr(shown_model, "MOST_PARAMETERS", size)  # the LSTM is larger
    with serving([tmp_path]) as found:
        page = show(f"{found.url}/#lang=zh", offline=False, expected="ERR_CONNECTION_REFUSED")
        text = page.locator(".symbols").inner_text()
        assert text in " ".join((runs.parent / "words.txt").read_text(encoding="utf-8").split())  # it knows this text
        assert page.locator('[data-column="rnn"] .bars li').count() > 4
        said = page.locator('.intro [role="alert"]').inner_text()
        assert said.startswith(f"未显示在页面上：{tmp_path / 'lstm'}：")
        assert "太大，无法追踪" in said
        shutil.copytree(runs / "lstm", tmp_path / "later")
        page.keyboard.press("4")
        page.locator('[data-column="+later"]').wait_for()
        refused = found.post("/api/reading", {"column": "gone", "text": "a"}, status=404)
        assert refused["detail"] == "column: got 'gone', expected one of rnn"
        with found.http() as client:
            assert client.get("/", headers={"Origin": "http://evil.example"}).status_code == 403
        assert [line for line in found.told if line.startswith("refused a request: Origin: got 'http://evil.example'")]
    page.locator("#view-train").get_by_text("服务器没有响应。请重新启动：recollect serve RUNS").wait_for()


def test_the_example_is_computed_before_anyone_asks(runs):
    live = Live(open_some([runs / "rnn"], "cpu")[0], None)
    live.begin().join()
    began = time.monotonic()
    found = live.exhibit()
    assert time.monotonic() - began < 1
    assert found["columns"][0]["reading"]
    assert found["text"] == text_of(list(live.models.values()))
