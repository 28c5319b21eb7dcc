"""Translators and captioners: which part of the source decided each symbol of the target."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from recollect.core.memory import Layers, Memory
from recollect.core.types import JsonObject
from recollect.data.error import DataError
from recollect.inspection.subject import (
    CANDIDATES,
    EXPLAINED,
    LONGEST,
    Subject,
    as_array,
    device_of,
    entropy,
    likeliest,
)
from recollect.inspection.trace import Array
from recollect.layers.pointwise import Pointwise


class SourceSubject(Subject):
    """Base: a decoder reads the begin symbol and the target; outcome o is ln p of target symbol o, its end included.

    The tokens are what the decoder reads, the begin symbol and the target; `next.*` stand at the symbol before.
    """

    begin_text = "⟨s⟩"
    end_text = "⟨/s⟩"

    def __init__(
        self,
        model: Any,
        target: Sequence[int] | Array,
        tokenizer: Any,
        *,
        explain: int = EXPLAINED,
        candidates: int = CANDIDATES,
    ) -> None:
        self.model, self.tokenizer, self.candidates = model, tokenizer, candidates
        device = device_of(model)
        self.read_ids = torch.tensor([tokenizer.begin, *map(int, target)], device=device)  # (T,)
        self.targets = torch.tensor([*map(int, target), tokenizer.end], device=device)
        texts = [self._text(int(i)) for i in self.targets]
        self.tokens = [self.begin_text, *texts[:-1]]
        self.at = list(range(len(texts)))[:explain]
        self.outcomes = [texts[i] for i in self.at]

    def _text(self, i: int) -> str:
        if i in (self.tokenizer.begin, self.tokenizer.end):
            return self.begin_text if i == self.tokenizer.begin else self.end_text
        return str(self.tokenizer.base.decode([i])).strip()

    def remember(self, inputs: Tensor) -> Memory:
        """Return the memory of sources (R, …)."""
        memory: Memory = self.model.remember(inputs)
        return memory

    def read(self) -> dict[str, Array]:
        """Return the probabilities of the target's symbols."""
        logits = self.model(self.read_ids[None], self.remember(self.inputs[None]))[0][0]
        logprobs = logits.log_softmax(-1)
        ids, probabilities = likeliest(logprobs, self.candidates)
        loss = np.full(len(self.tokens), np.nan)
        loss[1:] = -as_array(logprobs.gather(1, self.targets[:, None])[:-1, 0])
        texts = np.array([[self._text(int(i)) for i in row] for row in ids], dtype=object)
        return {
            "ids": self.read_ids.cpu().numpy(),
            "next.ids": ids,
            "next.texts": texts,
            "next.probabilities": probabilities,
            "next.entropy": entropy(logprobs),
            "loss": loss,
        }

    def beside(self) -> dict[str, Array]:
        """Return the bytes of the memory after every symbol of the target."""
        memory = self.remember(self.inputs[None])
        sizes = []
        for t in range(len(self.read_ids)):
            _, memory = self.model(self.read_ids[None, t : t + 1], memory)
            sizes.append(memory.nbytes)
        return {"memory.bytes": np.array(sizes)}

    def values(self, inputs: Tensor, rows: Tensor, outcomes: Tensor, removed: Tensor | None = None) -> Tensor:
        """Return ln p of the target's symbols, the earlier ones given."""
        memory = self.remember(inputs)
        read = self.read_ids.expand(len(inputs), -1)
        features, _ = self.model.features(read, memory)
        logits = self.model.head(features[rows, outcomes])
        found: Tensor = logits.log_softmax(-1).gather(1, self.targets[outcomes, None])[:, 0]
        return found


class TranslatorSubject(SourceSubject):
    """A translator: the inputs are the source's symbols."""

    kind: ClassVar[str] = "translate"

    def __init__(
        self,
        model: Any,
        source: Sequence[int] | Array,
        source_texts: Sequence[str],
        target: Sequence[int] | Array,
        tokenizer: Any,
        *,
        longest: int = LONGEST,
        **options: int,
    ) -> None:
        if not len(source):
            raise DataError("source: empty; give a line to translate")
        if max(len(source), len(target)) > longest:
            got = max(len(source), len(target))
            raise DataError(f"source: got {got} symbols, expected at most {longest}; shorten it")
        super().__init__(model, target, tokenizer, **options)
        self.inputs = torch.from_numpy(np.array(source)).to(device_of(model))
        self.source = list(source_texts)

    @property
    def entry(self) -> Pointwise | None:
        """The encoder's embedding; None for frames, whose values are read directly."""
        if self.inputs.is_floating_point():
            return None
        found: Pointwise = self.model.encoder.embedding
        return found

    def read(self) -> dict[str, Array]:
        """Return the probabilities of the target's symbols, and the frames of a recording."""
        frames = {"encoder.values": as_array(self.inputs)} if self.inputs.is_floating_point() else {}
        return {**super().read(), **frames}


class CaptionSubject(SourceSubject):
    """A captioner: the inputs are the cells of the encoder's grid, with the features that are attended to."""

    kind: ClassVar[str] = "caption"

    def __init__(self, model: Any, picture: Array, target: Sequence[int], tokenizer: Any, **options: int) -> None:
        super().__init__(model, target, tokenizer, **options)
        with torch.no_grad():
            features = model.encoder(torch.from_numpy(np.array(picture))[None].to(device_of(model)))
        self.inputs = features[0]  # (S, D)
        self.grid = _grid(picture.shape, len(self.inputs))
        self.source = [f"{row + 1},{column + 1}" for row in range(self.grid[0]) for column in range(self.grid[1])]

    def remember(self, inputs: Tensor) -> Memory:
        """Return the memory of cells (R, S, D)."""
        valid = torch.ones(inputs.shape[:2], dtype=torch.bool, device=inputs.device)
        memory: Memory = self.model.decoder.begin(inputs, Layers(layers=()), valid)
        return memory

    def facts(self) -> JsonObject:
        """Return the rows and columns of the grid."""
        return {"grid": list(self.grid)}


def _grid(size: tuple[int, ...], cells: int) -> tuple[int, int]:
    """Return rows and columns of a grid of so many cells, by halving a picture."""
    rows, columns = size[:2]
    while rows * columns > cells:
        rows, columns = -(-rows // 2), -(-columns // 2)
    return rows, columns
