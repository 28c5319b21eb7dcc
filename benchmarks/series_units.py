"""In what to count the errors of an 80 % interval: chosen on the validation part, then covered values of the test part.

    python benchmarks/series_units.py

A closed NLinear on ETTh1, look-back 336. Each unit is calibrated on one half of the validation part and scored on the
other, both ways, by CRPS; the test part is read once, by the best unit. Then why coverage differs from 80 % there: the
error in that unit in quarters of the validation part and on the test part, and the coverage of offsets that were found
on the test part's own first half. Reads ett/ of RECOLLECT_DATA; writes benchmarks/results/series-units.json.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from common import data_folder, save_result
from recollect.data.series.series_data import SeriesData, load_series
from recollect.data.series.series_table import read_series
from recollect.evaluation.forecast_metrics import is_covered, ranked_probability
from recollect.evaluation.linear_forecasts import fit_linear
from recollect.evaluation.rolling_origin import BATCH, forecast_batch, level_quantiles
from recollect.models.forecast_config import ForecastConfig
from recollect.models.forecast_outputs import FLATTEST, LEVELS
from recollect.models.forecasting import Forecaster

LOOKBACK, SPLIT = 336, "8640,2880,2880"
UNITS: dict[str, Callable[[Tensor], Tensor]] = {  # of a window (B, L, C)
    "fixed": lambda x: torch.ones_like(x[:, 0]),
    "deviation": lambda x: x.std(1, unbiased=False),
    "deviation, 4 days": lambda x: x[:, -96:].std(1, unbiased=False),
    "deviation, 1 day": lambda x: x[:, -24:].std(1, unbiased=False),
    "steps": lambda x: x.diff(dim=1).abs().mean(1),
    "seasonal differences": lambda x: (x[:, 24:] - x[:, :-24]).abs().mean(1),
    "range": lambda x: x.amax(1) - x.amin(1),
}
Part = tuple[Tensor, dict[str, Tensor]]  # errors (N, H, C), units (N, C)


@torch.no_grad()
def main() -> int:
    rows = []
    for horizon in (96, 192, 336, 720):
        data = opened(horizon)
        model = Forecaster(ForecastConfig("nlinear", 7, LOOKBACK, horizon)).eval()
        fit_linear(model, data)
        valid = collected(model, data, "valid")
        scores = {name: both_ways(valid, name) for name in UNITS}
        best = min(scores, key=lambda name: scores[name])
        rows.append({"horizon": horizon, "valid_crps": scores, "chosen": best} | on_test(model, data, valid, best))
        print(rows[-1], flush=True)
    save_result("series-units", rows, lookback=LOOKBACK, split=SPLIT)
    return 0


def opened(horizon: int) -> SeriesData:
    table = read_series(str(data_folder() / "ett" / "ETTh1.csv.gz"))
    return load_series(table, lookback=LOOKBACK, horizon=horizon, split=SPLIT)


def collected(model: Forecaster, data: SeriesData, split: str) -> Part:
    errors, units = [], []
    for batch in getattr(data, split).in_order(BATCH):
        errors.append(batch.y - forecast_batch(model, batch, torch.device("cpu"))[..., 0])
        units.append({name: unit(batch.x).clamp(min=FLATTEST) for name, unit in UNITS.items()})
    return torch.cat(errors), {name: torch.cat([one[name] for one in units]) for name in UNITS}


def both_ways(part: Part, name: str) -> float:
    """Return the CRPS of each half of a part with the offsets of the other, the mean of both."""
    errors, unit = part[0], part[1][name][:, None]
    half = len(errors) // 2
    first, second = (errors[:half], unit[:half]), (errors[half:], unit[half:])
    return (scored(first, second)[0] + scored(second, first)[0]) / 2


def scored(known: tuple[Tensor, Tensor], held: tuple[Tensor, Tensor]) -> tuple[float, float]:
    """Return CRPS and coverage of held errors (N, H, C) with offsets from known ones, counted in (N, 1, C)."""
    offsets = level_quantiles((known[0] / known[1])[..., None])  # (H, C, 9)
    crps = covered = 0.0
    for begin in range(0, len(held[0]), BATCH):
        errors, unit = (t[begin : begin + BATCH] for t in held)
        quantiles = offsets * unit[..., None]  # (n, H, C, 9)
        crps += float(ranked_probability(errors, quantiles, LEVELS).double().sum())
        covered += float(is_covered(errors, quantiles[..., 0], quantiles[..., -1]).double().sum())
    return crps / held[0].numel(), covered / held[0].numel()


def on_test(model: Forecaster, data: SeriesData, valid: Part, name: str) -> dict[str, Any]:
    test = collected(model, data, "test")
    known = (valid[0], valid[1][name][:, None])
    held = (test[0], test[1][name][:, None])
    half = len(held[0]) // 2
    quarters = [float((e / u).square().mean().sqrt()) for e, u in zip(*(t.chunk(4) for t in known), strict=True)]
    own = scored((held[0][:half], held[1][:half]), (held[0][half:], held[1][half:]))[1]
    return {
        "coverage": scored(known, held)[1],
        "valid_error": quarters,  # root mean square in the unit, by quarters of the validation part
        "test_error": float((held[0] / held[1]).square().mean().sqrt()),
        "coverage_after_own_half": own,  # the test part's second half with the offsets of its first
        "separate_windows": len(data.valid) // data.valid.horizon + 1,  # of the validation part, without overlap
    }


if __name__ == "__main__":
    sys.exit(main())
