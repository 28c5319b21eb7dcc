"""The task seam: all that one kind of run knows and no other part of the package does.

The loop, checkpoints, evaluation, prediction, plan, card and command line ask a task and never branch on its name. A
task is a class made from its own `Options`; everything else that it needs is passed to its methods.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, ClassVar, Protocol, TypeAlias

from torch import Tensor, nn

from recollect.core.memory import Memory

Assets: TypeAlias = Mapping[str, Any]  # what a run saves beside its weights, by file name: each has `save(path)`


@dataclass(frozen=True)
class Loss:
    """The loss of one batch: summed over what is predicted, how much that is, and the memory after it.

    >>> loss = rc.Loss(torch.tensor(6.0), count=4)
    >>> (loss.total / loss.count).item()
    1.5
    """

    total: Tensor  # ()
    count: Tensor | int
    memory: Memory | None = None  # detached; None: nothing is carried to the next batch


class LossFunction(Protocol):
    """A model, a batch and the memory carried so far to a loss. No shape may depend on a value: it may be captured."""

    def __call__(self, model: Any, batch: Any, memory: Memory | None) -> Loss:
        """Return the loss."""


class Batches(Protocol):
    """Where batches come from, again and again; its place can be saved."""

    def __iter__(self) -> Iterator[Any]:
        """Yield batches: pytrees of tensors with a `count`, the number of predictions in them."""

    @property
    def predicted(self) -> int:
        """Predictions of one epoch."""

    def state(self) -> dict[str, Any]:
        """Return the place as plain data."""

    def load_state(self, state: dict[str, Any]) -> None:
        """Resume from a place."""


class Dataset(Protocol):
    """Data in three parts."""

    name: str  # of its place in the cache, for `reopen`


@dataclass(frozen=True)
class Measure:
    """What a figure means: its heading, its definition, and which direction is better.

    >>> rc.Measure("accuracy", "share of labels that are right", lower_is_better=False).lower_is_better
    False
    """

    title: str
    definition: str
    lower_is_better: bool = True


@dataclass(frozen=True)
class Scores:
    """Named figures of one model on one part of the data. The first measure of the first row decides what is best.

    >>> scores = rc.Scores({"error": rc.Measure("error", "mean absolute error")}, {"test": {"error": 0.25}})
    >>> scores.decisive, scores.value, scores.lower_is_better
    ('error', 0.25, True)
    """

    measures: Mapping[str, Measure]
    rows: Mapping[str, Mapping[str, float]]  # by the variant of reading or decoding
    details: Mapping[str, Any] = field(default_factory=dict)

    @property
    def decisive(self) -> str:
        """The name of the measure that decides."""
        return next(iter(self.measures))

    @property
    def value(self) -> float:
        """The figure that decides."""
        return float(next(iter(self.rows.values()))[self.decisive])

    @property
    def lower_is_better(self) -> bool:
        """The direction of the figure that decides."""
        return self.measures[self.decisive].lower_is_better

    def as_json(self) -> dict[str, Any]:
        """Return all of it as plain data."""
        rows = [{"read": name, **values} for name, values in self.rows.items()]
        return {**self.details, "rows": rows, "measures": {name: asdict(m) for name, m in self.measures.items()}}

    def __str__(self) -> str:
        names = [name for name in self.measures if any(name in row for row in self.rows.values())]
        widths = [max(len(self.measures[name].title), 10) for name in names]
        head = "  ".join(self.measures[name].title.rjust(width) for name, width in zip(names, widths, strict=True))
        lines = [f"{'':14}{head}"]
        for row, values in self.rows.items():
            figures = (f"{values[name]:.4f}" if name in values else "" for name in names)
            lines.append(f"{row:14}" + "  ".join(f.rjust(width) for f, width in zip(figures, widths, strict=True)))
        return "\n".join(lines)


@dataclass(frozen=True)
class Answer:
    """One thing that a model makes of an input.

    >>> rc.Answer("le chat", score=-0.5, logprob=-1.0).text
    'le chat'
    """

    text: str
    score: float
    logprob: float


@dataclass(frozen=True)
class Prediction:
    """What a model makes of one input, best first.

    >>> found = rc.Prediction("the cat", [rc.Answer("le chat", -0.5, -1.0)])
    >>> found.targets[0].text, sorted(found.as_json())
    ('le chat', ['source', 'targets'])
    """

    source: str
    targets: Sequence[Answer]

    def as_json(self) -> dict[str, Any]:
        """Return it as plain data."""
        return {"source": self.source, "targets": [asdict(one) for one in self.targets]}


@dataclass(frozen=True)
class Baseline:
    """A naive model's figure, for the rows of every table.

    >>> rc.Baseline("unigram", 3.2)
    Baseline(name='unigram', value=3.2)
    """

    name: str
    value: float  # of the measure that decides


@dataclass(frozen=True)
class About:
    """What a model card says of the data and of what the model remembers.

    >>> noun, unit = {"en": "A model of sums", "zh": "求和模型"}, {"en": "rows", "zh": "行"}
    >>> about = rc.About(noun, "digit", 10, (800, 100, 100), unit, {1000: 64}, "predict")
    >>> about.memory[1000]  # bytes after 1000 symbols
    64
    """

    noun: Mapping[str, str]  # by language: a language model, a translator …
    symbols: str  # how inputs are cut
    vocabulary: int
    parts: tuple[int, int, int]  # sizes of train, valid and test …
    unit: Mapping[str, str]  # … in what, by language
    memory: Mapping[int, int]  # bytes that one row remembers, by symbols read
    use: str  # the verb that uses the run


class Task(Protocol):
    """One kind of run.

    A task may also have `predict(model, assets, inputs, **settings) -> Iterator[Prediction]`, `generate(model, assets,
    prompt, stop, **settings) -> Iterator[str]` and `attention(model, assets, source, target)`; a verb that it lacks is
    refused with the one that it has.

    >>> class Sums(rc.TaskDefaults):  # what is left out of the protocol here has a default
    ...     name, families, default_model = "sums", ("gru",), "gru"
    ...     def open(self, source):
    ...         return torch.arange(10)
    >>> Sums(options=None).open("digits").sum().item()
    45
    """

    name: ClassVar[str]
    Options: ClassVar[type]  # a frozen dataclass of this task's settings and no other's
    families: ClassVar[tuple[str, ...]]  # names of its models
    Config: ClassVar[type]  # a dataclass that declares the models' settings
    default_model: ClassVar[str]
    takes_layers: ClassVar[bool]  # whether a layer of one's own can be its model
    shows_names: ClassVar[bool]  # whether predictions are listed with their inputs' names
    loss: LossFunction

    def __init__(self, options: Any) -> None:
        """Take this task's settings."""

    def open(self, source: str) -> Any:
        """Read the data: a Dataset with its three parts."""

    def reopen(self, name: str) -> Any:
        """Return data by its name in the cache; None where it is no longer there."""

    def read(self, source: str, assets: Assets) -> Any:
        """Read other data with a run's own assets: a Dataset whose test part it is."""

    @staticmethod
    def settings(family: str) -> Sequence[str]:
        """Return the names of the model settings that a family uses."""

    def config(self, family: str, size: str, dataset: Any, settings: Mapping[str, Any]) -> Any:
        """Return the model's config, a dataclass, for any family of the line or one's own."""

    def build(self, config: Mapping[str, Any]) -> nn.Module:
        """Return a model with new weights from its config as plain data."""

    def assets(self, dataset: Any) -> Assets:
        """Return what is saved in the run: tokenizer, labels, scalers."""

    def load_assets(self, folder: Path) -> Assets:
        """Read the assets back."""

    def batches(self, dataset: Any, model: Any, seed: int) -> Batches:
        """Return what a model learns from."""

    def fit(self, model: Any, dataset: Any, limit: int | None = None) -> int:
        """Train a model that has no parameters by counting; return how many symbols were counted."""

    def measure(self, model: Any, dataset: Any, split: str, limit: int | None = None) -> Scores:
        """Return the figures that decide which weights are best, on at most `limit` symbols or examples of a part."""

    def evaluate(self, model: Any, dataset: Any, assets: Assets, steps: int | None = None) -> Scores:
        """Return every figure of the test part."""

    def baselines(self, dataset: Any) -> list[Baseline]:
        """Return the naive rows of every table."""

    def sample(self, model: Any, dataset: Any) -> tuple[str, str]:
        """Return an input, and what the model makes of it, in a line."""

    def about(self, dataset: Any, model: Any) -> About:
        """Return what the card says."""


class TaskDefaults:
    """What a task may leave out: it is read anew, saves nothing beside its weights, and is measured in one way.

    >>> class Sums(rc.TaskDefaults):
    ...     name = "sums"
    >>> Sums(options=None).baselines(dataset=None)  # no naive rows unless a task has them
    []
    """

    name: ClassVar[str]
    Options: ClassVar[type]
    Config: ClassVar[type]
    families: ClassVar[tuple[str, ...]]
    default_model: ClassVar[str]
    takes_layers: ClassVar[bool] = False
    shows_names: ClassVar[bool] = True

    def __init__(self, options: Any) -> None:
        self.options = options

    def open(self, source: str) -> Any:
        """Read the data; the one method of these that a task must have."""
        raise NotImplementedError

    def measure(self, model: Any, dataset: Any, split: str, limit: int | None = None) -> Scores:
        """Return the figures that decide; a task must have it."""
        raise NotImplementedError

    def reopen(self, name: str) -> Any:
        """Return None: nothing is kept in a cache, and data are read again."""
        return None

    def read(self, source: str, assets: Assets) -> Any:
        """Read other data as its own."""
        return self.open(source)

    @classmethod
    def settings(cls, family: str) -> Sequence[str]:
        """Return all settings of the config: every family uses each."""
        return [f.name for f in fields(cls.Config) if f.name != "family"]

    def config(self, family: str, size: str, dataset: Any, settings: Mapping[str, Any]) -> Any:
        """Return the config with the settings given; sizes make no difference."""
        return self.Config(family, **settings)

    def assets(self, dataset: Any) -> Assets:
        """Return nothing."""
        return {}

    def load_assets(self, folder: Path) -> Assets:
        """Return nothing."""
        return {}

    def fit(self, model: Any, dataset: Any, limit: int | None = None) -> int:
        """Refuse: no model of this task counts."""
        raise NotImplementedError

    def evaluate(self, model: Any, dataset: Any, assets: Assets, steps: int | None = None) -> Scores:
        """Measure the test part."""
        return self.measure(model, dataset, "test")

    def baselines(self, dataset: Any) -> list[Baseline]:
        """Return no naive rows."""
        return []
