"""The colours of pictures: those of the page in its light form, and one for each family, the same on both."""

from __future__ import annotations

from collections.abc import Sequence

COLOURS = {  # of a light page: a picture that stands alone cannot ask the page's style
    "paper": "#fcfbf8",
    "ink": "#1f2328",
    "soft": "#5f6670",
    "grid": "#e6e3dc",
    "raised": "#f4f2ec",
    "accent": "#0b6e5a",
    "blue": "#0072b2",
    "orange": "#b84a00",
    "gold": "#806400",
    "green": "#007d5a",
    "pink": "#a32a6d",
    "violet": "#4a3aa8",
    "sky": "#1f78a6",
    "rose": "#b84860",
    "grey": "#5f6b7a",
}
SERIES = ("blue", "orange", "green", "pink", "violet", "gold", "sky", "rose", "grey")
FAMILIES = {
    "markov": "grey",
    "window": "blue",
    "rnn": "orange",
    "lstm": "gold",
    "gru": "green",
    "linear-attention": "pink",
    "transformer": "sky",
    "ttt-linear": "violet",
    "ttt-mlp": "rose",
}


def colour_of(name: str) -> str:
    """Return a colour of the palette; others are returned as they are."""
    return COLOURS.get(name, name)


def colours_for(families: Sequence[str]) -> list[str]:
    """Return a colour for each of some models: its family's, or where that is taken or unknown the next free one."""
    own = {FAMILIES[one] for one in families if one in FAMILIES}
    free = [one for one in SERIES if one not in own]
    found: list[str] = []
    for family in families:
        colour = FAMILIES.get(family)
        if colour is None or colour in found:
            colour = free[len(found) % len(free)] if free else SERIES[len(found) % len(SERIES)]
        found.append(colour)
    return found
