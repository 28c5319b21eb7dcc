"""Multi30k: the whole line from Sutskever to the Transformer, one evaluator.

    RECOLLECT_DATA=FOLDER python benchmarks/multi30k.py --device cuda [--only NAME …] [--at-once 4]

29,000 pairs, joint byte pairs learned from training text alone, every model trained with teacher forcing on the same
batches; the checkpoint is that of the lowest validation loss. BLEU by sacrebleu on test 2016 and test 2017, greedy and
with a beam of 5, with its signature; also by source length, the loss at each target position, and, where one vector
carries the source, what a linear classifier reads back from it. Each run is a separate process; runs that share a GPU
slow each other down. Rows that are not run again are kept.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch

from common import COMMIT, data_folder, earlier, save_result
from probe import what_c_remembers
from recollect.core.task import Scores
from recollect.data.pairs.pair_batches import PairBatches, gather_pairs, groups_by_length
from recollect.data.pairs.pair_rows import PairPart
from recollect.data.pairs.pairs import Pairs, load_pairs, read_part
from recollect.evaluation.likelihood import NATS, score_targets
from recollect.evaluation.text_metrics import bleu, chrf
from recollect.generation.settings import Search
from recollect.generation.translation import TokenizerPair, translate
from recollect.models.sizes import parts_of
from recollect.models.translation import TranslationConfig, Translator
from recollect.training.checkpoint import load_checkpoint
from recollect.training.loop import train
from recollect.training.objective import NextSymbol
from recollect.training.optimizer import Optimizer
from recollect.training.state import TrainingBudget, TrainingPlan, TrainingState

LONGEST, BORDERS = 80, (0, 8, 11, 14, 18, 1000)  # symbols of a target; source words that divide the test set
PARTS = ("test_2016_flickr", "test_2017_flickr")
LEAST = {"sutskever": 20, "cho": 25, "bahdanau": 33, "luong": 33, "transformer": 39, "transformer, to German": 36.5}


@dataclass(frozen=True)
class Setting:
    """One row: a family, a direction, and how it was trained."""

    family: str
    model: dict[str, Any]
    rate: float = 1e-3
    epochs: int = 40
    tokens: int = 4096
    schedule: str = "cosine"
    warmup: float = 0.05
    smoothing: float = 0.1
    vocab_size: int = 10_000
    weight_decay: float = 0.01
    to_german: bool = False
    cased: bool = False  # capitals are read and written as they are
    seed: int = 0
    precision: str = "bf16"  # of matmuls; recurrences by our own kernels


RECURRENT = {"width": 256, "hidden": 512, "dropout": 0.5}
ATTENTIVE = {"width": 256, "hidden": 1024, "layers": 4, "heads": 8, "dropout": 0.3, "norm": "pre"}
ATTENTIVE |= {"tied": True, "shared": True}
DOT = {"dropout": 0.3, "score": "dot"}
NARROW = {"width": 128, "hidden": 512}
BASE = {
    "sutskever": Setting("sutskever", RECURRENT | {"layers": 2, "reversed_source": True}),
    "start only": Setting(
        "sutskever", RECURRENT | {"cell": "gru"}
    ),  # beside Cho: the same encoder, c in the first state
    "cho": Setting("cho", RECURRENT),
    "static, last": Setting("static", RECURRENT | {"context": "last"}),
    "static, projected": Setting("static", RECURRENT | {"context": "projected"}),
    "static, mean": Setting("static", RECURRENT | {"context": "mean"}),
    "static, max": Setting("static", RECURRENT | {"context": "max"}),
    "static, attention": Setting("static", RECURRENT | {"context": "attention"}),
    "bahdanau": Setting("bahdanau", RECURRENT, epochs=30),
    "luong": Setting("luong", RECURRENT | DOT, rate=3e-3, epochs=20),
    "luong, general": Setting("luong", RECURRENT, rate=3e-3, epochs=20),
    "luong, general, 2 layers": Setting("luong", RECURRENT | {"layers": 2, "dropout": 0.3}, rate=3e-3, epochs=20),
    "luong, general, 2 layers, rate 1e-3": Setting("luong", RECURRENT | {"layers": 2}, epochs=30),
    "luong, general, gru": Setting("luong", RECURRENT | {"cell": "gru"}, rate=2e-3, epochs=20),
    "transformer": Setting("transformer", ATTENTIVE, rate=2e-3, tokens=8192),
    "transformer, half batches": Setting("transformer", ATTENTIVE),
    "transformer, width 128": Setting("transformer", ATTENTIVE | NARROW, rate=2e-3, epochs=60),
}
LINE = ("sutskever", "cho", "bahdanau", "luong", "transformer")
TRIED = ("transformer, half batches", "transformer, width 128")  # beside LINE, where validation chose
SETTINGS = (
    {f"{name}, seed {seed}": replace(BASE[name], seed=seed) for name in LINE for seed in range(3)}
    | {f"{name}, to German": replace(BASE[name], to_german=True) for name in (*LINE, *TRIED)}
    | {name: setting for name, setting in BASE.items() if name not in LINE}
    | {"transformer, cased": replace(BASE["transformer"], cased=True)}
    | {"transformer, cased, to German": replace(BASE["transformer"], cased=True, to_german=True)}
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--only", nargs="+", default=list(SETTINGS), choices=SETTINGS)
    parser.add_argument("--at-once", type=int, default=4)
    parser.add_argument("--share", type=float, default=1.0, help="of the epochs, for a trial")
    parser.add_argument("--plain", action="store_true", help="without captured updates")
    parser.add_argument("--one", help="run only this row, and print it")
    parser.add_argument("--cache", help="where tokenised pairs are kept for all runs")
    options = parser.parse_args()
    torch.backends.cuda.matmul.allow_tf32 = True
    if options.one:
        print(json.dumps(one_run(options.one, SETTINGS[options.one], options)))
        return
    rows = {row["name"]: row for row in earlier("multi30k")}
    with tempfile.TemporaryDirectory() as options.cache, ThreadPoolExecutor(options.at_once) as pool:
        for setting in {(s.to_german, s.cased): s for s in map(SETTINGS.__getitem__, options.only)}.values():
            open_pairs(setting, options.cache)  # once for all
        for done in as_completed([pool.submit(in_a_process, name, options) for name in options.only]):
            rows[done.result()["name"]] = done.result()
            save_result("multi30k", [rows[name] for name in SETTINGS if name in rows], least=LEAST)


def in_a_process(name: str, options: Any) -> dict[str, Any]:
    words = [sys.executable, "-W", "ignore", __file__, "--one", name, "--device", options.device]
    words += ["--share", str(options.share), *(["--plain"] if options.plain else [])]
    words += ["--cache", options.cache, "--at-once", str(options.at_once)]
    done = subprocess.run(words, stdout=subprocess.PIPE, text=True, check=True)
    row = json.loads(done.stdout.splitlines()[-1])
    brief = {key: value for key, value in row.items() if not isinstance(value, (dict, list))}
    print(brief | {part: row[part]["beam 5"]["bleu_lowercase"] for part in PARTS}, flush=True)
    return row


def one_run(name: str, setting: Setting, options: Any) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        data = open_pairs(setting, options.cache or folder)
        torch.manual_seed(setting.seed)
        sizes = data.source_tokenizer.model_size, data.target_tokenizer.model_size
        model = Translator(TranslationConfig(setting.family, *sizes, **setting.model)).to(options.device)
        begun = time.perf_counter()
        state = learn(setting, model, data, options, Path(folder))
        load_checkpoint(Path(folder) / f"step-{state.progress.best_step:08d}", model)
        minutes = (time.perf_counter() - begun) / 60
        row = {"name": name, "setting": asdict(setting), "commit": COMMIT, "minutes": minutes}
        row["at_once"] = options.at_once
        row |= {"parameters": parts_of(model.config).total, "best_step": state.progress.best_step}
        row |= {"learning_seconds": state.progress.seconds, "tokens": state.progress.tokens}
        row |= {"valid": {"nats": state.progress.best, "beam 5": speak(model, data, data.valid, 5)[1]}}
        row |= {part: measure(model, data, setting, part) for part in PARTS}
        if setting.family in ("sutskever", "cho"):
            row |= {"remembered": what_c_remembers(model, data, held_out_part(data, setting))}
        return row


def files(part: str, to_german: bool) -> str:
    sides = ("en", "de") if to_german else ("de", "en")
    return ",".join(str(data_folder() / "multi30k" / f"{part}.{side}.gz") for side in sides)


def open_pairs(setting: Setting, folder: str) -> Pairs:
    given = {part: files(name, setting.to_german) for part, name in (("valid", "val"), ("test", "test_2016_flickr"))}
    options: dict[str, Any] = {"tokenizer": "bpe", "joint": True, "vocab_size": setting.vocab_size}
    return load_pairs(files("train", setting.to_german), **options, lowercase=not setting.cased, **given, cache=folder)


def learn(setting: Setting, model: Translator, data: Pairs, options: Any, folder: Path) -> TrainingState:
    how: dict[str, Any] = {"rate": setting.rate, "schedule": setting.schedule, "warmup": setting.warmup}
    optimise = Optimizer(**how, betas=(0.9, 0.98), weight_decay=setting.weight_decay, clip_norm=1.0)
    batches = PairBatches(data.train, begin=data.begin, end=data.end, tokens=setting.tokens, seed=setting.seed)
    budget = TrainingBudget(tokens=round(options.share * setting.epochs * batches.predicted))
    every = 2 * len(batches.round)  # updates to two rounds
    precision: Any = setting.precision
    plan = TrainingPlan(budget, optimise, evaluate_every=every, save_every=10**9, keep=1)
    state = TrainingState(model, batches, optimise.build(model), NextSymbol(setting.smoothing))
    plan = replace(plan, precision=precision, capture=not options.plain)
    train(state, plan, partial(held_out, data), folder)
    return state


def held_out(data: Pairs, model: Translator) -> Scores:
    loss = score_targets(model, data.valid, data.begin, data.end).loss
    return Scores({"loss": NATS}, {"targets given": {"loss": loss}})


def held_out_part(data: Pairs, setting: Setting, name: str = "test_2016_flickr") -> PairPart:
    return read_part(files(name, setting.to_german), data.source_tokenizer, data.target_tokenizer)


def measure(model: Translator, data: Pairs, setting: Setting, name: str) -> dict[str, Any]:
    part = held_out_part(data, setting, name)
    found: dict[str, Any] = {"nats": score_targets(model, part, data.begin, data.end).loss}
    for width in (1, 5):
        lines, found[f"beam {width}"] = speak(model, data, part, width)
    found["by_length"] = by_length(lines, part.target_lines, part.source_lines)
    found["by_position"] = by_position(model, part, data)
    return found


def speak(model: Translator, data: Pairs, part: PairPart, width: int) -> tuple[list[str], dict[str, Any]]:
    """Translate a part, and return the lines with their scores."""
    begun, search = time.perf_counter(), Search(width=width, tokens=LONGEST, length="power", alpha=1.0)
    tokenizers = TokenizerPair(data.source_tokenizer, data.target_tokenizer)
    lines = [best[0].text for best in translate(model.eval(), tokenizers, part.source_lines, search, 100)]
    seconds, small = time.perf_counter() - begun, bleu(lines, part.target_lines, lowercase=True)
    scores = {"bleu_lowercase": small["score"], "bleu": bleu(lines, part.target_lines)["score"], "seconds": seconds}
    scores |= {"chrf_lowercase": chrf(lines, part.target_lines, lowercase=True)["score"]}
    return lines, scores | {"signature": small["signature"]}


def by_length(lines: list[str], references: list[str], sources: list[str]) -> list[dict[str, Any]]:
    """Return BLEU of the beam's lines by the number of words in the source."""
    rows = []
    for low, high in pairwise(BORDERS):
        chosen = [i for i, source in enumerate(sources) if low <= len(source.split()) < high]
        score = bleu([lines[i] for i in chosen], [references[i] for i in chosen], lowercase=True)["score"]
        rows.append({"words": [low, high], "pairs": len(chosen), "bleu_lowercase": score})
    return rows


@torch.no_grad()
def by_position(model: Translator, part: PairPart, data: Pairs, most: int = 20) -> list[float]:
    """Return the mean nats at each target position, over targets that are at least `most` long."""
    chosen = np.flatnonzero(part.targets.lengths >= most)
    total, count = np.zeros(most), 0
    for x, y, memory in remembered(model, part, chosen, data):
        losses = torch.nn.functional.cross_entropy(model(x, memory)[0].flatten(0, 1), y.flatten(), reduction="none")
        total += losses.view_as(y).sum(0).double().cpu().numpy()
        count += len(y)
    return (total / max(count, 1)).tolist()


def remembered(model: Translator, part: PairPart, chosen: np.ndarray, data: Pairs, most: int = 20) -> Iterator[Any]:
    home = next(model.parameters()).device
    for numbers in groups_by_length(part, chosen, 8192):
        batch = gather_pairs(part, numbers, data.begin, data.end)
        valid = None if batch.source_valid is None else batch.source_valid.to(home)
        yield batch.x[:, :most].to(home), batch.y[:, :most].to(home), model.remember(batch.source.to(home), valid)


if __name__ == "__main__":
    main()
