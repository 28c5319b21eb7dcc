"""Heat maps: cells that are the stronger in colour the larger their value, 0 to 1."""

from __future__ import annotations

import math
from collections.abc import Sequence

from markupsafe import Markup

from recollect.views.bilingual import Bilingual
from recollect.views.svg import WIDE, figure, tag, text

CELL = {True: 72.0, False: 26.0}  # the width of a cell at most, with and without numbers
TALL = 30.0
LETTER = {True: 7.4, False: 6.4}  # the width of one letter of a name in the wide and the narrow layout, in pixels
SHORT = 3  # letters of the longest column name that is written level


def heat_map(
    title: Bilingual,
    values: Sequence[Sequence[float]],
    rows: Sequence[str],
    columns: Sequence[str],
    *,
    column_title: Bilingual,
    numbers: bool = False,
) -> Markup:
    """Return a heat map; with `numbers` every cell shows its value in percent."""

    def draw(width: int) -> tuple[int, Markup]:
        letter = LETTER[width == WIDE]
        left = 10 + letter * max(map(len, rows))
        cell = min(CELL[numbers], (width - left) / len(columns))
        tall = min(cell, TALL) if not numbers else TALL
        longest = max(map(len, columns))
        top = 26 + (16 if longest <= SHORT else 8 + letter * longest)
        parts = [text(0, 14, column_title, class_="title")]
        for number, name in enumerate(columns):
            x = left + (number + 0.5) * cell
            if longest <= SHORT:
                parts.append(text(x, top - 7, name, class_="tick", text_anchor="middle"))
            else:
                upright = f"rotate(-90 {x + 4:.1f} {top - 7:.1f})"
                parts.append(text(x + 4, top - 7, name, class_="tick", transform=upright))
        for number, (name, row) in enumerate(zip(rows, values, strict=True)):
            y = top + number * tall
            parts.append(text(left - 10, y + tall / 2 + 4, name, class_="tick", text_anchor="end"))
            for place, value in enumerate(row):
                hint = f"{name} · {columns[place]}: {value:.3f}"
                parts.append(_cell(left + place * cell, y, cell, tall, value, hint, numbers))
        return math.ceil(top + len(rows) * tall + 2), Markup("").join(parts)

    return figure(title, draw)


def _cell(x: float, y: float, width: float, height: float, value: float, hint: str, has_number: bool) -> Markup:
    strength = min(max(value, 0.0), 1.0)
    box = {"x": x + 0.5, "y": y + 0.5, "width": width - 1, "height": height - 1}
    shape = tag("rect", tag("title", hint), **box, class_="cell", fill_opacity=f"{strength:.3f}")
    if not has_number:
        return shape
    kind = "number strong" if strength > 0.75 else "number middle" if strength > 0.45 else "number"
    return shape + text(x + width / 2, y + height / 2 + 4, f"{100 * value:.0f}", class_=kind, text_anchor="middle")
