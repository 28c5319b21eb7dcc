"""Captions of emoji, in English and in Chinese: our two families against the majority and the nearest neighbour.

    RECOLLECT_DATA=FOLDER python benchmarks/captions.py [--updates 8000] [--size tiny] [--device cuda] [--seeds 3]

FOLDER/emoji_captions holds 3,786 pictures of 32×32 (Twemoji) with their names (CLDR). Held out by base emoji: all skin
tones of one emoji are in one part, so that no emoji of the test part was trained on in another colour. 5 % of the base
emoji are for validation and 5 % for test, chosen by the hash of their English name. Every caption of a part counts
once.

majority   the most frequent training caption, for every picture
neighbour  the caption of the training picture that is nearest in pixels (squared distance)

Both families have the same number of all parameters, embeddings and output included: the size's. The models caption by
beam search of 5; their weights are those of the highest chrF on the validation pictures.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import os
import re
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import torch

from common import data_folder, save_result
from recollect.core.task import Scores
from recollect.data.images.captions import CaptionPart, Captions, load_captions
from recollect.evaluation.likelihood import score_captions
from recollect.evaluation.text_metrics import bleu, chrf, exact_match, rouge_l
from recollect.generation.captions import caption, patient
from recollect.models.captioning import FAMILIES
from recollect.models.sizes import TARGETS, sized_captioner
from recollect.runs.config import RunConfig
from recollect.runs.run import Run
from recollect.runs.train import keep_best, start
from recollect.tasks.translate import MEASURES
from recollect.training.loop import train

LANGUAGES = {"en": "caption_en", "zh": "caption_zh"}
TONES = re.compile(r"\b(?:medium-|)(?:light|medium|dark) skin tone\b")
MOST_WORDS = 50_000  # none is left out
SETTINGS: dict[str, Any] = {"batch_size": 16, "dropout": 0.3, "smoothing": 0.1, "evaluate_every": 500}


def main() -> None:
    options = _options()
    with tempfile.TemporaryDirectory() as folder:
        os.environ["XDG_CACHE_HOME"] = folder
        tables = {language: _table(Path(folder), language) for language in LANGUAGES}
        rows = [row for language, table in tables.items() for row in measure(table, language, options, Path(folder))]
    save_result("captions", rows, settings=SETTINGS | {"updates": options.updates})


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--updates", type=int, default=8000, help="of each model")
    parser.add_argument("--size", default="tiny")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--seeds", type=int, default=1)
    return parser.parse_args()


def base_of(name: str) -> str:
    """Return an emoji's English name without its skin tones.

    >>> base_of("woman: medium-dark skin tone, red hair") == base_of("woman: red hair")
    True
    """
    return " ".join(re.findall(r"\w+", TONES.sub("", name)))


def _table(folder: Path, language: str) -> str:
    """Write the captions in our format, with the base emoji in a third column, beside a link to the pictures."""
    source = data_folder() / "emoji_captions"
    with gzip.open(source / "captions.tsv.gz", "rt", encoding="utf-8", newline="") as file:
        found = list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))
    lines = ["row\tcaption\tbase"]
    lines += [f"{n}\t{row[LANGUAGES[language]]}\t{base_of(row['caption_en'])}" for n, row in enumerate(found)]
    table = folder / f"{language}.tsv"
    table.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return f"{source / 'images32.npz'},{table}"


def measure(table: str, language: str, options: argparse.Namespace, folder: Path) -> list[dict[str, Any]]:
    """Return a row for each baseline and each family."""
    data = load_captions(table, field="row,caption,base", vocab_size=MOST_WORDS)
    facts = {"language": language, "captions": [len(part) for part in (data.train, data.valid, data.test)]}
    facts["vocabulary"] = data.tokenizer.vocab_size
    rows = [_row(baseline.__name__, baseline(data), data, **facts) for baseline in (majority, neighbour)]
    for family in FAMILIES:
        for seed in range(options.seeds):
            run = Run(folder / f"{family}-{language}-{seed}")
            figures = _learned(table, family, run, options, seed, data)
            rows.append(_row(family, *figures, **facts))
    return rows


def majority(data: Captions) -> list[str]:
    commonest, _ = Counter(data.train.pairs.target_lines).most_common(1)[0]
    return [commonest] * len(data.test)


def neighbour(data: Captions) -> list[str]:
    known, asked = (_vectors(part) for part in (data.train, data.test))
    apart = (known**2).sum(1) - 2 * asked @ known.T  # without the norm of the query, which is the same for all
    captions = data.train.pairs.target_lines
    return [captions[int(number)] for number in apart.argmin(1)]


def _vectors(part: CaptionPart) -> Any:
    return part.pictures_of(range(len(part))).reshape(len(part), -1).astype(np.float64) / 255


def _learned(
    table: str, family: str, run: Run, options: argparse.Namespace, seed: int, data: Captions
) -> tuple[list[str], Captions, dict[str, Any]]:
    budget = {"max_steps": options.updates, "size": options.size, "device": options.device, "seed": seed}
    recipe = RunConfig.make(table, family, task="caption", field="row,caption,base", **budget, **SETTINGS)
    model, figures = _trained(recipe, run, data)
    forced = score_captions(model, data.test, data.begin, data.end)
    figures |= {"seed": seed, "parameters": sum(p.numel() for p in model.parameters()), "nats": forced.loss}
    return say(model, data, data.test, 5), data, figures


def _trained(recipe: RunConfig, run: Run, data: Captions) -> tuple[Any, dict[str, Any]]:
    """Train, and return the weights with the highest chrF of greedy captions of the validation pictures.

    The validation loss is lowest long before: later the model is more confident also where it is wrong.
    """
    task, device = recipe.make_task(), recipe.training.device
    torch.manual_seed(recipe.training.seed)
    shape = data.tokenizer.model_size, data.size, recipe.size
    model = sized_captioner(recipe.family, *shape, parameters=TARGETS[recipe.size], **recipe.settings)
    run.create(recipe, model, task.assets(data), data.name)
    state = start(recipe, task, run.build().to(device), data)
    wanted = data.valid.pairs.target_lines

    def greedy(model: Any) -> Scores:
        found = chrf(say(model, data, data.valid, 1), wanted)["score"]
        return Scores({"chrf": MEASURES["chrf"]}, {"greedy": {"chrf": found}})

    train(state, recipe.training.plan(state.batches.predicted), greedy, run.checkpoints)
    keep_best(state, run)
    done = state.progress
    return run.load_model(device), {"updates": done.step, "best_update": done.best_step, "valid_chrf": done.best}


def say(model: Any, data: Captions, part: CaptionPart, width: int) -> list[str]:
    """Return a model's best caption for each caption of a part."""
    found = caption(model, data.tokenizer, part.pictures_of(range(len(part))), patient(width, 30), batch_size=256)
    return [best[0].text for best in found]


def _row(name: str, said: list[str], data: Captions, learned: dict[str, Any] | None = None, **facts: Any) -> Any:
    wanted = data.test.pairs.target_lines
    scored, characters = bleu(said, wanted), chrf(said, wanted)
    figures = {"bleu": scored["score"], "chrf": characters["score"]}
    figures |= {"rouge_l": rouge_l(said, wanted), "exact": exact_match(said, wanted)}
    print(facts["language"], f"{name:17}", " ".join(f"{key} {value:.3f}" for key, value in figures.items()), flush=True)
    some = [{"said": one, "wanted": other} for one, other in list(zip(said, wanted, strict=True))[:: len(said) // 8]]
    signatures = [scored["signature"], characters["signature"]]
    return {"model": name, **facts, **(learned or {}), **figures, "signatures": signatures, "examples": some}


if __name__ == "__main__":
    main()
