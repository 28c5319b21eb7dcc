"""What a run writes down while it learns: every figure, and at each evaluation a line of what the model says."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from recollect.data.corpus import Corpus
from recollect.data.tokenizer import Tokenizer
from recollect.generate import Settings, generate_text
from recollect.models.language import LanguageModel
from recollect.run import Run

PROMPT = 8  # symbols of the validation text that a sample goes on from
SAMPLE = 60  # symbols that it adds


class Journal:
    """Keeps a run's metrics and samples, and tells them on to who reports them."""

    def __init__(self, run: Run, corpus: Corpus, report: Callable[[dict[str, Any]], None], scalars: Any = None) -> None:
        self.run, self.report, self.scalars = run, report, scalars
        first = corpus.valid[: corpus.ends["valid"][0]]  # a document
        self.tokenizer, self.prompt = corpus.tokenizer, first_words(corpus.tokenizer, first)

    def note(self, row: dict[str, Any], model: LanguageModel, **seen: Any) -> None:
        """Write down a row of training; what else is `seen` is only reported."""
        self.run.log(row)
        if "valid_loss" in row:
            text = say(model, self.tokenizer, self.prompt)
            self.run.log_sample({"step": row["step"], "prompt": self.prompt, "text": text})
            seen["sample"] = self.prompt + text
        self._plot(row)
        self.report(row | seen)

    def _plot(self, row: dict[str, Any]) -> None:
        if self.scalars is None:
            return
        for name in sorted(row.keys() - {"step"}):
            self.scalars.add_scalar(name, row[name], row["step"])
        if "valid_loss" in row:
            self.scalars.flush()

    def close(self) -> None:
        """Let go of what is open."""
        if self.scalars is not None:
            self.scalars.close()


def first_words(tokenizer: Tokenizer, ids: NDArray[Any]) -> str:
    """Give the beginning of a text, without a character that is cut in half."""
    decoding, some = tokenizer.stream(), [int(i) for i in ids[:PROMPT]]
    return "".join(decoding.step(i) or "" for i in some) or tokenizer.decode(some)


def say(model: LanguageModel, tokenizer: Tokenizer, prompt: str) -> str:
    """Go on from a prompt for a line; the draws come from a generator of their own, so that training is not moved."""
    table = model.config.max_length  # of learned positions
    room = SAMPLE if table is None else max(table - len(tokenizer.encode(prompt)), 0)
    settings = Settings(tokens=min(SAMPLE, room), temperature=0.8, prohibited=tokenizer.unseen)
    return generate_text(model, tokenizer, [prompt], settings)[0].text


def check_tensorboard() -> None:
    """Refuse to plot where the package is missing."""
    if find_spec("tensorboard") is None:
        raise ValueError(
            "tensorboard: seen true, but the package is not installed; try: pip install 'recollect[tensorboard]'"
        )


def open_tensorboard(folder: Path, step: int) -> Any:
    """Begin to write scalars; those that an earlier life of the run wrote after this step are dropped."""
    from torch.utils.tensorboard import SummaryWriter

    return SummaryWriter(str(folder / "tensorboard"), purge_step=step + 1)
