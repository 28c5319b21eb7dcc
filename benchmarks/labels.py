"""Labels of texts and tags of words on real data, from scratch: the line beside baselines without context.

    RECOLLECT_DATA=FOLDER python benchmarks/labels.py sst2 [--seeds 5]

One of sst2, ud, snips-intents, snips-slots, chnsenticorp, wnut17. Every model is trained through `rc.train`; its best
weights on the validation part are measured once on the test part. ChnSentiCorp's own test part has no labels: the
development texts that do not also occur in its training part are the test, a tenth of the training part validates.
"""

from __future__ import annotations

import argparse
import gzip
import statistics
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

import recollect as rc
from common import data_folder, earlier, save_result

RECURRENT = {"dropout": 0.4, "rate": 2e-3}
ATTENTION = {"dropout": 0.3, "rate": 1e-3, "layers": 2, "heads": 4}


@dataclass(frozen=True)
class Labels:
    """A data set: its parts, the task, its settings, and the models with theirs."""

    task: str
    parts: tuple[str, str, str]
    settings: dict[str, Any]
    epochs: float
    models: dict[str, dict[str, Any]] = field(default_factory=dict)


TEXTS = {
    "majority": {},
    "bag-of-words": {"rate": 1e-2},
    "per-word": {"width": 96, "pooling": "mean", "dropout": 0.4, "rate": 2e-3},
    "cnn": {"width": 96, "dropout": 0.5, "rate": 1e-3},
    "gru": {"width": 96, "layers": 1, **RECURRENT},
    "lstm": {"width": 96, "layers": 1, **RECURRENT},
    "bilstm": {"width": 96, "layers": 1, **RECURRENT},
    "transformer": {"width": 64, "pooling": "mean", **ATTENTION},
    "bert": {"width": 64, "pooling": "mean", **ATTENTION},
}
TAGS = {
    "majority": {},
    "per-word": {"width": 128, "dropout": 0.3, "rate": 3e-3},
    "gru": {"width": 128, "layers": 1, "dropout": 0.3, "rate": 3e-3},
    "bilstm": {"width": 128, "layers": 1, "dropout": 0.3, "rate": 3e-3},
    "bert": {"width": 96, **ATTENTION},
}
LETTERS = {"letters": True, "lowercase": True, "least": 2}
UD = "ud_english_ewt/en_ewt-ud-{}.conllu.gz"
SNIPS_WORDS = ("snips/train/seq.in.gz", "snips/valid/seq.in", "snips/test/seq.in")
SNIPS_LABELS = ("snips/train/label", "snips/valid/label", "snips/test/label")
SNIPS_TAGS = ("snips/train/seq.out.gz", "snips/valid/seq.out", "snips/test/seq.out")
CRF = {name: {**own, "crf": True} if name == "bilstm" else own for name, own in TAGS.items()}
DATA = {
    "sst2": Labels(
        "classify",
        ("sst/stsa.binary.train.gz", "sst/stsa.binary.dev", "sst/stsa.binary.test"),
        {"tokenizer": "space"},
        epochs=5,
        models=TEXTS,
    ),
    "ud": Labels("tag", (UD.format("train"), UD.format("dev"), UD.format("test")), LETTERS, epochs=5, models=TAGS),
    "snips-intents": Labels(
        "classify",
        tuple(f"{words},{labels}" for words, labels in zip(SNIPS_WORDS, SNIPS_LABELS, strict=True)),
        {"tokenizer": "space"},
        epochs=4,
        models={name: TEXTS[name] for name in ("majority", "bag-of-words", "cnn", "bilstm", "bert")},
    ),
    "snips-slots": Labels(
        "tag",
        tuple(f"{words},{tags}" for words, tags in zip(SNIPS_WORDS, SNIPS_TAGS, strict=True)),
        {**LETTERS, "convert": "bioes"},
        epochs=6,
        models=CRF,
    ),
    "chnsenticorp": Labels(
        "classify",
        ("chnsenticorp/train.tsv.gz", "", "chnsenticorp/dev.tsv.gz"),
        {"tokenizer": "char"},
        epochs=4,
        models={name: TEXTS[name] for name in ("majority", "bag-of-words", "cnn", "gru")}
        | {"cnn": {"width": 192, "dropout": 0.5, "rate": 1e-3}},
    ),
    "wnut17": Labels(
        "tag",
        ("wnut17/wnut17train.conll.gz", "wnut17/emerging.dev.conll", "wnut17/emerging.test.annotated"),
        {**LETTERS, "convert": "bioes"},
        epochs=8,
        models=CRF,
    ),
}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("name", choices=DATA)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--models", default="", help="only these, divided by commas")
    asked = parser.parse_args()
    chosen = DATA[asked.name]
    torch.set_num_threads(1)
    wanted = asked.models.split(",") if asked.models else list(chosen.models)
    rows = [row for row in earlier(f"labels-{asked.name}") if row["model"] not in wanted]
    with tempfile.TemporaryDirectory() as folder:
        parts = places(chosen, Path(folder))
        for model, own in chosen.models.items():
            if model not in wanted:
                continue
            runs = [learn(chosen, parts, model, own, seed, Path(folder)) for seed in range(asked.seeds)]
            figures = [run["value"] for run in runs]
            rows.append({"model": model, "seeds": len(runs), "values": figures, **runs[0]})
            rows[-1]["value"] = statistics.mean(figures)
            print(
                asked.name, model, *(f"{figure:.4f}" for figure in figures), f"{runs[0]['seconds']:.0f} s", flush=True
            )
            rows.sort(key=lambda row: list(chosen.models).index(row["model"]))
            save_result(f"labels-{asked.name}", rows, threads=1, epochs=chosen.epochs, settings=chosen.settings)


def places(chosen: Labels, folder: Path) -> dict[str, str]:
    """Return the parts' places; of ChnSentiCorp the development texts that do not occur in training are written."""
    home = data_folder()
    train, valid, test = (",".join(str(home / one) for one in part.split(",")) if part else "" for part in chosen.parts)
    if valid:
        return {"train": train, "valid": valid, "test": test}
    with gzip.open(train, "rt", encoding="utf-8") as file:
        seen = {line.rpartition("\t")[0] for line in file}
    with gzip.open(test, "rt", encoding="utf-8") as file:
        kept = [line for line in file if line.rpartition("\t")[0] not in seen]
    own = folder / "dev.tsv"
    own.write_text("".join(kept), encoding="utf-8")
    print(f"{len(kept)} development texts do not occur in training")
    return {"train": train, "test": str(own)}


def learn(
    chosen: Labels, parts: dict[str, str], model: str, own: dict[str, Any], seed: int, folder: Path
) -> dict[str, Any]:
    """Train one model and return its figures on the test part."""
    given = {name: place for name, place in parts.items() if name != "train"}
    settings = {**chosen.settings, **own}
    if model in ("majority", "bag-of-words"):
        settings = {name: value for name, value in settings.items() if name not in LETTERS}
    begun = time.perf_counter()
    run = rc.train(
        parts["train"],
        task=chosen.task,
        model=model,
        budget=f"{chosen.epochs}epochs",
        out=folder / f"{model}-{seed}",
        seed=seed,
        device="cpu",
        evaluate_every=200,
        **given,
        **settings,
    )
    seconds = time.perf_counter() - begun
    scores = run.evaluate()
    found = dict(next(iter(scores.rows.values())))
    count = sum(p.numel() for p in run.model.parameters())
    return {"value": scores.value, "measure": scores.decisive, "parameters": count, "seconds": seconds, "scores": found}


if __name__ == "__main__":
    main()
