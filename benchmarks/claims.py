"""Write docs/claims.md and docs/axes.md, and their Chinese twins, from benchmarks/results/claims.

`--check` changes nothing and exits 1 where a document differs from the results. The results are measured by
`recollect claims`, `recollect claims --all` and, on a GPU, `recollect claims --gpu`.
"""

from __future__ import annotations

import sys
from pathlib import Path

from recollect.story.axes import axes_document
from recollect.story.pages import Language, document

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks" / "results" / "claims"
PAGES: dict[str, Language] = {
    "docs/claims.md": "en",
    "docs/claims.zh-CN.md": "zh",
    "docs/axes.md": "en",
    "docs/axes.zh-CN.md": "zh",
}


def main() -> int:
    check = "--check" in sys.argv[1:]
    stale = [name for name, language in PAGES.items() if not is_current(name, language)]
    for name in stale:
        print(f"{name}: {'differs from the results; run python benchmarks/claims.py' if check else 'rewritten'}")
        if not check:
            (ROOT / name).write_text(written(name, PAGES[name]), encoding="utf-8")
    return 1 if check and stale else 0


def is_current(name: str, language: Language) -> bool:
    path = ROOT / name
    return path.is_file() and path.read_text(encoding="utf-8") == written(name, language)


def written(name: str, language: Language) -> str:
    """Return a page as the results have it."""
    write = axes_document if "axes" in name else document
    return write(language, RESULTS)


if __name__ == "__main__":
    sys.exit(main())
