"""Every figure is valid for plotly as it is, and a page can restyle and translate it."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import plotly.graph_objects as go
import pytest

from recollect.views import figures
from recollect.views.figures import COLOURS, attention_map, loss_curves, memory_growth

STYLE = Path(figures.__file__).parent / "templates" / "style.css"
CURVES = {f"family {number}": [(0.0, 4.6), (9.0, 2.0 + number)] for number in range(11)}  # more than there are colours
FIGURES = {
    "loss_curves": lambda: loss_curves(CURVES, 3.2, 10.0),
    "memory_growth": lambda: memory_growth({"lstm": [(1, 100), (1024, 100)], "gpt": [(1, 9), (1024, 2e6)]}),
    "attention_map": lambda: attention_map([[0.1, 0.9], [0.7, 0.3]], ["a", "<b>"], ["c", "∎"]),
}


def test_every_figure_function_is_tried():
    makers = inspect.getmembers(figures, inspect.isfunction)
    made = {name for name, maker in makers if inspect.signature(maker).return_annotation == "Figure"}
    assert made == FIGURES.keys()


@pytest.mark.parametrize("name", FIGURES)
def test_plotly_accepts_it(name):
    figure = FIGURES[name]()
    drawn = go.Figure(**figure)
    assert len(drawn.data) == len(figure["data"])
    assert drawn.layout.xaxis.title.text == figure["layout"]["xaxis"]["title"]["text"]


def test_plotly_would_refuse_a_text_in_two_languages():
    figure = FIGURES["attention_map"]()
    figure["layout"]["xaxis"]["title"]["text"] = {"en": "source", "zh": "源"}
    with pytest.raises(ValueError, match="Invalid value"):
        go.Figure(**figure)


@pytest.mark.parametrize("name", FIGURES)
def test_every_title_has_a_translation_and_every_colour_a_name(name):
    figure = FIGURES[name]()
    layout = figure["layout"]
    assert all(layout[axis]["title"]["text"] in layout["meta"]["zh"] for axis in ("xaxis", "yaxis"))
    assert set(re.findall(r"#[0-9a-f]{6}", str(figure))) <= set(COLOURS.values())


def test_the_colours_are_those_of_the_light_style():
    light = STYLE.read_text(encoding="utf-8").partition("@media")[0]
    style = dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6})", light))
    assert {name: style[name] for name in COLOURS} == COLOURS
    assert len(set(COLOURS.values())) == len(COLOURS)  # a page finds the name by the colour
