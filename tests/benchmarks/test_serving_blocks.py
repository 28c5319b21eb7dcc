"""The table of the server under load says what its result says, in both languages."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "benchmarks"))
serving_blocks = importlib.import_module("serving_blocks")
writer = importlib.import_module("readme")

RATES = {"symbols_per_s": 6000.4, "gap_ms_p50": 12.0, "gap_ms_p99": 55.6}
ROW = {
    "model": "lstm",
    "parameters": 2_072_920,
    "together": RATES,
    "alone": [{"symbols_per_s": 1000.0}, {"symbols_per_s": 1200.0}],
    "times_symbols_per_s": 5.4549,
    "times_symbols_per_cpu_s": 5.1,
    "streams": 1230,
    "rounded": 1,
    "wrong": 0,
    "errors": 0,
    "resident_mib": {"before": 463.0, "after": 480.2},
    "batch_bytes_afterwards": 0.0,
    "overload": {"requests": 640, "refused": 320},
    "load": 2.2,
}


@pytest.mark.parametrize("say", [writer.english, writer.chinese], ids=["en", "zh"])
def test_every_figure_stands_in_the_table(say):
    result = {**writer.load("memory"), "rows": [ROW], "streams": 200, "seconds": 60.0, "batch": 64, "queue": 256}
    written = serving_blocks.serving_block(result, say)
    assert "| lstm | 2,072,920 | 1,100 | 6,000 | 5.45 | 5.10 | 12 ms | 56 ms | 1,230 |" in written
    for figure in ("200", "60", "640", "320", "463 → 480"):
        assert figure in written
    assert ("负载" in written) == (say is writer.chinese)
