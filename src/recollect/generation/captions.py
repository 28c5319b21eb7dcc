"""Captions of pictures: encode a batch of pictures and search for their captions."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch

from recollect.core.memory import Memory
from recollect.data.images.pictures import Pixels
from recollect.data.text.line_tokenizer import LineTokenizer
from recollect.generation.beam import beam
from recollect.generation.settings import Search
from recollect.generation.translation import Translation, decode_hypothesis
from recollect.models.captioning import Captioner


def caption(
    model: Captioner, tokenizer: LineTokenizer, pictures: Pixels, search: Search | None = None, batch_size: int = 64
) -> list[list[Translation]]:
    """Return the best captions of each picture (n, h, w, c), best first; they do not depend on the rest of the batch.

    Symbols that the tokenizer never saw in training are not generated.
    """
    search = search or patient(5, 50)
    prohibited = [*search.prohibited, tokenizer.begin, *tokenizer.unseen]
    search = replace(search, end=[tokenizer.end], begin=tokenizer.begin, prohibited=prohibited)
    found = []
    for first in range(0, len(pictures), batch_size):
        memory = remember(model, pictures[first : first + batch_size])
        found += beam(model, [[]] * memory.batch_size, search, memory)
    return [[decode_hypothesis(one, tokenizer) for one in hypotheses] for hypotheses in found]


def patient(width: int, tokens: int, nbest: int = 1) -> Search:
    """Return a search that continues while an open caption would beat those that ended; a width of 1 is greedy.

    A beam finishes some captions at every step, however unlikely. Stopped at the first `width` of them, it would return
    only short ones where the model prefers a long one.
    """
    return Search(width=width, tokens=tokens, nbest=nbest, patience="first" if width == 1 else "current")


def remember(model: Captioner, pictures: Pixels) -> Memory:
    """Return the memory of encoded pictures, without gradients and without dropout."""
    was_training = model.training
    device = next(model.parameters()).device
    with torch.no_grad():
        memory = model.eval().remember(torch.from_numpy(np.array(pictures)).to(device))
    model.train(was_training)
    return memory
