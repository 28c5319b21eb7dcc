"""What a beam search of a live model found, symbol by symbol: the branches of the picture of a beam tree."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch

from recollect.data.error import DataError
from recollect.generation.beam import Hypothesis, beam
from recollect.generation.settings import Search
from recollect.generation.translation import TokenizerPair, search_targets
from recollect.inspection.opened import Opened, open_source
from recollect.inspection.source_subject import SourceSubject
from recollect.models.language import LanguageModel
from recollect.models.translation import Translator

Branch = tuple[list[str], list[float]]


def hypotheses(model: Any, text: str, *, width: int = 4, tokens: int = 12, tokenizer: Any = None) -> list[Branch]:
    """Return the best continuations or translations of a text, best first: the text of each symbol, and its ln p.

    model: a run, its folder, or a language model with its tokenizer. `rc.picture("beam-tree", hypotheses=…)` draws
    them.

    >>> model = rc.LanguageModel("gru", vocab_size=256, width=8, layers=1)
    >>> found = rc.hypotheses(model, "to be", tokenizer=rc.Tokenizer("byte"), width=3, tokens=4)
    >>> [len(texts) for texts, logprobs in found]
    [4, 4, 4]
    """
    if not text.strip():
        raise DataError("text: empty; give a text to continue or to translate")
    opened = open_source(model, tokenizer)
    search = Search(width=width, nbest=width, tokens=tokens)
    if isinstance(opened.model, Translator):
        found, name = _of_source(opened, text, search)
    else:
        found, name = _of_prompt(opened, text, search)
    return [([name(i) for i in one.ids], one.logprobs) for one in found]


def _of_prompt(opened: Opened, text: str, search: Search) -> tuple[Sequence[Hypothesis], Callable[[int], str]]:
    own = opened.assets.get("tokenizer")
    if own is None or not isinstance(opened.model, LanguageModel):
        raise ValueError("model: expected a language model with its tokenizer, or a run of one or of a translator")
    ids = torch.as_tensor(own.encode(text)).tolist()
    prohibited = tuple(getattr(own, "unseen", ()))
    return beam(opened.model, [ids], replace(search, prohibited=prohibited))[0], lambda i: str(own.decode([i]))


def _of_source(opened: Opened, text: str, search: Search) -> tuple[Sequence[Hypothesis], Callable[[int], str]]:
    pair = TokenizerPair(opened.assets["source_tokenizer"], opened.assets["target_tokenizer"])
    target = pair.target
    prohibited = (target.begin, *target.unseen)
    how = replace(search, end=(target.end,), begin=target.begin, prohibited=prohibited)
    found = search_targets(opened.model, [torch.from_numpy(pair.source.encode(text))], how)[0]
    return found, lambda i: SourceSubject.end_text if i == target.end else str(target.base.decode([i])).strip()
