"""`rc.inspect`: trace a model while it reads."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from recollect.core.record import record
from recollect.core.types import JsonObject
from recollect.inspection.attention_flow import alignment_of, rollout_of, token_distance
from recollect.inspection.changes import Changes, changed
from recollect.inspection.explanation import curve, influence, left_out
from recollect.inspection.jacobians import WIDEST, power_norms, product_norms, spectrum, step_jacobians
from recollect.inspection.layer_arrays import LayerRead, arrays_of, layers_read
from recollect.inspection.opened import Opened, open_source, subject_of
from recollect.inspection.structure import structure_of
from recollect.inspection.subject import CANDIDATES, EXPLAINED, LONGEST, Subject, as_array
from recollect.inspection.trace import Array, Text, Trace
from recollect.layers.positions import Positions, sinusoids
from recollect.layers.recurrent.recurrence import Recurrence

SPEED = 2e10  # floating-point operations a second that a modest processor does in these sizes
PATIENCE = 300  # seconds


def inspect(
    model: Any,
    inputs: Any,
    *,
    tokenizer: Any = None,
    labels: Sequence[str] | None = None,
    explain: int = EXPLAINED,
    candidates: int = CANDIDATES,
    longest: int = LONGEST,
    temperature: float = 1.0,
    brief: bool = False,
    forget_bias: float | None = None,
    scaled: bool | None = None,
    window: int | None = None,
    inner_rate: float | None = None,
    knock_out: Sequence[tuple[str, int | str]] = (),
) -> Trace:
    """Return a trace of a model that reads `inputs`: what it computes, and which inputs decided what it predicts.

    model: a run, its folder, a pretrained model, or any model or layer of the package. inputs: a text; ids; a source,
    or a pair (source, target); a picture or its file; a table of a series or its values; "user,item"; vectors (T, D).

    `explain` predictions at most, the last ones, have gradients and are read again without each input; 0: none. Of a
    longer text the `longest` last tokens are shown. `temperature` divides the logits of the next tokens. `brief` omits
    what takes longest: spectra, chained Jacobians, and `left_out` where there are gradients.

    What if: `forget_bias`, `scaled`, `window`, `inner_rate` and `knock_out` are applied to a copy of the model; see
    `recollect.inspection.changes.Changes`.

    >>> model = rc.LanguageModel("lstm", vocab_size=256, width=16, layers=1)
    >>> trace = rc.inspect(model, "to be", tokenizer=rc.Tokenizer("byte"))
    >>> trace["layers.0.forget_gate"].shape, trace["reach"].shape
    ((5, 16), (5, 5))
    >>> kept = rc.inspect(model, "to be", tokenizer=rc.Tokenizer("byte"), knock_out=("layers.0", "forget_gate"))
    >>> float(kept["layers.0.forget_gate"].min())
    1.0
    """
    if temperature <= 0:
        raise ValueError(f"temperature: got {temperature}, expected a number above 0")
    changes = Changes(forget_bias, scaled, window, inner_rate, knock_out)
    begun = time.perf_counter()
    opened = open_source(model, tokenizer, labels)
    options = {"explain": explain, "candidates": candidates, "longest": longest, "temperature": temperature}
    was_training = opened.model.training
    opened.model.eval()
    try:
        trace = _trace(opened, inputs, changes, options, brief=brief)
    finally:
        opened.model.train(was_training)
    trace.model["seconds"] = round(time.perf_counter() - begun, 3)
    return trace


def _trace(opened: Opened, inputs: Any, changes: Changes, options: JsonObject, *, brief: bool) -> Trace:
    subject = subject_of(opened, inputs, **options)
    check_cost(subject, options["explain"], brief=brief)
    if changes.as_json():
        names = {one.name: one.path for one in _recorded(subject)[1]} if changes.knock_out else None
        subject = subject_of(opened, inputs, changed(opened.model, changes, names), **options)
    arrays, layers = _recorded(subject)
    with torch.no_grad():
        arrays |= subject.beside()
    missing: dict[str, Text] = {}
    cut = [one if subject.shown == slice(None) else one.cut(subject.shown) for one in layers]
    fitting = [one for one in cut if _fits(one, subject)]
    if len(fitting) < len(layers):
        missing["layers"] = SEGMENTS
    for layer in fitting:
        arrays |= arrays_of(layer)
        arrays |= {} if brief else recurrent_arrays(layer)
    arrays |= _over_layers(fitting, arrays, subject)
    arrays |= _explained(subject, missing, brief=brief)
    return Trace(
        tokens=tuple(subject.tokens),
        arrays=arrays,
        source=tuple(subject.source),
        outcomes=tuple(subject.outcomes),
        labels=tuple(subject.labels),
        skipped=subject.skipped,
        model=_facts(opened, subject, changes),
        layers=[one.facts() for one in fitting],
        missing=missing,
    )


SEGMENTS: Text = {
    "en": "a layer reads several rows as one step, or a class token besides: its steps are not the tokens",
    "zh": "有的层把几行当作一步来读，或另读一个分类标记：它的步与词元不对应",
}


def _recorded(subject: Subject) -> tuple[dict[str, Array], list[LayerRead]]:
    with torch.no_grad(), record(subject.model) as seen:
        arrays = subject.read()
        pooled = subject.pooled(seen)
    if pooled is not None:
        arrays["pool.weights"] = pooled.double().cpu().numpy()
    return arrays, layers_read(subject.model, seen, has_source=bool(subject.source))


def _fits(layer: LayerRead, subject: Subject) -> bool:
    """Return whether a layer's steps are the tokens that are shown."""
    read = len(subject.source) if layer.name.startswith("encoder.") else len(subject.tokens)
    steps = {value.shape[1] if name in ("weights", "scores") else len(value) for name, value in layer.values.items()}
    return steps == {read}


def recurrent_arrays(layer: LayerRead) -> dict[str, Array]:
    """Return the spectrum of a recurrent layer's W_hh, and the norms of the matrix products of its steps' Jacobians."""
    module = layer.module
    if not isinstance(module, Recurrence):
        return {}
    values, radius, largest = spectrum(module)
    found = {"spectrum": values, "radius": radius, "largest": largest}
    ordered = {name: value.flip(0) for name, value in layer.values.items()} if layer.is_backward else layer.values
    jacobians = step_jacobians(module, ordered) if module.hidden <= WIDEST else None
    if jacobians is not None:
        found["powers"] = power_norms(module)
        found["product_norms"] = product_norms(jacobians)[: len(jacobians)]
    return {f"{layer.name}.{name}": array for name, array in found.items()}


def _over_layers(layers: list[LayerRead], arrays: dict[str, Array], subject: Subject) -> dict[str, Array]:
    found: dict[str, Array | None] = {}
    if subject.source:
        weights = alignment_of(layers, arrays)
        found["alignment"] = None if weights is None else weights[list(subject.at)]
    else:
        found["rollout"] = rollout_of(layers, arrays)
        found["token_distance"] = token_distance(layers, arrays)
    found["positions"] = positions_of(subject)
    return {name: array for name, array in found.items() if array is not None}


def positions_of(subject: Subject) -> Array | None:
    """Return the vectors (T, D) that a layer of positions adds to those of the tokens; None where there is none."""
    of_tokens = getattr(subject.model, "decoder", subject.model)
    layer = next((one for one in of_tokens.modules() if isinstance(one, Positions)), None)
    if layer is None:
        return None
    places = torch.arange(subject.skipped, subject.skipped + len(subject.tokens))
    if layer.table is not None:
        return as_array(layer.table[places])
    return as_array(sinusoids(places[None], layer.width_out, torch.float64)[0])


def _explained(subject: Subject, missing: dict[str, Text], *, brief: bool) -> dict[str, Array]:
    """Return what each outcome depends on; reasons go to `missing`."""
    if not subject.outcomes:
        return {}
    numbers = torch.arange(len(subject.outcomes), device=subject.inputs.device)
    with torch.no_grad():
        if subject.why_not_left_out is None:
            own = subject.values(subject.inputs[None], torch.zeros_like(numbers), numbers)
        else:
            rows = subject.inputs.expand(len(numbers), *subject.inputs.shape)
            own = subject.values(rows, numbers, numbers)
    found = {"outcome.at": np.array(subject.at), "outcome.logprob": own.double().cpu().numpy()}
    if subject.why_no_gradient is None:
        reach, saliency = influence(subject)
        found |= {"reach": reach, "saliency": saliency}
        if not subject.source and subject.kind != "recommend":
            found["reach.curve"] = curve(reach, list(subject.at), subject.is_causal)
    else:
        missing |= dict.fromkeys(("reach", "saliency"), subject.why_no_gradient)
    if subject.why_not_left_out is None:
        found |= {} if brief and "reach" in found else {"left_out": left_out(subject)}
    else:
        missing["left_out"] = subject.why_not_left_out
    return found


def _facts(opened: Opened, subject: Subject, changes: Changes) -> JsonObject:
    model = opened.model
    return {
        **opened.facts,
        "kind": subject.kind,
        "parameters": sum(p.numel() for p in model.parameters()),
        "growth": getattr(model, "growth", "none"),
        "changes": changes.as_json(),
        "structure": structure_of(subject.model),
        **subject.facts(),
    }


def check_cost(subject: Subject, explain: int, *, brief: bool = False) -> None:
    """Raise a ValueError, with what to do instead, where gradients would take longer than some minutes."""
    parameters = sum(p.numel() for p in subject.model.parameters())
    read = max(len(subject.tokens), len(subject.source))
    is_brief = brief and subject.why_no_gradient is None
    rows = len(subject.outcomes) + (0 if is_brief else len(subject.inputs) / 3)  # left out: no backward pass
    seconds = rows * seconds_of(parameters, read)
    if seconds > PATIENCE and subject.outcomes:
        fewer = max(int(len(subject.outcomes) * PATIENCE / seconds / 2), 1)
        raise ValueError(
            f"explain: {parameters / 1e6:.0f} million parameters over {read} tokens would take about "
            f"{seconds / 60:.0f} minutes for {len(subject.outcomes)} predictions, expected at most {PATIENCE // 60}; "
            f"give a shorter text, or explain fewer: explain={min(fewer, explain)}, or none: explain=0"
        )


def seconds_of(parameters: int, read: int) -> float:
    """Return about how long the gradients of one prediction after so many tokens take."""
    return 6 * parameters * read / SPEED


def explained_within(seconds: float, parameters: int, read: int) -> int:
    """Return how many predictions, at most `EXPLAINED`, can have gradients in a time."""
    return min(EXPLAINED, int(seconds / max(seconds_of(parameters, read), 1e-9)))
