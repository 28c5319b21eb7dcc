"""Models of text: each prediction of a token, explained by the tokens that were read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from recollect.core.compose import Stack
from recollect.core.memory import Memory
from recollect.core.types import AnyLayer, JsonObject
from recollect.data.error import DataError
from recollect.inspection.subject import (
    CANDIDATES,
    EXPLAINED,
    LONGEST,
    Subject,
    as_array,
    bytes_by_step,
    decoded,
    device_of,
    entropy,
    first_embedding,
    likeliest,
)
from recollect.inspection.trace import Array, Text
from recollect.layers.pointwise import Pointwise
from recollect.models.language import LanguageModel
from recollect.models.masked import MaskedModel

CHUNK = 1024  # tokens that are skipped in one call


class LanguageSubject(Subject):
    """A layer from ids to logits of the next id: outcome o is ln p of the token after `at[o]`.

    After the last token it is that of the likeliest next one. Of a long text the last tokens are shown; those before
    are read into the memory.
    """

    kind: ClassVar[str] = "language"
    is_causal = True

    def __init__(
        self,
        model: AnyLayer,
        ids: Sequence[int] | Array,
        texts: Sequence[str],
        tokenizer: Any = None,
        *,
        explain: int = EXPLAINED,
        longest: int = LONGEST,
        candidates: int = CANDIDATES,
        temperature: float = 1.0,
    ) -> None:
        check_length(model, len(ids), longest)
        self.model, self.tokenizer = model, tokenizer
        self.candidates, self.temperature = candidates, temperature
        self.skipped = max(len(ids) - longest, 0)
        every = torch.from_numpy(np.array(ids, dtype=np.int64)).to(device_of(model))
        self.inputs = every[self.skipped :]
        self.tokens = list(texts[self.skipped :])
        with torch.no_grad():
            self.before, self.first_logprobs = self._skip(every[: self.skipped])
            last = self._logits(self.inputs[None])[0, -1]
        targets = torch.cat([self.inputs[1:], last.argmax()[None]])
        self.at = list(range(max(len(targets) - explain, 0), len(targets)))
        self.targets = targets[self.at]
        named = [*self.tokens[1:], str(self._texts(targets[-1:].cpu().numpy())[0])]
        self.outcomes = [named[t] for t in self.at]

    @property
    def entry(self) -> Pointwise | None:
        """The embedding."""
        return first_embedding(self.model)

    def read(self) -> dict[str, Array]:
        """Return the probabilities of the next tokens, and the loss of those that came."""
        logits = self._logits(self.inputs[None])[0]  # (T, V)
        found = self._predictions(logits)
        loss = np.full(len(self.inputs), np.nan)
        loss[1:] = -as_array(logits[:-1].log_softmax(-1).gather(1, self.inputs[1:, None])[:, 0])
        if self.first_logprobs is not None:
            loss[0] = -float(self.first_logprobs[self.inputs[0]])
        return {"ids": self.inputs.cpu().numpy(), **found, "loss": loss}

    def beside(self) -> dict[str, Array]:
        """Return the bytes of the memory after every token."""
        return {"memory.bytes": bytes_by_step(self.model, self.inputs, self._start(1))}

    def values(self, inputs: Tensor, rows: Tensor, outcomes: Tensor, removed: Tensor | None = None) -> Tensor:
        """Return ln p of the outcomes' tokens; NaN where nothing is read before one."""
        at = torch.tensor(self.at, device=inputs.device)[outcomes]
        if removed is not None:
            at = at - (removed[rows] <= at).long()
        logits = self._logits_at(inputs, rows, at.clamp(min=0))
        found = logits.log_softmax(-1).gather(1, self.targets[outcomes, None])[:, 0]
        return found.masked_fill(at < 0, torch.nan)

    def facts(self) -> JsonObject:
        """Return the temperature of the next tokens' probabilities, and which tokens are unknown symbols."""
        unknown = getattr(self.tokenizer, "unknown", None)
        places = [] if unknown is None else (self.inputs == unknown).nonzero()[:, 0].tolist()
        return {"temperature": self.temperature, "unknown": places}

    def _predictions(self, logits: Tensor) -> dict[str, Array]:
        """Return the likeliest tokens of logits (T, V)."""
        logprobs = (logits / self.temperature).log_softmax(-1)
        ids, probabilities = likeliest(logprobs, self.candidates)
        return {
            "next.ids": ids,
            "next.texts": self._texts(ids),
            "next.probabilities": probabilities,
            "next.entropy": entropy(logprobs),
        }

    def _texts(self, ids: Array) -> Array:
        return ids.astype(str).astype(object) if self.tokenizer is None else decoded(self.tokenizer, ids)

    def _skip(self, ids: Tensor) -> tuple[Memory | None, Tensor | None]:
        """Read what is not shown; return the memory, and ln p (V,) of the first token shown."""
        memory, logits = None, None
        for chunk in ids.split(CHUNK) if len(ids) else ():
            logits, memory = self.model(chunk[None], memory)
        return memory, None if logits is None else logits[0, -1].log_softmax(-1)

    def _start(self, rows: int) -> Memory | None:
        return None if self.before is None else self.before.select([0] * rows)

    def _logits(self, ids: Tensor) -> Tensor:
        logits: Tensor = self.model(ids, self._start(len(ids)))[0]
        return logits

    def _logits_at(self, inputs: Tensor, rows: Tensor, at: Tensor) -> Tensor:
        """Return the logits (P, V) at some places; a vocabulary is large, so that no others are computed."""
        has_head = isinstance(self.model, LanguageModel | MaskedModel) and isinstance(self.model.body, Stack)
        if not has_head:
            return self._logits(inputs)[rows, at]
        features, _ = self.model.features(inputs, self._start(len(inputs)))
        logits: Tensor = self.model.head(features[rows, at])
        return logits


class MaskedSubject(LanguageSubject):
    """A model that sees both sides: outcome o is ln p of token `at[o]` where it is hidden by the mask symbol.

    `next.*` are the predictions of the token at its own place, which is not hidden there. Without a mask symbol no
    token is hidden.
    """

    kind: ClassVar[str] = "masked"
    is_causal = False

    def __init__(self, model: MaskedModel, ids: Array, texts: Sequence[str], tokenizer: Any = None, **options: Any):
        super().__init__(model, ids, texts, tokenizer, **options)
        self.mask = None if tokenizer is None else mask_of(tokenizer)
        self.targets = self.inputs[self.at]
        self.outcomes = [self.tokens[t] for t in self.at]

    def read(self) -> dict[str, Array]:
        """Return the predictions of the token at each place."""
        return {"ids": self.inputs.cpu().numpy(), **self._predictions(self._logits(self.inputs[None])[0])}

    def beside(self) -> dict[str, Array]:
        """Return the loss of each token where it alone is hidden."""
        each = torch.arange(len(self.inputs), device=self.inputs.device)
        hidden = self._hidden(self.inputs.expand(len(each), -1), each, each)
        logprobs = self._logits_at(hidden, each, each).log_softmax(-1)
        return {**super().beside(), "loss": -as_array(logprobs.gather(1, self.inputs[:, None])[:, 0])}

    def values(self, inputs: Tensor, rows: Tensor, outcomes: Tensor, removed: Tensor | None = None) -> Tensor:
        """Return ln p of the outcomes' own tokens, each hidden in a row of its own."""
        at = torch.tensor(self.at, device=inputs.device)[outcomes]
        each = torch.arange(len(at), device=at.device)
        logits = self._logits_at(self._hidden(inputs[rows], each, at), each, at)
        return logits.log_softmax(-1).gather(1, self.targets[outcomes, None])[:, 0]

    @property
    def why_not_left_out(self) -> Text | None:
        """Every prediction hides another token, so that each pair of tokens would be a reading of its own."""
        return {
            "en": "each prediction hides a token of its own: every pair of tokens would be another reading",
            "zh": "每个预测各遮住一个词：每一对词都要另读一遍",
        }

    def _hidden(self, ids: Tensor, rows: Tensor, at: Tensor) -> Tensor:
        """Return ids with the mask symbol at some places."""
        if self.mask is None:
            return ids
        ids = ids.clone()
        ids[rows, at] = self.mask
        return ids


def mask_of(tokenizer: Any) -> int | None:
    """Return the id of the mask symbol; None where a tokenizer has none."""
    if hasattr(tokenizer, "mask"):
        return int(tokenizer.mask)
    try:
        return int(tokenizer.id_of("[MASK]"))
    except (AttributeError, DataError):
        return None


def check_length(model: AnyLayer, count: int, longest: int) -> None:
    """Raise for an empty text, and for one that a model cannot read."""
    if not count:
        raise DataError("text: empty; give a text to read, as in: recollect inspect RUN 'a sentence'")
    tables = [n for n in (getattr(module, "max_length", None) for module in positions(model)) if n]
    most = min(tables, default=None)
    if most is not None and count > most:
        raise DataError(
            f"text: got {count} tokens, expected at most {most}, the model's table of positions; shorten it"
        )
    if not model.streams and count > longest:
        raise DataError(
            f"text: got {count} tokens, expected at most {longest}: this model reads a text at once; shorten it"
        )


def positions(model: nn.Module) -> list[nn.Module]:
    """Return the modules that have a table of positions."""
    return [module for module in model.modules() if getattr(module, "max_length", None)]
