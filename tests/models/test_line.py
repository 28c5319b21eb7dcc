"""The register of the line says what the layers are, and the public names are all there."""

from __future__ import annotations

import pytest
import torch

import recollect
from recollect.cli.demo import bytes_after
from recollect.models.line import LINE

stations = pytest.mark.parametrize("station", LINE, ids=lambda s: s.name)


@stations
def test_a_station_is_what_it_says(station):
    layer = station.build()
    assert type(layer).__name__ == station.layer
    assert type(layer.initial_memory(1)).__name__ == station.memory
    assert layer.growth == station.growth
    assert layer.streams
    assert set(station.idea) == {"en", "zh"}


@stations
def test_bytes_grow_as_stated(station):
    layer = station.build()
    x = torch.zeros(1, 512, dtype=torch.int64) if layer.width is None else torch.randn(1, 512, layer.width)
    few, some, many, more = bytes_after(layer, x, (1, 16, 256, 512))
    if station.growth == "constant":
        assert few == some == many == more
    elif station.growth == "saturates":
        assert few < some < many == more
    else:
        bare = few - (some - few) // 15  # without the steps: the length
        assert [n - bare for n in (some, many, more)] == [(few - bare) * n for n in (16, 256, 512)]


def test_the_line_is_in_the_order_of_history():
    assert [s.year for s in LINE] == sorted(s.year for s in LINE)
    assert len({s.name for s in LINE}) == len(LINE)


def test_every_public_name_is_there():
    assert set(dir(recollect)) == set(recollect.__all__)
    for name in recollect.__all__:
        assert getattr(recollect, name) is not None


def test_an_unknown_name_is_refused():
    with pytest.raises(AttributeError, match="no attribute 'Rnn'"):
        _ = recollect.Rnn
