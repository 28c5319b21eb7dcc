"""Tables that fit a phone: there every row becomes a list of its columns' names and values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from markupsafe import Markup

from recollect.views.bilingual import Bilingual
from recollect.views.svg import tag

Words: TypeAlias = Bilingual | str


def table(columns: Sequence[Words], rows: Sequence[tuple[str, Sequence[Words]]]) -> Markup:
    """Return a table; each row is a class of the style ("" for none) and its cells, the first being its name."""
    head = Markup("").join(tag("th", name, scope="col") for name in columns)
    body = []
    for kind, cells in rows:
        parts = [tag("th", cells[0], scope="row")]
        for name, cell in zip(columns[1:], cells[1:], strict=True):
            both = Bilingual(name, name) if isinstance(name, str) else name
            parts.append(tag("td", cell, data_en=both.en, data_zh=both.zh))
        body.append(tag("tr", Markup("").join(parts), class_=kind))
    return tag("table", tag("thead", tag("tr", head)) + tag("tbody", Markup("").join(body)))
