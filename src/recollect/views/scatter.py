"""Scatter charts: numbered points of one or several models, and the line of those that no other point beats."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from recollect.views.bilingual import Bilingual
from recollect.views.line_chart import BOTTOM, TOP, Axis, Frame, draw_axes
from recollect.views.svg import WIDE, figure, path, tag, text

RADIUS = 9


@dataclass(frozen=True)
class Point:
    """A point: what it stands for, its place, its number in the legend, its colour, and the interval of its height."""

    name: str
    x: float
    y: float
    number: int
    colour: int
    interval: tuple[float, float] | None = None


def scatter(title: Bilingual, points: Sequence[Point], x: Axis, y: Axis, *, low_is_good: bool) -> Markup:
    """Return a scatter chart, with its legend; low x is always good, low y where `low_is_good`."""

    def draw(width: int) -> tuple[int, Markup]:
        height = 400 if width == WIDE else 360
        left = 12 + 7.2 * max(len(label) for _, label in y.ticks)
        frame = Frame(x, y, left, width - 22, height - BOTTOM)
        parts = [draw_axes(frame), _front(frame, points, low_is_good), *(_point(frame, one) for one in points)]
        return height, Markup("").join(parts)

    names = Markup("").join(
        tag("li", tag("span", one.number, class_=f"dot c{one.colour}") + one.name) for one in points
    )
    return figure(title, draw) + tag("ul", names, class_="legend")


def undominated(points: Sequence[Point], low_is_good: bool) -> list[Point]:
    """Return the points that no other is better than in both directions, by x."""
    sign = 1 if low_is_good else -1
    kept: list[Point] = []
    for one in sorted(points, key=lambda p: (p.x, sign * p.y)):
        if not kept or sign * one.y < sign * kept[-1].y:
            kept.append(one)
    return kept


def _front(frame: Frame, points: Sequence[Point], low_is_good: bool) -> Markup:
    """Return the steps between the points that no other beats."""
    corners: list[tuple[float, float]] = []
    for one in undominated(points, low_is_good):
        if corners:
            corners.append((one.x, corners[-1][1]))
        corners.append((one.x, one.y))
    return path([frame.place(corner) for corner in corners], class_="line-drawn dashed front")


def _point(frame: Frame, one: Point) -> Markup:
    across, height = frame.place((one.x, one.y))
    hint = tag("title", f"{one.name}: {one.y:,.4g} ({one.x:,.4g})")
    parts = [tag("circle", hint, cx=across, cy=height, r=RADIUS)]
    if one.interval is not None:
        ends = [min(max(frame.place((one.x, value))[1], TOP), frame.bottom) for value in one.interval]
        parts.insert(0, path([(across, ends[0]), (across, ends[1])], class_="line-drawn"))
    parts.append(text(across, height + 4, str(one.number), class_="mark-number", text_anchor="middle"))
    return tag("g", Markup("").join(parts), class_=f"series c{one.colour}")
