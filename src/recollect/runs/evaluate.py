"""What `recollect evaluate` does: a run and a text to a table of exact figures."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from recollect.data.images.captions import read_caption_part
from recollect.data.pairs.pairs import read_part
from recollect.data.text.corpus import read_ids
from recollect.evaluation.likelihood import (
    Likelihood,
    loss_by_position,
    score_captions,
    score_carried,
    score_targets,
    score_windows,
)
from recollect.evaluation.text_metrics import bleu, chrf, exact_match, rouge_l
from recollect.generation.captions import caption, patient
from recollect.generation.settings import Search
from recollect.generation.translation import translate
from recollect.runs.config import Recipe
from recollect.runs.predict import LONGEST, caption_tokenizer_of, tongues_of
from recollect.runs.run import Run
from recollect.runs.train import data_of


def measure(run: Run, data: str | None, steps: int | None, device: str = "cpu") -> dict[str, Any]:
    """Score the run's own test part, or other data, in every way that its task knows."""
    recipe = Recipe(**run.config()["training"])
    ways = {"language": measure_text, "caption": measure_captions}
    return ways.get(recipe.task, measure_pairs)(run, recipe, data, steps, device)


def measure_pairs(run: Run, recipe: Recipe, data: str | None, steps: int | None, device: str) -> dict[str, Any]:
    """Score targets given their sources, and translate the sources: greedily, and by a beam of 5."""
    model, tongues = run.load(device), tongues_of(run)
    part = data_of(run, recipe).test if data is None else read_part(data, tongues.source, tongues.target, recipe.field)
    sources, references = part.source_lines, part.target_lines
    forced = score_targets(model, part, tongues.target.begin, tongues.target.end)
    rows = []
    for width in (1, 5):
        said = translate(model, tongues, sources, Search(width=width, tokens=steps or LONGEST))
        lines = [found[0].text if found else "" for found in said]
        row = {"read": "greedy" if width == 1 else f"beam {width}"} | _agreement(lines, references)
        rows.append(row)
    figures = {"nats": forced.loss, "perplexity": forced.perplexity, "rows": rows}
    return {"run": str(run.folder), "pairs": len(part), **figures}


def measure_captions(run: Run, recipe: Recipe, data: str | None, steps: int | None, device: str) -> dict[str, Any]:
    """Score captions given their pictures, and caption the pictures: greedily, and by a beam of 5.

    A picture with several captions is compared with each.
    """
    model, tokenizer = run.load(device), caption_tokenizer_of(run)
    if data is None:
        part = data_of(run, recipe).test
    else:
        part = read_caption_part(data, tokenizer, model.config.size, recipe.field)
    forced = score_captions(model, part, tokenizer.begin, tokenizer.end)
    rows = []
    for width in (1, 5):
        said = caption(model, tokenizer, part.pictures, patient(width, steps or LONGEST))
        lines = [said[int(number)][0].text for number in part.pairs.sources.flat]
        row = {"read": "greedy" if width == 1 else f"beam {width}"} | _agreement(lines, part.pairs.target_lines)
        rows.append(row)
    figures = {"nats": forced.loss, "perplexity": forced.perplexity, "rows": rows}
    return {"run": str(run.folder), "pairs": len(part), **figures}


def _agreement(lines: list[str], references: list[str]) -> dict[str, Any]:
    cased, small, characters = bleu(lines, references), bleu(lines, references, lowercase=True), chrf(lines, references)
    return {
        "bleu": cased["score"],
        "bleu_lowercase": small["score"],
        "chrf": characters["score"],
        "rouge_l": rouge_l(lines, references),
        "exact": exact_match(lines, references),
        "signatures": [cased["signature"], small["signature"], characters["signature"]],
    }


def measure_text(run: Run, recipe: Recipe, data: str | None, steps: int | None, device: str) -> dict[str, Any]:
    """Score a text, carried and in cold windows."""
    model, tokenizer = run.load(device), run.tokenizer()
    if data is None:
        corpus = data_of(run, recipe)
        ids, ends = np.asarray(corpus.test), corpus.ends["test"]
    else:
        ids, ends = read_ids(data, tokenizer, recipe.field)
    if len(ids) == len(ends):
        raise ValueError(f"{data or recipe.data}: got {len(ids)} symbols, expected at least 2 to predict one")
    steps = steps or recipe.steps
    text = tokenizer.decode(np.delete(ids, [0, *ends[:-1]]))  # what is predicted: not the documents' first symbols
    ways = {"carried": score_carried} if model.carries else {}
    ways["cold windows"] = score_windows
    rows = [{"read": name} | _figures(way(model, ids, steps, ends=ends), text) for name, way in ways.items()]
    return {"run": str(run.folder), "symbols": len(ids), "steps": steps, "rows": rows} | {
        "by_position": loss_by_position(model, ids, steps, ends=ends)
    }


def _figures(score: Likelihood, text: str) -> dict[str, float]:
    return {
        "nats": score.loss,
        "perplexity": score.perplexity if score.loss < 700 else math.inf,
        "bpc": score.bits_per(len(text)),
        "bpb": score.bits_per(len(text.encode())),
    }
