"""From DATA and a family's name to a trained run, and on from where one stopped: what the verbs of training do."""

from __future__ import annotations

import json
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch

from recollect.checkpoint import load_checkpoint, newest_checkpoint
from recollect.data.batches import Streams, Windows
from recollect.data.corpus import Corpus, load_corpus
from recollect.models.language import LanguageModel
from recollect.models.sizes import sized
from recollect.optimise import Optimise
from recollect.run import Run
from recollect.train import Budget, Diverged, Plan, Trainee, count_symbols, go_on, train, validation_loss

Report = Callable[[dict[str, Any]], None]


@dataclass(frozen=True)
class Recipe:
    """All that a run is made from; kept in its config, so that `resume` needs nothing but the folder."""

    data: str
    family: str = "lstm"
    size: str = "tiny"
    tokenizer: str | None = None  # char, byte, word, bpe; None: chosen by the text
    field: str | None = None  # of .jsonl, .csv and .tsv
    max_steps: int | None = None  # the budget: updates …
    max_tokens: int | None = None  # … symbols read …
    max_seconds: float | None = None  # … or seconds
    batch_size: int = 16
    steps: int = 128  # symbols to a stretch
    rate: float = 3e-3
    dropout: float = 0.0
    seed: int = 0
    evaluate_every: int = 200

    def with_settings(self, settings: list[str]) -> Recipe:
        """Change settings given as NAME=VALUE; refuse names there are not, and values of another type."""
        changes = {}
        for text in settings:
            name, _, value = text.partition("=")
            if name not in vars(self):
                raise ValueError(f"--set: seen {name!r}, wanted one of {', '.join(vars(self))}")
            try:
                changes[name] = json.loads(value)
            except ValueError:
                changes[name] = value
            before = getattr(self, name)
            wanted = (int, float) if isinstance(before, float) else type(before)
            if before is not None and not isinstance(changes[name], wanted):
                kind = type(before).__name__
                raise ValueError(f"--set {name}: seen {value!r}, wanted a {kind}, such as {before!r}")
        return replace(self, **changes)

    def budget(self) -> Budget:
        """Give the budget; 60 seconds where none was set."""
        if self.max_steps is None and self.max_tokens is None and self.max_seconds is None:
            return Budget(seconds=60.0)
        return Budget(self.max_steps, self.max_tokens, self.max_seconds)

    def plan(self) -> Plan:
        """Give the plan of training."""
        every = self.evaluate_every
        optimise = Optimise(rate=self.rate)
        return Plan(self.budget(), optimise, evaluate_every=every, save_every=every, steps=self.steps)


def begin(recipe: Recipe, run: Run, report: Report) -> bool:
    """Train a new run; say whether its budget was spent."""
    with run.lock():
        corpus = open_corpus(recipe)
        torch.manual_seed(recipe.seed)
        config = sized(recipe.family, corpus.tokenizer.vocab_size, recipe.size, dropout=recipe.dropout)
        run.create(config, corpus.tokenizer, asdict(recipe))
        model = LanguageModel(config)
        if recipe.family == "markov":
            return _count(recipe, run, model, corpus, report)
        return _learn(recipe, run, enrol(recipe, model, corpus), corpus, report)


def resume(run: Run, report: Report, notice: Callable[[str], None]) -> bool:
    """Go on with a run where it stopped; say whether its budget was spent."""
    recipe = Recipe(**run.config()["training"])
    with run.lock():
        corpus = open_corpus(recipe)
        trainee = enrol(recipe, run.build(), corpus)
        for text in go_on(trainee, run.checkpoints):
            notice(text)
        run.cut_log(trainee.progress.step)
        return _learn(recipe, run, trainee, corpus, report)


def open_corpus(recipe: Recipe) -> Corpus:
    """Read the run's data."""
    return load_corpus(recipe.data, tokenizer=recipe.tokenizer, field=recipe.field)


def _count(recipe: Recipe, run: Run, model: LanguageModel, corpus: Corpus, report: Report) -> bool:
    count_symbols(model, corpus.train)
    report({"step": 0, "valid_loss": validation_loss(model, corpus.valid, recipe.steps)})
    run.finish(model)
    return True


def _learn(recipe: Recipe, run: Run, trainee: Trainee, corpus: Corpus, report: Report) -> bool:
    def log(row: dict[str, Any]) -> None:
        run.log(row)
        report(row)

    try:
        with _asked_to_stop() as is_stopped:
            is_spent = train(trainee, recipe.plan(), corpus.valid, run.checkpoints, log, is_stopped)
    except Diverged as error:
        good, _ = newest_checkpoint(run.checkpoints)
        again = f"recollect train {recipe.data} -m {recipe.family} --rate {recipe.rate / 3:.1g} --out {run.folder}-2"
        raise Diverged(f"{error}. The last good checkpoint is {good}. Try: {again}") from error
    keep_best(trainee, run)
    return is_spent


def enrol(recipe: Recipe, model: LanguageModel, corpus: Corpus) -> Trainee:
    """Give the model its text and its optimiser: a carried stream, or windows where nothing is carried."""
    batches: Any
    if model.carries:
        batches = Streams(corpus.train, recipe.batch_size, recipe.steps)
    else:
        batches = Windows(corpus.train, recipe.batch_size, recipe.steps, seed=recipe.seed)
    return Trainee(model, batches, recipe.plan().optimise.build(model))


def keep_best(trainee: Trainee, run: Run) -> None:
    """Make the weights of the lowest validation loss the run's result."""
    best = LanguageModel(trainee.model.config)
    load_checkpoint(run.checkpoints / f"step-{trainee.progress.best_step:08d}", best)
    run.finish(best)


@contextmanager
def _asked_to_stop() -> Iterator[Callable[[], bool]]:
    """Turn Ctrl-C into a question that training asks between two updates, so that no update is cut in half."""
    asked: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield lambda: False  # only the main thread hears signals
        return
    before = signal.signal(signal.SIGINT, lambda number, frame: asked.append(number))
    try:
        yield lambda: bool(asked)
    finally:
        signal.signal(signal.SIGINT, before)
