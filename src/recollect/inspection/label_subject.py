"""Classifiers and taggers: which inputs decided the label, or each tag."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from recollect.core.record import Recording
from recollect.data.error import DataError
from recollect.inspection.language_subject import check_length
from recollect.inspection.subject import (
    EXPLAINED,
    LONGEST,
    Subject,
    as_array,
    bytes_by_step,
    device_of,
    first_embedding,
)
from recollect.inspection.trace import Array, Text
from recollect.layers.pointwise import Pointwise
from recollect.models.context_free import BagOfWords
from recollect.models.ngram_bag import BagOfNGrams


class LabelSubject(Subject):
    """What classifiers and taggers share: ids (S,), words with letters (S, 1 + L) or frames (S, D), and labels."""

    def __init__(
        self,
        model: Any,
        inputs: Array,
        tokens: Sequence[str],
        labels: Sequence[str],
        *,
        explain: int = EXPLAINED,
        longest: int = LONGEST,
    ) -> None:
        if len(inputs) > longest:
            raise DataError(f"text: got {len(inputs)} symbols, expected at most {longest}; shorten it")
        check_length(model, len(inputs), longest)
        self.model, self.explain = model, explain
        self.inputs = torch.from_numpy(np.asarray(inputs)).to(device_of(model))
        self.tokens, self.labels = list(tokens), tuple(labels)

    @property
    def entry(self) -> Pointwise | None:
        """The embedding; None for frames, whose values are read directly."""
        if self.inputs.is_floating_point():
            return None
        return getattr(self.model, "embedding", None) or first_embedding(self.model)

    @property
    def why_no_gradient(self) -> Text | None:
        """A bag adds up votes: there is no vector of a word, and what its votes change is `left_out`."""
        if not isinstance(self.model, (BagOfWords, BagOfNGrams)):
            return super().why_no_gradient
        return {
            "en": "a bag adds up votes of words or of n-grams: left_out is what those of a word change",
            "zh": "词袋模型把词或片段的票数相加：left_out 就是去掉一个词所改变的票数",
        }

    def beside(self) -> dict[str, Array]:
        """Return the bytes of the memory after every input."""
        return {"memory.bytes": bytes_by_step(self.model, self.inputs)}

    def _ids(self) -> dict[str, Array]:
        if self.inputs.is_floating_point():
            return {"values": as_array(self.inputs)}
        return {"ids": (self.inputs if self.inputs.dim() == 1 else self.inputs[:, 0]).cpu().numpy()}


class ClassifierSubject(LabelSubject):
    """A classifier: the one outcome is ln p of the label that it gives to the whole text."""

    kind: ClassVar[str] = "classify"

    def __init__(self, *given: Any, **options: Any) -> None:
        super().__init__(*given, **options)
        with torch.no_grad():
            best = int(self.model.classify(self.inputs[None])[0].argmax())
        self.best = [best][: self.explain]
        self.has_token = getattr(self.model, "pooling", "") == "class-token"
        if self.has_token:  # read after the text by an encoder that streams, before it by others
            self.shown = slice(0, -1) if self.model.encoder.streams else slice(1, None)
        self.outcomes = [self.labels[i] for i in self.best]
        self.at = [len(self.tokens) - 1 for _ in self.best]

    def read(self) -> dict[str, Array]:
        """Return the probabilities of the labels."""
        return {**self._ids(), "label.probabilities": as_array(self.model.classify(self.inputs[None])[0].softmax(-1))}

    def pooled(self, seen: Recording) -> Tensor | None:
        """Return the weights of the attention pool, or those of the class token in the highest attention."""
        if "pool.weights" in seen:
            return seen["pool.weights"][0, 0]
        names = [name for name in seen if name.endswith(".weights")] if self.has_token else []
        if not names:
            return None
        heads = seen[names[-1]][0]  # (N, T, S), of a streaming encoder those of the last call: (N, 1, S)
        row = heads[:, -1, :-1] if self.model.encoder.streams else heads[:, 0, 1:]
        return row.mean(0)

    def beside(self) -> dict[str, Array]:
        """Return the probabilities of the labels of what has been read so far, too."""
        return {**super().beside(), "label.by_step": as_array(self.model(self.inputs[None])[0][0].softmax(-1))}

    def values(self, inputs: Tensor, rows: Tensor, outcomes: Tensor, removed: Tensor | None = None) -> Tensor:
        """Return ln p of the label."""
        best = torch.tensor(self.best, device=inputs.device)[outcomes]
        return self.model.classify(inputs)[rows].log_softmax(-1).gather(1, best[:, None])[:, 0]


class TaggerSubject(LabelSubject):
    """A tagger: outcome o is ln p of the tag of word `at[o]`, of its own scores (also where a CRF chooses the tags)."""

    kind: ClassVar[str] = "tag"

    def __init__(self, *given: Any, **options: Any) -> None:
        super().__init__(*given, **options)
        with torch.no_grad():
            tags = self.model.tags(self.inputs[None])[0][0].tolist()
        self.at = list(range(max(len(tags) - self.explain, 0), len(tags)))
        self.best = [tags[t] for t in self.at]
        self.outcomes = [self.labels[i] for i in self.best]
        self.is_causal = bool(self.model.streams)

    def read(self) -> dict[str, Array]:
        """Return the probabilities of each word's tags."""
        scores = self.model(self.inputs[None])[0][0].softmax(-1)
        return {**self._ids(), "label.by_step": as_array(scores)}

    def values(self, inputs: Tensor, rows: Tensor, outcomes: Tensor, removed: Tensor | None = None) -> Tensor:
        """Return ln p of the tags; NaN of the word that is left out."""
        at = torch.tensor(self.at, device=inputs.device)[outcomes]
        best = torch.tensor(self.best, device=inputs.device)[outcomes]
        gone = torch.zeros_like(at, dtype=torch.bool) if removed is None else removed[rows] == at
        if removed is not None:
            at = at - (removed[rows] < at).long()
        scores = self.model(inputs)[0][rows, at.clamp(max=inputs.shape[1] - 1)]
        found = scores.log_softmax(-1).gather(1, best[:, None])[:, 0]
        return found.masked_fill(gone, torch.nan)
