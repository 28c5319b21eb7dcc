"""Texts that need no download: the reference that comes with CPython, and generators of synthetic tasks.

A generator writes one example a line, each a document; the same arguments give the same text on every machine. No
example occurs twice, so that no held-out one is in the training part. Arguments follow the name:
`copy:length=20,seed=1`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from random import Random

from recollect.core.errors import nearest
from recollect.data.error import DataError, Notify
from recollect.data.synthetic.draw import arguments, below, check_size, distinct, pick

INSTEAD = "recall"  # read where the Python docs are missing
LETTERS, DIGITS = "abcdefghijklmnopqrstuvwxyz", "0123456789"
CAPITALS = "ABCDEFGHJK"  # as many as there are digits
LONG = 40  # characters from which a repeated paragraph is a copy and not a phrase


@dataclass(frozen=True)
class Builtin:
    """A named text: what it is, and the function that yields its documents."""

    name: str
    summary: str
    documents: Callable[..., Iterator[str]]


def python_docs() -> Iterator[str]:
    """Yield the topics of the Python reference, sorted by name, without repeated paragraphs.

    Whole chapters occur twice in it (`while` alone and within `compound`), so that held-out text would be trained on.
    """
    try:
        from pydoc_data.topics import topics
    except ImportError as error:
        raise DataError(
            "python-docs: this Python lacks pydoc_data.topics (some distributions leave it out); "
            "use a generator instead, as recall or copy, or a file of your own"
        ) from error
    seen: set[str] = set()
    for name in sorted(topics):
        kept = []
        for paragraph in re.split(r"\n[ \t]*\n", topics[name].strip("\n")):
            words = " ".join(paragraph.split())
            if words not in seen:
                kept.append(paragraph)
            if len(words) >= LONG:
                seen.add(words)
        text = "\n\n".join(kept) + "\n\n"
        if text.strip():
            yield text


def copy(length: int = 12, symbols: int = 10, count: int = 15_000, seed: int = 0) -> Iterator[str]:
    """Yield `abca=abca`: letters, and the same letters."""
    alphabet = _alphabet(symbols)
    return distinct(lambda rng: f"{(s := _draw(rng, alphabet, length))}={s}\n", count, seed)


def reverse(length: int = 12, symbols: int = 10, count: int = 15_000, seed: int = 0) -> Iterator[str]:
    """Yield `abca=acba`: letters, and the letters in reverse."""
    alphabet = _alphabet(symbols)
    return distinct(lambda rng: f"{(s := _draw(rng, alphabet, length))}={s[::-1]}\n", count, seed)


def recall(pairs: int = 6, count: int = 20_000, seed: int = 0) -> Iterator[str]:
    """Yield `c3 a7 f1 ?a=7`: letters with their digits, then one of the letters and its digit."""
    check_size("pairs", pairs, len(LETTERS))

    def example(rng: Random) -> str:
        keys = sorted(LETTERS, key=lambda _: rng.random())[:pairs]
        values = _draw(rng, DIGITS, pairs)
        asked = below(rng, pairs)
        return " ".join(map("".join, zip(keys, values, strict=True))) + f" ?{keys[asked]}={values[asked]}\n"

    return distinct(example, count, seed)


def needle(distance: int = 64, count: int = 5_000, seed: int = 0) -> Iterator[str]:
    """Yield `7`, then `distance` letters that do not matter, then `?7`: one digit to remember."""
    check_size("distance", distance)

    def example(rng: Random) -> str:
        digit = _draw(rng, DIGITS, 1)
        return f"{digit}{_draw(rng, LETTERS, distance)}?{digit}\n"

    return distinct(example, count, seed)


def notes(distance: int = 64, count: int = 5_000, seed: int = 0) -> Iterator[str]:
    """Yield `7Gqxw#7`: a digit and a capital in either order, `distance` letters, then `#` and the digit or `@` and the
    capital.

    Two things to remember, one of them asked for: in `needle` a state without gates can remember the one digit.
    """
    check_size("distance", distance)

    def example(rng: Random) -> str:
        pair = _draw(rng, DIGITS, 1) + _draw(rng, CAPITALS, 1)
        asked = below(rng, 2)
        order = 1 if rng.random() < 0.5 else -1
        return f"{pair[::order]}{_draw(rng, LETTERS, distance)}{'#@'[asked]}{pair[asked]}\n"

    return distinct(example, count, seed)


def parity(length: int = 24, count: int = 15_000, seed: int = 0) -> Iterator[str]:
    """Yield `01101=1`: bits, then 1 where the number of ones is odd."""
    check_size("length", length)
    return distinct(lambda rng: f"{(s := _draw(rng, '01', length))}={s.count('1') % 2}\n", count, seed)


BUILTINS = {
    b.name: b
    for b in (
        Builtin("python-docs", "the Python language reference, from the running Python itself", python_docs),
        Builtin("copy", "letters, =, the same letters", copy),
        Builtin("reverse", "letters, =, the letters in reverse", reverse),
        Builtin("recall", "pairs of letter and digit, then a letter: which digit?", recall),
        Builtin("needle", "a digit, many letters, then: which digit?", needle),
        Builtin("notes", "a digit and a capital, many letters, then: which digit, or which capital?", notes),
        Builtin("parity", "bits, then whether the ones are odd", parity),
    )
}


def settle_builtin(data: str, notify: Notify) -> str:
    """Return the built-in to read: where this Python lacks its docs, a generator, with a notice."""
    try:
        if data == "python-docs":
            import pydoc_data.topics  # noqa: F401
    except ImportError:
        notify(f"{data}: this Python lacks pydoc_data.topics; the generator {INSTEAD} is read instead")
        return INSTEAD
    return data


def is_builtin(data: str) -> bool:
    """Return whether DATA names a built-in, with or without arguments."""
    return data.partition(":")[0] in BUILTINS


def builtin_documents(data: str) -> Iterator[str]:
    """Yield the documents of `name` or `name:key=value,…`."""
    name, _, given = data.partition(":")
    if name not in BUILTINS:
        raise DataError(f"{name}: no such built-in{nearest(name, BUILTINS)}; built-ins are: {', '.join(BUILTINS)}")
    make = BUILTINS[name].documents
    return make(**arguments(name, make, given))


def _alphabet(symbols: int) -> str:
    check_size("symbols", symbols, len(LETTERS))
    return LETTERS[:symbols]


def _draw(rng: Random, alphabet: str, length: int) -> str:
    return "".join([pick(rng, alphabet) for _ in range(length)])
