"""Rows of different lengths in one flat array with their ends: the two sides of pairs, as ids and as text."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import BinaryIO

import numpy as np
from numpy.typing import DTypeLike, NDArray

from recollect.data.text.tokenizer import IdArray, Ids, IdType

FILES = ("source.ids", "source.text", "target.ids", "target.text")  # each with a file of its ends


@dataclass(frozen=True)
class RaggedArray:
    """One flat array, and the index after each row's last element."""

    flat: IdArray  # of ids or of bytes
    ends: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.ends)

    def __getitem__(self, number: int) -> IdArray:
        number = range(len(self))[number]  # negative numbers count from the end; others out of range are refused
        return self.flat[self.ends[number - 1] if number else 0 : self.ends[number]]

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Length of each row."""
        return np.diff(self.ends, prepend=0)


@dataclass(frozen=True)
class PairPart:
    """Sources and targets by number: the ids, and the lines that they were made from."""

    sources: RaggedArray
    targets: RaggedArray
    source_text: RaggedArray  # UTF-8
    target_text: RaggedArray

    def __len__(self) -> int:
        return len(self.sources)

    def source(self, number: int) -> IdArray:
        """Return a source's ids."""
        return self.sources[number]

    def target(self, number: int) -> IdArray:
        """Return a target's ids, without `begin` and `end`."""
        return self.targets[number]

    def source_line(self, number: int) -> str:
        """Return the text of a source."""
        return bytes(self.source_text[number]).decode()

    def target_line(self, number: int) -> str:
        """Return the text of a target."""
        return bytes(self.target_text[number]).decode()

    @property
    def source_lines(self) -> list[str]:
        """The text of every source."""
        return [self.source_line(number) for number in range(len(self))]

    @property
    def target_lines(self) -> list[str]:
        """The text of every target, for the metrics."""
        return [self.target_line(number) for number in range(len(self))]


Encoded = tuple[Ids, str, Ids, str]  # a source and its line, a target and its line


def write_part(folder: Path, part: str, pairs: Iterable[Encoded], dtype: IdType) -> int:
    """Write a part's eight files; return the number of pairs."""
    with ExitStack() as stack:
        files = [stack.enter_context((folder / f"{part}.{name}").open("wb")) for name in _names()]
        return _write(pairs, files, dtype)


def open_part(folder: Path, part: str, dtype: DTypeLike) -> PairPart:
    """Map a part's files into memory."""

    def opened(name: str, dtype: DTypeLike) -> IdArray:
        path = folder / f"{part}.{name}"
        # An empty file cannot be mapped.
        return np.memmap(path, dtype=dtype, mode="r") if path.stat().st_size else np.empty(0, dtype=dtype)

    return _part([opened(name, kind) for name, kind in zip(_names(), _dtypes(dtype), strict=True)])


def part_in_memory(pairs: Iterable[Encoded], dtype: IdType) -> PairPart:
    """Return pairs as a part in memory, without files."""
    files = [BytesIO() for _ in _names()]
    _write(pairs, files, dtype)
    return _part([np.frombuffer(file.getvalue(), dtype=kind) for file, kind in zip(files, _dtypes(dtype), strict=True)])


def _names() -> list[str]:
    return [f"{name}{ending}" for name in FILES for ending in ("", ".ends")]


def _dtypes(ids: DTypeLike) -> list[DTypeLike]:
    return [ids, np.int64, np.uint8, np.int64] * 2


def _part(arrays: list[IdArray]) -> PairPart:
    rows = [RaggedArray(flat, ends) for flat, ends in zip(arrays[::2], arrays[1::2], strict=True)]
    sources, source_text, targets, target_text = rows
    return PairPart(sources, targets, source_text, target_text)


def _write(pairs: Iterable[Encoded], files: Sequence[BinaryIO], dtype: IdType) -> int:
    places, count = [0] * len(FILES), 0
    for source, source_line, target, target_line in pairs:
        count += 1
        text, target_text = (np.frombuffer(line.encode(), dtype=np.uint8) for line in (source_line, target_line))
        rows: tuple[IdArray, ...] = (source.astype(dtype), text, target.astype(dtype), target_text)
        for number, row in enumerate(rows):
            places[number] += len(row)
            files[2 * number].write(row.tobytes())
            files[2 * number + 1].write(np.int64(places[number]).tobytes())
    return count
