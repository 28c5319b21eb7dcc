"""The numbers that a reader of the page sees, against those that the library computes: one model of each kind."""

from __future__ import annotations

import math

import numpy as np
import pytest

import recollect as rc
from browser import needs_browser
from serving.conftest import FAMILIES, TEXT
from tiers import slow_after

pytestmark = needs_browser
PLACES = (7, 30)


def percent(share: float) -> str:
    """Return a share as the page writes it."""
    if 0.995 < share < 1:
        return "> 99 %"
    return "< 1 %" if 0 < share < 0.005 else f"{math.floor(100 * share + 0.5)} %"


@pytest.fixture(scope="module")
def traces(runs):
    return {family: rc.inspect(rc.load(runs / family, device="cpu"), TEXT) for family in FAMILIES}


@pytest.fixture
def read(show, page_file):
    """Return a function that opens the file at a symbol, and gives what is seen of one model."""

    def read(family: str, at: int):
        page = show(f"{page_file.as_uri()}#lang=en&shown={family}&t={at}", reduced_motion="reduce")
        return page.locator(f'[data-column="{family}"]')

    return read


def shades(cells) -> np.ndarray:
    return np.array(cells.evaluate_all("all => all.map((one) => Number(one.style.getPropertyValue('--share')))"))


def shaded(values: np.ndarray) -> np.ndarray:
    """Return the shading of cells: the square root of each value's share of the largest."""
    return np.sqrt(values / values.max())


@pytest.mark.parametrize(("family", "at"), slow_after(5, [(family, at) for at in PLACES for family in FAMILIES]))
def test_shares_bytes_and_reach_are_those_of_the_library(traces, read, runs, family, at):
    trace, column = traces[family], read(family, at)
    bars = column.locator(".bars li").evaluate_all(BARS)
    wanted = np.sort(trace["next.probabilities"][at])[::-1]
    actual = math.exp(-trace["loss"][at + 1])
    likeliest = [share for _, share, _, is_far in bars if not is_far]
    assert len(likeliest) >= 5
    assert likeliest == [percent(share) for share in wanted[: len(likeliest)]]
    came = [(symbol, share) for symbol, share, is_actual, _ in bars if is_actual]
    assert came == [(TEXT[at + 1].replace(" ", "␣"), percent(actual))]
    assert column.locator(".count").inner_text() == f"{int(trace['memory.bytes'][at]):,}"
    name = "left_out" if family == "markov" else "reach"
    outcome = trace["outcome.at"].tolist().index(at)
    influence = np.abs(np.nan_to_num(trace[name][outcome]))
    np.testing.assert_allclose(shades(column.locator(".field .cells span")), shaded(influence), atol=6e-4)


BARS = """all => all.map((one) => [one.querySelector(".symbol").textContent, one.querySelector(".share").textContent,
    one.classList.contains("actual"), one.classList.contains("far")])"""


@pytest.mark.parametrize("at", PLACES)
def test_gates_are_those_of_the_library(traces, read, at):
    legend = read("lstm", at).locator(".mechanism .legend span").all_inner_texts()
    gates = {"write": "input_gate", "keep": "forget_gate", "show": "output_gate"}
    means = {word: traces["lstm"][f"layers.0.{name}"][at].mean() for word, name in gates.items()}
    assert legend == [f"{word} {percent(mean)}" for word, mean in means.items()]


@pytest.mark.parametrize("at", PLACES)
def test_the_row_of_attention_is_that_of_the_library(traces, read, at):
    column = read("transformer", at)
    weights = traces["transformer"]["layers.0.weights"]
    cells = column.locator(".mechanism .cells span")
    np.testing.assert_allclose(shades(cells), shaded(weights[:, at].mean(0)), atol=6e-4)
    column.locator(".mechanism select").select_option("layers.0:1")
    np.testing.assert_allclose(shades(cells), shaded(weights[1, at]), atol=6e-4)


@pytest.mark.parametrize("at", PLACES)
def test_the_inner_losses_are_those_of_the_library(traces, read, at):
    legend = read("ttt-linear", at).locator(".mechanism .legend span").all_inner_texts()
    names = {"before": "inner_loss", "after": "inner_loss_after"}
    for shown, (word, name) in zip(legend, names.items(), strict=True):
        said, value = shown.split()
        assert said == word
        assert float(value) == pytest.approx(traces["ttt-linear"][f"layers.0.{name}"][at].mean(), rel=6e-3)
