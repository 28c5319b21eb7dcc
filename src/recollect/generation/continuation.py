"""Generation of text with any tokenizer that has `encode` and `stream`.

`tokenizer.stream(prompt)` returns a decoder whose `step(id)` returns the text that this id completed, or None: bytes of
an unfinished character are held back. Text that may be the beginning of a stop string is held back as well, so that no
text that was returned has to be retracted.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from recollect.core.memory import Memory
from recollect.core.validate import ContractError
from recollect.generation.prefill import Ids, Model
from recollect.generation.sampling import Generation, Step, Stream, collect
from recollect.generation.settings import Settings


class TextDecoder(Protocol):
    """Decodes a text id by id."""

    def step(self, id: int, /) -> str | None:
        """Return the text that became certain with this id, or None."""
        ...


class TextCodec(Protocol):
    """What generation needs of a tokenizer."""

    def encode(self, text: str, /) -> Ids:
        """Return a text's ids."""
        ...

    def stream(self, after: str = "", /) -> TextDecoder:
        """Return a decoder of the ids that follow a text."""
        ...


class StopStrings:
    """Finds stop strings in a text that arrives in chunks, and holds back what may be the beginning of one.

    The text ends before the stop string that is completed first; of several completed at once, before the longest.
    """

    def __init__(self, stops: Sequence[str] = ()) -> None:
        if isinstance(stops, str) or any(not isinstance(s, str) or not s for s in stops):
            raise ContractError("stop", repr(stops), "a list of strings that are not empty")
        self.stops = tuple(stops)
        self.found = False
        self._held = ""

    def step(self, chunk: str) -> str:
        """Read the next chunk of text, and return the text that is not held back."""
        if self.found:
            return ""
        for character in chunk:
            self._held += character
            complete = max((len(s) for s in self.stops if self._held.endswith(s)), default=0)
            if complete:
                self.found = True
                before = self._held[:-complete]
                self._held = ""
                return before
        held = max((_overlap(self._held, stop) for stop in self.stops), default=0)
        cut = len(self._held) - held
        released = self._held[:cut]
        self._held = self._held[cut:]
        return released

    def rest(self) -> str:
        """Return what was held back: the text has ended."""
        rest = self._held
        self._held = ""
        return rest


def _overlap(text: str, stop: str) -> int:
    """Return the length of the longest end of a text that is a proper beginning of a stop string."""
    return next((n for n in range(min(len(text), len(stop) - 1), 0, -1) if text.endswith(stop[:n])), 0)


@dataclass(frozen=True, eq=False)
class Passage:
    """The text that one row generated, without stop ids and stop strings, and its generation."""

    text: str
    generation: Generation


class TextStream(Iterator[list[str]]):
    """An iterator over chunks of text, one per row, empty where a row has no new text; see `stream_text`."""

    def __init__(self, steps: Stream, decoders: list[TextDecoder], stop: Sequence[str] = ()) -> None:
        self._steps = steps
        self._done: list[Step] = []
        self._decoders = decoders
        self._may_halt = bool(stop)
        self._stops = [StopStrings(stop) for _ in steps.reasons]
        self._texts = [""] * len(steps.reasons)

    def __next__(self) -> list[str]:
        return self._decode(next(self._steps))

    def _decode(self, step: Step) -> list[str]:
        self._done.append(step)
        chunks = [""] * len(step.chosen)
        for row, (id, stops) in enumerate(zip(step.chosen, self._stops, strict=True)):
            if id in self._steps.settings.stop:
                chunks[row] = stops.rest()
            elif id >= 0:
                chunks[row] = stops.step(self._decoders[row].step(id) or "")
                if stops.found:
                    self._steps.halt(row)
                chunks[row] += stops.rest() if self._steps.reasons[row] else ""
        self._texts = [text + chunk for text, chunk in zip(self._texts, chunks, strict=True)]
        return chunks

    def finish(self) -> list[Passage]:
        """Generate to the end, and return the text of each row."""
        for step in self._steps if self._may_halt else self._steps.rest():
            self._decode(step)
        generations = collect(self._steps, self._done)
        return [Passage(text, generation) for text, generation in zip(self._texts, generations, strict=True)]


def stream_text(
    model: Model,
    tokenizer: TextCodec,
    prompts: Sequence[str],
    settings: Settings | None = None,
    memory: Memory | None = None,
    *,
    stop: Sequence[str] = (),
    logits: Tensor | None = None,
    rows: Sequence[int] | None = None,
) -> TextStream:
    """Continue many texts at once, chunk by chunk; a row also ends where one of the `stop` strings is complete.

    A character that the last id leaves incomplete is omitted.

    >>> tokenizer = rc.Tokenizer.train("char", ["abcabcabc"])
    >>> model = rc.Markov(tokenizer.vocab_size, order=1, smoothing="maximum-likelihood")
    >>> model.count(torch.from_numpy(tokenizer.encode("abcabcabc"))[None])
    >>> steps = rc.stream_text(model, tokenizer, ["ab"], rc.Settings(tokens=4, greedy=True))
    >>> "".join(chunk for (chunk,) in steps)  # one row
    'cabc'
    """
    if isinstance(prompts, str):
        raise ContractError("prompts", repr(prompts), "a list of texts")
    StopStrings(stop)  # raises before the prompts are read
    ids = [tokenizer.encode(prompt) for prompt in prompts]
    decoders = [tokenizer.stream(prompt) for prompt in prompts]
    return TextStream(Stream(model, ids, settings, memory, logits=logits, rows=rows), decoders, stop)


def generate_text(
    model: Model,
    tokenizer: TextCodec,
    prompts: Sequence[str],
    settings: Settings | None = None,
    memory: Memory | None = None,
    *,
    stop: Sequence[str] = (),
    logits: Tensor | None = None,
    rows: Sequence[int] | None = None,
) -> list[Passage]:
    """Continue many texts at once, and return the passages at the end; see `stream_text`.

    >>> tokenizer = rc.Tokenizer.train("char", ["abcabcabc"])
    >>> model = rc.Markov(tokenizer.vocab_size, order=1, smoothing="maximum-likelihood")
    >>> model.count(torch.from_numpy(tokenizer.encode("abcabcabc"))[None])
    >>> rc.generate_text(model, tokenizer, ["ab"], rc.Settings(tokens=4, greedy=True))[0].text
    'cabc'
    """
    return stream_text(model, tokenizer, prompts, settings, memory, stop=stop, logits=logits, rows=rows).finish()
