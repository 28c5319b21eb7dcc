"""The examples: short enough to be read, sound by the laws, and what CONTRIBUTING.md says of them."""

from __future__ import annotations

from pathlib import Path
from runpy import run_path

import torch

from recollect import GRU, Embedding, Linear, Stack, check_layer, record

ROOT = Path(__file__).parents[2]
PATH = ROOT / "examples" / "min_gru.py"


def test_min_gru_passes_the_laws():
    check_layer(run_path(str(PATH))["MinGRU"](4).double())


def test_min_gru_is_the_equation():
    torch.manual_seed(0)
    layer = run_path(str(PATH))["MinGRU"](3).double()
    x = torch.randn(2, 5, 3, dtype=torch.float64)
    with record(layer) as seen:
        y, memory = layer(x)
    h = torch.zeros(2, 3, dtype=torch.float64)
    for t in range(5):
        z = torch.sigmoid(x[:, t] @ layer.update.weight.T + layer.update.bias)
        candidate = x[:, t] @ layer.candidate.weight.T + layer.candidate.bias
        h = (1 - z) * h + z * candidate
        torch.testing.assert_close(y[:, t], h, rtol=0, atol=1e-12)
        torch.testing.assert_close(seen["update_gate"][:, t], z, rtol=0, atol=1e-12)
    torch.testing.assert_close(memory.hidden, h, rtol=0, atol=1e-12)


def test_min_gru_stands_in_a_stack():
    layer = run_path(str(PATH))["MinGRU"](4)
    model = Stack(Embedding(7, 4), layer, GRU(4, 4), Linear(4, 7))
    assert model(torch.tensor([[1, 2, 3]]))[0].shape == (1, 3, 7)


def test_min_gru_is_short():
    assert len(PATH.read_text().splitlines()) < 40
    assert "examples/min_gru.py" in (ROOT / "CONTRIBUTING.md").read_text()
