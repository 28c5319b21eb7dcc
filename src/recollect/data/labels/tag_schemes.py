"""Tags of spans: what they mean, whether they are legal, and from one scheme to another.

IOB1    I inside; B only where a span follows another of its type at once
BIO     B at the beginning of every span, I inside (IOB2)
BIOES   B, I, E at the end of spans of two or more, S for a single word
BMES    the same with M for the middle; O outside
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

SCHEMES = ("iob1", "bio", "bioes", "bmes")
ANY = "any"  # tags of spans that need not be legal, read as the CoNLL shared tasks' evaluation reads them
MARKS = {"iob1": "BI", "bio": "BI", "bioes": "BIES", "bmes": "BMES"}
OUTSIDE = "O"
UNTAGGED = "_"  # a word without a tag: it is read, but neither learned nor counted


class Span(NamedTuple):
    """A stretch of words: its type, its first word, and the one after its last."""

    kind: str
    start: int
    stop: int


def divide(tag: str) -> tuple[str, str]:
    """Return a tag's mark and type: B-PER as B, PER; O, and _ for a word without a tag, as O and nothing."""
    mark, _, kind = tag.partition("-")
    return OUTSIDE if tag == UNTAGGED else mark, kind


def is_of_span(tag: str) -> bool:
    """Return whether a tag can be one of a span's, or says that there is none: O, or _ for a word without a tag."""
    mark, kind = divide(tag)
    return tag in (OUTSIDE, UNTAGGED) or (mark in ("B", "I", "M", "E", "S", "L", "U") and kind != "")


def spans_of(tags: Sequence[str]) -> list[Span]:
    """Return the spans of any tags, legal or not, by the rules of the CoNLL shared tasks' evaluation.

    A span begins at B, S and U, where the type changes, and after O, E, S or L; it ends before O, B or S, after E, S
    and L, and where the type changes. M counts as I everywhere. Where we differ: conlleval and seqeval know no M, so
    that where tags are not legal they begin no span at an M after an E or S of its type.
    """
    spans = []
    start = 0
    before, kind_before = OUTSIDE, ""
    for place, tag in enumerate([*tags, OUTSIDE]):
        mark, kind = divide(tag)
        mark = {"M": "I", "L": "E", "U": "S"}.get(mark, mark)
        is_open = before != OUTSIDE and before != "."
        is_cut = kind != kind_before or mark in ("B", "S", OUTSIDE, ".") or before in ("E", "S")
        if is_open and is_cut:
            spans.append(Span(kind_before, start, place))
        if mark not in (OUTSIDE, ".") and (is_cut or not is_open):
            start = place
        before, kind_before = mark, kind
    return spans


def with_scheme(spans: Iterable[Span], length: int, scheme: str) -> list[str]:
    """Return the tags of some spans over `length` words in a scheme."""
    tags = [OUTSIDE] * length
    last = Span("", -1, -1)
    for span in sorted(spans, key=lambda one: one.start):
        size = span.stop - span.start
        marks = ["I"] * size
        if scheme == "bio" or (scheme == "iob1" and last.stop == span.start and last.kind == span.kind):
            marks[0] = "B"
        elif scheme in ("bioes", "bmes"):
            marks = ["B", *MARKS[scheme][1] * (size - 2), "E"] if size > 1 else ["S"]
        tags[span.start : span.stop] = [f"{mark}-{span.kind}" for mark in marks]
        last = span
    return tags


def converted_tags(tags: Sequence[str], scheme: str) -> list[str]:
    """Return the tags of the same spans in a scheme; a word without a tag stays so."""
    found = with_scheme(spans_of(tags), len(tags), scheme)
    return [UNTAGGED if tag == UNTAGGED else new for tag, new in zip(tags, found, strict=True)]


def fault_in(tags: Sequence[str], scheme: str) -> int | None:
    """Return the place of the first tag that a scheme does not allow there; None: all are legal."""
    for place, (tag, legal) in enumerate(zip(tags, converted_tags(tags, scheme), strict=True)):
        if tag != legal:
            return place
    return None


def find_scheme(sequences: Iterable[Sequence[str]]) -> str | None:
    """Return the scheme of span tags: that in which all sequences are legal.

    Where no scheme allows all of them, it is the one that allows most; None where tags are not of spans.
    """
    legal = dict.fromkeys(("bio", "bioes", "bmes", "iob1"), 0)  # of equal ones the first
    marks: set[str] = set()
    for tags in sequences:
        for tag in tags:
            if not is_of_span(tag):
                return None
            marks.add(divide(tag)[0])
        for scheme in legal:
            legal[scheme] += fault_in(tags, scheme) is None
    return None if marks <= {OUTSIDE} else max(legal, key=lambda scheme: legal[scheme])
