"""Forecasting: the sine, the classic series, parity with the authors' code, and the cost of an update.

    python benchmarks/series.py sine|classics|parity|streaming [--only TEXT]

sine needs nothing. classics reads classic_ts/ of the folder that RECOLLECT_DATA names. parity runs the authors' code
where peers/LTSF-Linear (github.com/cure-lab/LTSF-Linear) and peers/RevIN (github.com/ts-kim/RevIN) are, and says so
where they are not. Writes benchmarks/results/series-TABLE.json. streaming also draws docs/forecast-cost.svg. ETT is
series_ett.py.
"""

from __future__ import annotations

import argparse
import importlib.util
import sys
import tempfile
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

import recollect as rc
from common import ROOT, data_folder, earlier, save_result
from recollect.bench.timing import interleave, summary
from recollect.data.series.windows import Rows, SeriesWindows, WindowBatches
from recollect.data.synthetic.series_generators import generate_series
from recollect.tasks.forecast import ForecastTask
from series_picture import draw

Row = dict[str, Any]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("table", choices=tuple(TABLES))
    parser.add_argument("--only", default="", help="Only rows whose name contains this.")
    options = parser.parse_args()
    TABLES[options.table](options.only)
    return 0


# ---- the sine -----------------------------------------------------------------------------------------

AHEAD = (1, 4, 16, 64)
TRAINED, LENGTH, SEEDS, STEPS = 600, 1000, 10, 400
LEARNERS: dict[str, dict[str, Any]] = {
    "linear 4": {"family": "linear", "order": 4},
    "linear 32": {"family": "linear", "order": 32},
    "two-layer network 4": {"family": "window", "order": 4, "hidden": 10},
    "rnn": {"family": "rnn", "width": 32},
    "lstm": {"family": "lstm", "width": 32},
    "transformer": {"family": "transformer", "width": 32, "heads": 2},
}


def sine(only: str) -> None:
    """RMSE against the sine without noise, k steps ahead and running freely from the end of the training part."""
    floor = {"spread": float(clean()[TRAINED:].std()), "noise": 0.2}
    for noise in (20, 0):
        for name, options in LEARNERS.items():
            if only in name and (noise or name.startswith("linear")):
                found = [sine_errors(options, noise, seed) for seed in range(SEEDS if noise else 1)]
                row = {"model": name, "noise": noise / 100, "seeds": len(found), **means(found)}
                print(row, flush=True)
                kept = [old for old in earlier("series-sine") if (old["model"], old["noise"]) != (name, row["noise"])]
                rows = sorted([*kept, row | {"by_seed": found}], key=place_of)
                save_result("series-sine", rows, floor=floor, steps=STEPS, trained=TRAINED, length=LENGTH)


def place_of(row: Row) -> tuple[bool, int]:
    return row["noise"] == 0, list(LEARNERS).index(row["model"])


def clean() -> Tensor:
    return torch.sin(0.01 * torch.arange(1, LENGTH + 1, dtype=torch.float64))


def means(found: list[Row]) -> Row:
    return {name: sum(row[name] for row in found) / len(found) for name in found[0]}


def sine_errors(options: Row, noise: int, seed: int) -> Row:
    """Train one model on the first 600 values, and return its errors on the rest."""
    torch.manual_seed(seed)
    values = torch.from_numpy(generate_series(f"sine:noise={noise},seed={seed}").series[0].values)  # (1000, 1)
    lookback = max(options.get("order", 32), 4)
    shape = {"lookback": lookback, "horizon": max(AHEAD), "ahead": "free"}
    model = rc.Forecaster(options["family"], 1, **shape, **{k: v for k, v in options.items() if k != "family"}).double()
    least_squares(model, values[:TRAINED, 0]) if options["family"] == "linear" else descend(model, values, seed)
    model.eval()
    starts = torch.arange(TRAINED, LENGTH - max(AHEAD) + 1)
    windows = torch.stack([values[s - lookback : s] for s in starts])
    with torch.no_grad():
        ahead = model.forecast(windows)[0][..., 0, 0]  # (N, 64)
        run = rc.Forecaster(options["family"], 1, **shape | {"horizon": LENGTH - TRAINED}, **without_family(options))
        run.double().load_state_dict({n: t for n, t in model.state_dict().items() if n != "offsets"}, strict=False)
        free = run.eval().forecast(values[None, TRAINED - lookback : TRAINED])[0][0, :, 0, 0]
    truth = clean()
    errors = {f"k{k}": rmse(ahead[:, k - 1], truth[starts + k - 1]) for k in AHEAD}
    return {**errors, "free": rmse(free, truth[TRAINED:])}


def without_family(options: Row) -> Row:
    return {name: value for name, value in options.items() if name != "family"}


def rmse(found: Tensor, truth: Tensor) -> float:
    return float((found - truth).square().mean().sqrt())


def least_squares(model: rc.Forecaster, values: Tensor) -> None:
    order = model.config.reach
    windows = values.unfold(0, order + 1, 1)  # (N, order + 1)
    ones = torch.ones(len(windows), 1, dtype=values.dtype)
    found = torch.linalg.lstsq(torch.cat([windows[:, :-1], ones], 1), windows[:, -1:], driver="gelsd").solution[:, 0]
    with torch.no_grad():
        model.map.linear.weight.copy_(found[None, :-1])
        model.map.linear.bias.copy_(found[-1:])


def descend(model: rc.Forecaster, values: Tensor, seed: int) -> None:
    """Train with Adam at 0.01, falling to 0, on one-step predictions within windows of the training part."""
    lookback = model.config.lookback
    steps = 32 if model.config.is_window else 1  # rows predicted after a window: the rest of it is predicted too
    part = values[:TRAINED]
    starts = torch.arange(TRAINED - lookback - steps + 1).numpy()
    rows = Rows(part, None, None, torch.zeros(TRAINED, dtype=torch.long))
    batches = iter(WindowBatches(SeriesWindows(rows, starts, lookback, steps), 16, seed))
    loss = ForecastTask().loss
    optimizer = torch.optim.Adam(model.parameters(), 0.01)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, STEPS)
    for _ in range(STEPS):
        found = loss(model, next(batches), None)
        optimizer.zero_grad()
        (found.total / found.count).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()


# ---- the classic series -------------------------------------------------------------------------------

CLASSICS: dict[str, dict[str, Any]] = {
    "AirPassengers": {"horizon": 12, "season": 12},
    "sunspots": {"horizon": 11, "season": 11},  # years
    "co2": {"horizon": 52, "season": 52},
}
FIXED = {"budget": "600steps", "rate": 0.003, "weight_decay": 0.0, "evaluate_every": 50}


def tried(season: int) -> list[Row]:
    """Return the candidates: linear maps of two and three seasons, and autoregression that is fed back."""
    direct = [
        {"model": model, "lookback": seasons * season} | more
        for seasons in (2, 3)
        for model, more in (
            ("linear", {}),
            ("linear", {"normalise": "instance"}),
            ("nlinear", {}),
            ("dlinear", {"normalise": "instance"}),
        )
    ]
    return [*direct, {"model": "linear", "lookback": 2 * season, "ahead": "free", "order": 9}]


def classics(only: str) -> None:
    """One command each, its settings chosen on the validation part; the test part beside seasonal naive."""
    for name, shape in CLASSICS.items():
        if only not in name:
            continue
        source = str(data_folder() / "classic_ts" / f"{name}.csv")
        with tempfile.TemporaryDirectory() as folder:
            found = []
            for number, settings in enumerate(tried(shape["season"])):
                run = rc.train(source, task="forecast", out=f"{folder}/{number}", **shape, **settings, **FIXED)
                error = min(row["valid_mse"] for row in run.metrics() if "valid_mse" in row)
                found.append({"settings": settings, "valid_mse": error})
                print(name, settings, error, flush=True)
            best = min(range(len(found)), key=lambda number: found[number]["valid_mse"])
            scores = rc.load(f"{folder}/{best}").evaluate()
        settings = shape | found[best]["settings"] | FIXED
        own = next(iter(scores.rows.values()))
        words = " ".join(f"--{key} {value}" for key, value in settings.items())
        row = {"data": name, **settings, **own, "interval": scores.details["coverage_interval"], "tried": found}
        row |= {"windows": scores.details["windows"], "naive_mase": scores.rows["(seasonal-naive)"]["mase"]}
        row["typed"] = f"recollect train {name}.csv --task forecast {words}"
        print(row, flush=True)
        kept = [old for old in earlier("series-classics") if old["data"] != name]
        save_result("series-classics", [*kept, row])


# ---- parity -------------------------------------------------------------------------------------------


def parity(only: str) -> None:
    """The authors' modules with our weights, on drawn windows, in double precision."""
    paths = {
        "dlinear": ROOT / "peers/LTSF-Linear/models/DLinear.py",
        "nlinear": ROOT / "peers/LTSF-Linear/models/NLinear.py",
        "reversible norm": ROOT / "peers/RevIN/RevIN.py",
    }
    missing = [str(path.relative_to(ROOT)) for path in paths.values() if not path.exists()]
    if missing:
        print(f"parity: {', '.join(missing)} missing; clone cure-lab/LTSF-Linear and ts-kim/RevIN into peers/")
        sys.exit(2)
    torch.manual_seed(0)
    x = torch.randn(8, 336, 7, dtype=torch.float64) * 3 + 5
    rows = [{"model": name, "difference": difference_to(name, load(path), x)} for name, path in paths.items()]
    for row in rows:
        print(row)
    save_result("series-parity", rows, windows=list(x.shape), dtype="float64")


def load(path: Any) -> Any:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@torch.no_grad()
def difference_to(name: str, module: Any, x: Tensor) -> float:
    if name == "reversible norm":
        return norm_difference(module, x)
    theirs = module.Model(SimpleNamespace(seq_len=336, pred_len=96, individual=False, enc_in=7)).double()
    ours = rc.Forecaster(name, 7, lookback=336, horizon=96).double().eval()
    if name == "dlinear":
        ours.map.seasonal.load_state_dict(theirs.Linear_Seasonal.state_dict())
        ours.map.trend.load_state_dict(theirs.Linear_Trend.state_dict())
    else:
        ours.map.linear.load_state_dict(theirs.Linear.state_dict())
    return float((ours.forecast(x)[0][..., 0] - theirs(x)).abs().max())


def norm_difference(module: Any, x: Tensor) -> float:
    theirs = module.RevIN(7).double()
    ours = rc.ReversibleNorm(7).double()
    for mine, other in ((ours.gain, theirs.affine_weight), (ours.bias, theirs.affine_bias)):
        mine.copy_(torch.rand(7) + 0.5)
        other.copy_(mine)
    normal, shift, scale = ours(x)
    y = torch.randn(8, 96, 7, dtype=torch.float64)
    there = (normal - theirs(x, "norm")).abs().max()
    return float(max(there, (y * scale + shift - theirs(y, "denorm")).abs().max()))


# ---- the cost of an update ----------------------------------------------------------------------------

READ = (64, 256, 1024, 4096)
STREAMED = ("linear", "rnn", "gru", "lstm", "linear-attention", "ttt-linear", "transformer")


@torch.no_grad()
def streaming(only: str) -> None:
    """One new value in, the forecast of 24 steps out of the memory, after so many values were read."""
    contenders = {}
    for family in STREAMED:
        torch.manual_seed(0)
        model = rc.Forecaster(family, 1, lookback=64, horizon=24).eval()
        for count in READ:
            memory = model.forecast(torch.randn(1, count, 1))[1]
            x = torch.randn(1, 1, 1)
            contenders[family, count] = lambda m=model, x=x, memory=memory: m.forecast(x, memory)
    times = interleave(contenders, rounds=40, warmup=3)
    rows = []
    for family, count in contenders:
        middle, spread = summary(times[family, count])
        rows.append({"model": family, "read": count, "seconds": middle, "spread": spread})
    save_result("series-streaming", rows, horizon=24, width=64, threads=torch.get_num_threads())
    draw(rows, ROOT / "docs" / "forecast-cost.svg")
    for row in rows:
        print(f"{row['model']:18}{row['read']:6}{1e6 * row['seconds']:10.0f} µs")


TABLES = {"sine": sine, "classics": classics, "parity": parity, "streaming": streaming}

if __name__ == "__main__":
    sys.exit(main())
