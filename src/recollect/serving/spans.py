"""Where in a text each of its symbols stands: models with different tokenizers are aligned by characters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from recollect.core.types import JsonObject
from recollect.data.text.tokenizer import CUTS, UNKNOWN


@dataclass(frozen=True)
class Spans:
    """The symbols of a text: what is shown of each, the characters [start, end) it covers, whether it is known."""

    texts: list[str]
    starts: list[int]
    ends: list[int]
    known: list[bool]

    def last(self, count: int) -> Spans:
        """Return the last so many symbols."""
        first = len(self.texts) - count
        return Spans(self.texts[first:], self.starts[first:], self.ends[first:], self.known[first:])

    def as_json(self) -> JsonObject:
        """Return plain data."""
        return {"texts": self.texts, "starts": self.starts, "ends": self.ends, "known": self.known}


def spans_of(tokenizer: Any, text: str, ids: Sequence[int]) -> Spans:
    """Return the spans of a text's ids.

    Tokenizers that divide a text are asked for the parts. Others, of bytes and byte pairs, are decoded id by id: bytes
    of an unfinished character cover nothing, and the id that completes it covers the character.
    """
    kind = getattr(tokenizer, "kind", "")
    if kind in CUTS:
        return _of_parts(CUTS[kind](text), text, [int(i) != tokenizer.unknown for i in ids])
    decoder = tokenizer.stream("")
    spans = Spans([], [], [], [])
    place = 0
    for i in ids:
        shown = decoder.step(int(i)) or ""
        found = text.find(shown, place) if shown else place
        start = place if found < 0 or found > place + 1 else found
        place = min(len(text), start + len(shown))
        _add(spans, text[start:place] or shown, start, place, True)
    return spans


def _of_parts(parts: list[str], text: str, known: list[bool]) -> Spans:
    spans = Spans([], [], [], [])
    place = 0
    for part, is_known in zip(parts, known, strict=True):
        start = max(text.find(part, place), place)
        place = start + len(part)
        _add(spans, part, start, place, is_known or part in UNKNOWN.values())
    return spans


def _add(spans: Spans, text: str, start: int, end: int, is_known: bool) -> None:
    spans.texts.append(text)
    spans.starts.append(start)
    spans.ends.append(end)
    spans.known.append(is_known)
