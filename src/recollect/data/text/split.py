"""Contiguous parts of a text that comes in pieces: what is held out lies behind what is trained on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise

from recollect.data.text.formats import Piece

SHARE = 0.05  # of a text, for each part that is held out
SLACK = 100  # a border moves by at most one part in so many of the text


def split(pieces: Callable[[], Iterator[Piece]], size: int, held_out: int) -> list[tuple[int, int]]:
    """Give start and stop, in characters, of a text's first part and of so many parts held out behind it.

    A border moves on to where a document ends, or else a line, if one soon does: no example lies half on each side.
    """
    wanted = [round(size * (1 - SHARE * k)) for k in range(held_out, 0, -1)]
    return list(pairwise([0, *_settle(pieces(), wanted, size // SLACK), size]))


def cut(pieces: Iterator[Piece], start: int, stop: int) -> Iterator[Piece]:
    """Give the characters from start to stop; a document that is cut ends there."""
    place = 0
    for text, ends in pieces:
        part = text[max(start - place, 0) : stop - place]
        place += len(text)
        if part:
            yield Piece(part, ends or place >= stop)
        if place >= stop:
            return


def _settle(pieces: Iterator[Piece], wanted: list[int], slack: int) -> list[int]:
    documents, lines = dict[int, int](), dict[int, int]()
    place, last = 0, max(wanted, default=0) + slack
    for text, ends in pieces:
        for border in wanted:
            line = text.find("\n", max(border - place - 1, 0)) + 1 + place
            if place < line <= border + slack:
                lines.setdefault(border, line)
            if ends and border <= place + len(text) <= border + slack:
                documents.setdefault(border, place + len(text))
        place += len(text)
        if place > last:
            break
    return [documents.get(border, lines.get(border, border)) for border in wanted]
