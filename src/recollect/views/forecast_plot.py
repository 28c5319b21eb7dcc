"""Forecasts as pictures: what was observed, the forecast, and its intervals.

One SVG without scripts, a panel for each channel of each series; a page is the same SVG in an HTML file.
"""

from __future__ import annotations

import html
import math
from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from recollect.generation.forecasts import Forecast
from recollect.views.plots import letters

COLOURS = {  # of a light page: a picture that stands alone cannot ask the page's style
    "paper": "#fcfbf8",
    "ink": "#1f2328",
    "soft": "#5f6670",
    "grid": "#e6e3dc",
    "series-2": "#0072b2",
}
FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'PingFang SC', 'Noto Sans CJK SC', sans-serif"
WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 760, 250, 64, 16, 34, 34
HEAD, FOOT = 34, 30  # above the panels, and below them where some are not drawn
HISTORIES = 3  # horizons of history that are drawn
MOST = 12  # panels
LETTERS = 8  # of a label that fits beside a panel
BANDS = ((0, -1, 0.22), (2, -3, 0.3))  # places among nine quantiles, of 80 % and 40 %, and how opaque each is
LEGEND = (("observed 观测值", "ink"), ("forecast 预测", "series-2"), ("80 % / 40 % interval 区间", ""))

Curve: TypeAlias = NDArray[np.float64]
Axis: TypeAlias = Callable[[float], float]  # from a value to its place


def forecast_svg(forecasts: Sequence[Forecast], title: str) -> str:
    """Return an SVG of forecasts: the first channels, and how many are not drawn."""
    every = [(i, number) for i, one in enumerate(forecasts) for number in range(len(one.channels))]
    panels, left_out = every[:MOST], len(every[MOST:])
    height = HEAD + HEIGHT * len(panels) + (FOOT if left_out else 0)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" '
        f'font-family="{html.escape(FONT)}" font-size="12" role="img" aria-label="{html.escape(title)}">',
        "<!-- recollect -->",
        f'<rect width="{WIDTH}" height="{height}" fill="{COLOURS["paper"]}"/>',
        f'<text x="{LEFT}" y="22" font-size="14" fill="{COLOURS["ink"]}">{html.escape(title)}</text>',
        *_legend(),
    ]
    for place, (i, number) in enumerate(panels):
        parts.append(f'<g transform="translate(0 {HEAD + HEIGHT * place})">')
        parts += _panel(forecasts[i], number)
        parts.append("</g>")
    if left_out:
        note = f"{left_out} more are not drawn; choose with --set target=NAME. 另有 {left_out} 幅未画出。"
        parts.append(f'<text x="{LEFT}" y="{height - 12}" fill="{COLOURS["soft"]}">{note}</text>')
    return "\n".join([*parts, "</svg>"])


def forecast_page(forecasts: Sequence[Forecast], title: str) -> str:
    """Return an HTML page of forecasts, without scripts and without any request to the network."""
    style = (
        f"body{{margin:2rem auto;max-width:{WIDTH}px;background:{COLOURS['paper']}}}svg{{max-width:100%;height:auto}}"
    )
    head = f'<meta charset="utf-8"><title>{html.escape(title)}</title><style>{style}</style>'
    body = forecast_svg(forecasts, title)
    return f'<!doctype html><html lang="en"><head>{head}</head><body>{body}</body></html>\n'


def _legend() -> list[str]:
    """Return lines and bands with their names, flush right; a band lies over a wider one, as in the panels."""
    parts = []
    x = WIDTH - RIGHT - sum(_room(name) for name, _ in LEGEND)
    for name, colour in LEGEND:
        marks = [("series-2", 12 - 6 * i, opacity) for i, (_, _, opacity) in enumerate(BANDS)]
        for line, thick, opacity in marks if not colour else [(colour, 2, 1)]:
            parts.append(
                f'<line x1="{x:.1f}" x2="{x + 18:.1f}" y1="18" y2="18" stroke="{COLOURS[line]}" '
                f'stroke-width="{thick}" opacity="{opacity}"/>'
            )
        parts.append(f'<text x="{x + 24:.1f}" y="22" fill="{COLOURS["soft"]}">{name}</text>')
        x += _room(name)
    return parts


def _room(name: str) -> float:
    """Return the width of an entry of the legend: its mark, its letters, and what is free behind them."""
    return 24 + 6.8 * letters(name) + 18


def _panel(forecast: Forecast, number: int) -> list[str]:
    """Return one channel's panel: axes, bands, curves, and the line where the forecast begins."""
    horizon = len(forecast.stamps)
    seen = forecast.history.values[-HISTORIES * horizon :, number]
    past = forecast.history.stamps[-len(seen) :]
    point = forecast.point[:, number]
    bands = forecast.quantiles[:, number]  # (H, 9)
    ticks = _ticks(np.concatenate([seen, point, bands[:, 0], bands[:, -1]]))
    labels, base = _labels(ticks)
    steps = len(seen) + horizon

    def x(step: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * step / max(steps - 1, 1)

    def y(value: float) -> float:
        return TOP + (HEIGHT - TOP - BOTTOM) * (ticks[-1] - value) / (ticks[-1] - ticks[0])

    first = len(seen)
    name = f"{forecast.source}: {forecast.channels[number]}" if forecast.source else forecast.channels[number]
    parts = [f'<text x="{LEFT}" y="{TOP - 12}" fill="{COLOURS["ink"]}">{html.escape(name + base)}</text>']
    parts += _grid(ticks, labels, y)
    stamps = [*past.tolist(), *forecast.stamps.tolist()]
    parts += _dates([forecast.frequency.text(stamp) for stamp in stamps], x)
    for low, high, opacity in BANDS:
        border = [(x(first + h), y(bands[h, high])) for h in range(horizon)]
        border += [(x(first + h), y(bands[h, low])) for h in reversed(range(horizon))]
        parts.append(f'<polygon points="{_points(border)}" fill="{COLOURS["series-2"]}" opacity="{opacity}"/>')
    parts += _curve([(x(i), y(v)) for i, v in enumerate(seen)], "ink")
    parts += _curve([(x(first + h), y(v)) for h, v in enumerate(point)], "series-2")
    origin = x(first - 0.5)
    end = HEIGHT - BOTTOM
    return [
        *parts,
        f'<line x1="{origin:.1f}" x2="{origin:.1f}" y1="{TOP}" y2="{end}" stroke="{COLOURS["soft"]}" '
        'stroke-dasharray="3 3"/>',
    ]


def _grid(ticks: Sequence[float], labels: Sequence[str], y: Axis) -> list[str]:
    parts = []
    for tick, label in zip(ticks, labels, strict=True):
        parts.append(
            f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y(tick):.1f}" y2="{y(tick):.1f}" stroke="{COLOURS["grid"]}"/>'
            f'<text x="{LEFT - 8}" y="{y(tick) + 4:.1f}" text-anchor="end" fill="{COLOURS["soft"]}">{label}</text>'
        )
    return parts


def _dates(texts: Sequence[str], x: Axis) -> list[str]:
    places = np.linspace(0, len(texts) - 1, min(5, len(texts))).round().astype(int)
    anchors = ["start", *["middle"] * (len(places) - 2), "end"] if len(places) > 1 else ["start"]
    return [
        f'<text x="{x(i):.1f}" y="{HEIGHT - BOTTOM + 18}" text-anchor="{anchor}" fill="{COLOURS["soft"]}">'
        f"{texts[i]}</text>"
        for i, anchor in zip(places, anchors, strict=True)
    ]


def _curve(points: Sequence[tuple[float, float]], colour: str) -> list[str]:
    """Return a line, interrupted where a value is missing."""
    runs: list[list[tuple[float, float]]] = [[]]
    for point in points:
        if math.isnan(point[1]):
            runs.append([])
        else:
            runs[-1].append(point)
    return [
        f'<polyline points="{_points(run)}" fill="none" stroke="{COLOURS[colour]}" stroke-width="1.6"/>'
        for run in runs
        if run
    ]


def _points(points: Sequence[tuple[float, float]]) -> str:
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in points)


def _ticks(values: Curve) -> list[float]:
    """Return about five round numbers that enclose all values."""
    low, high = float(np.nanmin(values)), float(np.nanmax(values))
    rough = max(high - low, 1e-9) / 4
    power = 10 ** math.floor(math.log10(rough))
    step = next(power * factor for factor in (1, 2, 2.5, 5, 10) if power * factor >= rough)
    first, last = math.floor(low / step), math.ceil(high / step)
    return [round(n * step, 12) for n in range(first, last + 1)]


def _labels(ticks: Sequence[float]) -> tuple[list[str], str]:
    """Return the labels of ticks, with the digits of their step, and what is to be added to them where that is long."""
    step = ticks[1] - ticks[0]
    decimals = next((n for n in range(12) if math.isclose(round(step, n), step, rel_tol=1e-6)), 12)
    found = [f"{tick:.{decimals}f}" for tick in ticks]
    short = [f"{tick:.4g}" for tick in ticks]
    if max(map(len, found)) <= LETTERS:
        return found, ""
    if all(abs(float(label) - tick) < 1e-3 * step for label, tick in zip(short, ticks, strict=True)):
        return short, ""
    return [f"+{tick - ticks[0]:.{decimals}f}" for tick in ticks], f" − {found[0]}"
