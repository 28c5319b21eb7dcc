"""A recipe: all that a run is made from, as plain values that a config keeps and `--set` changes."""

from __future__ import annotations

import json
from dataclasses import dataclass, fields, replace
from typing import Any

from recollect.core.validate import nearest
from recollect.models.captioning import CaptionConfig
from recollect.models.language import LanguageConfig
from recollect.models.sizes import sized, sized_captioner, sized_translator
from recollect.models.translation import TranslationConfig
from recollect.training.optimizer import Optimise
from recollect.training.state import Budget, Plan
from recollect.training.truncation import Truncation

PAIR_TASKS = ("translate", "summarise")  # one machinery
TASKS = ("language", *PAIR_TASKS, "caption")


@dataclass(frozen=True)
class Recipe:
    """All that a run is made from; kept in its config, so that `resume` needs nothing but the folder."""

    data: str
    family: str = "lstm"
    size: str = "tiny"
    tokenizer: str | None = None  # char, byte, word, space, bpe; None: chosen by the text
    field: str | None = None  # of .jsonl, .csv and .tsv
    valid: str | None = None  # another text to validate on; None: a part of DATA
    test: str | None = None  # another text to test on; None: a part of DATA

    max_steps: int | None = None  # the budget: updates …
    max_tokens: int | None = None  # … symbols read …
    max_epochs: float | None = None  # … rounds through the text …
    max_seconds: float | None = None  # … or seconds; the first that is reached ends the run
    patience: int | None = None  # stop after so many evaluations without a better one

    batch_size: int = 16
    steps: int = 128  # symbols to a stretch; the mean where lengths are random
    truncation: str = "regular"  # regular, full, random, reweighted
    every: int = 16  # random, reweighted: possible cuts lie so many symbols apart
    accumulate: int = 1  # batches to one update

    optimiser: str = "adamw"  # adamw, sgd
    rate: float = 3e-3
    schedule: str = "cosine"  # constant, cosine, root, step, plateau
    warmup: float = 0.02  # share of the budget
    stages: int = 20  # step: equal parts of the budget, epochs perhaps
    first_stages: int = 10  # step: those at the full rate
    decay: float = 0.5  # step, plateau: the rate's factor
    weight_decay: float = 0.1
    clip_norm: float | None = 1.0
    clip_value: float | None = None
    dropout: float = 0.0
    smoothing: float = 0.0  # share of the target's probability that is spread over all symbols
    tied: bool = False  # embedding and output share their weights
    precision: str = "fp32"  # fp32, bf16
    compile: bool = False
    capture: bool = True  # on a GPU: replay CUDA graphs where batches are alike

    task: str = "language"  # or translate: pairs of a source and a target; or caption: pictures and words
    joint: bool = True  # translate: one vocabulary for both sides
    vocab_size: int | None = None  # translate, caption: of words and byte pairs
    lowercase: bool = False  # translate, caption
    limit: int | None = None  # translate: symbols on a side beyond which a pair is not trained on
    alignment: str = "soft"  # caption, show-attend-tell: soft or hard

    seed: int = 0
    evaluate_every: int = 200  # updates
    device: str = "auto"  # cpu, cuda, cuda:1 …; auto: a GPU where there is one
    tensorboard: bool = False  # also write what the package of this name shows

    def with_settings(self, settings: list[str]) -> Recipe:
        """Change settings given as NAME=VALUE; refuse names there are not, and values of another type."""
        changes = dict(_setting(text, {f.name: str(f.type) for f in fields(self)}) for text in settings)
        return replace(self, **changes)

    def language_model(self, vocab_size: int) -> LanguageConfig:
        """Give a language model's config."""
        return sized(self.family, vocab_size, self.size, dropout=self.dropout, tied=self.tied)

    def translator(self, source_vocab: int, target_vocab: int) -> TranslationConfig:
        """Give a translator's config."""
        shared = self.joint and self.tied
        options: dict[str, Any] = {"dropout": self.dropout, "tied": self.tied, "shared": shared}
        return sized_translator(self.family, source_vocab, target_vocab, self.size, **options)

    def captioner(self, target_vocab: int, picture: tuple[int, ...]) -> CaptionConfig:
        """Give a captioner's config, for pictures of one size (h, w, c)."""
        options: dict[str, Any] = {"dropout": self.dropout, "tied": self.tied, "alignment": self.alignment}
        return sized_captioner(self.family, target_vocab, picture, self.size, **options)

    def budget(self, epoch: int) -> Budget:
        """Give the budget, where a round predicts `epoch` symbols; 60 seconds where none was set."""
        rounds = None if self.max_epochs is None else round(self.max_epochs * epoch)
        tokens = min((n for n in (self.max_tokens, rounds) if n is not None), default=None)
        budget = Budget(self.max_steps, tokens, self.max_seconds)
        return Budget(seconds=60.0) if budget == Budget() else budget

    def optimise(self) -> Optimise:
        """Give how the weights move."""
        names = ("optimiser", "rate", "schedule", "warmup", "stages", "first_stages", "decay", "weight_decay")
        settings: dict[str, Any] = {name: getattr(self, name) for name in (*names, "clip_norm", "clip_value")}
        return Optimise(**settings)

    def cuts(self) -> Truncation:
        """Give where back-propagation is cut."""
        kind: Any = self.truncation
        return Truncation(kind, self.steps, self.every)

    def plan(self, epoch: int) -> Plan:
        """Give the plan of training, where a round predicts `epoch` symbols."""
        precision: Any = self.precision
        settings: dict[str, Any] = {"accumulate": self.accumulate, "patience": self.patience}
        settings |= {"capture": self.capture, "smoothing": self.smoothing}
        settings |= {"evaluate_every": self.evaluate_every, "save_every": self.evaluate_every}
        return Plan(self.budget(epoch), self.optimise(), truncation=self.cuts(), precision=precision, **settings)


def _setting(text: str, kinds: dict[str, str]) -> tuple[str, Any]:
    """Read NAME=VALUE; a value is JSON, or a word as it stands."""
    name, _, word = text.partition("=")
    if name not in kinds:
        raise ValueError(f"--set: got {name!r}, expected one of {', '.join(kinds)}{nearest(name, kinds)}")
    try:
        value = json.loads(word)
    except ValueError:
        value = word
    seen = {type(None): ("None",), bool: ("bool",), int: ("int", "float"), float: ("float",), str: ("str",)}
    if not set(seen.get(type(value), ())) & set(kinds[name].split(" | ")):
        raise ValueError(f"--set {name}: got {word!r}, expected {kinds[name].replace('None', 'null')}")
    return name, value
