"""The task protocol: everything that is specific to one kind of run.

The loop, checkpoints, evaluation, prediction, plan, card and command line call a task and never branch on its name. A
task is constructed from its own `Options`; everything else that it needs is passed to its methods.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, ClassVar, Protocol, TypeAlias

from torch import Tensor, nn

from recollect.core.memory import Memory
from recollect.core.types import JsonMapping, JsonObject

Assets: TypeAlias = Mapping[str, Any]  # what a run saves beside its weights, by file name: each has `save(path)`


@dataclass(frozen=True)
class Loss:
    """The loss of one batch: its sum over predictions, their number, and the memory after the batch.

    >>> loss = rc.Loss(torch.tensor(6.0), count=4)
    >>> (loss.total / loss.count).item()
    1.5
    """

    total: Tensor  # ()
    count: Tensor | int
    memory: Memory | None = None  # detached; None: nothing is carried to the next batch


class LossFunction(Protocol):
    """A function from model, batch and carried memory to a loss.

    It may be captured in a CUDA graph, so no shape may depend on a value.
    """

    def __call__(self, model: Any, batch: Any, memory: Memory | None) -> Loss:
        """Return the loss."""


class Batches(Protocol):
    """A source of batches that can be iterated repeatedly and whose position can be saved."""

    def __iter__(self) -> Iterator[Any]:
        """Yield batches: pytrees of tensors with a `count`, the number of predictions in them."""

    @property
    def predicted(self) -> int:
        """The number of predictions in one epoch."""

    def state(self) -> JsonObject:
        """Return the position as plain data."""

    def load_state(self, state: JsonObject) -> None:
        """Resume from a position."""


class Dataset(Protocol):
    """Data in three parts."""

    name: str  # under which it is cached, for `reopen`


@dataclass(frozen=True)
class Measure:
    """A metric: its title, its definition, and which direction is better.

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
    rows: Mapping[str, Mapping[str, float]]  # by variant of evaluation or decoding
    details: JsonMapping = field(default_factory=dict)

    @property
    def decisive(self) -> str:
        """The name of the measure that decides which weights are best."""
        return next(iter(self.measures))

    @property
    def value(self) -> float:
        """The figure that decides which weights are best."""
        return float(next(iter(self.rows.values()))[self.decisive])

    @property
    def lower_is_better(self) -> bool:
        """The direction of the figure that decides."""
        return self.measures[self.decisive].lower_is_better

    def as_json(self) -> JsonObject:
        """Return all figures as plain data."""
        rows = [{"read": name, **values} for name, values in self.rows.items()]
        return {**self.details, "rows": rows, "measures": {name: asdict(m) for name, m in self.measures.items()}}

    def __str__(self) -> str:
        names = [name for name in self.measures if any(name in row for row in self.rows.values())]
        widths = [max(len(self.measures[name].title), 10) for name in names]
        head = "  ".join(self.measures[name].title.rjust(width) for name, width in zip(names, widths, strict=True))
        first = max([14, *(len(row) + 2 for row in self.rows)])
        lines = [f"{'':{first}}{head}"]
        for row, values in self.rows.items():
            figures = (f"{values[name]:.4f}" if name in values else "" for name in names)
            lines.append(f"{row:{first}}" + "  ".join(f.rjust(width) for f, width in zip(figures, widths, strict=True)))
        return "\n".join(lines)


@dataclass(frozen=True)
class ItemScores:
    """The deciding figure of a part by its items, as a ratio: (Σ numerators / Σ denominators) ** power.

    Items are texts, sentences, windows … in the order of the data, the same for every model, so that two models can be
    compared item by item and items can be drawn again.

    >>> right = rc.ItemScores([1.0, 0.0, 1.0, 1.0], [1.0, 1.0, 1.0, 1.0])
    >>> right.value
    0.75
    """

    numerators: Sequence[float]
    denominators: Sequence[float]
    power: float = 1.0  # 0.5: the root of a mean square
    by_position: Sequence[float] = ()  # the figure by place in a sequence, where that is known

    @property
    def value(self) -> float:
        """The figure of all items together; NaN without any."""
        below = math.fsum(self.denominators)
        return (math.fsum(self.numerators) / below) ** self.power if below else math.nan

    def grouped(self, most: int) -> ItemScores:
        """Return the same figure by at most `most` items: neighbours are joined."""
        size = -(-len(self.numerators) // most) if self.numerators else 1
        starts = range(0, len(self.numerators), size)
        above = [math.fsum(self.numerators[i : i + size]) for i in starts]
        below = [math.fsum(self.denominators[i : i + size]) for i in starts]
        return ItemScores(above, below, self.power, self.by_position)


@dataclass(frozen=True)
class Answer:
    """One output of a model for an input; `score` is what outputs are ranked by.

    >>> rc.Answer("le chat", score=-0.5, logprob=-1.0).text
    'le chat'
    """

    text: str
    score: float
    logprob: float


@dataclass(frozen=True)
class Prediction:
    """The outputs of a model for one input, best first.

    >>> found = rc.Prediction("the cat", [rc.Answer("le chat", -0.5, -1.0)])
    >>> found.targets[0].text, sorted(found.as_json())
    ('le chat', ['source', 'targets'])
    """

    source: str
    targets: Sequence[Answer]

    def as_json(self) -> JsonObject:
        """Return it as plain data."""
        return {"source": self.source, "targets": [asdict(one) for one in self.targets]}


@dataclass(frozen=True)
class Baseline:
    """The figure of a naive model, for comparison in every table.

    >>> rc.Baseline("unigram", 3.2)
    Baseline(name='unigram', value=3.2)
    """

    name: str
    value: float  # of the measure that decides


@dataclass(frozen=True)
class About:
    """What a model card states about the data and the size of the memory.

    >>> noun, unit = {"en": "A model of sums", "zh": "求和模型"}, {"en": "rows", "zh": "行"}
    >>> about = rc.About(noun, "digit", 10, (800, 100, 100), unit, {1000: 64}, "predict")
    >>> about.memory[1000]  # bytes after 1000 symbols
    64
    """

    noun: Mapping[str, str]  # by language: a language model, a translator …
    symbols: str  # how inputs are tokenized
    vocabulary: int
    parts: tuple[int, int, int]  # sizes of train, valid and test …
    unit: Mapping[str, str]  # … in what, by language
    memory: Mapping[int, int]  # bytes that one row remembers, by symbols read
    use: str  # the command that uses the run
    data: Mapping[str, str] | None = None  # what the data are, by language; None: symbols of a vocabulary


class Task(Protocol):
    """One kind of run.

    A task may also have `usual(family, size)`, the settings whose default depends on these two; and `predict(model,
    assets, inputs, **settings) -> Iterator[Prediction]`, `generate(model, assets, prompt, stop, **settings) ->
    Iterator[str]`, `attention(model, assets, source, target)` and `plot(predictions, title, is_page)`; for a
    command that it lacks the error names one that it has. `takes_several = True`: `open` and `read` accept several
    names, one a line. `fixed(assets)`: entries of the model's config that the assets decide. For comparisons it may
    have `item_scores(model, dataset, split) -> ItemScores`, whose value is that of `measure`, and
    `reference_models`, the families that stand in every comparison.

    >>> class Sums(rc.TaskDefaults):  # what is left out of the protocol here has a default
    ...     name, families, default_model = "sums", ("gru",), "gru"
    ...     def open(self, source):
    ...         return torch.arange(10)
    >>> Sums(options=None).open("digits").sum().item()
    45
    """

    name: ClassVar[str]
    Options: ClassVar[type]  # a frozen dataclass of the settings of this task only
    families: ClassVar[tuple[str, ...]]  # names of its models
    Config: ClassVar[type]  # a dataclass that declares the models' settings
    default_model: ClassVar[str]
    takes_layers: ClassVar[bool]  # whether a layer of one's own can be its model
    shows_names: ClassVar[bool]  # whether predictions are listed with their inputs' names
    loss: LossFunction

    def __init__(self, options: Any) -> None:
        """Store the settings of this task."""

    def open(self, source: str) -> Any:
        """Read the data: a Dataset with its three parts."""

    def reopen(self, name: str) -> Any:
        """Return data by its name in the cache; None where it is no longer there."""

    def read(self, source: str, assets: Assets) -> Any:
        """Read other data with a run's own assets, as the test part of a Dataset."""

    @staticmethod
    def settings(family: str) -> Sequence[str]:
        """Return the names of the model settings that a family uses."""

    def config(self, family: str, size: str, dataset: Any, settings: JsonMapping) -> Any:
        """Return the model's config, a dataclass, for a built-in family or a user's own."""

    def build(self, config: JsonMapping) -> nn.Module:
        """Return a newly initialized model from its config as plain data."""

    def assets(self, dataset: Any) -> Assets:
        """Return what is saved in the run: tokenizer, labels, scalers."""

    def load_assets(self, folder: Path) -> Assets:
        """Read the assets that a run has saved."""

    def batches(self, dataset: Any, model: Any, seed: int) -> Batches:
        """Return the training batches of a model."""

    def fit(self, model: Any, dataset: Any, limit: int | None = None) -> int:
        """Train a model that has no parameters by counting; return how many symbols were counted."""

    def measure(self, model: Any, dataset: Any, split: str, limit: int | None = None) -> Scores:
        """Return the figures that decide which weights are best, on at most `limit` symbols or examples of a part."""

    def evaluate(self, model: Any, dataset: Any, assets: Assets, steps: int | None = None) -> Scores:
        """Return every figure of the test part."""

    def baselines(self, dataset: Any) -> list[Baseline]:
        """Return the naive models' figures."""

    def sample(self, model: Any, dataset: Any) -> tuple[str, str]:
        """Return an input and the model's output for it, in a line each."""

    def about(self, dataset: Any, model: Any) -> About:
        """Return what the card states."""


class TaskDefaults:
    """Defaults for a task: no cache, no assets, no baselines, and an evaluation that is `measure` on the test part.

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
        """Read the data; a task must implement it."""
        raise NotImplementedError

    def measure(self, model: Any, dataset: Any, split: str, limit: int | None = None) -> Scores:
        """Return the figures that decide which weights are best; a task must implement it."""
        raise NotImplementedError

    def reopen(self, name: str) -> Any:
        """Return None: nothing is cached, and the data are read again."""
        return None

    def read(self, source: str, assets: Assets) -> Any:
        """Read other data as `open` does."""
        return self.open(source)

    @staticmethod
    def usual(family: str, size: str) -> Mapping[str, Any]:
        """Return the settings, of any owner, whose default depends on family or size: none."""
        return {}

    @classmethod
    def settings(cls, family: str) -> Sequence[str]:
        """Return all settings of the config: every family uses all of them."""
        return [f.name for f in fields(cls.Config) if f.name != "family"]

    def config(self, family: str, size: str, dataset: Any, settings: JsonMapping) -> Any:
        """Return the config with the given settings; `size` is ignored."""
        return self.Config(family, **settings)

    def assets(self, dataset: Any) -> Assets:
        """Return no assets."""
        return {}

    def load_assets(self, folder: Path) -> Assets:
        """Return no assets."""
        return {}

    def fit(self, model: Any, dataset: Any, limit: int | None = None) -> int:
        """Raise NotImplementedError: no model of this task is trained by counting."""
        raise NotImplementedError

    def evaluate(self, model: Any, dataset: Any, assets: Assets, steps: int | None = None) -> Scores:
        """Return `measure` on the test part."""
        return self.measure(model, dataset, "test")

    def baselines(self, dataset: Any) -> list[Baseline]:
        """Return no naive models."""
        return []
