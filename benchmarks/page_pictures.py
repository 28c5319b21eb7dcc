"""Pictures of the page that looks inside, in a real browser, for the documents.

recollect demo && recollect inspect demo "TEXT" --out inspect.html
python benchmarks/page_pictures.py inspect.html          # those of docs/
python benchmarks/page_pictures.py inspect.html --all DIR  # every view, width, language and tint, to be looked at
"""

from __future__ import annotations

import argparse
import shutil
from itertools import product
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parents[1] / "docs"
WIDTHS = {360: 780, 1280: 900, 1920: 1080}
VIEWS = ("read", "reach", "write", "train")
PICTURES = {  # of the documents: name, address, width, height
    "inspect": ("lang=en&shown=rnn,lstm,transformer,ttt-linear", 1280, 1230),
    "inspect.zh-CN": ("lang=zh&shown=rnn,lstm,transformer,ttt-linear", 1280, 1230),
    "inspect-reach": ("lang=en&view=reach&theme=dark&shown=rnn,lstm,gru,transformer,ttt-linear", 1280, 980),
    "inspect-phone": ("lang=zh&theme=dark&lesson=5", 360, 780),
}


def shoot(browser: Any, page: Path, state: str, width: int, height: int, out: Path) -> None:
    """Open the page in a state, and save what is seen."""
    context = browser.new_context(viewport={"width": width, "height": height}, offline=True, reduced_motion="reduce")
    tab = context.new_page()
    tab.goto(f"{page.resolve().as_uri()}#{state}")
    tab.wait_for_selector("html[data-ready]", state="attached")
    if "view=write" in state:
        tab.click("button.primary")
        tab.wait_for_timeout(300)
    tab.screenshot(path=out)
    context.close()


def main() -> None:
    """Make the pictures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("page", type=Path)
    parser.add_argument("--all", type=Path, metavar="DIR")
    asked = parser.parse_args()
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        if asked.all is None:
            for name, (state, width, height) in PICTURES.items():
                shoot(browser, asked.page, state, width, height, DOCS / f"{name}.png")
        else:
            asked.all.mkdir(parents=True, exist_ok=True)
            for view, width, lang, theme in product(VIEWS, WIDTHS, ("en", "zh"), ("light", "dark")):
                state = f"view={view}&lang={lang}&theme={theme}"
                shoot(
                    browser, asked.page, state, width, WIDTHS[width], asked.all / f"{view}-{width}-{lang}-{theme}.png"
                )
        browser.close()


if __name__ == "__main__":
    main()
