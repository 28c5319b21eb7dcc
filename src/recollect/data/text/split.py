"""Contiguous parts of a text that comes in chunks: what is held out lies after what is trained on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise

from recollect.data.text.formats import Chunk

SHARE = 0.05  # of a text, for each part that is held out
LARGEST = 250_000  # characters of the part that is validated on: it is read again and again
SLACK = 100  # a border moves by at most 1/SLACK of the text, and a tenth of the largest validation part


def split(chunks: Callable[[], Iterator[Chunk]], size: int, held_out: int) -> list[tuple[int, int]]:
    """Return start and stop, in characters, of a text's first part and of `held_out` parts after it.

    A border moves forward to the end of a document, or else of a line, if one is near: no example is divided.
    """
    ideal = [round(size * (1 - SHARE * k)) for k in range(held_out, 0, -1)]
    if held_out == 2:  # the first of them is for validation
        ideal[0] = max(ideal[0], ideal[1] - LARGEST)
    slack = min(size // SLACK, LARGEST // 10)
    documents = dict[int, int]()  # by border: the end of a document near it
    lines = dict[int, int]()
    place = 0
    for text, ends in chunks():
        for border in ideal:
            line = text.find("\n", max(border - place - 1, 0)) + 1 + place
            if place < line <= border + slack:
                lines.setdefault(border, line)
            if ends and border <= place + len(text) <= border + slack:
                documents.setdefault(border, place + len(text))
        place += len(text)
        if place > max(ideal, default=0) + slack:
            break
    return list(pairwise([0, *(documents.get(border, lines.get(border, border)) for border in ideal), size]))


def cut(chunks: Iterator[Chunk], start: int, stop: int) -> Iterator[Chunk]:
    """Yield the characters from start to stop; a document that is divided ends there."""
    place = 0
    for text, ends in chunks:
        part = text[max(start - place, 0) : stop - place]
        place += len(text)
        if part:
            yield Chunk(part, ends or place >= stop)
        if place >= stop:
            return
