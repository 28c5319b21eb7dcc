"""Text in, text out, for any tokenizer: an object with `encode` and `stream`.

`tokenizer.stream(prompt)` gives an object whose `step(id)` is the text that became certain with this id, or None: bytes
of an unfinished character wait. Text that may be the beginning of a stop string waits as well, so that nothing shown
ever has to be taken back.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from torch import Tensor

from recollect.core.memory import Memory
from recollect.core.validate import ContractError
from recollect.generation.prefill import Model
from recollect.generation.sampling import Generation, Step, Stream, collect
from recollect.generation.settings import Settings


class TextDecoder(Protocol):
    """A text that is decoded id by id."""

    def step(self, id: int, /) -> str | None:
        """Return the text that is certain now."""
        ...


class TextCodec(Protocol):
    """What is asked of a tokenizer."""

    def encode(self, text: str, /) -> Any:
        """Return a text's ids."""
        ...

    def stream(self, after: str = "", /) -> TextDecoder:
        """Begin to decode what comes after a text."""
        ...


class StopStrings:
    """Watches a growing text for any of some strings, and lets through what cannot belong to one.

    The text ends before the stop string that is complete first; of those complete at once, before the longest.
    """

    def __init__(self, stops: Sequence[str] = ()) -> None:
        if isinstance(stops, str) or any(not isinstance(s, str) or not s for s in stops):
            raise ContractError("stop", repr(stops), "a list of strings that are not empty")
        self.stops, self.found, self._held = tuple(stops), False, ""

    def step(self, piece: str) -> str:
        """Take the next piece of text, and give what may be shown now."""
        if self.found:
            return ""
        for character in piece:
            self._held += character
            complete = max((len(s) for s in self.stops if self._held.endswith(s)), default=0)
            if complete:
                self.found = True
                shown, self._held = self._held[:-complete], ""
                return shown
        return self._release()

    def rest(self) -> str:
        """Return what was held back, now that nothing more comes."""
        rest, self._held = self._held, ""
        return rest

    def _release(self) -> str:
        """Return all but the longest end that is the beginning of a stop string."""
        cut = len(self._held) - max((_overlap(self._held, s) for s in self.stops), default=0)
        shown, self._held = self._held[:cut], self._held[cut:]
        return shown


def _overlap(text: str, stop: str) -> int:
    return next((n for n in range(min(len(text), len(stop) - 1), 0, -1) if text.endswith(stop[:n])), 0)


@dataclass(frozen=True, eq=False)
class Passage:
    """What one row wrote: its text, without stop ids and stop strings, and the generation behind it."""

    text: str
    generation: Generation


class TextStream(Iterator[list[str]]):
    """An iterator over pieces of text, one for each row, empty where there is nothing new; see `stream_text`."""

    def __init__(self, steps: Stream, decodings: list[TextDecoder], stop: Sequence[str] = ()) -> None:
        count = len(steps.reasons)
        self._steps, self._said, self._decodings, self._may_halt = steps, list[Step](), decodings, bool(stop)
        self._watches = [StopStrings(stop) for _ in range(count)]
        self._texts = [""] * count

    def __next__(self) -> list[str]:
        return self._take(next(self._steps))

    def _take(self, step: Step) -> list[str]:
        self._said.append(step)
        pieces = [self._piece(row, i) if i >= 0 else "" for row, i in enumerate(step.said)]
        self._texts = [text + piece for text, piece in zip(self._texts, pieces, strict=True)]
        return pieces

    def _piece(self, row: int, id: int) -> str:
        watch = self._watches[row]
        if id in self._steps.settings.stop:
            return watch.rest()
        piece = watch.step(self._decodings[row].step(id) or "")
        if watch.found:
            self._steps.halt(row)
        return piece + (watch.rest() if self._steps.reasons[row] else "")

    def finish(self) -> list[Passage]:
        """Run to the end, and give what each row wrote."""
        for step in self._steps if self._may_halt else self._steps.rest():
            self._take(step)
        generations = collect(self._steps, self._said)
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
    """Go on from many texts at once, piece by piece; a row also ends where one of the `stop` strings is complete.

    A character that the last id leaves unfinished is left out.

    >>> tokenizer = rc.Tokenizer.train("char", ["abcabcabc"])
    >>> model = rc.Markov(tokenizer.vocab_size, order=1, smoothing="maximum-likelihood")
    >>> model.count(torch.from_numpy(tokenizer.encode("abcabcabc"))[None])
    >>> steps = rc.stream_text(model, tokenizer, ["ab"], rc.Settings(tokens=4, greedy=True))
    >>> "".join(chunk for (chunk,) in steps)  # one row
    'cabc'
    """
    if isinstance(prompts, str):
        raise ContractError("prompts", repr(prompts), "a list of texts")
    StopStrings(stop)  # complain before reading
    ids = [tokenizer.encode(prompt) for prompt in prompts]
    decodings = [tokenizer.stream(prompt) for prompt in prompts]
    return TextStream(Stream(model, ids, settings, memory, logits=logits, rows=rows), decodings, stop)


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
    """Go on from many texts at once, to the end: what `stream_text` says, collected.

    >>> tokenizer = rc.Tokenizer.train("char", ["abcabcabc"])
    >>> model = rc.Markov(tokenizer.vocab_size, order=1, smoothing="maximum-likelihood")
    >>> model.count(torch.from_numpy(tokenizer.encode("abcabcabc"))[None])
    >>> rc.generate_text(model, tokenizer, ["ab"], rc.Settings(tokens=4, greedy=True))[0].text
    'cabc'
    """
    return stream_text(model, tokenizer, prompts, settings, memory, stop=stop, logits=logits, rows=rows).finish()
