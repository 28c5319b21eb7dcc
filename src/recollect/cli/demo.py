"""The demo: every family of the line, trained for equal time on a text and on a task that memory decides."""

from __future__ import annotations

import json
import math
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from recollect.core.machine import choose_device, describe
from recollect.core.serialize import FileError, write_file
from recollect.core.types import AnyLayer, JsonObject
from recollect.data.text.corpus import Corpus
from recollect.evaluation.likelihood import validation_scores
from recollect.models.language import FAMILIES, LanguageConfig, LanguageModel
from recollect.models.line import LINE, Station, station_of
from recollect.models.sizes import sized
from recollect.runs.config import RunConfig
from recollect.runs.plan import forecast
from recollect.runs.run import Run
from recollect.runs.train import begin
from recollect.story.notes import Exam, Grade, Inside, attention_of, gates_of, grade, learn, make_exam
from recollect.story.outlook import FACTOR, Outlook
from recollect.tasks.language import count_symbols

STEPS = (1, 16, 256, 1024, 4096, 16384)  # numbers of symbols after which the memory's bytes are measured
EVALUATIONS = 6  # during the training of a family
BATCH = 8  # rows in a batch: few, since in so short a time many small updates reach a lower loss than few large ones
PROBE = 0.3  # seconds in which a family's speed is measured
GATES = ("input_gate", "forget_gate")
EXAM = 4 / 15  # of the seconds for the text, for the notes
NEVER = 10**9  # updates between two evaluations: only the first and the last weights are evaluated


@dataclass(frozen=True)
class Demo:
    """The settings of a demo: the output folder, the training seconds of each family, the text and the prompt."""

    out: Path
    seconds: float = 15.0
    data: str = "python-docs"
    prompt: str = "The "

    def __post_init__(self) -> None:
        if not 0 < self.seconds < math.inf:
            raise ValueError(f"--seconds: got {self.seconds:g}, expected more than 0; try: recollect demo --seconds 15")

    def config(self, family: str, **settings: Any) -> RunConfig:
        """Return the config of a family's run."""
        shared = {"tokenizer": "char", "max_seconds": self.seconds, "batch_size": BATCH}
        return RunConfig.make(self.data, family, **{**shared, **settings})


@dataclass(frozen=True)
class Finding:
    """The results of one family."""

    family: str
    loss: float  # nats per character of the test part
    bits: float  # the same in bits
    parameters: int
    seconds: float  # of training
    speed: float  # characters trained on per second
    bytes: dict[int, int]  # of the memory, by characters read
    said: str  # the prompt and its continuation, on one line
    curve: tuple[tuple[float, float], ...]  # training seconds, and the loss on the validation part then
    notes: Grade  # how far it remembers

    @property
    def station(self) -> Station:
        """The family's station in the line."""
        return station(self.family)


@dataclass(frozen=True)
class DemoOutcome:
    """The results of the whole line."""

    demo: Demo
    characters: dict[str, int]  # of each part of the text
    unigram: float  # the test loss of the order-0 Markov model, which remembers nothing
    findings: tuple[Finding, ...]
    attention: Inside | None  # of the transformer, reading a line of notes
    gates: tuple[Inside, ...]  # of the lstm, reading one
    outlook: Outlook
    seconds: float  # in total
    machine: str

    @property
    def unigram_bits(self) -> float:
        """The unigram's loss in bits."""
        return self.unigram / math.log(2)

    @property
    def best(self) -> Finding:
        """The finding with the lowest loss."""
        return min(self.findings, key=lambda finding: finding.loss)


class Watcher(Protocol):
    """Receives the progress of a demo."""

    def learning(self, family: str, seconds: float, losses: list[float]) -> None:
        """Receive a family's training seconds and validation losses so far."""

    def finished(self, finding: Finding) -> None:
        """Receive a family's results."""


def run_demo(demo: Demo, watcher: Watcher) -> DemoOutcome:
    """Train and measure the whole line, in the order of history, and write the page."""
    from recollect.cli.demo_page import page

    begun = time.perf_counter()
    clear_folder(demo)
    with Run(demo.out).lock(), one_thread():
        corpus = demo.config("markov").make_task().open(demo.data)
        exam = make_exam()
        findings = []
        models = {}
        for family in sorted(FAMILIES, key=lambda family: LINE.index(station(family))):
            models[family], notes = remember(demo, family, exam)
            findings.append(find(demo, family, corpus, notes, watcher))
            watcher.finished(findings[-1])
        outcome = DemoOutcome(
            demo=demo,
            characters={part: len(getattr(corpus, part)) for part in ("train", "valid", "test")},
            unigram=unigram_loss(corpus),
            findings=tuple(findings),
            attention=attention_of("transformer", models["transformer"], exam) if "transformer" in models else None,
            gates=tuple(gates_of("lstm", models["lstm"], exam, gate) for gate in GATES if "lstm" in models),
            outlook=look_ahead(demo, findings, corpus),
            seconds=time.perf_counter() - begun,
            machine=describe(choose_device(demo.config("markov").training.device)),
        )
        write_file(demo.out / "report.html", page(outcome).encode())
    return outcome


@contextmanager
def one_thread() -> Iterator[None]:
    """Compute with one thread: on shared cores, waiting for a second thread takes longer than it saves."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def station(family: str) -> Station:
    """Return a family's station in the line."""
    found = station_of(family)
    assert found is not None
    return found


# ---- the folder ----------------------------------------------------------------------------------------


def clear_folder(demo: Demo) -> None:
    """Delete the files of an earlier demo; raise a `FileError` for a folder that holds anything else."""
    if demo.out.exists() and not demo.out.is_dir():
        raise FileError(f"{demo.out}: a file, expected a folder; try: recollect demo --out {demo.out}-2")
    entries = sorted(demo.out.iterdir()) if demo.out.exists() else []
    for entry in entries:
        if not _is_of_a_demo(entry, demo.data):
            problem = f"holds {entry.name!r}, which is not of a demo; nothing was deleted"
            raise FileError(f"{demo.out}: {problem}; try: recollect demo --out {demo.out}-2")
    with Run(demo.out).lock():
        for entry in entries:
            if entry.is_dir():
                shutil.rmtree(entry)
            elif entry.name != ".lock":
                entry.unlink()


def _is_of_a_demo(entry: Path, data: str) -> bool:
    if entry.is_symlink() or not entry.is_dir():
        return entry.name in ("report.html", ".lock")
    config = entry / "config.json"
    if entry.name not in FAMILIES or not config.exists():
        return entry.name in FAMILIES and not list(entry.glob("[!.]*"))  # stopped before its first file
    try:  # of any version: an old demo may be deleted
        saved = json.loads(config.read_text(encoding="utf-8"))
        made_from = saved["training"] if saved["version"] < 3 else saved["run"]
        return bool(made_from["data"] == data)
    except (ValueError, KeyError, TypeError):
        return False


# ---- one family ----------------------------------------------------------------------------------------


def remember(demo: Demo, family: str, exam: Exam) -> tuple[LanguageModel, Grade]:
    """Train one family on the notes, and examine it."""
    model, updates = learn(family, exam, EXAM * demo.seconds)
    return model, grade(family, model, updates, exam)


def find(demo: Demo, family: str, corpus: Corpus, notes: Grade, watcher: Watcher) -> Finding:
    """Train one family as a run of its own, and measure it."""
    config = demo.config(family)
    run = Run(demo.out / family, "cpu")
    log = _Log(family, watcher)
    if family == "markov":
        log.seconds = counting_seconds(corpus)
        log.tokens = len(corpus.train)
    else:
        config = demo.config(family, evaluate_every=updates_between(config))
    if not begin(config, run, log):
        raise KeyboardInterrupt
    model = run.model
    text = torch.from_numpy(np.resize(corpus.train, max(STEPS)).astype(np.int64))[None]  # a short one is repeated
    said = run.generate(demo.prompt, tokens=60, temperature=0.8, seed=0)
    loss = run.task.measure(model, corpus, "test").value
    return Finding(
        family=family,
        loss=loss,
        bits=loss / math.log(2),
        parameters=learned_numbers(model),
        seconds=log.seconds,
        speed=log.tokens / log.seconds,
        bytes=dict(zip(STEPS, bytes_after(model, text, STEPS), strict=True)),
        said=" ".join(said.split()),
        curve=tuple(log.curve),
        notes=notes,
    )


def look_ahead(demo: Demo, findings: list[Finding], corpus: Corpus) -> Outlook:
    """Train the best of the trained families again, for shorter times, and return what that says about longer ones."""
    counter = next(f for f in findings if f.family == "markov")
    rival = min((f for f in findings if f is not counter), key=lambda finding: finding.loss)
    ends = [(rival.seconds, rival.loss)]
    with tempfile.TemporaryDirectory() as folder:
        for power in (1, 2):
            config = demo.config(rival.family, max_seconds=demo.seconds / FACTOR**power, evaluate_every=NEVER)
            run = Run(Path(folder) / str(power), "cpu")
            if not begin(config, run, lambda row: None):
                raise KeyboardInterrupt
            ends.insert(0, (demo.seconds / FACTOR**power, run.task.measure(run.model, corpus, "test").value))
    return Outlook(
        counter=counter.family,
        counter_loss=counter.loss,
        counter_seconds=counter.seconds,
        order=sized(counter.family, corpus.tokenizer.vocab_size).order,
        rival=rival.family,
        ends=tuple(ends),
        passes=rival.speed * rival.seconds / len(corpus.train),
    )


class _Log:
    """Receives the rows of a training, and passes its progress to the watcher."""

    def __init__(self, family: str, watcher: Watcher) -> None:
        self.family = family
        self.watcher = watcher
        self.seconds = 0.0
        self.tokens = 0
        self.curve: list[tuple[float, float]] = []

    def __call__(self, row: JsonObject) -> None:
        self.seconds = row.get("seconds", self.seconds)
        self.tokens = row.get("tokens", self.tokens)
        if "valid_loss" in row:
            self.curve.append((self.seconds, row["valid_loss"]))
        self.watcher.learning(self.family, self.seconds, [loss for _, loss in self.curve])


def updates_between(config: RunConfig) -> int:
    """Return the updates between two evaluations with which every family is evaluated equally often."""
    return max(1, forecast(config, seconds=PROBE)["updates"] // EVALUATIONS)


def counting_seconds(corpus: Corpus) -> float:
    """Return the seconds that a Markov model takes to count the text, which is all of its training."""
    model = LanguageModel(sized("markov", corpus.tokenizer.vocab_size))
    begun = time.perf_counter()
    count_symbols(model, corpus.train, ends=corpus.ends["train"])
    return time.perf_counter() - begun


def unigram_loss(corpus: Corpus) -> float:
    """Return the test loss of the unigram model."""
    model = LanguageModel(LanguageConfig("markov", corpus.tokenizer.vocab_size, order=0))
    count_symbols(model, corpus.train, ends=corpus.ends["train"])
    return validation_scores(model, corpus.test, 256, corpus.ends["test"]).value


def learned_numbers(model: LanguageModel) -> int:
    """Return the number of parameters; of a Markov model, the number of n-grams."""
    counts = [t.numel() for name, t in model.body.state_dict().items() if name.startswith("counts_")]
    return sum(p.numel() for p in model.parameters()) + sum(counts)


@torch.no_grad()
def bytes_after(layer: AnyLayer, x: Tensor, steps: tuple[int, ...], chunk: int = 256) -> Iterator[int]:
    """Read x (1, T, …), and yield the memory's bytes after each of these numbers of steps."""
    memory = layer.initial_memory(1)
    done = 0
    for stop in steps:
        while done < stop:
            size = min(chunk, stop - done)
            memory = layer(x[:, done : done + size], memory)[1]
            done += size
        yield memory.nbytes
