"""The page of seven axes: every cell is read from a result, and leads to its claim."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from recollect.story.axes import LINES, axes_document
from recollect.story.results import results_folder

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGES = {"en": "claims.md", "zh": "claims.zh-CN.md"}


def cells_of(language: str, folder: Path) -> list[list[str]]:
    rows = [line for line in axes_document(language, folder).split("\n") if line.startswith("| ")][2:]
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]


@pytest.mark.parametrize("language", PAGES)
def test_seven_axes_have_figures_and_lead_to_their_claims(language):
    assert len({line.axis.en for line in LINES}) == 7
    anchors = (DOCS / PAGES[language]).read_text(encoding="utf-8")
    rows = cells_of(language, results_folder())
    assert len(rows) == len(LINES)
    for line, (_, _, recurrent, attention, link, verdict) in zip(LINES, rows, strict=True):
        assert re.search(r"\d", recurrent), line.measure.en
        assert re.search(r"\d", attention), line.measure.en
        assert link == f"[{line.claim}]({PAGES[language]}#{line.claim.lower()})"
        assert f'<a id="{line.claim.lower()}"></a>' in anchors
        assert verdict


def test_what_is_not_measured_has_no_figure(tmp_path):
    for row in cells_of("en", tmp_path):
        assert row[2:4] == ["–", "–"]
        assert row[5] == "not measured yet"
