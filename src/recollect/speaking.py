"""What `recollect generate` and `recollect predict` do: a run goes on from a prompt, or translates its input."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from recollect.data.text import read_text
from recollect.data.words import LineTokenizer
from recollect.generate import Search, Settings, stream_text
from recollect.run import Run
from recollect.translate import Tongues, translate

LONGEST = 200  # symbols of a target


def speak(
    run: Run, prompt: str, settings: dict[str, Any], stop: Sequence[str] = (), device: str = "cpu"
) -> Iterator[str]:
    """Give the text that follows, as it becomes certain. Symbols that the run never saw are refused."""
    if run.config()["training"]["task"] != "language":
        raise ValueError(f"{run.folder}: a translator needs a source; try: recollect predict {run.folder} TEXT")
    model, tokenizer = run.load(device), run.tokenizer()
    tokenizer.encode(prompt, strict=True)  # complains of unknown symbols
    how = Settings(prohibited=tokenizer.unseen, **settings)
    for pieces in stream_text(model, tokenizer, [prompt], how, stop=stop):
        yield pieces[0]


def predict(
    run: Run, lines: Sequence[str], width: int = 5, nbest: int = 1, device: str = "cpu"
) -> list[dict[str, Any]]:
    """Translate lines: for each its source and its `nbest` targets with their scores, best first."""
    if run.config()["training"]["task"] != "translate":
        raise ValueError(f"{run.folder}: a language model; try: recollect generate {run.folder} TEXT")
    search = Search(width=width, nbest=nbest, tokens=LONGEST)
    found = translate(run.load(device), tongues_of(run), lines, search)
    return [
        {"source": line, "targets": [{"text": one.text, "score": one.score, "logprob": one.logprob} for one in best]}
        for line, best in zip(lines, found, strict=True)
    ]


def lines_of(words: str) -> list[str]:
    """Give the lines of a file or of standard input (`-`), or the words themselves where there is no such file."""
    if words != "-" and not Path(words).is_file():
        return [words]
    return "".join(read_text(words)).splitlines()


def tongues_of(run: Run) -> Tongues:
    """Give a translator's tokenizers."""
    sides = (LineTokenizer.load(run.folder / f"{side}_tokenizer.json") for side in ("source", "target"))
    return Tongues(*sides)
