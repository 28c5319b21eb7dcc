"""Runs that were trained for a few updates, the page of them as a file, and one browser for all tests."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

import recollect as rc
from browser import CHROMIUM
from command_line import ask

PATIENCE = 120_000  # milliseconds for a step of a page: an overloaded machine is slow, a page that hangs is a fault
TEXT = "the cat sat on the mat and the dog sat on the log"
WORDS = "the cat sat on the mat. a dog ran to the log, and the bird sang.\n猫坐在垫子上，狗坐在木头上。\n" * 40
FAMILIES = ("markov", "rnn", "lstm", "transformer", "ttt-linear")


@pytest.fixture(scope="session")
def runs(tmp_path_factory) -> Path:
    """Return a folder of small runs, one of each family."""
    base = tmp_path_factory.mktemp("page")
    (base / "words.txt").write_text(WORDS, encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(base / "cache"))
        for family in FAMILIES:
            small = {} if family == "markov" else {"width": 16, "layers": 1}
            budget = {} if family == "markov" else {"budget": "8steps"}
            options = {"tokenizer": "char", "batch_size": 4, "evaluate_every": 4, "device": "cpu"}
            rc.train(str(base / "words.txt"), model=family, out=base / "runs" / family, **budget, **small, **options)
    return base / "runs"


@pytest.fixture(scope="session")
def page_file(runs, tmp_path_factory) -> Path:
    """Return the page of the runs, as the command writes it."""
    path = tmp_path_factory.mktemp("file") / "inspect.html"
    done = ask("inspect", str(runs), TEXT, "--out", str(path), "--device", "cpu")
    assert done.stdout == f"The page: {path}\n"
    return path


@dataclass
class Watched:
    """What a page did that it must not: words on the console, errors, requests."""

    faults: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)


@pytest.fixture(scope="session")
def browser():
    """Start one browser for the session."""
    if CHROMIUM is None and "CI" not in os.environ:
        pytest.skip("chromium is not installed")
    assert CHROMIUM, "chromium is not installed; try: apt-get install chromium fonts-noto-cjk"
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        options = ["--no-sandbox", "--disable-gpu"]
        started = playwright.chromium.launch(executable_path=CHROMIUM, args=options, timeout=2 * PATIENCE)
        yield started
        started.close()


@pytest.fixture
def show(browser):
    """Return a function that opens an address in a fresh page, offline, and see at the end that nothing went wrong.

    expected: part of a message on the console that is no fault, where a test takes the server away.
    """
    opened = []

    def show(address: str, *, width: int = 1280, height: int = 900, offline: bool = True, expected="\0", **options):
        context = browser.new_context(viewport={"width": width, "height": height}, offline=offline, **options)
        context.set_default_timeout(PATIENCE)
        page = context.new_page()
        watched = Watched()
        page.on("console", lambda one: watched.faults.extend([one.text] if expected not in one.text else []))
        page.on("pageerror", lambda error: watched.faults.append(str(error)))
        page.on("request", lambda request: watched.requests.append(request.url))
        opened.append((context, watched, address))
        page.goto(address)
        page.wait_for_selector("html[data-ready]", state="attached")
        return page

    yield show
    for context, watched, address in opened:
        context.close()
        assert not watched.faults
        here = address.partition("#")[0]
        own = here if here.startswith("file:") else here.rstrip("/") + "/"
        assert not [url for url in watched.requests if not url.startswith((own, "data:"))]


@contextmanager
def served(live) -> Iterator[str]:
    """Serve a page in a thread of this process while the context is open; its address."""
    from recollect.serving.app import listen, server_of

    with listen(0) as sock:  # it listens already: a request that comes early waits
        port = sock.getsockname()[1]
        server = server_of(live, port)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [sock]})
        thread.start()
        try:
            yield f"http://127.0.0.1:{port}/"
        finally:
            server.should_exit = True
            thread.join()
