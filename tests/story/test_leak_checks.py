"""Leak checks can fail: a model that is shown what it must not see is found."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch

from recollect.data.series.gaps import hide
from recollect.data.series.windows import WindowBatch
from recollect.data.synthetic.series_generators import regimes
from recollect.models.gap_filling import FillConfig, GapFiller
from recollect.story.claims import c03_stationary_dynamics as c03, c07_interpolation as c07


def test_a_prediction_from_its_own_value_is_found(monkeypatch):
    x = np.array(list(regimes(c03.LENGTH)))
    assert not c03._looks_ahead(x)
    monkeypatch.setattr(c03, "_predictions", lambda x: np.tile(x[c03.TRAINED :], (2, 1)))
    assert c03._looks_ahead(x)


def test_a_gap_that_is_not_hidden_is_found(monkeypatch):
    torch.manual_seed(0)
    x, y = torch.randn(3, c07.CONTEXT, 1), torch.randn(3, c07.GAP + c07.CONTEXT, 1)
    windows = WindowBatch(x, None, None, y, None, torch.zeros(3, dtype=torch.long))
    models = {
        sides: GapFiller(FillConfig("gru", channels=1, width=4, sides=sides)).eval() for sides in ("both", "before")
    }
    for sides, model in models.items():
        assert not c07._leaks(model, windows, is_open=sides == "before")

    def shown(batch, gap, *, is_open):
        hidden = hide(batch, gap, is_open=is_open)
        return replace(hidden, values=hidden.targets, observed=torch.ones_like(hidden.observed))

    monkeypatch.setattr(c07, "hide", shown)
    assert c07._leaks(models["both"], windows, is_open=False)
