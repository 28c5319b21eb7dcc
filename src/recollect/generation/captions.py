"""Pictures into lines: pictures are remembered side by side, and their captions searched for."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch

from recollect.data.images.pictures import Pixels
from recollect.data.text.line_tokenizer import LineTokenizer
from recollect.generation.beam import beam
from recollect.generation.settings import Search
from recollect.generation.translation import Translation
from recollect.models.captioning import Captioner


def caption(
    model: Captioner, tokenizer: LineTokenizer, pictures: Pixels, search: Search | None = None, batch_size: int = 64
) -> list[list[Translation]]:
    """Return the best captions of each picture (n, h, w, c), best first; what stands beside it changes nothing.

    Symbols that the tokenizer never saw are not said.
    """
    search, begin, end = search or patient(5, 50), tokenizer.begin, tokenizer.end
    search = replace(search, end=[end], begin=begin, prohibited=[*search.prohibited, begin, *tokenizer.unseen])
    found = []
    for first in range(0, len(pictures), batch_size):
        memory = remember(model, pictures[first : first + batch_size])
        found += beam(model, [[]] * memory.batch_size, search, memory)
    return [[_said(one, tokenizer, end) for one in hypotheses] for hypotheses in found]


def patient(width: int, tokens: int, nbest: int = 1) -> Search:
    """Return a search that goes on while an open caption would beat those that ended; a width of 1 is greedy.

    A beam lets some captions end at every step, however unlikely: stopped at the first `width` of them, it would know
    none but short ones where a model is sure of a long one.
    """
    return Search(width=width, tokens=tokens, nbest=nbest, patience="first" if width == 1 else "current")


def remember(model: Captioner, pictures: Pixels) -> Any:
    """Return what a model remembers of pictures, without gradients and with nothing dropped."""
    was_training, device = model.training, next(model.parameters()).device
    with torch.no_grad():
        memory = model.eval().remember(torch.from_numpy(np.array(pictures)).to(device))
    model.train(was_training)
    return memory


def _said(hypothesis: Any, tokenizer: LineTokenizer, end: int) -> Translation:
    ids = hypothesis.ids[:-1] if hypothesis.ids and hypothesis.ids[-1] == end else hypothesis.ids
    return Translation(tokenizer.decode(ids), hypothesis.score, sum(hypothesis.logprobs))
