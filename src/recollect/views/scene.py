"""Scenes: drawings of boxes, circles, lines, cells and words, as SVG and as a plotly figure.

A scene is a list of marks on a canvas with (0, 0) at the top left. It is written as one SVG that stands alone, or as
the shapes and annotations of a plotly figure, so that diagrams and charts are shown by the same tools.
"""

from __future__ import annotations

import html
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from recollect.core.types import JsonObject
from recollect.views.palette import COLOURS, colour_of

FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'PingFang SC', 'Noto Sans CJK SC', 'Noto Sans SC', sans-serif"
BELOW = re.compile(r"_(\{[^}]*\}|[^\s{])")  # what stands behind it in a formula is a subscript
CONTROLS = {i: 0x2400 + i for i in range(32)} | {127: 0x2421} | dict.fromkeys(range(128, 160), 0x00B7)  # as signs
SUBSCRIPT = ('<tspan font-size="72%" dy="0.3em">', '</tspan><tspan dy="-0.216em">', "</tspan>")
HEAD = 9.0  # length of an arrow's head
NEGATIVE, POSITIVE = (184, 74, 0), (0, 114, 178)  # orange to blue
STRONG = (11, 110, 90)
PAPER = (252, 251, 248)
Point = tuple[float, float]


@dataclass
class Scene:
    """A canvas and the marks on it, in the order of drawing."""

    width: float
    height: float
    title: str = ""
    marks: list[JsonObject] = field(default_factory=list)

    def box(
        self,
        x: float,
        y: float,
        width: float,
        height: float,
        words: str = "",
        *,
        fill: str = "raised",
        line: str = "soft",
        size: float = 14,
        colour: str = "ink",
        radius: float = 7,
        dashed: bool = False,
        bold: bool = False,
        formula: bool = False,
    ) -> None:
        """Draw a box with words in its middle; lines of words are separated by line feeds."""
        self.marks.append(
            {"kind": "box", "x": x, "y": y, "w": width, "h": height, "r": radius, "fill": fill, "line": line}
            | {"dashed": dashed}
        )
        if words:
            self.words(x + width / 2, y + height / 2, words, size=size, colour=colour, bold=bold, formula=formula)

    def circle(
        self, x: float, y: float, radius: float, words: str = "", *, fill: str = "raised", line: str = "soft",
        size: float = 14, colour: str = "ink", formula: bool = False,
    ) -> None:  # fmt: skip
        """Draw a circle with words in its middle."""
        self.marks.append({"kind": "circle", "x": x, "y": y, "r": radius, "fill": fill, "line": line})
        if words:
            self.words(x, y, words, size=size, colour=colour, formula=formula)

    def words(
        self, x: float, y: float, words: str, *, size: float = 14, colour: str = "ink", anchor: str = "middle",
        bold: bool = False, italic: bool = False, turn: float = 0, formula: bool = False,
    ) -> None:  # fmt: skip
        """Write words whose middle is at y; several lines are centred there. A formula has subscripts: h_t, c_{t−1}."""
        lines = words.split("\n")
        for number, line in enumerate(lines):
            at = y + (number - (len(lines) - 1) / 2) * size * 1.3
            self.marks.append(
                {"kind": "words", "x": x, "y": at, "words": line, "size": size, "colour": colour, "anchor": anchor}
                | {"bold": bold, "italic": italic, "turn": turn, "formula": formula}
            )

    def line(
        self, *points: Point, colour: str = "soft", width: float = 1.6, arrow: bool = False, dashed: bool = False,
        opacity: float = 1.0,
    ) -> None:  # fmt: skip
        """Draw a line through points, with a head at its end where it is an arrow."""
        self.marks.append(
            {"kind": "line", "points": points, "colour": colour, "width": width, "arrow": arrow, "dashed": dashed}
            | {"opacity": opacity}
        )

    def arrow(self, *points: Point, **options: Any) -> None:
        """Draw an arrow through points."""
        self.line(*points, arrow=True, **options)

    def arc(
        self, start: Point, end: Point, lift: float, *, colour: str = "accent", width: float = 1.6,
        opacity: float = 1.0, arrow: bool = False,
    ) -> None:  # fmt: skip
        """Draw a curve from start to end whose middle is lifted by so much."""
        middle = ((start[0] + end[0]) / 2, (start[1] + end[1]) / 2 - 2 * lift)
        self.marks.append(
            {"kind": "arc", "points": (start, middle, end), "colour": colour, "width": width, "opacity": opacity}
            | {"arrow": arrow}
        )

    def cell(self, x: float, y: float, width: float, height: float, colour: str, hint: str = "") -> None:
        """Draw one cell of a map, without a border."""
        self.marks.append({"kind": "cell", "x": x, "y": y, "w": width, "h": height, "fill": colour, "hint": hint})

    def strip(
        self, x: float, y: float, width: float, height: float, values: Sequence[float], *, most: float | None = None,
        down: bool = False,
    ) -> None:  # fmt: skip
        """Draw values as neighbouring cells: blue above zero, orange below, with a border around them."""
        most = most or max([abs(v) for v in values if math.isfinite(v)] or [1.0]) or 1.0
        for i, value in enumerate(values):
            part = (height if down else width) / len(values)
            place = (x, y + i * part, width, part) if down else (x + i * part, y, part, height)
            self.cell(*place, signed(value / most), f"{value:.3g}")
        self.marks.append(
            {"kind": "box", "x": x, "y": y, "w": width, "h": height, "r": 0, "fill": "none", "line": "soft"}
            | {"dashed": False}
        )

    # ---- SVG ----------------------------------------------------------------------------------------

    def svg(self) -> str:
        """Return the scene as an SVG."""
        head = (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {self.width:g} {self.height:g}" '
            f'width="{self.width:g}" height="{self.height:g}" font-family="{html.escape(FONT)}" role="img" '
            f'aria-label="{html.escape(self.title.translate(CONTROLS))}">'
        )
        paper = f'<rect width="{self.width:g}" height="{self.height:g}" fill="{COLOURS["paper"]}"/>'
        return "\n".join([head, paper, *(_svg(mark) for mark in self.marks), "</svg>"]) + "\n"

    # ---- plotly -------------------------------------------------------------------------------------

    def plotly(self) -> JsonObject:
        """Return the scene as a plotly figure: shapes and annotations on a canvas of the same size."""
        shapes = [shape for mark in self.marks for shape in _shapes(mark)]
        annotations = [_annotation(mark) for mark in self.marks if mark["kind"] == "words"]
        cells = [mark for mark in self.marks if mark["kind"] == "cell" and mark["hint"]]
        hover = {
            "type": "scatter",
            "mode": "markers",
            "x": [mark["x"] + mark["w"] / 2 for mark in cells],
            "y": [mark["y"] + mark["h"] / 2 for mark in cells],
            "text": [mark["hint"] for mark in cells],
            "hoverinfo": "text",
            "marker": {"opacity": 0, "size": 10},
            "showlegend": False,
        }
        axis = {"visible": False, "fixedrange": True}
        layout = {
            "width": round(self.width),
            "height": round(self.height),
            "margin": dict.fromkeys("lrtb", 0),
            "paper_bgcolor": COLOURS["paper"],
            "plot_bgcolor": COLOURS["paper"],
            "font": {"family": FONT.replace("'", ""), "color": COLOURS["ink"]},
            "xaxis": axis | {"range": [0, self.width]},
            "yaxis": axis | {"range": [self.height, 0]},
            "shapes": shapes,
            "annotations": annotations,
            "title": None,
        }
        layout.pop("title")
        return {"data": [hover], "layout": layout}


def signed(share: float) -> str:
    """Return the colour of a value between −1 (orange) and 1 (blue)."""
    if not math.isfinite(share):
        return COLOURS["grid"]
    return _mix(POSITIVE if share > 0 else NEGATIVE, min(abs(share), 1.0))


def strength(share: float) -> str:
    """Return the colour of a value between 0 (paper) and 1."""
    return COLOURS["grid"] if not math.isfinite(share) else _mix(STRONG, min(max(share, 0.0), 1.0))


def mixed(colour: str, share: float) -> str:
    """Return a colour of the palette on the paper, as strong as its share from 0 to 1."""
    plain = colour_of(colour)
    return _mix((int(plain[1:3], 16), int(plain[3:5], 16), int(plain[5:7], 16)), share)


def _mix(colour: tuple[int, int, int], share: float) -> str:
    return "#" + "".join(f"{round(p + (c - p) * share):02x}" for p, c in zip(PAPER, colour, strict=True))


def _head(points: Sequence[Point]) -> list[Point]:
    """Return the three corners of an arrow's head at the end of a line."""
    (x0, y0), (x1, y1) = points[-2], points[-1]
    angle = math.atan2(y1 - y0, x1 - x0)
    sides = [(x1 - HEAD * math.cos(angle + turn), y1 - HEAD * math.sin(angle + turn)) for turn in (0.4, -0.4)]
    return [points[-1], *sides]


def _shortened(points: Sequence[Point]) -> list[Point]:
    """Return a line that ends inside its arrow's head, not at its tip."""
    (x0, y0), (x1, y1) = points[-2], points[-1]
    length = math.hypot(x1 - x0, y1 - y0) or 1.0
    share = max(length - 0.8 * HEAD, 0) / length
    return [*points[:-1], (x0 + (x1 - x0) * share, y0 + (y1 - y0) * share)]


def _svg(mark: JsonObject) -> str:
    kind = mark["kind"]
    if kind == "words":
        weight = ' font-weight="650"' if mark["bold"] else ""
        style = ' font-style="italic"' if mark["italic"] else ""
        turn = f' transform="rotate({mark["turn"]:g} {mark["x"]:.1f} {mark["y"]:.1f})"' if mark["turn"] else ""
        return (
            f'<text x="{mark["x"]:.1f}" y="{mark["y"] + mark["size"] * 0.36:.1f}" font-size="{mark["size"]:g}" '
            f'text-anchor="{mark["anchor"]}" fill="{colour_of(mark["colour"])}"{weight}{style}{turn} '
            f'xml:space="preserve">{_text(mark, *SUBSCRIPT)}</text>'
        )
    if kind == "circle":
        return (
            f'<circle cx="{mark["x"]:.1f}" cy="{mark["y"]:.1f}" r="{mark["r"]:.1f}" fill="{colour_of(mark["fill"])}" '
            f'stroke="{colour_of(mark["line"])}" stroke-width="1.4"/>'
        )
    if kind in ("box", "cell"):
        border = f' stroke="{colour_of(mark["line"])}" stroke-width="1.4"' if kind == "box" else ""
        dashed = ' stroke-dasharray="5 4"' if mark.get("dashed") else ""
        hint = f"<title>{html.escape(mark['hint'].translate(CONTROLS))}</title>" if mark.get("hint") else ""
        return (
            f'<rect x="{mark["x"]:.1f}" y="{mark["y"]:.1f}" width="{mark["w"]:.2f}" height="{mark["h"]:.2f}" '
            f'rx="{mark.get("r", 0):g}" fill="{colour_of(mark["fill"])}"{border}{dashed}>{hint}</rect>'
        )
    colour = colour_of(mark["colour"])
    points = mark["points"]
    head = ""
    if mark["arrow"]:
        corners = " ".join(f"{x:.1f},{y:.1f}" for x, y in _head(points))
        head = f'<polygon points="{corners}" fill="{colour}" opacity="{mark["opacity"]:g}"/>'
        points = _shortened(points)
    dashed = ' stroke-dasharray="5 4"' if mark.get("dashed") else ""
    return (
        f'<path d="{_path(points, kind)}" fill="none" stroke="{colour}" stroke-width="{mark["width"]:g}" '
        f'opacity="{mark["opacity"]:.3g}"{dashed} stroke-linejoin="round"/>{head}'
    )


def _text(mark: JsonObject, begin: str, end: str, close: str) -> str:
    """Return a mark's words, escaped, control characters as signs, subscripts of a formula between these."""
    words = html.escape(mark["words"].translate(CONTROLS), quote=False)
    if not mark["formula"]:
        return words
    found = BELOW.findall(words)
    return BELOW.sub(lambda match: begin + match[1].strip("{}") + end, words) + close * len(found)


def _path(points: Sequence[Point], kind: str) -> str:
    places = [f"{x:.1f} {y:.1f}" for x, y in points]
    return f"M {places[0]} Q {places[1]} {places[2]}" if kind == "arc" else "M " + " L ".join(places)


def _shapes(mark: JsonObject) -> list[JsonObject]:
    kind = mark["kind"]
    if kind == "words":
        return []
    if kind == "circle":
        x, y, r = mark["x"], mark["y"], mark["r"]
        outline = {"color": colour_of(mark["line"]), "width": 1.4}
        place = {"type": "circle", "x0": x - r, "x1": x + r, "y0": y - r, "y1": y + r}
        return [{**place, "fillcolor": colour_of(mark["fill"]), "line": outline, "layer": "below"}]
    if kind in ("box", "cell"):
        x, y = mark["x"], mark["y"]
        border: JsonObject = {"color": colour_of(mark["line"]), "width": 1.4} if kind == "box" else {"width": 0}
        border |= {"dash": "dash"} if mark.get("dashed") else {}
        fill = "rgba(0,0,0,0)" if mark["fill"] == "none" else colour_of(mark["fill"])
        place = {"type": "rect", "x0": x, "x1": x + mark["w"], "y0": y, "y1": y + mark["h"]}
        return [{**place, "fillcolor": fill, "line": border, "layer": "below"}]
    colour = colour_of(mark["colour"])
    points = mark["points"]
    head: list[JsonObject] = []
    if mark["arrow"]:
        corners = " L ".join(f"{x:.1f} {y:.1f}" for x, y in _head(points))
        place = {"type": "path", "path": f"M {corners} Z", "fillcolor": colour, "line": {"width": 0}}
        head = [{**place, "opacity": mark["opacity"], "layer": "below"}]
        points = _shortened(points)
    line = {"color": colour, "width": mark["width"]} | ({"dash": "dash"} if mark.get("dashed") else {})
    drawn = {"type": "path", "path": _path(points, kind), "line": line, "opacity": mark["opacity"], "layer": "below"}
    return [drawn, *head]


def _annotation(mark: JsonObject) -> JsonObject:
    text = _text(mark, "<sub>", "</sub>", "")
    text = f"<b>{text}</b>" if mark["bold"] else f"<i>{text}</i>" if mark["italic"] else text
    anchor = {"start": "left", "middle": "center", "end": "right"}[mark["anchor"]]
    return {
        "x": mark["x"],
        "y": mark["y"],
        "text": text,
        "showarrow": False,
        "xanchor": anchor,
        "yanchor": "middle",
        "textangle": mark["turn"],
        "font": {"size": mark["size"], "color": colour_of(mark["colour"])},
    }
