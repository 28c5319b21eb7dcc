"""Exponents: a known power law is found again, and what is not growth does not bend it."""

from __future__ import annotations

import pytest

from recollect.bench import power_law

SIZES = [64, 128, 256, 512, 1024, 2048, 4096]


@pytest.mark.parametrize("b", [0.0, 1.0, 1.5, 2.0])
def test_a_power_law_is_found_again(b):
    assert power_law.exponent(SIZES, [3e-6 * n**b for n in SIZES]) == pytest.approx(b, abs=1e-12)


def test_the_upper_half_begins_at_the_geometric_middle():
    assert SIZES[power_law.upper_half(SIZES) :] == [512, 1024, 2048, 4096]
    assert [1, 2, 3, 4, 6, 8][power_law.upper_half([1, 2, 3, 4, 6, 8]) :] == [3, 4, 6, 8]
    assert power_law.upper_half([1, 2]) == 0
    assert power_law.upper_half([1, 2, 4]) == 0  # three at least


def test_a_fixed_cost_bends_the_whole_range_but_hardly_its_upper_half():
    times = [1.0 + 1e-6 * n**2 for n in SIZES]
    whole, fitted = power_law.exponent(SIZES, times), power_law.fit(SIZES, [times, times])
    assert whole < 1.0
    assert whole + 0.4 < fitted["exponent"] < 2.0
    assert fitted["from"] == 512


def test_rounds_disturbed_alike_do_not_bend_the_slope_and_others_show_in_its_quartiles():
    law = [1e-5 * n for n in SIZES]
    alike = power_law.fit(SIZES, [[slow * t for t in law] for slow in (1.0, 3.0, 1.2, 5.0)])
    assert alike["exponent"] == pytest.approx(1.0)
    assert alike["high"] - alike["low"] == pytest.approx(0.0, abs=1e-12)
    bent = [[t * n**d for n, t in zip(SIZES, law, strict=True)] for d in (-0.2, 0.0, 0.2)]
    fitted = power_law.fit(SIZES, bent)
    assert fitted["exponent"] == pytest.approx(1.0)
    assert fitted["high"] - fitted["low"] == pytest.approx(0.2)


@pytest.mark.parametrize(("sizes", "values"), [([1], [1.0]), ([1, 2], [0.0, 1.0]), ([0, 2], [1.0, 1.0])])
def test_what_has_no_slope_is_refused(sizes, values):
    with pytest.raises(ValueError, match="expected two or more"):
        power_law.exponent(sizes, values)
