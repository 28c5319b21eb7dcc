"""MovieLens-100k, five folds: the error of predicted ratings beside the means that any model must beat.

    RECOLLECT_DATA=FOLDER python benchmarks/ratings.py

Reads FOLDER/movielens_100k/ml-100k.inter.gz. A fold's fifth is the test part; a tenth of the rest is validated on.
"""

from __future__ import annotations

import gzip
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

import recollect as rc
from common import data_folder, save_result

FOLDS = 5
BUDGET = "15epochs"
SETTINGS = {"evaluate_every": 300}
FAMILIES = ("biases", "factors")


def main() -> None:
    path = data_folder() / "movielens_100k" / "ml-100k.inter.gz"
    lines = gzip.decompress(path.read_bytes()).decode().splitlines()[1:]
    folds = np.array_split(np.random.default_rng(0).permutation(len(lines)), FOLDS)
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        for number, fold in enumerate(folds):
            held_out = set(fold.tolist())
            parts = {part: Path(folder) / f"{part}-{number}.tsv" for part in ("train", "test")}
            for part, file in parts.items():
                chosen = [line for i, line in enumerate(lines) if (i in held_out) == (part == "test")]
                file.write_text("\n".join(chosen) + "\n", encoding="utf-8")
            rows += measure_fold(parts, number, Path(folder))
    save_result("ratings", rows, folds=FOLDS, ratings=len(lines), budget=BUDGET)


def measure_fold(parts: dict[str, Path], number: int, folder: Path) -> list[dict[str, Any]]:
    rows = []
    for family in FAMILIES:
        begun = time.perf_counter()
        out = folder / f"{family}-{number}"
        given = {"task": "recommend", "model": family, "budget": BUDGET, "test": str(parts["test"])}
        run = rc.train(str(parts["train"]), out=out, **given, **SETTINGS)
        seconds = time.perf_counter() - begun
        scores = run.evaluate().rows
        parameters = sum(p.numel() for p in run.model.parameters())
        rows.append({"model": family, "fold": number, "parameters": parameters, "seconds": seconds})
        rows[-1] |= {**scores["ratings"], **scores["new items"]}
        print(rows[-1], flush=True)
    for one in run.task.baselines(run.dataset()):
        rows.append({"model": one.name, "fold": number, "rmse": one.value})
    return rows


if __name__ == "__main__":
    main()
