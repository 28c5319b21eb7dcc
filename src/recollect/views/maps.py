"""A page that shows, sentence by sentence, where a model looked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from recollect.core.serialize import write_file
from recollect.views.figures import attention_map
from recollect.views.page import render


def write_maps(
    path: str | Path, pairs: Sequence[tuple[str, str]], looks: Sequence[Mapping[str, Any]], **about: str
) -> None:
    """Write the page of some sources and what was made of them.

    Each of `looks` holds `weights` (T + 1, S) and the symbols of `source` and `target`; `about` names the run, its
    family and the machine.
    """
    figures = {}
    for number, look in enumerate(looks):
        rows = [*look["target"], "∎"]
        figures[f"map-{number}"] = attention_map(look["weights"].tolist(), look["source"], rows)
    machine = about.pop("machine")
    write_file(Path(path), render("attention.html.j2", figures, machine, pairs=pairs, **about).encode())
