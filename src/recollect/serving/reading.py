"""What one model did with a text, as the page reads it: the arrays of its trace, packed under the trace's names.

Beside those of the trace: `next.log_p` (T, K), ln p of the likeliest next symbols, and `next.log_norm` (T, J), with
which the page computes their probabilities at each temperature of `TEMPERATURES`, p^(1/τ) / Σ p^(1/τ), exactly; the
means over units or heads of gates and inner losses, `NAME.mean` (T); and `page.strip` (T, U), the units of the last
layer's state that vary most, its attention weights, or how far its inner weights have moved.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from recollect.core.types import JsonObject
from recollect.inspection.changes import Changes, changed
from recollect.inspection.inspector import explained_within, inspect
from recollect.inspection.subject import LONGEST
from recollect.inspection.trace import Trace
from recollect.serving.packing import pack, pack_ids
from recollect.serving.shown_model import ShownModel
from recollect.serving.spans import Spans, spans_of

TEMPERATURES = (0.25, 0.5, 0.75, 1, 1.25, 1.5, 2)
CANDIDATES = 12  # likeliest next symbols that are kept
UNITS = 48  # of a state that are drawn
CHUNK = 256  # steps read at once
PATIENCE = 30  # seconds that the gradients of one model may take; of a large model fewer predictions are explained
MEANS = ("input_gate", "forget_gate", "output_gate", "reset_gate", "update_gate", "inner_loss", "inner_loss_after")
PACKED = {"loss": "f4", "reach": "f4", "reach.curve": "f4", "memory.bytes": "u4", "outcome.at": "u4"}


def read_text(shown: ShownModel, text: str, **changes: Any) -> tuple[JsonObject, Spans]:
    """Return a model's reading, and the spans of its symbols; `changes` are those of `rc.inspect`."""
    ids = np.asarray(shown.tokenizer.encode(text), dtype=np.int64)
    model = changed(shown.model, Changes(**changes), {one["name"]: one["path"] for one in shown.layers})
    size = sum(p.numel() for p in model.parameters())
    explain = explained_within(PATIENCE, size, min(max(len(ids), 1), LONGEST))
    trace = inspect(model, text, tokenizer=shown.tokenizer, brief=True, explain=explain) if len(ids) else None
    count = 0 if trace is None else len(trace.tokens)
    spans = spans_of(shown.tokenizer, text, ids.tolist()).last(count)
    data: JsonObject = {
        "ids": ids[len(ids) - count :].tolist(),
        "tokens": spans.texts,
        "layers": [] if trace is None else [{"name": one["name"]} for one in trace.layers],
        "missing": {} if trace is None else {name: dict(reason) for name, reason in trace.missing.items()},
        "skipped": 0 if trace is None else trace.skipped,
        "bytes_before": model.initial_memory(1).nbytes,
        "arrays": {},
        "vocabulary": {},
    }
    if trace is not None:
        log_p = log_probabilities(model, ids, count)
        data["arrays"] = {**_next(log_p), **_packed(trace)}
        best = log_p.topk(min(CANDIDATES, log_p.shape[1])).indices.unique().tolist()
        data["vocabulary"] = {str(i): shown.tokenizer.decode([i]) for i in best}
        strip, kind = _strip(trace)
        if strip is not None:
            data["strip"] = kind
            data["arrays"]["page.strip"] = pack(strip)
    return data, spans


@torch.no_grad()
def log_probabilities(model: Any, ids: NDArray[np.int64], count: int) -> Tensor:
    """Return ln p of every next symbol after each of the last `count` (T, V), in float64."""
    x = torch.as_tensor(ids, device=model._home()[1])[None]
    memory = model.initial_memory(1)
    kept = []
    for start in range(0, x.shape[1], CHUNK):
        logits, memory = model(x[:, start : start + CHUNK], memory)
        kept.append(logits[0].double().cpu())
    return torch.cat(kept)[-count:].log_softmax(-1)


def _next(log_p: Tensor) -> dict[str, JsonObject]:
    best = log_p.topk(min(CANDIDATES, log_p.shape[1]))
    norms = [(log_p / temperature).logsumexp(-1) for temperature in TEMPERATURES]
    return {
        "next.ids": pack_ids(best.indices.numpy()),
        "next.log_p": pack(best.values.numpy()),
        "next.log_norm": pack(torch.stack(norms, dim=1).numpy()),
    }


def _packed(trace: Trace) -> dict[str, JsonObject]:
    """Return the arrays of a trace that the page shows."""
    found = {name: pack(trace[name], dtype) for name, dtype in PACKED.items() if name in trace}
    if "reach" not in trace and "left_out" in trace:
        found["left_out"] = pack(np.nan_to_num(trace["left_out"]))
    for layer in trace.layers:
        own = layer["name"]
        found |= {
            f"{own}.{kind}.mean": pack(trace[f"{own}.{kind}"].mean(1)) for kind in MEANS if f"{own}.{kind}" in trace
        }
        for kind, dtype in (("weights", "f4"), ("context_length", "u2")):
            if f"{own}.{kind}" in trace:
                found[f"{own}.{kind}"] = pack(trace[f"{own}.{kind}"], dtype)
    return found


def _strip(trace: Trace) -> tuple[NDArray[Any] | None, str]:
    """Return what is drawn of the last layer's memory over time (T, U), and what it is."""
    for layer in reversed(trace.layers):
        own = layer["name"]
        for kind in ("cell", "hidden"):
            values = trace.get(f"{own}.{kind}")
            if values is not None:
                return values[:, np.sort(np.argsort(-values.std(0), kind="stable")[:UNITS])], kind
        if f"{own}.weights" in trace:
            return trace[f"{own}.weights"].mean(0), "map"
    moved = [trace[f"{one['name']}.movement"] for one in trace.layers if f"{one['name']}.movement" in trace]
    return (np.concatenate(moved, axis=1), "movement") if moved else (None, "")
