"""How soon the page that looks inside shows its first picture, and how long one step of the scrubber takes.

recollect demo && recollect inspect demo "TEXT" --out inspect.html
python benchmarks/page_speed.py inspect.html

In a real browser, each load in a profile of its own. The first picture is there when every column of the view is drawn
(`performance.mark` in static/main.js); seconds count from the start of the navigation, by the clock.
"""

from __future__ import annotations

import argparse
import os
import shutil
from pathlib import Path
from statistics import median
from typing import Any

from common import save_result

LOADS = 7
VIEWS = ("read", "reach", "write", "train")
FIRST = "performance.getEntriesByName('first-picture')[0].startTime"
STEP = """() => {
    const scrub = document.querySelector(".scrub"), last = Number(scrub.max), begun = performance.now();
    for (let at = 0; at <= last; at++) {
        scrub.value = at;
        scrub.dispatchEvent(new Event("input"));
        document.body.offsetHeight;  // the layout is part of a step
    }
    return (performance.now() - begun) / (last + 1);
}"""


def load(browser: Any, page: Path, view: str) -> dict[str, float]:
    """Return the milliseconds of one load: until the first picture, and of a step over every symbol."""
    context = browser.new_context(viewport={"width": 1280, "height": 900}, offline=True, reduced_motion="reduce")
    tab = context.new_page()
    tab.goto(f"{page.resolve().as_uri()}#lang=en&view={view}")
    tab.wait_for_selector("html[data-ready]", state="attached")
    found = {"first": float(tab.evaluate(FIRST)), "columns": tab.locator("article.column").count()}
    if view == "read":
        found["step"] = float(tab.evaluate(STEP))
    context.close()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("page", type=Path)
    page = parser.parse_args().page
    from playwright.sync_api import sync_playwright

    rows = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        for view in VIEWS:
            loads = [load(browser, page, view) for _ in range(LOADS)]
            row = {"view": view, "first": median(one["first"] for one in loads)}
            row |= {"slowest": max(one["first"] for one in loads), "models": loads[0]["columns"], "loads": LOADS}
            if view == "read":
                row["step"] = median(one["step"] for one in loads)
            rows.append(row)
            print(row, flush=True)
        version = browser.version
        browser.close()
    save_result("page-speed", rows, bytes=page.stat().st_size, browser=f"Chromium {version}", load=os.getloadavg()[0])


if __name__ == "__main__":
    main()
