"""What `recollect evaluate` does: a run and a text to a table of exact figures."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from recollect.data.text import read_text
from recollect.evaluate import Score, loss_by_position, score_carried, score_windows
from recollect.run import Run
from recollect.training import Recipe, open_corpus


def measure(run: Run, data: str | None, steps: int | None) -> dict[str, Any]:
    """Score the run's own test part, or another text, in every way the model can read."""
    model, tokenizer = run.load()
    recipe = Recipe(**run.config()["training"])
    if data is None:
        ids = np.asarray(open_corpus(recipe).test)
    else:
        ids = tokenizer.encode("".join(read_text(data, field=recipe.field)))
    if len(ids) < 2:
        raise ValueError(f"{data or recipe.data}: seen {len(ids)} symbols, wanted at least 2 to predict one")
    steps = steps or recipe.steps
    text = tokenizer.decode(ids[1:])
    ways = {"carried": score_carried} if model.carries else {}
    ways["cold windows"] = score_windows
    rows = [{"read": name} | _figures(way(model, ids, steps), text) for name, way in ways.items()]
    return {"run": str(run.folder), "symbols": len(ids), "steps": steps, "rows": rows} | {
        "by_position": loss_by_position(model, ids, steps)
    }


def _figures(score: Score, text: str) -> dict[str, float]:
    return {
        "nats": score.loss,
        "perplexity": score.perplexity if score.loss < 700 else math.inf,
        "bpc": score.bits_per(len(text)),
        "bpb": score.bits_per(len(text.encode())),
    }
