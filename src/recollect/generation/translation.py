"""Lines into lines: sources are remembered side by side, and their targets searched for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from recollect.core.padding import pad
from recollect.core.record import record
from recollect.data.text.line_tokenizer import LineTokenizer
from recollect.generation.beam import Hypothesis, beam
from recollect.generation.sampling import said_by_row, stream
from recollect.generation.settings import Search, Settings

LOOKS = ("attend.weights", "cross.weights")  # what decoders note of their looks at a source


@dataclass(frozen=True)
class Tongues:
    """The tokenizers of both sides.

    >>> lines = rc.LineTokenizer.train("word", ["the cat sat.", "the dog."])
    >>> rc.Tongues(source=lines, target=lines).target.kind
    'word'
    """

    source: LineTokenizer
    target: LineTokenizer


@dataclass(frozen=True)
class Translation:
    """One target for a source, with log p over its length penalty."""

    text: str
    score: float
    logprob: float


def translate(
    model: Any, tongues: Tongues, lines: Sequence[str], search: Search | None = None, batch_size: int = 32
) -> list[list[Translation]]:
    """Return each line's best targets, best first; what stands beside a line in its batch changes nothing.

    Lines of like length are read together. Symbols that the target's tokenizer never saw are not said.

    >>> lines = rc.LineTokenizer.train("word", ["a b c", "c b a"])
    >>> model = rc.Translator("luong", lines.model_size, lines.model_size, width=8).eval()
    >>> found = rc.translate(model, rc.Tongues(lines, lines), ["a b", "c"], rc.Search(tokens=3, nbest=2))
    >>> [len(best) for best in found]  # two targets for each line
    [2, 2]
    """
    search = search or Search(tokens=200)
    begin, end = tongues.target.begin, tongues.target.end
    silent = [*search.prohibited, begin, *tongues.target.unseen]
    search = replace(search, end=[end], begin=begin, prohibited=silent)
    found: dict[int, list[Translation]] = {}
    ids = [tongues.source.encode(line).tolist() for line in lines]
    for numbers in _like_lengths(ids, batch_size):
        for i, hypotheses in zip(numbers, search_targets(model, [ids[i] for i in numbers], search), strict=True):
            found[i] = [_said(one, tongues) for one in hypotheses]
    return [found[i] for i in range(len(lines))]


def search_targets(model: Any, sources: Sequence[Sequence[int]], search: Search) -> list[list[Hypothesis]]:
    """Remember sources side by side and search for the best targets of each."""
    home = next(model.parameters()).device
    source, valid = pad(sources)
    with torch.no_grad():
        memory = model.remember(source.to(home), None if bool(valid.all()) else valid.to(home))
    prompts: list[list[int]] = [[] for _ in sources]
    if search.width > 1 or search.min_tokens or search.no_repeat is not None:
        return beam(model, prompts, search, memory)
    ids: dict[str, Any] = {"begin": search.begin, "stop": search.end, "prohibited": search.prohibited}
    steps = stream(model, prompts, Settings(tokens=search.tokens, greedy=True, **ids), memory)
    rows = zip(said_by_row(list(steps)), steps.reasons, strict=True)
    return [[Hypothesis(i, p, search.normalised(sum(p), len(i)), reason or "length")] for (i, p), reason in rows]


@torch.no_grad()
def attention_map(model: Any, tongues: Tongues, source: str, target: str) -> NDArray[np.float64]:
    """Return how much each symbol of the target, and its end, looked at each of the source: (T + 1, S).

    Where there are several looks, in heads and layers, their mean.
    """
    home = next(model.parameters()).device
    ids, said = tongues.source.encode(source), [tongues.target.begin, *tongues.target.encode(target).tolist()]
    with record(model) as seen:
        model(torch.tensor([said], device=home), model.remember(torch.from_numpy(ids)[None].to(home)))
    looks = [look for name, look in seen.items() if name.endswith(LOOKS)]
    if not looks:
        raise ValueError(f"maps: got {model.config.family!r}, which looks at no source; try bahdanau or transformer")
    maps = [look[0].double().cpu().reshape(-1, *look.shape[-2:]) for look in looks]
    return torch.cat(maps).mean(0).numpy()


def _said(hypothesis: Any, tongues: Tongues) -> Translation:
    ids = hypothesis.ids[:-1] if hypothesis.ids and hypothesis.ids[-1] == tongues.target.end else hypothesis.ids
    return Translation(tongues.target.decode(ids), hypothesis.score, sum(hypothesis.logprobs))


def _like_lengths(ids: list[Any], size: int) -> Iterator[list[int]]:
    order = sorted(range(len(ids)), key=lambda i: -len(ids[i]))
    return (order[i : i + size] for i in range(0, len(order), size))
