"""The picture of a forecast: every mark has its name, and the legend is inside it."""

from __future__ import annotations

import csv
from xml.etree import ElementTree

import numpy as np
import pytest

import recollect as rc
from recollect.data.series.series_table import TimeSeries
from recollect.data.series.time_stamps import Frequency
from recollect.generation.forecasts import Forecast, as_csv
from recollect.generation.series_cells import number
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


def drawn(level, width, channels=1):
    """Return the picture of forecasts at a level that vary by a width."""
    steps = np.arange(36.0)
    values = level + width * np.sin(steps)[:, None].repeat(channels, axis=1)
    bands = level + width * np.linspace(-1, 1, 9)[None, None].repeat(12, axis=0).repeat(channels, axis=1)
    history = TimeSeries("", np.arange(36), values)
    names = tuple(f"channel {n}" for n in range(channels))
    made = Forecast("", [], names, Frequency("steps", 1), history, np.arange(36, 48), bands[..., 4], bands)
    return made, ElementTree.fromstring(forecast_svg([made], "a title"))


@pytest.mark.parametrize(("level", "width"), [(1e7, 10), (0.5, 1e-3), (1e6, 1e6), (1e12, 1e12), (1e12, 10), (-3e9, 2)])
def test_ticks_are_told_apart_and_fit_beside_the_panel(level, width):
    _, picture = drawn(level, width)
    panel = picture.find(f"{SVG}g")
    labels = [one.text for one in panel.findall(f"{SVG}text") if one.get("text-anchor") == "end"][:-1]  # not the date
    assert len(labels) == len(set(labels)) > 2
    assert all(6.8 * len(label) < 60 for label in labels)
    base = panel.find(f"{SVG}text").text.partition(" − ")[2] or "0"
    distances = np.diff([float(base) + float(label) for label in labels])
    np.testing.assert_allclose(distances, distances[0], rtol=1e-3)
    assert distances.sum() >= 2 * width


def test_panels_that_are_not_drawn_are_counted():
    _, picture = drawn(0, 1, channels=20)
    assert len(picture.findall(f"{SVG}g")) == 12
    notes = [one for one in picture.findall(f"{SVG}text") if "8 more are not drawn" in one.text]
    assert len(notes) == 1
    assert float(notes[0].get("y")) < float(picture.get("height"))


def test_numbers_have_the_digits_that_the_interval_tells():
    made, _ = drawn(1e7, 10)
    row = next(csv.DictReader(as_csv(made.rows(), with_header=True).splitlines()))
    assert (row["forecast"], row["low_80"], row["high_80"]) == ("10000000", "9999990", "10000010")
    assert number(10_000_003.14159, 20) == "10000003.1"
    assert number(123.456789, 0.0) == "123.457"
    assert number(12_345_678.9, 0.0) == "12345679"


def test_the_legend_is_inside_the_picture_and_nothing_of_it_overlaps(picture):
    texts = [one for one in picture.findall(f"{SVG}text") if one.text != "a title"]
    starts = [float(one.get("x")) for one in texts]
    ends = [x + 6.8 * letters(one.text) for x, one in zip(starts, texts, strict=True)]
    assert all(end + 24 <= start for end, start in zip(ends, starts[1:], strict=False))
    assert ends[-1] <= WIDTH - 16
    assert all(float(one.get("y")) < HEAD for one in texts)
