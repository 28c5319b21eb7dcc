"""Line charts: every line carries its name at its right end, in its colour."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from markupsafe import Markup

from recollect.views.bilingual import Bilingual
from recollect.views.svg import SERIES, WIDE, figure, path, tag, text

Points: TypeAlias = Sequence[tuple[float, float]]
Words: TypeAlias = Bilingual | str
LABEL_GAP = 16.0  # between two names, in pixels
LETTER = 8.0  # the width of one letter of a tick's label
EARLY = 0.9  # of the horizontal axis: a line that ends before it has its name there
TOP, BOTTOM = 34, 46  # margins for the titles of the axes


@dataclass(frozen=True)
class Line:
    """One line: its name, its points, its colour (1 to 9; 0: grey), and whether it is drawn dashed or with marks."""

    name: Words
    points: Points
    colour: int
    is_dashed: bool = False
    has_marks: bool = True


@dataclass(frozen=True)
class Axis:
    """An axis: its title, its ends, its ticks and their labels, and whether it is logarithmic."""

    title: Bilingual
    low: float
    high: float
    ticks: Sequence[tuple[float, str]]
    is_log: bool = False

    def share(self, value: float) -> float:
        """Return where a value lies between the ends, 0 to 1 if it is within."""
        low, high, value = (
            (math.log(v) for v in (self.low, self.high, value)) if self.is_log else (self.low, self.high, value)
        )
        return (value - low) / (high - low)


@dataclass(frozen=True)
class Frame:
    """Where the lines are drawn."""

    x: Axis
    y: Axis
    left: float
    right: float
    bottom: float

    def place(self, point: tuple[float, float]) -> tuple[float, float]:
        """Return where a point is drawn."""
        across = self.left + self.x.share(point[0]) * (self.right - self.left)
        return across, self.bottom - self.y.share(point[1]) * (self.bottom - TOP)


def line_chart(title: Bilingual, lines: Sequence[Line], x: Axis, y: Axis) -> Markup:
    """Return a line chart; what lies outside the axes is cut off."""

    def draw(width: int) -> tuple[int, Markup]:
        height = 430 if width == WIDE else 400
        names = max(_letters(line.name) for line in lines)
        left = 12 + 7.2 * max(len(label) for _, label in y.ticks)
        frame = Frame(x, y, left, width - 22 - 7.0 * names, height - BOTTOM)
        parts = [draw_axes(frame), *(_line(frame, line, title.en, width) for line in lines), _names(frame, lines)]
        return height, Markup("").join(parts)

    return figure(title, draw)


def series(index: int) -> int:
    """Return the colour of the line with this index; after the last the first follows."""
    return index % SERIES + 1


def _letters(name: Words) -> int:
    if isinstance(name, str):
        return len(name)
    return max(len(name.en), 2 * len(name.zh))


def draw_axes(frame: Frame) -> Markup:
    """Return both axes with their titles, ticks and lines."""
    parts = [text(0, 16, frame.y.title, class_="title")]
    for value, label in frame.y.ticks:
        height = frame.place((frame.x.low, value))[1]
        parts.append(path([(frame.left, height), (frame.right, height)], class_="grid"))
        parts.append(text(frame.left - 8, height + 4, label, class_="tick", text_anchor="end"))
    following = math.inf
    for value, label in reversed(frame.x.ticks):
        across = frame.place((value, frame.y.low))[0]
        half = LETTER * len(label) / 2
        if across + half < following:  # a label that would touch the one after it is left out
            parts.append(text(across, frame.bottom + 19, label, class_="tick", text_anchor="middle"))
            following = across - half
    parts.append(path([(frame.left, frame.bottom), (frame.right, frame.bottom)], class_="axis"))
    parts.append(
        text((frame.left + frame.right) / 2, frame.bottom + 40, frame.x.title, class_="title", text_anchor="middle")
    )
    return Markup("").join(parts)


def _line(frame: Frame, line: Line, title: str, width: int) -> Markup:
    name = f"clip-{width}-{'-'.join(title.lower().split())}"
    window = tag("rect", x=frame.left, y=TOP - 4, width=frame.right - frame.left + 4, height=frame.bottom - TOP + 8)
    places = [frame.place(point) for point in line.points]
    parts = [
        tag("clipPath", window, id=name),
        path(places, class_="line-drawn dashed" if line.is_dashed else "line-drawn", clip_path=f"url(#{name})"),
    ]
    label = line.name if isinstance(line.name, str) else line.name.en
    for (across, height), (a, b) in zip(places, line.points, strict=True):
        if line.has_marks and TOP <= height <= frame.bottom and across <= frame.right + 1:
            hint = tag("title", f"{label}: {b:,.4g} ({a:,.4g})")
            parts.append(tag("circle", hint, cx=across, cy=height, r=3))
    return tag("g", Markup("").join(parts), class_=f"series c{line.colour}")


def _names(frame: Frame, lines: Sequence[Line]) -> Markup:
    """Return the names: above the end of a line that ends within the chart, else to the right, joined to its end.

    Names to the right are moved apart where lines end close together.
    """
    ends_of = {id(line): frame.place(line.points[-1]) for line in lines}
    within = [line for line in lines if frame.x.share(line.points[-1][0]) < EARLY and _is_apart(line, ends_of)]
    parts = []
    for line in within:
        across, height = frame.place(line.points[-1])
        parts.append(text(across + 6, height - 10, line.name, class_=f"name c{line.colour}"))
    lines = [line for line in lines if line not in within]
    ends = [min(max(frame.place(line.points[-1])[1], TOP), frame.bottom) for line in lines]
    highest = frame.bottom + LABEL_GAP / 2
    places = spread(ends, LABEL_GAP)
    over = max(0.0, max(places, default=0.0) - highest)
    for line, end, place in zip(lines, ends, [p - over for p in places], strict=True):
        parts.append(path([(frame.right + 2, end), (frame.right + 12, place)], class_=f"leader c{line.colour}"))
        parts.append(text(frame.right + 16, place + 4, line.name, class_=f"name c{line.colour}"))
    return Markup("").join(parts)


def _is_apart(line: Line, ends: dict[int, tuple[float, float]]) -> bool:
    """Return whether no other line ends where this one's name would be."""
    across, height = ends[id(line)]
    others = (place for name, place in ends.items() if name != id(line))
    return all(abs(height - y) > LABEL_GAP or abs(across - x) > 2 * LETTER * _letters(line.name) for x, y in others)


def spread(values: Sequence[float], gap: float) -> list[float]:
    """Return the values moved apart to at least `gap`; those that were too close keep their mean."""
    groups: list[list[float]] = []
    for value in sorted(values):
        groups.append([value])
        while len(groups) > 1 and _places(groups[-1], gap)[0] - _places(groups[-2], gap)[-1] < gap:
            groups[-2:] = [groups[-2] + groups[-1]]
    places = [place for group in groups for place in _places(group, gap)]
    order = sorted(range(len(values)), key=lambda i: values[i])
    return [places[order.index(i)] for i in range(len(values))]


def _places(group: list[float], gap: float) -> list[float]:
    middle = sum(group) / len(group)
    return [middle + gap * (i - (len(group) - 1) / 2) for i in range(len(group))]
