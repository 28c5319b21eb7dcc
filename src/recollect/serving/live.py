"""The models of a server: what it computes when a page asks, one computation at a time for each model."""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from threading import Lock, Thread

from recollect.core.types import JsonObject
from recollect.inspection.trace import Text
from recollect.serving.exhibit import Progress, exhibit, silent, variant
from recollect.serving.problems import PageError
from recollect.serving.shown_model import ShownModel, text_of
from recollect.serving.trainings import Trainings
from recollect.serving.writing import stream_of

KEPT = 4  # exhibits of the texts that were asked for last


class UnknownColumn(KeyError):
    """A page asked for a model that this server does not have."""


class Live:
    """Answers the page's questions; `notice` is told of what the person at the terminal should know.

    text: what is read first; None: a text that the models know, looked up when it is needed. folders: folders of runs,
    in which trainings are looked for that begin while the page is open. problems: why models that were asked for are
    not among these.
    """

    def __init__(
        self,
        models: Sequence[ShownModel],
        text: str | None,
        command: str = "",
        notice: Progress = silent,
        folders: Sequence[str | Path] = (),
        problems: Sequence[Text] = (),
    ) -> None:
        self.models = {one.id: one for one in models}
        self.trainings = Trainings(models, folders, notice)
        self.text = text
        self.command = command
        self.notice = notice
        self.problems = problems
        self._locks = {one.id: Lock() for one in models}
        self._all = Lock()
        self._kept: OrderedDict[str, JsonObject] = OrderedDict()

    def exhibit(self, text: str | None = None) -> JsonObject:
        """Return the page's data for a text, by default the one that the server was started with."""
        with self._all:
            text = self._own_text() if text is None else text
            if text not in self._kept:
                self._kept[text] = self._read(text)
            self._kept.move_to_end(text)
            while len(self._kept) > KEPT:
                self._kept.popitem(last=False)
            return {**self._kept[text], "training": self.training()}

    def begin(self) -> Thread:
        """Compute the first exhibit in a thread of its own, so that it is there when the page is opened."""
        thread = Thread(target=self.exhibit, name="example", daemon=True)
        thread.start()
        return thread

    def _own_text(self) -> str:
        if self.text is None:
            self.text = text_of(list(self.models.values()))
        return self.text

    def _read(self, text: str) -> JsonObject:
        models = list(self.models.values())
        found = exhibit(models, text, live=True, command=self.command, problems=self.problems)
        for problem in (one["problem"]["en"] for one in found["columns"] if "problem" in one):
            self.notice(problem)
        return found

    def reading(self, column: str, knobs: Mapping[str, str], text: str) -> JsonObject:
        """Return a model's reading of a text with knobs turned."""
        one = self._model(column)
        with self._locks[column]:
            return variant(one, text, knobs)

    def write(self, column: str, prompt: str, temperature: float, seed: int) -> Iterator[str]:
        """Return an iterator over lines of JSON, each with a chunk of a continuation; what cannot be raises at once."""
        one = self._model(column)
        if not prompt:
            raise PageError("prompt: got an empty text, expected at least one symbol", "提示为空，至少需要一个符号")
        with self._locks[column]:
            chunks = stream_of(one, prompt, temperature, seed)
        return self._lines(column, chunks)

    def _lines(self, column: str, chunks: Iterator[str]) -> Iterator[str]:
        while True:
            with self._locks[column]:
                chunk = next(chunks, None)
            if chunk is None:
                return
            yield json.dumps({"chunk": chunk}, ensure_ascii=False) + "\n"

    def training(self) -> JsonObject:
        """Return the curves and samples of the models' runs, and of those that were begun beside them."""
        return self.trainings.read()

    def _model(self, column: str) -> ShownModel:
        if column not in self.models:
            raise UnknownColumn(f"column: got {column!r}, expected one of {', '.join(self.models)}")
        return self.models[column]
