"""What benchmarks/transfer.py reads: prose to pre-train on, labelled sentences, and a folder that can be carried."""

from __future__ import annotations

import gzip
import os
import re
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np

from common import SMOKE, data_folder
from recollect.core.serialize import read_tensors, write_tensors

PARTS = {"train": "sst/stsa.binary.train.gz", "valid": "sst/stsa.binary.dev", "test": "sst/stsa.binary.test"}
READ = ("gutenberg_mix/*", "sst/stsa.binary.*", "ud_english_ewt/*.conllu.gz", "wnut17/*", "snips/*/*")
CARRIED = 54 * 2**20  # bytes of what travels beside the project, which has nine million itself


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
    lines = [lines[i] for i in np.random.default_rng(0).permutation(len(lines))[: 2000 if SMOKE else None]]
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


def carry(model: Path, out: Path) -> None:
    """Write a folder of what the cells read: the weights with matrices of 16 bits, and the texts."""
    shutil.rmtree(out, ignore_errors=True)
    shutil.copytree(model, out / "minilm", ignore=shutil.ignore_patterns("*.md", "data_config.json", "vocab.txt"))
    header, tensors = read_tensors(model / "model.safetensors")
    halved = {name: t.half() if t.is_floating_point() else t for name, t in tensors.items()}
    write_tensors(halved, out / "minilm" / "model.safetensors", header)
    home = data_folder()
    for source in (path for pattern in READ for path in home.glob(pattern)):
        target = out / source.relative_to(home)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, target)
    size = sum(path.stat().st_size for path in out.rglob("*") if path.is_file())
    fits = "fits" if size <= CARRIED else f"does not fit: expected at most {CARRIED / 2**20:.0f} MiB"
    print(f"{out}: {size / 2**20:.1f} MiB, {fits}")
