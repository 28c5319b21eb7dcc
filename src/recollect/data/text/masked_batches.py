"""Rows of text with hidden symbols, as BERT is trained on (Devlin et al. 2019, section 3.1).

A row is [CLS] text [SEP], or with the next-sentence task [CLS] first [SEP] second [SEP]. Of its symbols 15 % are
predicted: of these 80 % are hidden by [MASK], 10 % replaced by a random symbol, 10 % left as they are. Places and
replacements are drawn anew whenever a text is read (Liu et al. 2019). Everything is drawn and gathered for a whole
batch at once.

Where we differ: a row has exactly 15 % of its symbols predicted, at least one, so that batches have equal shapes; and
the two texts of the next-sentence task have equal shares of the row.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils._pytree import register_dataclass

from recollect.core.types import JsonObject
from recollect.data.error import DataError
from recollect.data.text.documents import Documents, Ends, Places, Spread
from recollect.data.text.framed import FramedTokenizer

HIDDEN, REPLACED = 0.8, 0.1  # shares of the predicted symbols; the rest are left as they are
IGNORED = -100  # the target of a place that is not predicted


@dataclass(frozen=True)
class MaskedBatch:
    """Rows with hidden symbols, where they are, and what they were."""

    x: Tensor  # (B, T)
    valid: Tensor | None  # (B, T); None: all are real
    segments: Tensor | None  # (B, T) 0 of the first text, 1 of the second; None: there is one text
    places: Tensor  # (B, P) of the predicted symbols
    y: Tensor  # (B, P) the symbols there; IGNORED where a short row has fewer
    follows: Tensor | None  # (B,) 0: the second text follows the first, 1: it is another; IGNORED: there is no second
    balance: Tensor | None  # (B,) the symbols predicted in the whole batch for each verdict in it
    shapes_vary: ClassVar[bool] = False

    @property
    def count(self) -> int:
        """Symbols predicted."""
        return int((self.y != IGNORED).sum())


register_dataclass(MaskedBatch)


@dataclass(frozen=True)
class Masking:
    """How rows are made: their length, the share that is predicted, and whether they have two texts."""

    tokenizer: FramedTokenizer
    steps: int  # symbols of a row, marks included
    share: float = 0.15
    is_pair: bool = False

    @property
    def content(self) -> int:
        """Symbols of a row that are text."""
        return self.steps - (3 if self.is_pair else 2)

    def rows(
        self, ids: NDArray[Any], first: tuple[Places, Places], second: tuple[Places, Places] | None
    ) -> tuple[NDArray[np.int64], NDArray[np.bool_], NDArray[np.int64]]:
        """Return ids (B, T), which of them are text, and their segments, of texts given by places and lengths (B,)."""
        begin, size = (part[:, None] for part in first)
        begin2, size2 = (np.zeros_like(begin),) * 2 if second is None else (part[:, None] for part in second)
        longest = int((size + size2).max()) + (2 if second is None else 3)
        at = np.arange(longest)[None]
        is_first = (at >= 1) & (at <= size)
        is_second = (at >= size + 2) & (at < size + 2 + size2)
        source = np.where(is_first, begin + at - 1, begin2 + at - size - 2)
        x = np.asarray(ids.take(source, mode="clip"), dtype=np.int64)
        marks = np.where(at == 0, self.tokenizer.begin, self.tokenizer.end)
        is_text = is_first | is_second
        return np.where(is_text, x, marks), is_text, (at >= size + 2).astype(np.int64)

    def hide(
        self, x: NDArray[np.int64], is_text: NDArray[np.bool_], draw: np.random.Generator
    ) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """Return rows with hidden symbols, the places of those that are predicted (B, P), and what they were."""
        counts = np.maximum(np.rint(self.share * is_text.sum(1)), 1).astype(np.int64)  # (B,)
        noise = np.where(is_text, draw.random(x.shape), 2.0)
        most = int(counts.max())
        places = np.argpartition(noise, most - 1, axis=1)[:, :most] if most < x.shape[1] else noise.argsort(1)[:, :most]
        order = np.take_along_axis(noise, places, 1).argsort(1)
        places = np.take_along_axis(places, order, 1)
        is_predicted = np.arange(most) < counts[:, None]
        y = np.where(is_predicted, np.take_along_axis(x, places, 1), IGNORED)
        chance = draw.random(places.shape)
        others = draw.integers(self.tokenizer.base.vocab_size, size=places.shape)
        shown = np.where(chance < HIDDEN, self.tokenizer.mask, np.where(chance < HIDDEN + REPLACED, others, y))
        hidden = x.copy()
        rows = np.nonzero(is_predicted)
        hidden[rows[0], places[rows]] = shown[rows]
        return hidden, places, y

    def batch(
        self,
        ids: NDArray[Any],
        first: tuple[Places, Places],
        second: tuple[Places, Places] | None,
        follows: NDArray[np.int64] | None,
        draw: np.random.Generator,
    ) -> MaskedBatch:
        """Return one batch of texts given by places and lengths."""
        x, is_text, segments = self.rows(ids, first, second)
        lengths = is_text.sum(1) + (2 if second is None else 3)
        valid = torch.arange(x.shape[1]) < torch.from_numpy(lengths)[:, None]
        hidden, places, y = self.hide(x, is_text, draw)
        return MaskedBatch(
            torch.from_numpy(hidden).masked_fill(~valid, 0),
            None if bool(valid.all()) else valid,
            None if second is None else torch.from_numpy(segments),
            torch.from_numpy(places),
            torch.from_numpy(y),
            None if follows is None else torch.from_numpy(follows),
            None if follows is None else _balance(torch.from_numpy(y), torch.from_numpy(follows)),
        )

    def paired(
        self, first: tuple[Places, Places], other: tuple[Places, Places], draw: np.random.Generator
    ) -> tuple[tuple[Places, Places], tuple[Places, Places], NDArray[np.int64]]:
        """Return two texts of each row: the halves of one, or for half of the rows the first half and another text."""
        begin, size = first
        half = (size + 1) // 2
        rest = size - half
        is_other = draw.random(len(begin)) < 0.5
        second = np.where(is_other, other[0], begin + half), np.where(is_other, np.minimum(other[1], rest), rest)
        return (begin, half), second, np.where(rest > 0, is_other, IGNORED).astype(np.int64)


def _balance(y: Tensor, follows: Tensor) -> Tensor:
    """Return the number of predicted symbols for each verdict, in every row: the rows may be read apart."""
    verdicts = (follows != IGNORED).sum().clamp(min=1)
    return ((y != IGNORED).sum() / verdicts).expand(len(y)).clone()


class MaskedWindows:
    """Random rows of a text, none across a document's end."""

    def __init__(self, ids: NDArray[Any], ends: Ends, masking: Masking, batch_size: int, seed: int = 0) -> None:
        self.ids, self.masking, self.batch_size = ids, masking, batch_size
        self.documents = Documents(ids, ends)
        if self.documents.predicted < 1:
            raise DataError(f"got {len(ids)} documents of one symbol each, expected one of two or more")
        self.spread = Spread(self.documents, masking.content - 1)  # it counts what a symbol predicts: one less
        self.draw = np.random.default_rng(seed)

    @property
    def predicted(self) -> int:
        """Number of symbols predicted in one epoch: the share of those of the text."""
        return max(round(self.masking.share * len(self.ids)), 1)

    def __iter__(self) -> Iterator[MaskedBatch]:
        """Yield random rows without end."""
        while True:
            first, second, follows = self._some(), None, None
            if self.masking.is_pair:
                first, second, follows = self.masking.paired(first, self._some(), self.draw)
            yield self.masking.batch(self.ids, first, second, follows, self.draw)

    def _some(self) -> tuple[Places, Places]:
        places, counts = self.spread.at(self.draw.random(self.batch_size))
        return places, counts + 1

    def state(self) -> JsonObject:
        """Return the position: the random state."""
        return {"draw": self.draw.bit_generator.state}

    def load_state(self, state: JsonObject) -> None:
        """Resume from a position."""
        self.draw.bit_generator.state = state["draw"]


def masked_rows(
    ids: NDArray[Any], ends: Ends, masking: Masking, batch_size: int, limit: int | None = None, seed: int = 0
) -> Iterator[MaskedBatch]:
    """Yield every symbol of a part in one row, with the same symbols hidden each time; `limit`: of the first symbols.

    The batches are those of one part, seed and `batch_size`: another model is measured on the same.
    """
    draw = np.random.default_rng(seed)
    size = masking.content
    borders = Documents(ids, ends).ends
    starts = [np.arange(start, end, size) for start, end in zip([0, *borders[:-1]], borders, strict=True)]
    places = np.concatenate(starts)[: None if limit is None else max(limit // size, 1)]
    stops = borders[borders.searchsorted(places, "right")]
    lengths = np.minimum(stops - places, size)
    others = draw.permutation(len(places))
    order = np.argsort(-lengths, kind="stable")
    for group in np.split(order, range(batch_size, len(order), batch_size)):
        first, second, follows = (places[group], lengths[group]), None, None
        if masking.is_pair:
            other = others[group]
            first, second, follows = masking.paired(first, (places[other], lengths[other]), draw)
        yield masking.batch(ids, first, second, follows, draw)
