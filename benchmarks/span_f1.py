"""Span F1 of taggers' predictions on WNUT-17: ours beside the packages seqeval and conlleval.

    RECOLLECT_DATA=FOLDER python benchmarks/span_f1.py [--epochs 2]

The tagger without a CRF also predicts sequences that no scheme allows.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import Any

import conlleval
import seqeval.metrics
import torch

import recollect as rc
from common import data_folder, save_result
from label_data import DATA, places
from recollect.data.labels.tag_schemes import fault_in
from recollect.evaluation.label_metrics import span_scores
from recollect.tasks.tag import named_tags

MODELS: dict[str, dict[str, Any]] = {
    "majority": {"convert": "bio"},
    "gru": {"width": 64, "layers": 1, "rate": 3e-3, "convert": "bio"},
    "gru, BIOES": {"width": 64, "layers": 1, "rate": 3e-3, "convert": "bioes"},
    "bilstm with CRF": {"width": 64, "layers": 1, "rate": 3e-3, "convert": "bioes", "crf": True},
}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=float, default=2.0)
    asked = parser.parse_args()
    torch.set_num_threads(1)
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        parts = places("wnut17", data_folder(), Path(folder))
        for name, own in MODELS.items():
            model = name.partition(",")[0].partition(" ")[0]
            shared = {} if model == "majority" else DATA["wnut17"].settings
            out = Path(folder) / name
            given = {"valid": parts["valid"], "test": parts["test"]}
            settings = {**shared, **own, **given}
            budget = f"{asked.epochs:g}epochs"
            run = rc.train(parts["train"], task="tag", model=model, budget=budget, out=out, device="cpu", **settings)
            rows.append({"model": name, **compared(run)})
            print(rows[-1], flush=True)
    save_result("span-f1", rows, epochs=asked.epochs)


def compared(run: rc.Run) -> dict[str, float]:
    """Return the F1 of the test part by all three, and how many predicted sequences no scheme allows."""
    dataset: Any = run.dataset()
    task: Any = run.task
    found = named_tags(task._tagged(run.model, dataset.test)[0], dataset.labels)
    truth = named_tags(dataset.test.targets, dataset.labels)
    lines = []
    for rows in zip(truth, found, strict=True):
        lines += [f"w {one} {other}" for one, other in zip(*rows, strict=True)] + [""]
    return {
        "ours": span_scores(truth, found)["span_f1"],
        "seqeval": float(seqeval.metrics.f1_score(truth, found)),
        "conlleval": float(conlleval.evaluate(lines)["overall"]["chunks"]["evals"]["f1"]),
        "sequences": len(found),
        "illegal": sum(fault_in(tags, dataset.labels.scheme) is not None for tags in found),
    }


if __name__ == "__main__":
    main()
