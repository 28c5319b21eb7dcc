"""Translation of lines: encode a batch of sources and search for their targets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from recollect.core.observer import tell
from recollect.core.padding import pad
from recollect.core.record import record
from recollect.data.audio.frame_coder import FrameCoder, Frames
from recollect.data.labels.subword_coder import SubwordCoder
from recollect.data.text.line_tokenizer import LineTokenizer
from recollect.data.text.tokenizer import Ids
from recollect.generation.beam import Hypothesis, beam
from recollect.generation.sampling import ids_by_row, stream
from recollect.generation.settings import Search, Settings
from recollect.models.translation import Translator

ATTENTION = ("attend.weights", "cross.weights")  # names that decoders record their weights over a source under


@dataclass(frozen=True)
class TokenizerPair:
    """The tokenizers of both sides.

    >>> lines = rc.LineTokenizer.train("word", ["the cat sat.", "the dog."])
    >>> rc.TokenizerPair(source=lines, target=lines).target.kind
    'word'
    """

    source: LineTokenizer | SubwordCoder | FrameCoder
    target: LineTokenizer


@dataclass(frozen=True)
class Translation:
    """One target of a source; `score` is log p over its length penalty."""

    text: str
    score: float
    logprob: float


def translate(
    model: Translator,
    tokenizers: TokenizerPair,
    lines: Sequence[str],
    search: Search | None = None,
    batch_size: int = 32,
) -> list[list[Translation]]:
    """Return each line's best targets, best first; they do not depend on the other lines.

    Lines of similar length are batched. Symbols that the target's tokenizer never saw in training are not generated.

    >>> lines = rc.LineTokenizer.train("word", ["a b c", "c b a"])
    >>> model = rc.Translator("luong", lines.model_size, lines.model_size, width=8).eval()
    >>> found = rc.translate(model, rc.TokenizerPair(lines, lines), ["a b", "c"], rc.Search(tokens=3, nbest=2))
    >>> [len(best) for best in found]  # two targets for each line
    [2, 2]
    """
    return translate_encoded(
        model, tokenizers.target, [tokenizers.source.encode(line) for line in lines], search, batch_size
    )


def translate_encoded(
    model: Translator,
    target: LineTokenizer,
    sources: Sequence[Ids | Frames],
    search: Search | None = None,
    batch_size: int = 32,
) -> list[list[Translation]]:
    """Return the best targets of sources that are ids (S,) or frames (S, D), as `translate` does."""
    search = search or Search(tokens=200)
    prohibited = [*search.prohibited, target.begin, *target.unseen]
    search = replace(search, end=[target.end], begin=target.begin, prohibited=prohibited)
    found: dict[int, list[Translation]] = {}
    encoded = [torch.from_numpy(source) for source in sources]
    by_length = sorted(range(len(encoded)), key=lambda i: -len(encoded[i]))
    for first in range(0, len(encoded), batch_size):
        numbers = by_length[first : first + batch_size]
        for i, hypotheses in zip(numbers, search_targets(model, [encoded[i] for i in numbers], search), strict=True):
            found[i] = [decode_hypothesis(one, target) for one in hypotheses]
        tell("greedy" if search.width == 1 else f"beam {search.width}", len(found), len(encoded))
    return [found[i] for i in range(len(encoded))]


def search_targets(
    model: Translator, sources: Sequence[Sequence[int] | Tensor], search: Search
) -> list[list[Hypothesis]]:
    """Encode sources in one batch and return the best targets of each."""
    device = next(model.parameters()).device
    source, valid = pad(sources)
    with torch.no_grad():
        memory = model.remember(source.to(device), None if bool(valid.all()) else valid.to(device))
    prompts: list[list[int]] = [[] for _ in sources]
    if search.width > 1 or search.min_tokens or search.no_repeat is not None:
        return beam(model, prompts, search, memory)
    greedy = Settings(
        tokens=search.tokens, greedy=True, begin=search.begin, stop=search.end, prohibited=search.prohibited
    )
    steps = stream(model, prompts, greedy, memory)
    rows = zip(ids_by_row(steps.rest()), steps.reasons, strict=True)
    return [[Hypothesis(i, p, search.normalised(sum(p), len(i)), reason or "length")] for (i, p), reason in rows]


@torch.no_grad()
def attention_map(model: Translator, tokenizers: TokenizerPair, source: str, target: str) -> NDArray[np.float64]:
    """Return the attention weights (T + 1, S) of each symbol of the target, and of its end, over the source.

    They are the mean over all heads and layers that attend to the source.
    """
    device = next(model.parameters()).device
    read_from = torch.from_numpy(tokenizers.source.encode(source))[None]  # (1, S) or (1, S, D)
    read = torch.tensor([[tokenizers.target.begin, *tokenizers.target.encode(target).tolist()]])  # (1, T + 1)
    with record(model) as recorded:
        model(read.to(device), model.remember(read_from.to(device)))
    weights = [values for name, values in recorded.items() if name.endswith(ATTENTION)]
    if not weights:
        expected = "a model that attends to its source; try bahdanau or transformer"
        raise ValueError(f"maps: got {model.config.family!r}, expected {expected}")
    maps = [values[0].double().cpu().reshape(-1, *values.shape[-2:]) for values in weights]
    return torch.cat(maps).mean(0).numpy()


def decode_hypothesis(hypothesis: Hypothesis, tokenizer: LineTokenizer) -> Translation:
    """Return a hypothesis as text, without its end id."""
    ids = hypothesis.ids
    if ids and ids[-1] == tokenizer.end:
        ids = ids[:-1]
    return Translation(tokenizer.decode(ids), hypothesis.score, sum(hypothesis.logprobs))
