"""What `recollect generate` and `recollect predict` do: a run goes on from a prompt, answers to lines or pictures."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from recollect.data.images.pictures import open_pictures
from recollect.data.text.line_tokenizer import LineTokenizer
from recollect.data.text.source import read_text
from recollect.generation.captions import caption, patient
from recollect.generation.continuation import stream_text
from recollect.generation.settings import Search, Settings
from recollect.generation.translation import Tongues, Translation, translate
from recollect.runs.config import PAIR_TASKS
from recollect.runs.run import Run

LONGEST = 200  # symbols of a target


def speak(
    run: Run, prompt: str, settings: dict[str, Any], stop: Sequence[str] = (), device: str = "cpu"
) -> Iterator[str]:
    """Give the text that follows, as it becomes certain. Symbols that the run never saw are refused."""
    task = run.config()["training"]["task"]
    if task != "language":
        kind, source = ("captioner", "PICTURE") if task == "caption" else ("translator", "TEXT")
        raise ValueError(f"{run.folder}: a {kind} needs a source; try: recollect predict {run.folder} {source}")
    model, tokenizer = run.load(device), run.tokenizer()
    tokenizer.encode(prompt, strict=True)  # complains of unknown symbols
    how = Settings(prohibited=tokenizer.unseen, **settings)
    for pieces in stream_text(model, tokenizer, [prompt], how, stop=stop):
        yield pieces[0]


def answer(run: Run, words: str, width: int = 5, nbest: int = 1, device: str = "cpu") -> list[dict[str, Any]]:
    """Say what a run makes of INPUT as it is typed: a captioner's pictures, a translator's lines."""
    if is_captioner(run):
        return describe(run, words, width, nbest, device)
    return predict(run, lines_of(words), width, nbest, device)


def describe(run: Run, words: str, width: int = 5, nbest: int = 1, device: str = "cpu") -> list[dict[str, Any]]:
    """Caption the pictures that words name: for each its name as `source` and its `nbest` captions, best first."""
    model = run.load(device)
    pictures = open_pictures(words, model.config.size, f"as those that {run.folder} was trained on")
    found = caption(model, caption_tokenizer_of(run), pictures.pixels, patient(width, LONGEST, nbest))
    return [_answered(name, best) for name, best in zip(pictures.names, found, strict=True)]


def predict(
    run: Run, lines: Sequence[str], width: int = 5, nbest: int = 1, device: str = "cpu"
) -> list[dict[str, Any]]:
    """Translate lines: for each its source and its `nbest` targets with their scores, best first."""
    if run.config()["training"]["task"] not in PAIR_TASKS:
        raise ValueError(f"{run.folder}: a language model; try: recollect generate {run.folder} TEXT")
    tongues = tongues_of(run)
    for number, line in enumerate(lines, 1):
        tongues.source.check_script(line, f"line {number}", f"the sources that {run.folder} was trained on")
    search = Search(width=width, nbest=nbest, tokens=LONGEST)
    found = translate(run.load(device), tongues, lines, search)
    return [_answered(line, best) for line, best in zip(lines, found, strict=True)]


def _answered(source: str, best: Sequence[Translation]) -> dict[str, Any]:
    targets = [{"text": one.text, "score": one.score, "logprob": one.logprob} for one in best]
    return {"source": source, "targets": targets}


def lines_of(words: str) -> list[str]:
    """Give the lines of a file or of standard input (`-`), or the words themselves where there is no such file."""
    if words != "-" and not Path(words).is_file():
        return [words]
    return "".join(read_text(words)).splitlines()


def tongues_of(run: Run) -> Tongues:
    """Give a translator's tokenizers."""
    sides = (LineTokenizer.load(run.folder / f"{side}_tokenizer.json") for side in ("source", "target"))
    return Tongues(*sides)


def is_captioner(run: Run) -> bool:
    """Tell whether a run reads pictures."""
    return bool(run.config()["training"]["task"] == "caption")


def caption_tokenizer_of(run: Run) -> LineTokenizer:
    """Give a captioner's tokenizer."""
    return LineTokenizer.load(run.folder / "target_tokenizer.json")
