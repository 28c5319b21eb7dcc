"""Coloured shapes on a small canvas, with a caption in English and one in Chinese."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from recollect.data.synthetic.draw import below, distinct, pick

SIDE = 32
GROUND = (245, 245, 245)
COLOURS: dict[str, tuple[str, tuple[int, int, int]]] = {
    "red": ("红色", (214, 39, 40)),
    "green": ("绿色", (44, 160, 44)),
    "blue": ("蓝色", (31, 119, 180)),
    "yellow": ("黄色", (240, 200, 20)),
    "purple": ("紫色", (148, 60, 189)),
    "black": ("黑色", (20, 20, 20)),
}
SIZES: dict[str, tuple[str, tuple[int, int]]] = {"small": ("小", (3, 4)), "big": ("大", (6, 7))}  # half of the side
RELATIONS = {
    "above": "上方",
    "below": "下方",
    "to the left of": "左边",
    "to the right of": "右边",
}
Grid = NDArray[np.int64]
Inside = Callable[[Grid, Grid, int], NDArray[np.bool_]]
# By the distance from the centre, to the right and down, and half of the side.
SHAPES: dict[str, tuple[str, Inside]] = {
    "square": ("正方形", lambda x, y, half: np.maximum(abs(x), abs(y)) <= half),
    "circle": ("圆形", lambda x, y, half: x * x + y * y <= half * half + half // 2),
    "triangle": ("三角形", lambda x, y, half: (abs(y) <= half) & (2 * abs(x) <= y + half)),
    "cross": (
        "十字形",
        lambda x, y, half: (np.maximum(abs(x), abs(y)) <= half) & (3 * np.minimum(abs(x), abs(y)) <= half),
    ),
}


class Drawn(NamedTuple):
    """One shape and its place."""

    shape: str
    colour: str
    size: str
    half: int  # of its side
    x: int  # of its centre
    y: int

    def named(self) -> tuple[str, str]:
        """Return its English and Chinese name."""
        chinese = SIZES[self.size][0] + COLOURS[self.colour][0] + SHAPES[self.shape][0]
        return f"a {self.size} {self.colour} {self.shape}", chinese


class ShapeScene(NamedTuple):
    """The content of a picture: one shape, or a small one and its place relative to a big one."""

    first: Drawn
    relation: str = ""
    second: Drawn | None = None


def shapes(count: int, seed: int = 0) -> tuple[NDArray[np.uint8], list[str], list[str]]:
    """Return images (n, 32, 32, 3) and their captions, English and Chinese; no image occurs twice.

    Half of them show one shape, half two: `a small red circle above a big blue square`, 小红色圆形在大蓝色正方形上方.
    Of two the small one is named first, so that a picture has only one caption.

    >>> images, english, chinese = shapes(3, seed=1)
    >>> images.shape, len(english), len(chinese)
    ((3, 32, 32, 3), 3, 3)
    """
    scenes = list(distinct(_scene, count, seed))
    captions = [_caption(scene) for scene in scenes]
    return np.stack([_paint(scene) for scene in scenes]), [en for en, _ in captions], [zh for _, zh in captions]


def _scene(rng: Random) -> ShapeScene:
    if rng.random() < 0.5:
        size, half = _sized(rng, pick(rng, list(SIZES)))
        return ShapeScene(_drawn(rng, size, half, _within(rng, half, 0, SIDE), _within(rng, half, 0, SIDE)))
    relation = pick(rng, list(RELATIONS))
    (small, low), (big, high) = _sized(rng, "small"), _sized(rng, "big")
    half_side, is_before = SIDE // 2, relation in ("above", "to the left of")
    along = _within(rng, low, 0 if is_before else half_side, half_side)
    along_big = _within(rng, high, half_side if is_before else 0, half_side)
    # On the other axis they are nearly level: nearer to each other than along this one, whatever was drawn.
    across = _within(rng, high, 0, SIDE)
    across_small = min(max(across + below(rng, 2 * low + 1) - low, low), SIDE - 1 - low)
    first, second = (across_small, along), (across, along_big)
    if relation.startswith("to the"):
        first, second = first[::-1], second[::-1]
    return ShapeScene(_drawn(rng, small, low, *first), relation, _drawn(rng, big, high, *second))


def _sized(rng: Random, size: str) -> tuple[str, int]:
    return size, pick(rng, SIZES[size][1])


def _within(rng: Random, half: int, start: int, length: int) -> int:
    """Draw a centre whose shape lies entirely within a part of the canvas."""
    return start + half + below(rng, length - 2 * half)


def _drawn(rng: Random, size: str, half: int, x: int, y: int) -> Drawn:
    return Drawn(pick(rng, list(SHAPES)), pick(rng, list(COLOURS)), size, half, x, y)


def _paint(scene: ShapeScene) -> NDArray[np.uint8]:
    image = np.full((SIDE, SIDE, 3), GROUND, dtype=np.uint8)
    y, x = np.mgrid[:SIDE, :SIDE]
    for drawn in filter(None, (scene.first, scene.second)):
        image[SHAPES[drawn.shape][1](x - drawn.x, y - drawn.y, drawn.half)] = COLOURS[drawn.colour][1]
    return image


def _caption(scene: ShapeScene) -> tuple[str, str]:
    english, chinese = scene.first.named()
    if scene.second is None:
        return english, chinese
    other, other_chinese = scene.second.named()
    return f"{english} {scene.relation} {other}", f"{chinese}在{other_chinese}{RELATIONS[scene.relation]}"
