"""The register of the line says what the layers are, and the public names are all there."""

from __future__ import annotations

import pytest
import torch

import recollect
from recollect.models.line import LINE, station_of
from recollect.tasks.register import HOMES, task_named

stations = pytest.mark.parametrize("station", LINE, ids=lambda s: s.name)
TWO_SIDED = ("birnn", "bigru", "bilstm", "cnn", "bert", "bag-of-ngrams")
READ = (1, 16, 256, 512)  # steps after which the bytes are compared


def begun(layer):
    """Return the memory before the first step: a model with a source has read it."""
    if isinstance(layer, recollect.Translator):
        return layer.remember(torch.tensor([[1, 2, 3]]))
    if isinstance(layer, recollect.Captioner):
        return layer.remember(torch.zeros(1, *layer.config.size))
    return layer.initial_memory(1)


@stations
def test_a_station_is_what_it_says(station):
    layer = station.build()
    assert type(layer).__name__ == station.layer
    assert type(begun(layer)).__name__ == station.memory
    assert layer.growth == station.growth
    assert layer.streams == (station.name not in TWO_SIDED)  # which see the whole sequence at once
    assert set(station.idea) == {"en", "zh"}


@stations
def test_bytes_grow_as_stated(station):
    layer = station.build()
    x = torch.zeros(1, READ[-1], dtype=torch.int64) if layer.width is None else torch.randn(1, READ[-1], layer.width)
    if not layer.streams:
        assert (layer(x)[1].nbytes == 0) == (station.growth == "none")
        return
    few, some, many, more = bytes_read(layer, x)
    if station.growth == "constant":
        assert few == some == many == more
    elif station.growth == "saturates":
        assert few < some < many == more
    else:
        bare = few - (some - few) // 15  # without the steps: the length
        assert [n - bare for n in (some, many, more)] == [(few - bare) * n for n in (16, 256, 512)]


@torch.no_grad()
def bytes_read(layer, x):
    memory, done = begun(layer), 0
    for stop in READ:
        memory = layer(x[:, done:stop], memory)[1]
        done = stop
        yield memory.nbytes


def test_every_family_of_every_task_is_a_station_and_the_reverse():
    families = {(family, task) for task in HOMES for family in task_named(task).families}
    assert families == {(station.name, task) for station in LINE for task in station.tasks}


def test_a_station_is_found_by_its_family():
    assert station_of("bahdanau").year == 2015
    assert station_of("transformer", is_windowed=True).name == "windowed-attention"
    assert station_of("file.py:Mine") is None


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
