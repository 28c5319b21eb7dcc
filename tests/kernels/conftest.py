"""What the tests of kernels share."""

from __future__ import annotations

import pytest
import torch


@pytest.fixture
def poisoned():
    """Fill what is allocated and not written with NaN, or the largest integer."""
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)
