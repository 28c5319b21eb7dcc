"""The models that a page shows, opened from their folders."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from recollect.core.errors import is_own
from recollect.core.types import JsonObject
from recollect.data.error import DataError
from recollect.inspection.inspector import inspect
from recollect.models.language import LanguageModel
from recollect.models.line import LINE, Station, station_of
from recollect.models.own import MakeLayer
from recollect.pretrained.checkpoint import is_checkpoint
from recollect.runs.embed import open_model
from recollect.runs.run import Run, load
from recollect.serving.problems import PageError

MOST_PARAMETERS = 400_000_000  # of a model that is traced: gradients of every step take several times its weights
SERIES = ("markov", "window", "rnn", "lstm", "gru", "linear-attention", "transformer", "ttt-linear", "ttt-mlp")
MOST_MODELS = 12  # on one page
SYMBOLS = 72  # characters of a text that nobody gave
DEFAULT_TEXT = "A sentence is read one symbol at a time, and something of it is remembered."


@dataclass(frozen=True)
class ShownModel:
    """One model on the page: its name there, its folder, and what reads a text."""

    id: str
    name: str
    folder: Path
    family: str
    model: LanguageModel
    tokenizer: Any
    run: Run | None

    @property
    def parameters(self) -> int:
        """Numbers that were learned; of a Markov model, its n-grams."""
        counts = [t.numel() for name, t in self.model.body.state_dict().items() if name.startswith("counts_")]
        return sum(p.numel() for p in self.model.parameters()) + sum(counts)

    @property
    def counts(self) -> bool:
        """Whether it counts n-grams and has no parameters."""
        return next(self.model.parameters(), None) is None

    @cached_property
    def layers(self) -> Sequence[JsonObject]:
        """The remembering layers, as a trace lists them."""
        return inspect(self.model, [0], explain=0, brief=True).layers

    @property
    def station(self) -> Station | None:
        """The family's station in the line."""
        return station_of(self.family)

    @property
    def most(self) -> int | None:
        """The longest text that it reads; None: any."""
        return self.model.config.max_length


def series_of(family: str, number: int) -> int:
    """Return the number of a family's colour on the page; of another's, that of its place."""
    return (SERIES.index(family) if family in SERIES else number % len(SERIES)) + 1


def runs_in(folder: Path) -> list[Path]:
    """Return the runs in a folder of runs, such as a demo's, in the order of the line; or the folder itself."""
    if (folder / "config.json").is_file() or not folder.is_dir():
        return [folder]
    names = [station.name for station in LINE]
    found = [path.parent for path in folder.glob("*/config.json")]
    return sorted(found, key=lambda path: (names.index(path.name) if path.name in names else len(names), path.name))


def open_some(
    folders: Sequence[str | Path], device: str = "auto", layer: MakeLayer | None = None
) -> tuple[list[ShownModel], list[Exception]]:
    """Open what the page can show of some folders; also return why the others are left out; raise if that is all."""
    paths = [path for folder in folders for path in runs_in(Path(folder))]
    if not paths:
        raise DataError(f"{folders[0]}: holds no run; train one with: recollect train DATA")
    if len(paths) > MOST_MODELS:
        raise DataError(f"got {len(paths)} models, expected at most {MOST_MODELS} on one page; name the runs to show")
    models: list[ShownModel] = []
    problems: list[Exception] = []
    for path in paths:
        try:
            models.append(_open(path, device, layer, {one.id for one in models}))
        except ValueError as error:
            problems.append(error)
    if not models:
        raise problems[0]
    return models, problems


def _open(path: Path, device: str, layer: MakeLayer | None, ids: set[str]) -> ShownModel:
    is_own_run = layer is not None and not is_checkpoint(path) and is_own(Run(path).saved()["run"]["family"])
    check_size(path, sum(file.stat().st_size for file in path.glob("*.safetensors")) // 4)  # before they are read
    opened = load(path, device=device, model=layer) if is_own_run else open_model(path, device=device)
    model = opened.model
    if not isinstance(model, LanguageModel) or not model.streams:
        kind = opened.task.name if isinstance(opened, Run) else "masked language model"
        raise PageError(
            f"{path}: a run of the task {kind}; the page shows language models, others: rc.inspect(run, …)",
            f"{path}：任务 {kind} 的运行；页面只显示语言模型，其他请用 rc.inspect(run, …)",
        )
    check_size(path, sum(p.numel() for p in model.parameters()))
    name = path.resolve().name
    numbers = (f"{base}{n}" for base in [_plain(name)] for n in ["", *range(2, MOST_MODELS + 2)])
    own = next(one for one in numbers if one not in ids)
    run = opened if isinstance(opened, Run) else None
    return ShownModel(own, name, path, model.config.family, model, opened.tokenizer, run)


def check_size(path: Path, parameters: int) -> None:
    """Raise a `PageError` for a model that is too large to trace."""
    if parameters > MOST_PARAMETERS:
        most = f"{MOST_PARAMETERS:,}"
        raise PageError(
            f"{path}: {parameters:,} parameters are too many to trace, expected at most {most}",
            f"{path}：{parameters:,} 个参数，太大，无法追踪；最多 {most} 个",
        )


def _plain(name: str) -> str:
    """Return a name of letters, digits and dashes only, for addresses and the ids of elements."""
    return "".join(c if c.isascii() and c.isalnum() else "-" for c in name) or "model"


def text_of(models: Sequence[ShownModel]) -> str:
    """Return a text to read where none is given: the beginning of the first run's held-out text, on one line."""
    for run in (one.run for one in models if one.run is not None):
        try:
            data = run.dataset()
            ids = np.asarray(data.valid[: 4 * SYMBOLS])
        except (ValueError, OSError, AttributeError):  # the data are not there any more
            continue
        text = " ".join(run.tokenizer.decode(ids).split())
        return text[:SYMBOLS].rpartition(" ")[0] if " " in text[:SYMBOLS] else text[:SYMBOLS]
    return DEFAULT_TEXT
