"""Every task's default run on real data: 90 seconds on two cores, no model named, no setting.

    RECOLLECT_DATA=FOLDER python benchmarks/defaults.py --runs RUNS --train NAME   (for each name: on a quiet machine)
    RECOLLECT_DATA=FOLDER python benchmarks/defaults.py --runs RUNS --train all --cores 2   (side by side, pinned)
    RECOLLECT_DATA=FOLDER python benchmarks/defaults.py --runs RUNS                (evaluates them)

The commands are those that a user types. The data are given as a user has them, in one file, of which a part is held
out. `--tokenizer word` is named where a text of words is meant. What a run was is read from its folder. With --cores,
as many runs train at once as the machine has room for, each on cores of its own (taskset). Trained runs are left as
they are, so that a call that was interrupted can be repeated.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import re
import subprocess
import sys
import zipfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import Queue
from typing import Any

from captions import _table as emoji_table
from common import data_folder, save_result
from recollect.models.parameters import count_apart
from recollect.runs.run import Run

BUDGET = "90s"


def text(source: str, name: str) -> Callable[[Path], str]:
    """Return a function that unpacks a text into a folder."""

    def unpack(folder: Path) -> str:
        path = data_folder() / source
        content = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
        (folder / name).write_bytes(content)
        return str(folder / name)

    return unpack


def poems(folder: Path) -> str:
    """Write a poem in each line."""
    with gzip.open(data_folder() / "chinese_poetry" / "songci.txt.gz", "rt", encoding="utf-8") as file:
        lines = [line.rpartition("\t")[2] for line in file]
    path = folder / "songci.txt"
    path.write_text("".join(lines), encoding="utf-8")
    return str(path)


def sentences(folder: Path) -> str:
    """Write English and Chinese sentences as two columns."""
    with gzip.open(data_folder() / "tatoeba_cmn_eng" / "cmn.txt.gz", "rt", encoding="utf-8") as file:
        lines = ["\t".join(line.split("\t")[:2]) for line in file]
    path = folder / "cmn.tsv"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return str(path)


def letters(folder: Path) -> str:
    """Write e-mails and their subjects as sources and targets."""
    with gzip.open(data_folder() / "aeslc" / "train.jsonl.gz", "rt", encoding="utf-8") as file:
        rows = [json.loads(line) for line in file]
    path = folder / "mails.jsonl"
    pairs = [{"source": row["email"], "target": row["subject"]} for row in rows]
    path.write_text("".join(json.dumps(pair, ensure_ascii=False) + "\n" for pair in pairs), encoding="utf-8")
    return str(path)


def pictures(folder: Path) -> str:
    """Write the table of emoji and their English names."""
    return emoji_table(folder, "en")


def ratings(folder: Path) -> str:
    """Write users, items and ratings without the times."""
    with gzip.open(data_folder() / "movielens_100k" / "ml-100k.inter.gz", "rt", encoding="utf-8") as file:
        lines = ["\t".join(line.split("\t")[:3]) for line in list(file)[1:]]
    path = folder / "ratings.tsv"
    path.write_text("\n".join(["user\titem\trating", *lines]) + "\n", encoding="utf-8")
    return str(path)


def opinions(folder: Path) -> str:
    """Write sentences of film reviews with their label, in turn."""
    with zipfile.ZipFile(data_folder() / "sentence_polarity" / "sentence_polarity.zip") as archive:
        sides = [archive.read(f"sentence_polarity/rt-polarity.{label}").decode().splitlines() for label in LABELS]
    pairs = zip(*sides, strict=True)
    rows = [f"{one.strip()}\t{label}" for pair in pairs for one, label in zip(pair, LABELS, strict=True)]
    path = folder / "polarity.tsv"
    path.write_text("\n".join(["text\tlabel", *rows]) + "\n", encoding="utf-8")
    return str(path)


def intents(folder: Path) -> str:
    """Write requests with every intent as a candidate, of which one is right."""
    part = data_folder() / "snips" / "train"
    words = gzip.decompress((part / "seq.in.gz").read_bytes()).decode().splitlines()
    labels = (part / "label").read_text(encoding="utf-8").split()
    names = {label: " ".join(re.findall("[A-Z][a-z]+", label)).lower() for label in sorted(set(labels))}
    rows = [
        f"{line.strip()}\t{name}\t{int(label == right)}"
        for line, right in list(zip(words, labels, strict=True))[::4]
        for label, name in names.items()
    ]
    path = folder / "intents.tsv"
    path.write_text("\n".join(["query\ttext\tlabel", *rows]) + "\n", encoding="utf-8")
    return str(path)


LABELS = ("pos", "neg")
RUNS: dict[str, tuple[Callable[[Path], str], list[str]]] = {
    "characters": (text("tinyshakespeare/input.txt", "shakespeare.txt"), []),
    "words": (text("ptb/ptb.train.txt.gz", "ptb.txt"), ["--tokenizer", "word"]),
    "chinese": (poems, []),
    "masked": (text("ptb/ptb.train.txt.gz", "ptb-masked.txt"), ["--task", "masked", "--tokenizer", "word"]),
    "translate": (sentences, ["--task", "translate"]),
    "summarise": (letters, ["--task", "summarise"]),
    "caption": (pictures, ["--task", "caption", "--set", "field=row,caption,base"]),
    "classify": (opinions, ["--task", "classify"]),
    "tag": (text("ud_english_ewt/en_ewt-ud-train.conllu.gz", "ewt.conllu"), ["--task", "tag"]),
    "match": (intents, ["--task", "match"]),
    "recommend": (ratings, ["--task", "recommend"]),
    "forecast": (text("ett/ETTh1.csv.gz", "etth1.csv"), ["--task", "forecast"]),
    "fill": (text("ett/ETTh1.csv.gz", "etth1-fill.csv"), ["--task", "fill"]),
}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=Path, required=True, help="the folder of data and runs")
    parser.add_argument("--train", choices=[*RUNS, "all"], help="train it; by default all trained runs are evaluated")
    parser.add_argument("--cores", type=int, help="of each run, which gets its own, beside the others")
    parser.add_argument("--budget", default=BUDGET)
    options = parser.parse_args()
    options.runs.mkdir(parents=True, exist_ok=True)
    if options.train is not None:
        names = list(RUNS) if options.train == "all" else [options.train]
        sys.exit(max(train(options.runs, names, options.cores, options.budget)))
    names = [name for name in RUNS if is_trained(options.runs / name)]
    pinned = json.loads((options.runs / "pinned.json").read_text()) if (options.runs / "pinned.json").exists() else {}
    rows = [measured(name, Run(options.runs / name, "cpu")) for name in names]
    save_result("defaults", rows, budget=options.budget, **pinned)


def is_trained(folder: Path) -> bool:
    return (folder / "model.safetensors").exists()


def train(folder: Path, names: list[str], cores: int | None, budget: str) -> list[int]:
    """Train as a user does, and return the exit statuses; with `cores`, side by side on cores of their own."""
    names = [name for name in names if not is_trained(folder / name)]
    free: Queue[list[str]] = Queue()
    if cores is None:
        free.put([])
    else:
        there = sorted(os.sched_getaffinity(0))
        for first in range(0, len(there) - cores + 1, cores):
            free.put(["taskset", "-c", ",".join(map(str, there[first : first + cores]))])
        (folder / "pinned.json").write_text(json.dumps({"cores_of_a_run": cores}))

    def one(name: str) -> int:
        where = free.get()
        write, words = RUNS[name]
        command = [*where, sys.executable, "-m", "recollect", "train", write(folder), *words, "--budget", budget]
        done = subprocess.run([*command, "--out", str(folder / name)], capture_output=True, text=True, check=False)
        free.put(where)
        print(name, done.returncode, done.stdout.strip().splitlines()[-2:], done.stderr[-2000:], flush=True)
        return done.returncode

    with ThreadPoolExecutor(free.qsize()) as pool:
        return list(pool.map(one, names)) or [0]


def measured(name: str, run: Run) -> dict[str, Any]:
    """Return what a run was and what it scores on its test part."""
    config = run.config()
    shape = run.saved()["model"]
    last = next(row for row in reversed(run.metrics()) if "tokens" in row)
    parts = count_apart(run.model)
    scores = run.evaluate()
    row = {"name": name, "task": config.task, "words": RUNS[name][1], "family": config.family, "size": config.size}
    row |= {"width": shape["width"], "layers": shape.get("layers"), "body": parts.body, "embeddings": parts.vocabulary}
    coder = run.tokenizer  # numbers have none
    row |= {} if coder is None else {"tokenizer": coder.kind, "vocabulary": coder.vocab_size}
    row |= {"updates": last["step"], "tokens": last["tokens"], "seconds": last["seconds"]}
    row |= {"scores": {read: dict(values) for read, values in scores.rows.items()}}
    row |= {"lower_is_better": scores.lower_is_better}
    baselines = {found.name: found.value for found in run.task.baselines(run.dataset())}
    print(name, row["scores"], flush=True)
    return row | {"baselines": baselines}


if __name__ == "__main__":
    main()
