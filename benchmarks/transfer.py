"""What pre-training transfers: LSTM, GRU, BiLSTM, GPT and BERT of equal size, and a small BERT that others trained.

    RECOLLECT_DATA=FOLDER python benchmarks/transfer.py half SOURCE FOLDER/minilm
    RECOLLECT_DATA=FOLDER python benchmarks/transfer.py all --pretrain 200s --jobs 15 --limit 560
    RECOLLECT_DATA=FOLDER python benchmarks/transfer.py all --only minilm

`half` writes a 16-bit copy of a folder of weights. `all` runs every cell in a process of its own, `--jobs` at a time,
and writes benchmarks/results/transfer.json and transfer-minilm.json after each, and copies of them to $OUT.

Every model is trained first on English prose (gutenberg_mix) and the texts of SST-2's training part without labels, in
SST's spelling; never on sentence_polarity, which holds sentences of SST's test part. Then it is fine-tuned on 10, 50,
200, 1000 and all labelled sentences, and so is the same model with new weights. Weights are selected on the development
part in both arms and measured once on the test part.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any

import numpy as np
import torch

import recollect as rc
from common import ROOT, data_folder, earlier, save_result
from recollect.core.serialize import read_tensors, write_tensors
from recollect.data.text.corpus import load_corpus

COUNTS = (10, 50, 200, 1000, 6920)
STEPS = {10: 60, 50: 120, 200: 200, 1000: 400, 6920: 900}
FAMILIES: dict[str, dict[str, Any]] = {
    "lstm": {"rate": 2e-3, "dropout": 0.1},
    "gru": {"rate": 2e-3, "dropout": 0.1},
    "transformer": {"rate": 1e-3, "warmup": 0.05, "dropout": 0.1},
    "bilstm": {"rate": 2e-3, "dropout": 0.1},
    "bert": {"rate": 1e-3, "warmup": 0.05, "dropout": 0.1, "norm": "pre"},
}
MASKED = ("bilstm", "bert")
RECURRENT = ("lstm", "gru", "bilstm")
PARTS = {"train": "sst/stsa.binary.train.gz", "valid": "sst/stsa.binary.dev", "test": "sst/stsa.binary.test"}
UD = "ud_english_ewt/en_ewt-ud-{}.conllu.gz"
MINILM: dict[str, dict[str, Any]] = {
    "sst2 frozen": {"task": "classify", "frozen": True, "rate": 1e-2, "epochs": 20},
    "sst2": {"task": "classify", "rate": 1e-4, "layer_decay": 0.9, "head_factor": 5.0, "epochs": 4},
    "ud": {"task": "tag", "rate": 3e-4, "layer_decay": 0.9, "head_factor": 5.0, "epochs": 5},
    "wnut17": {"task": "tag", "rate": 2e-4, "layer_decay": 0.9, "head_factor": 5.0, "epochs": 8, "convert": "bioes"},
}


def main() -> None:
    parser = argparse.ArgumentParser()
    verbs = parser.add_subparsers(dest="verb", required=True)
    half = verbs.add_parser("half")
    half.add_argument("source", type=Path)
    half.add_argument("out", type=Path)
    every = verbs.add_parser("all")
    every.add_argument("--pretrain", default="200s", help="budget of each pre-training")
    every.add_argument("--size", default="small")
    every.add_argument("--seeds", type=int, default=3, help="of each fine-tuning")
    every.add_argument("--jobs", type=int, default=2, help="processes side by side")
    every.add_argument("--limit", type=float, default=float("inf"), help="seconds after which no cell is begun")
    every.add_argument("--only", default="", help="families, or minilm or some of its data, divided by commas")
    every.add_argument("--work", type=Path, default=ROOT / "runs" / "transfer")
    cell = verbs.add_parser("cell")
    cell.add_argument("given")
    asked = parser.parse_args()
    if asked.verb == "half":
        write_half(asked.source, asked.out)
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
        budget=budget,
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
            budget=f"{STEPS[count]}steps",
            out=folder,
            seed=seed,
            evaluate_every=max(STEPS[count] // 6, 10),
            batch_size=min(count, 32),
            **parts_of("valid", "test"),
            **tuning(family, is_scratch=is_scratch),
        )
        scores = run.evaluate()
        seconds = time.perf_counter() - begun
        row = {"cell": "label", "family": family, "pretrained": not is_scratch, "labels": count, "seed": seed}
        rows.append({**row, "value": scores.value, "seconds": seconds})
        shutil.rmtree(folder)
    return rows


def tuning(family: str, *, is_scratch: bool) -> dict[str, Any]:
    """Return how a model is fine-tuned; one with new weights has nothing to preserve and is trained whole at once."""
    rate = 2e-3 if family in RECURRENT else 5e-4
    common = {"rate": rate, "pooling": "max" if family in RECURRENT else "mean", "dropout": 0.3, "weight_decay": 0.01}
    return common if is_scratch else {**common, "unfreeze": 0.3, "layer_decay": 0.6, "head_factor": 2.0}


def minilm(name: str, seed: int, work: str) -> list[dict[str, Any]]:
    """Fine-tune the small BERT on one data set, all of its layers or its head alone."""
    own = dict(MINILM[name])
    epochs, task = own.pop("epochs"), own.pop("task")
    folder = Path(work) / f"minilm-{name.replace(' ', '-')}-{seed}"
    shutil.rmtree(folder, ignore_errors=True)
    kind = name.split()[0]
    begun = time.perf_counter()
    run = rc.finetune(
        data_folder() / "minilm",
        *places(kind)["train"],
        task=task,
        budget=f"{epochs}epochs",
        out=folder,
        seed=seed,
        batch_size=32,
        evaluate_every=200,
        dropout=0.1,
        weight_decay=0.01,
        **{part: place for part, (place,) in places(kind).items() if part != "train"},
        **own,
    )
    scores = run.evaluate()
    seconds = time.perf_counter() - begun
    found = dict(next(iter(scores.rows.values())))
    count = sum(p.numel() for p in run.model.parameters())
    shutil.rmtree(folder)
    row = {"cell": "minilm", "data": name, "seed": seed, "value": scores.value, "measure": scores.decisive}
    return [{**row, "parameters": count, "epochs": epochs, "seconds": seconds, "scores": found}]


CELLS = {"pretrain": pretrain, "label": label, "minilm": minilm}


# ---- data ----------------------------------------------------------------------------------------------


def prose(work: Path) -> dict[str, str]:
    """Return the parts of the text to pre-train on, written once: lower case, marks divided, as SST has it."""
    found = {part: str(work / f"prose-{part}.txt") for part in PARTS}
    if all(Path(path).exists() for path in found.values()):
        return found
    work.mkdir(parents=True, exist_ok=True)
    home = data_folder()
    lines = [
        spelled(line)
        for path in sorted((home / "gutenberg_mix").glob("*.txt.gz"))
        for line in paragraphs(lines_of(path))
    ]
    lines = [lines[i] for i in np.random.default_rng(0).permutation(len(lines))]
    held = len(lines) // 40
    films = [line.partition(" ")[2] for line in lines_of(home / PARTS["train"])]
    films = ["".join(films)] * 5
    rest = lines[2 * held :]
    mixed = [part for i, film in enumerate(films) for part in (*rest[i :: len(films)], film)]
    for part, some in {"valid": lines[:held], "test": lines[held : 2 * held], "train": mixed}.items():
        Path(found[part]).write_text("\n".join(line.strip() for line in some) + "\n", encoding="utf-8")
    return found


def lines_of(path: Path) -> list[str]:
    with gzip.open(path, "rt", encoding="utf-8") as file:
        return file.readlines()


def paragraphs(lines: Iterable[str]) -> Iterator[str]:
    """Yield what stands between empty lines, in one line."""
    held: list[str] = []
    for line in [*lines, ""]:
        if line.strip():
            held.append(line.strip())
        elif held:
            yield " ".join(held)
            held = []


def spelled(line: str) -> str:
    """Return a line as SST's are written: lower case, marks and contractions divided."""
    line = line.lower().replace("’", "'").replace("“", '"').replace("”", '"')
    line = re.sub(r"([.,;:!?()\"—]|--)", r" \1 ", line)
    line = re.sub(r"(\w)n't\b", r"\1 n't", line)
    line = re.sub(r"(\w)('(?:s|re|ve|ll|d|m))\b", r"\1 \2", line)
    return " ".join(line.split())


def subset(work: Path, count: int, seed: int) -> str:
    """Return a file of so many labelled sentences of the training part, as many of one label as of the other."""
    path = work / f"sst-{count}-{seed}.txt"
    if not path.exists():
        lines = lines_of(data_folder() / PARTS["train"])
        draw = np.random.default_rng(seed)
        each = [draw.permutation([i for i, line in enumerate(lines) if line[0] == label]) for label in "01"]
        chosen = sorted(np.concatenate([numbers[: (count + 1) // 2] for numbers in each]))
        beside = path.with_suffix(f".{os.getpid()}")
        beside.write_text("".join(lines[i] for i in chosen) if count < len(lines) else "".join(lines), encoding="utf-8")
        beside.replace(path)
    return str(path)


def parts_of(*names: str) -> dict[str, str]:
    return {name: str(data_folder() / PARTS[name]) for name in names}


def places(kind: str) -> dict[str, tuple[str]]:
    """Return the parts of a data set."""
    home = data_folder()
    if kind == "sst2":
        return {part: (str(home / path),) for part, path in PARTS.items()}
    if kind == "ud":
        return {
            part: (str(home / UD.format(name)),) for part, name in zip(PARTS, ("train", "dev", "test"), strict=True)
        }
    names = ("wnut17train.conll.gz", "emerging.dev.conll", "emerging.test.annotated")
    return {part: (str(home / "wnut17" / name),) for part, name in zip(PARTS, names, strict=True)}


def write_half(source: Path, out: Path) -> None:
    """Write a folder of weights with matrices of 16 bits."""
    shutil.copytree(source, out, ignore=shutil.ignore_patterns("*.md", "data_config.json", "vocab.txt"))
    header, tensors = read_tensors(source / "model.safetensors")
    write_tensors(
        {n: t.half() if t.is_floating_point() else t for n, t in tensors.items()}, out / "model.safetensors", header
    )
    print(f"{out}: {sum(path.stat().st_size for path in out.rglob('*') if path.is_file()) / 1e6:.1f} MB")


# ---- all of them ---------------------------------------------------------------------------------------


def run_all(asked: argparse.Namespace) -> None:
    """Run every cell, pre-trainings first; save the rows after each."""
    begun = time.perf_counter()
    wanted = asked.only.split(",") if asked.only else [*FAMILIES, "minilm"]
    wanted += MINILM if "minilm" in wanted else []
    families = [family for family in FAMILIES if family in wanted]
    rows: dict[str, list[dict[str, Any]]] = {"transfer": [], "transfer-minilm": []}
    if asked.only:
        for name, kept in rows.items():
            kept += [row for row in earlier(name) if row.get("family", row.get("data")) not in wanted]
    work = str(asked.work)
    if families:
        text = prose(asked.work)
        load_corpus(text["train"], tokenizer="bpe", vocab_for=asked.size, valid=text["valid"], test=text["test"])
        print(f"text ready after {time.perf_counter() - begun:.0f} s", flush=True)
    minilm_cells = [
        {"cell": "minilm", "name": name, "seed": seed, "work": work}
        for seed in range(5)  # of all data first one seed: the time may not suffice for more
        for name in MINILM
        if name in wanted and (seed == 0 or "frozen" not in name)
    ]
    first = [
        {"cell": "pretrain", "family": family, "budget": budget, "size": asked.size, "work": work}
        for budget in (asked.pretrain, "1steps")
        for family in families
    ]
    waiting = {(cell["family"], cell["budget"]) for cell in first}
    labels = [
        {"cell": "label", "family": family, "budget": budget, "seed": seed, "work": work}
        for seed in range(asked.seeds)
        for family, budget in sorted(waiting)
    ]
    with ThreadPoolExecutor(asked.jobs) as pool:
        running = {pool.submit(process, cell, begun, asked.limit): cell for cell in (*first, *minilm_cells)}
        while running:
            for done in as_completed(list(running)):
                cell = running.pop(done)
                for row in done.result():
                    rows["transfer-minilm" if row["cell"] == "minilm" else "transfer"].append(row)
                    print(json.dumps(row), flush=True)
                if cell["cell"] == "pretrain":
                    ready = [
                        one for one in labels if (one["family"], one["budget"]) == (cell["family"], cell["budget"])
                    ]
                    running |= {pool.submit(process, one, begun, asked.limit): one for one in ready}
                keep(rows, asked)
                break
    print(f"all done after {time.perf_counter() - begun:.0f} s", flush=True)


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


def keep(rows: dict[str, list[dict[str, Any]]], asked: argparse.Namespace) -> None:
    """Save the rows, and copy the files to $OUT where it is set."""
    for name, some in rows.items():
        if some:
            path = save_result(name, some, pretrain=asked.pretrain, size=asked.size, jobs=asked.jobs)
            if "OUT" in os.environ:
                shutil.copy(path, os.environ["OUT"])


if __name__ == "__main__":
    main()
