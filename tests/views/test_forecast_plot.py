"""The picture of a forecast: every mark has its name, and the legend is inside it."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest

import recollect as rc
from recollect.models.forecast_outputs import LEVELS
from recollect.views.forecast_plot import BANDS, HEAD, WIDTH, forecast_svg
from recollect.views.plots import letters

SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture
def picture(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    made = rc.train("seasons", model="seasonal-naive", out=tmp_path / "run")
    return ElementTree.fromstring(forecast_svg(made.predict("seasons"), "a title"))


def test_every_band_has_its_mark_and_its_share_in_the_legend(picture):
    drawn = [float(one.get("opacity")) for one in picture.iter(f"{SVG}polygon")]
    marks = [one.get("opacity") for one in picture.findall(f"{SVG}line")]  # those in the panel are in a group
    assert drawn == [opacity for *_, opacity in BANDS] == [float(one) for one in marks if one != "1"]
    words = " ".join(one.text for one in picture.findall(f"{SVG}text"))
    for low, high, _ in BANDS:
        assert f"{100 * (LEVELS[high] - LEVELS[low]):.0f} %" in words


def test_the_legend_is_inside_the_picture_and_nothing_of_it_overlaps(picture):
    texts = [one for one in picture.findall(f"{SVG}text") if one.text != "a title"]
    starts = [float(one.get("x")) for one in texts]
    ends = [x + 6.8 * letters(one.text) for x, one in zip(starts, texts, strict=True)]
    assert all(end + 24 <= start for end, start in zip(ends, starts[1:], strict=False))
    assert ends[-1] <= WIDTH - 16
    assert all(float(one.get("y")) < HEAD for one in texts)
