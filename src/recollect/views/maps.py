"""A page that shows, sentence by sentence, where a translator looked."""

from __future__ import annotations

from pathlib import Path

from recollect.core.machine import describe
from recollect.core.serialize import write_file
from recollect.generation.translation import attention_map
from recollect.runs.predict import tongues_of
from recollect.runs.run import Run
from recollect.views.figures import attention_map as draw
from recollect.views.page import render


def write_maps(run: Run, pairs: list[tuple[str, str]], path: str | Path, device: str = "cpu") -> None:
    """Write the page of some sources and what they were translated to."""
    model, tongues = run.load(device), tongues_of(run)
    figures = {}
    for number, (source, target) in enumerate(pairs):
        columns, rows = tongues.source.symbols(source), [*tongues.target.symbols(target), "∎"]
        figures[f"map-{number}"] = draw(attention_map(model, tongues, source, target).tolist(), columns, rows)
    machine = describe(next(model.parameters()).device)
    page = render("attention.html.j2", figures, machine, run=str(run.folder), pairs=pairs, family=model.config.family)
    write_file(Path(path), page.encode())
