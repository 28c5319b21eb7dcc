"""What kinds of runs differ in: their data, their model, what is held out, what a sample is, what their card says."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from recollect.data.text.line_tokenizer import LineTokenizer
from recollect.data.text.tokenizer import Tokenizer
from recollect.runs.config import Recipe
from recollect.training.state import Batches

Say = Callable[[Any], tuple[str, str]]  # a model to a prompt, or a source, and what it makes of it


@dataclass(frozen=True)
class About:
    """What a model card says of the data and of what the model remembers."""

    noun: dict[str, str]  # by language: a language model, a translator …
    symbols: str  # how text is cut
    vocabulary: int
    parts: tuple[int, int, int]  # sizes of train, valid and test …
    unit: dict[str, str]  # … in what, by language
    memory: int  # bytes that one row remembers …
    read: int  # … after so many symbols
    use: str  # the command that uses the run


class Task(Protocol):
    """One kind of run."""

    def open(self, recipe: Recipe) -> Any:
        """Read the data, which has a `name` in the cache."""

    def reopen(self, name: str) -> Any:
        """Give data by its name in the cache; None where it is no longer there."""

    def config(self, recipe: Recipe, data: Any) -> Any:
        """Give the model's config, a dataclass."""

    def tokenizers(self, data: Any) -> Mapping[str, Tokenizer | LineTokenizer]:
        """Give what turns text into ids, by file name."""

    def batches(self, recipe: Recipe, data: Any, model: Any) -> Batches:
        """Give what a model learns from."""

    def validate(self, recipe: Recipe, data: Any) -> Callable[[Any], float]:
        """Give the function from a model to its loss on what is held out for validation."""

    def sampler(self, data: Any) -> Say:
        """Give the function that lets a model show what it can do, in a line."""

    def about(self, data: Any, model: Any) -> About:
        """Give what the card says."""
