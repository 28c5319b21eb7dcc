"""Drawing with SVG: elements as escaped text, and the two layouts of every figure.

A figure is drawn twice, for a wide page and for a phone; the style shows the one that fits, so that letters keep their
size. Colours are those of the style (`--series-3`), so that a figure follows a light or dark page without a script.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from markupsafe import Markup

from recollect.views.bilingual import Bilingual

WIDE, NARROW = 880, 328  # units of the two layouts, which are pixels at the sizes that they are made for
SERIES = 9  # colours of the style


def tag(name: str, content: object = "", **attributes: object) -> Markup:
    """Return an element; content and attributes are escaped, an underscore at the end of a name is left out."""
    given = Markup("").join(
        Markup(' {}="{}"').format(key.rstrip("_").replace("_", "-"), _short(value)) for key, value in attributes.items()
    )
    return Markup("<{}{}>{}</{}>").format(Markup(name), given, content, Markup(name))


def text(x: float, y: float, words: Bilingual | str, **attributes: object) -> Markup:
    """Return a text at a place, in both languages if it has two."""
    if isinstance(words, str):
        return tag("text", words, x=x, y=y, **attributes)
    return Markup("").join(
        tag("text", part, x=x, y=y, lang=lang, **attributes) for lang, part in words._asdict().items()
    )


def figure(title: Bilingual, draw: Callable[[int], tuple[int, Markup]]) -> Markup:
    """Return a figure in both layouts; `draw` maps the width to the height and the elements."""
    drawn = []
    for kind, width in (("wide", WIDE), ("narrow", NARROW)):
        height, elements = draw(width)
        label = f"{title.en} / {title.zh}"
        box = f"0 0 {width} {height}"
        drawn.append(tag("svg", elements, class_=kind, viewBox=box, role="img", aria_label=label))
    return tag("figure", Markup("").join(drawn))


def path(points: Sequence[tuple[float, float]], **attributes: object) -> Markup:
    """Return a line through some points."""
    steps = " ".join(f"{'L' if i else 'M'}{_short(x)} {_short(y)}" for i, (x, y) in enumerate(points))
    return tag("path", d=steps, **attributes)


def _short(value: object) -> object:
    return f"{value:.1f}".removesuffix(".0") if isinstance(value, float) else value
