"""The parts of pages: every one is valid markup, in both languages, with what it is given and nothing executed."""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path
from xml.etree import ElementTree

import pytest
from markupsafe import Markup

from recollect.views import svg
from recollect.views.bilingual import Bilingual
from recollect.views.heat_map import heat_map
from recollect.views.line_chart import Axis, Line, line_chart, series, spread
from recollect.views.svg import NARROW, SERIES, WIDE
from recollect.views.table import table

STYLE = (Path(svg.__file__).parent / "templates" / "style.css").read_text(encoding="utf-8")
TITLE = Bilingual("A title", "标题")
EVIL = "<script>alert(1)</script>"


def chart(*lines: Line, is_log: bool = False) -> Markup:
    x = Axis(Bilingual("seconds", "秒"), 1, 100, [(1, "1"), (10, "10"), (100, "100")], is_log)
    return line_chart(TITLE, lines, x, Axis(Bilingual("nats", "奈特"), 0, 4, [(0, "0"), (4, "4")]))


def layouts(drawn: Markup) -> list[ElementTree.Element]:
    """Return the two drawings of a figure."""
    wide, narrow = ElementTree.fromstring(str(drawn))
    assert (wide.get("class"), narrow.get("class")) == ("wide", "narrow")
    assert wide.get("viewBox").startswith(f"0 0 {WIDE} ")
    assert narrow.get("viewBox").startswith(f"0 0 {NARROW} ")
    return [wide, narrow]


def words(drawing: ElementTree.Element, kind: str) -> list[str]:
    return [text.text or "" for text in drawing.iter("text") if kind in text.get("class", "").split()]


def test_a_text_in_two_languages_is_escaped():
    assert Markup("{}").format(Bilingual(EVIL, "二")) == (
        '<span lang="en">&lt;script&gt;alert(1)&lt;/script&gt;</span><span lang="zh">二</span>'
    )


def test_every_line_has_its_name_and_its_points():
    for drawing in layouts(chart(Line("lstm", [(1, 4), (100, 2)], 1), Line(EVIL, [(1, 3), (100, 2)], 2))):
        assert words(drawing, "name") == ["lstm", EVIL]
        assert words(drawing, "title") == ["nats", "奈特", "seconds", "秒"]
        assert len(list(drawing.iter("circle"))) == 4


def test_a_line_that_ends_early_has_its_name_there():
    for drawing in layouts(chart(Line("short", [(1, 4), (50, 2)], 1), Line("long", [(1, 4), (100, 2)], 2))):
        places = {t.text: float(t.get("x")) for t in drawing.iter("text") if "name" in t.get("class", "")}
        circles = [float(circle.get("cx")) for circle in drawing.iter("circle")]
        assert places["short"] == pytest.approx(circles[1] + 6, abs=0.2)
        assert places["long"] > max(circles)


def test_what_lies_outside_the_axes_has_no_mark_and_is_cut_off():
    for drawing in layouts(chart(Line("lstm", [(1, 9), (100, 2)], 1))):
        assert len(list(drawing.iter("circle"))) == 1
        clip = next(drawing.iter("clipPath")).get("id")
        assert any(path.get("clip-path") == f"url(#{clip})" for path in drawing.iter("path"))


def test_ids_are_unique_in_a_page():
    one = chart(Line("lstm", [(1, 4), (100, 2)], 1))
    assert len(set(re.findall(r' id="([^"]+)"', one))) == 2  # one for each layout


def test_a_logarithmic_axis_puts_ten_in_the_middle_of_one_and_hundred():
    middle = layouts(chart(Line("lstm", [(1, 4), (10, 3), (100, 2)], 1), is_log=True))[0]
    first, second, third = (float(circle.get("cx")) for circle in middle.iter("circle"))
    assert second - first == pytest.approx(third - second, abs=0.2)


def test_names_are_moved_apart_and_keep_their_order():
    values = [3.0, 1.0, 1.02, 1.01, 9.0]
    places = spread(values, 0.5)
    assert sorted(range(5), key=lambda i: places[i]) == sorted(range(5), key=lambda i: values[i])
    assert all(after - before >= 0.5 - 1e-9 for before, after in pairwise(sorted(places)))
    assert (places[0], places[4]) == (3.0, 9.0)
    assert sum(places[1:4]) == pytest.approx(sum(values[1:4]))


def test_a_heat_map_is_the_stronger_the_larger_the_value():
    drawn = heat_map(
        TITLE, [[0.1, 0.9], [1.0, 0.0]], ["a", EVIL], ["x", "a long word"], column_title=TITLE, numbers=True
    )
    for drawing in layouts(drawn):
        cells = [cell for cell in drawing.iter("rect") if cell.get("class") == "cell"]
        assert [float(cell.get("fill-opacity")) for cell in cells] == [0.1, 0.9, 1.0, 0.0]
        assert words(drawing, "number") == ["10", "90", "100", "0"]
        assert {"a", EVIL, "x", "a long word"} <= set(words(drawing, "tick"))


def test_a_table_carries_the_names_of_its_columns_in_every_cell():
    drawn = table((Bilingual("family", "家族"), Bilingual("loss", "损失")), [("best", ["lstm", EVIL])])
    row = ElementTree.fromstring(str(drawn)).find("tbody/tr")
    assert row.get("class") == "best"
    assert (row.find("td").get("data-en"), row.find("td").get("data-zh"), row.find("td").text) == ("loss", "损失", EVIL)


def test_every_colour_is_in_the_style_light_and_dark():
    light, _, dark = STYLE.partition("@media (prefers-color-scheme: dark)")
    names = {f"--series-{series(index)}" for index in range(2 * SERIES)}
    assert len(names) == SERIES
    for part in (light, dark.partition("*")[0]):
        assert names <= set(re.findall(r"(--[\w-]+): #", part))
    assert all(f".c{number} {{ --c:" in STYLE for number in range(SERIES + 1))
