"""The cost of an update against the values read, as an SVG: both axes logarithmic, a label at the end of each line."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from recollect.views.forecast_plot import COLOURS, FONT

LINES = ("#5f6b7a", "#0072b2", "#c24e00", "#8a6d00", "#008a64", "#a32a6d", "#4a3aa8")
WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 640, 380, 64, 130, 24, 48


def draw(rows: list[dict[str, Any]], path: Path) -> None:
    names = list(dict.fromkeys(row["model"] for row in rows))
    counts = sorted({row["read"] for row in rows})
    found = {(row["model"], row["read"]): 1e6 * row["seconds"] for row in rows}
    low, high = math.log10(min(found.values())) - 0.1, math.log10(max(found.values())) + 0.1

    def x(count: float) -> float:
        share = math.log(count / counts[0]) / math.log(counts[-1] / counts[0])
        return LEFT + (WIDTH - LEFT - RIGHT) * share

    def y(micros: float) -> float:
        return TOP + (HEIGHT - TOP - BOTTOM) * (high - math.log10(micros)) / (high - low)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="{FONT}" font-size="12">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="{COLOURS["paper"]}"/>',
    ]
    ticks = [m * 10**n for n in range(7) for m in (1, 2, 5) if low <= math.log10(m * 10**n) <= high]
    for tick in ticks:
        parts.append(f'<path d="M{LEFT} {y(tick):.1f}H{WIDTH - RIGHT}" stroke="{COLOURS["grid"]}"/>')
        parts.append(_text(LEFT - 8, y(tick) + 4, f"{tick:,} µs", "end"))
    parts += [_text(x(count), HEIGHT - BOTTOM + 20, f"{count:,}", "middle") for count in counts]
    parts.append(_text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 10, "values read 已读入的值", "middle"))
    places = apart([y(found[name, counts[-1]]) for name in names], 15)
    for number, name in enumerate(names):
        colour = LINES[number % len(LINES)]
        points = " ".join(f"{x(count):.1f},{y(found[name, count]):.1f}" for count in counts)
        parts.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2"/>')
        parts.append(_text(WIDTH - RIGHT + 8, places[number] + 4, name, "start", colour))
    path.write_text("\n".join([*parts, "</svg>"]) + "\n", encoding="utf-8")


def apart(places: list[float], gap: float) -> list[float]:
    """Return places moved down until each is at least `gap` below the one above it."""
    moved, lowest = [0.0] * len(places), -gap
    for number in sorted(range(len(places)), key=lambda n: places[n]):
        lowest = moved[number] = max(places[number], lowest + gap)
    return moved


def _text(x: float, y: float, words: str, anchor: str, colour: str = COLOURS["soft"]) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{colour}">{words}</text>'
