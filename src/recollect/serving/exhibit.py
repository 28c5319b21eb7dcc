"""Everything that a page shows of some models and one text, as plain data."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timezone

from recollect.core.machine import describe
from recollect.core.types import JsonObject
from recollect.inspection.trace import Text
from recollect.models.line import LINE
from recollect.serving.knobs import changes_of, knobs_of
from recollect.serving.laboratory import laboratory
from recollect.serving.problems import both
from recollect.serving.reading import TEMPERATURES, read_text
from recollect.serving.shown_model import ShownModel, series_of
from recollect.serving.spans import Spans
from recollect.serving.training_log import training_of
from recollect.serving.writing import AT, TEMPERATURES as HEATS, prompt_of, written

VERSION = 1
GRID_PARAMETERS = 30_000_000  # of a model whose knobs are all turned beforehand; a larger one has them live only
GRID_SYMBOLS = 128  # of a text, likewise
Progress = Callable[[str], None]


def silent(_: str) -> None:
    """Drop a line of progress."""


def exhibit(
    models: Sequence[ShownModel],
    text: str,
    *,
    live: bool = False,
    command: str = "",
    problems: Sequence[Text] = (),
    progress: Progress = silent,
) -> JsonObject:
    """Return the page's data: each model's column, the untrained models, continuations and trainings.

    command: what serves the page live. problems: why models that were asked for are not on the page.
    """
    columns = []
    for number, one in enumerate(models):
        progress(f"{one.name} reads")
        columns.append(column(one, text, number))
        if "problem" in columns[-1]:
            progress(columns[-1]["problem"]["en"])
    progress("all write")
    device = next((p.device for one in models for p in one.model.parameters()), None)
    lengths = [len(one["symbols"]["texts"]) for one in columns]
    prompt = prompt_of(text, models)
    return {
        "version": VERSION,
        "live": live,
        "made": datetime.now(timezone.utc).date().isoformat(),
        "machine": describe(device) if device is not None else "",
        "command": command,
        "problems": [dict(one) for one in problems],
        "text": text,
        "temperatures": list(TEMPERATURES),
        "main": max(range(len(columns)), key=lambda i: lengths[i], default=0),
        "columns": columns,
        "lab": laboratory(),
        "writing": written(models, prompt) if not live else {"prompt": prompt, **live_writing()},
        "training": {one.id: training_of(one.run) for one in models},
    }


def live_writing() -> JsonObject:
    """Return the settings of continuations that are generated when they are asked for."""
    return {"at": AT, "temperatures": [f"{heat:g}" for heat in HEATS], "texts": {}, "swaps": {}}


def column(one: ShownModel, text: str, number: int = 0) -> JsonObject:
    """Return one model's column: its facts, its symbols and its reading; with `problem` where it cannot read."""
    station = one.station
    facts: JsonObject = {
        "id": one.id,
        "name": one.name,
        "run": str(one.folder),
        "family": one.family,
        "series": series_of(one.family, number),
        "year": station.year if station is not None and station in LINE else None,
        "idea": dict(station.idea) if station is not None else {},
        "parameters": one.parameters,
        "counted": one.counts,
        "order": one.model.config.order,
        "knobs": [knob.as_json() for knob in knobs_of(one.model, one.layers)],
    }
    try:
        reading, spans = read_text(one, text)
    except (ValueError, RuntimeError) as error:
        nothing = Spans([], [], [], []).as_json()
        words = both(error)
        problem = {"en": f"{one.name}: {words['en']}", "zh": f"{one.name}：{words['zh']}"}
        return {**facts, "symbols": nothing, "problem": problem}
    return {**facts, "symbols": spans.as_json(), "reading": reading}


def variant(one: ShownModel, text: str, asked: Mapping[str, str]) -> JsonObject:
    """Return a model's reading with knobs turned to values, as words."""
    changes = changes_of(one.model, knobs_of(one.model, one.layers), asked)
    return read_text(one, text, **changes)[0]


def grid(one: ShownModel, text: str) -> dict[str, JsonObject]:
    """Return the readings of a file: each knob at each value other than the trained one, by KNOB=VALUE.

    Empty for a large model or a long text, which have their knobs live only.
    """
    if one.parameters > GRID_PARAMETERS or not 0 < len(one.tokenizer.encode(text)) <= GRID_SYMBOLS:
        return {}
    knobs = knobs_of(one.model, one.layers)
    values = [(knob.id, value) for knob in knobs for value in knob.values if value != knob.values[knob.base]]
    return {f"{name}={value}": variant(one, text, {name: str(value)}) for name, value in values}
