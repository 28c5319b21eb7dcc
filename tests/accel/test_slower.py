"""The table of shapes that the plain path reads faster: it lies on the grid, speaks for what is near, and is small."""

from __future__ import annotations

import pytest
import torch

from recollect.accel.cuda.recurrent import slower
from recollect.accel.cuda.recurrent.slower import BATCH, HIDDEN, Shape, plain_is_faster

CELLS = ("lstm", "gru", "rnn_tanh")


@pytest.fixture
def planted(monkeypatch):
    shape = Shape("lstm", torch.bfloat16, 16, 512, trains=False)
    monkeypatch.setattr(slower, "PLAIN_IS_FASTER", frozenset({shape}))
    return shape


def test_entries_lie_on_the_grid():
    for shape in slower.PLAIN_IS_FASTER:
        assert shape.batch in BATCH
        assert shape.hidden in HIDDEN
        assert plain_is_faster(*shape[:4], trains=shape.trains)


@pytest.mark.parametrize("trains", [False, True])
def test_our_kernels_are_chosen_on_most_of_the_grid(trains):
    grid = [(cell, torch.bfloat16, batch, hidden) for cell in CELLS for batch in BATCH for hidden in HIDDEN]
    ours = [not plain_is_faster(*point, trains=trains) for point in grid]
    assert sum(ours) >= 0.7 * len(ours)


@pytest.mark.parametrize(
    ("batch", "hidden", "expected"),
    [
        (16, 512, True),
        (5, 363, True),  # nearer to 16 than to 1, to 512 than to 256, by their ratios
        (3, 512, False),
        (16, 361, False),
        (31, 576, True),
        (33, 512, False),
        (16, 577, False),
    ],
)
def test_what_is_near_is_judged_alike(planted, batch, hidden, expected):
    assert plain_is_faster("lstm", torch.bfloat16, batch, hidden, trains=False) is expected


def test_another_cell_dtype_or_pass_is_judged_by_itself(planted):
    size = planted.batch, planted.hidden
    assert plain_is_faster("lstm", torch.bfloat16, *size, trains=False)
    assert not plain_is_faster("gru", torch.bfloat16, *size, trains=False)
    assert not plain_is_faster("lstm", torch.float16, *size, trains=False)
    assert not plain_is_faster("lstm", torch.bfloat16, *size, trains=True)


def test_what_is_beyond_the_grid_is_judged_by_its_border(monkeypatch):
    monkeypatch.setattr(slower, "PLAIN_IS_FASTER", frozenset({Shape("gru", torch.float16, 1, 64, trains=True)}))
    assert plain_is_faster("gru", torch.float16, 1, 2, trains=True)
