"""What is read back from a vector: what it says, and where it says nothing, the commonest symbol."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))
probe = importlib.import_module("probe")


def drawn(count, says):
    """Vectors (N, 64), and symbols (N, P): the first says something of its vector, the last is drawn."""
    vectors = torch.randn(count, 64).tanh()
    symbols = torch.zeros(count, len(probe.PLACES), dtype=torch.long)
    symbols[:, 0] = (vectors @ says).argmax(1)
    symbols[:, -1] = torch.where(torch.rand(count) < 0.9, 5, torch.randint(100, (count,)))
    return vectors, symbols


def test_a_vector_is_read_and_noise_is_not():
    torch.manual_seed(0)
    says = torch.randn(64, 10)
    known, seen = drawn(3000, says), drawn(500, says)
    told, silent = (probe._read_back(known, seen, place) for place in (0, -1))
    assert told["right"] > 0.6 > 0.3 > told["usual"]
    assert silent["right"] >= silent["usual"] > 0.85
