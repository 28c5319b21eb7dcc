"""What `recollect evaluate` does: a run and a text to a table of exact figures."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from recollect.data.corpus import read_ids
from recollect.evaluate import Score, loss_by_position, score_carried, score_windows
from recollect.recipe import Recipe
from recollect.run import Run
from recollect.training import corpus_of


def measure(run: Run, data: str | None, steps: int | None, device: str = "cpu") -> dict[str, Any]:
    """Score the run's own test part, or another text, in every way the model can read."""
    model, tokenizer = run.load(device)
    recipe = Recipe(**run.config()["training"])
    if data is None:
        corpus = corpus_of(run, recipe)
        ids, ends = np.asarray(corpus.test), corpus.ends["test"]
    else:
        ids, ends = read_ids(data, tokenizer, recipe.field)
    if len(ids) == len(ends):
        raise ValueError(f"{data or recipe.data}: seen {len(ids)} symbols, wanted at least 2 to predict one")
    steps = steps or recipe.steps
    text = tokenizer.decode(np.delete(ids, [0, *ends[:-1]]))  # what is predicted: not the documents' first symbols
    ways = {"carried": score_carried} if model.carries else {}
    ways["cold windows"] = score_windows
    rows = [{"read": name} | _figures(way(model, ids, steps, ends=ends), text) for name, way in ways.items()]
    return {"run": str(run.folder), "symbols": len(ids), "steps": steps, "rows": rows} | {
        "by_position": loss_by_position(model, ids, steps, ends=ends)
    }


def _figures(score: Score, text: str) -> dict[str, float]:
    return {
        "nats": score.loss,
        "perplexity": score.perplexity if score.loss < 700 else math.inf,
        "bpc": score.bits_per(len(text)),
        "bpb": score.bits_per(len(text.encode())),
    }
