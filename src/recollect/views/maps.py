"""A page that shows, sentence by sentence, where a model looked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from recollect.core.serialize import write_file
from recollect.views.bilingual import Bilingual
from recollect.views.heat_map import heat_map
from recollect.views.page import render


def write_maps(
    path: str | Path, pairs: Sequence[tuple[str, str]], looks: Sequence[Mapping[str, Any]], **about: str
) -> None:
    """Write the page of some sources and what was made of them.

    Each of `looks` holds `weights` (T + 1, S) and the symbols of `source` and `target`; `about` names the run, its
    family and the machine.
    """
    columns = Bilingual("source →", "源 →")
    maps = [
        heat_map(
            Bilingual("Attention weights", "注意力权重"),
            look["weights"].tolist(),
            [*look["target"], "∎"],
            look["source"],
            column_title=columns,
        )
        for look in looks
    ]
    machine = about.pop("machine")
    shown = [(source, target, drawn) for (source, target), drawn in zip(pairs, maps, strict=True)]
    write_file(Path(path), render("attention.html.j2", machine, maps=shown, **about).encode())
