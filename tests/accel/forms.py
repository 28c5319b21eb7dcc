"""The forms for a GPU, registered for CPU tensors: an emulator runs their kernels."""

from __future__ import annotations

import pytest

from recollect.accel import cuda
from recollect.core import dispatch


def offer_cuda_forms(monkeypatch: pytest.MonkeyPatch) -> None:
    """Register the CUDA forms for the CPU, for one test."""
    dispatch.find("layer", "cpu")  # the CPU's own are registered at the first lookup, and then replaced
    monkeypatch.setattr(dispatch, "_forms", dict(dispatch._forms))
    cuda.register_forms("cpu")
