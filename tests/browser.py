"""Pages seen with a real browser, Debian's chromium: every combination of width and language at once, in frames."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

PATIENCE = 600  # seconds for one page on an overloaded machine; it takes two on a quiet one
CHROMIUM = shutil.which("chromium")
needs_browser = pytest.mark.skipif(CHROMIUM is None and "CI" not in os.environ, reason="chromium is not installed")
DARK = ("--force-dark-mode", "--blink-settings=preferredColorScheme=0")
VIEWS = [(width, language) for width in (360, 1280) for language in ("en", "zh")]
FRAME = '<iframe src="{page}#{language}" style="width: {width}px; height: 900px; border: 0"></iframe>'
MEASURE = """<script>
function facts(frame) {
  const page = frame.contentDocument, view = frame.contentWindow;
  const isShown = (e) => e.getClientRects().length > 0;
  const shown = [...page.querySelectorAll("body *")].filter((e) => isShown(e) && !e.closest("clipPath"));
  const words = (e) => `${e.tagName} ${e.className.baseVal ?? e.className} ${e.textContent.slice(0, 40)}`;
  const scrolls = (e) => view.getComputedStyle(e).overflowX !== "visible";
  const cut = shown.filter((e) => e.scrollWidth > e.clientWidth + 1 && scrolls(e));
  const outside = shown.filter((e) => {
    const box = e.getBoundingClientRect();
    return box.width && (box.left < -1 || box.right > frame.clientWidth + 1);
  });
  const overlapping = [];
  for (const svg of page.querySelectorAll("svg")) {
    const names = [...svg.querySelectorAll(".name, .title")].filter(isShown);
    names.forEach((a, i) => names.slice(i + 1).forEach((b) => {
      const p = a.getBoundingClientRect(), q = b.getBoundingClientRect();
      const over = Math.min(p.bottom, q.bottom) - Math.max(p.top, q.top);
      const beside = Math.min(p.right, q.right) <= Math.max(p.left, q.left);
      if (!beside && over > 4) overlapping.push(`${words(a)} / ${words(b)}`);
    }));
  }
  const parts = [...page.querySelectorAll("main [lang]")];
  const languages = ["en", "zh"].filter((lang) => parts.some((e) => e.lang === lang && isShown(e)));
  const second = page.querySelector(".c2");
  return {
    scrolls: page.documentElement.scrollWidth, width: frame.clientWidth, overlapping,
    cut: cut.map(words), outside: outside.map(words), drawn: shown.filter((e) => e.tagName === "svg").length,
    languages,
    paper: view.getComputedStyle(page.body).backgroundColor,
    line: second ? view.getComputedStyle(second).getPropertyValue("--c").trim() : "",
    requests: view.performance.getEntriesByType("resource").length,
  };
}
addEventListener("load", () => setTimeout(() => {
  document.title = JSON.stringify([...document.querySelectorAll("iframe")].map(facts));
}, 300));
</script>"""


def browse(address: str, *options: str) -> tuple[str, str]:
    """Return what the page became, and what the browser printed.

    Each has a profile of its own: a second browser with the same one hands its page to the first, and ends.
    """
    assert CHROMIUM, "chromium is not installed; try: apt-get install chromium fonts-noto-cjk"
    command = [CHROMIUM, "--headless=new", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr", "--v=0"]
    command += ["--disable-dev-shm-usage", "--hide-scrollbars", "--virtual-time-budget=4000"]
    command += ["--allow-file-access-from-files", *options, "--dump-dom", address]
    with TemporaryDirectory(ignore_cleanup_errors=True) as profile:  # its last process may still write to it
        command.insert(1, f"--user-data-dir={profile}")
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=PATIENCE)
    return done.stdout, done.stderr


def look(page: Path, folder: Path, *options: str) -> tuple[list[dict[str, Any]], str]:
    """Return the facts of each of `VIEWS`, and what the browser printed."""
    frames = [FRAME.format(page=page.as_uri(), width=width, language=language) for width, language in VIEWS]
    outer = folder / "frames.html"
    outer.write_text("\n".join(frames) + MEASURE, encoding="utf-8")
    became, printed = browse(outer.as_uri(), *options)
    found = re.search(r"<title>(.*?)</title>", became, re.DOTALL)
    assert found, f"the frames did not load: {printed}"
    return json.loads(found[1]), printed


def check_page(page: Path, folder: Path, options: tuple[str, ...], paper: str, figures: int) -> None:
    """Assert that a page is whole in every view: nothing clipped, one language, the colours asked for, no request."""
    seen, printed = look(page, folder, *options)
    assert "CONSOLE" not in printed, printed
    for (width, language), facts in zip(VIEWS, seen, strict=True):
        assert facts["scrolls"] == facts["width"] == width
        assert (facts["cut"], facts["outside"], facts["overlapping"]) == ([], [], []), (width, language)
        assert facts["languages"] == [language]
        assert facts["drawn"] == figures
        assert facts["paper"] == paper
        assert facts["requests"] == 0
