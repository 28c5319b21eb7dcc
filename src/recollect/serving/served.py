"""The models of a server: runs of any task, and pretrained models, each opened once."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from threading import Lock
from typing import Any

import torch

from recollect.core.errors import is_own, nearest
from recollect.core.machine import available_memory
from recollect.core.serialize import module_checksum
from recollect.data.error import DataError
from recollect.generation.scheduler import Scheduler
from recollect.models.own import MakeLayer
from recollect.pretrained.checkpoint import is_checkpoint
from recollect.pretrained.load import Pretrained
from recollect.runs.embed import open_model
from recollect.runs.run import Run, load
from recollect.serving.shown_model import ShownModel, runs_in

SLACK = 1.2  # of the bytes of the weights: what loading and one step take beside them


@dataclass(eq=False)
class Served:
    """One model: its name, its folder, and what it can be asked for."""

    name: str
    folder: Path
    opened: Run | Pretrained
    scheduler: Scheduler | None = None  # of a model that continues texts
    created: int = field(default_factory=lambda: int(time.time()))
    lock: Lock = field(default_factory=Lock)  # one prediction at a time

    @property
    def model(self) -> Any:
        """The model itself."""
        return self.opened.model

    @property
    def tokenizer(self) -> Any:
        """Its tokenizer."""
        return self.opened.tokenizer

    @property
    def ends(self) -> tuple[int, ...]:
        """The ids that end a text."""
        return self.opened.ends if isinstance(self.opened, Pretrained) else ()

    @property
    def task(self) -> str:
        """The name of its task."""
        return self.opened.task.name if isinstance(self.opened, Run) else "pretrained"

    @property
    def predicts(self) -> bool:
        """Whether it has labels, tags, translations, captions or forecasts."""
        return isinstance(self.opened, Run) and hasattr(self.opened.task, "predict")

    @property
    def embeds(self) -> bool:
        """Whether it has vectors of texts."""
        return not isinstance(self.opened, Run) or hasattr(self.opened.task, "embed")

    @cached_property
    def weights(self) -> str:
        """The checksum of its weights: a saved session belongs to these alone."""
        return module_checksum(self.model)

    def as_json(self) -> dict[str, Any]:
        """Return the entry of /v1/models."""
        config = self.model.config
        able = {"completions": self.scheduler is not None, "embeddings": self.embeds, "predict": self.predicts}
        facts = {
            "task": self.task,
            "family": config.family,
            "able": [name for name, is_able in able.items() if is_able],
        }
        return {"id": self.name, "object": "model", "created": self.created, "owned_by": "recollect", **facts}

    def as_shown(self) -> ShownModel:
        """Return it as the page shows it."""
        run = self.opened if isinstance(self.opened, Run) else None
        plain = "".join(c if c.isascii() and c.isalnum() else "-" for c in self.name)
        return ShownModel(plain, self.name, self.folder, self.model.config.family, self.model, self.tokenizer, run)


def open_served(
    folders: Sequence[str], device: str = "auto", layer: MakeLayer | None = None, *, most: int = 64, queue: int = 256
) -> list[Served]:
    """Open runs and pretrained models, or all runs of a folder; raise a `DataError` for what cannot be served."""
    paths = [path for folder in folders for path in runs_in(Path(folder))]
    if not paths:
        raise DataError(f"{folders[0]}: holds no run; train one with: recollect train DATA")
    check_memory(paths)
    found: list[Served] = []
    for path in paths:
        name = path.resolve().name
        taken = {one.name for one in found}
        name = next(n for n in [name, *(f"{name}-{i}" for i in range(2, len(paths) + 2))] if n not in taken)
        found.append(_open(name, path, device, layer, most, queue))
    return found


def _open(name: str, path: Path, device: str, layer: MakeLayer | None, most: int, queue: int) -> Served:
    is_own_run = layer is not None and not is_checkpoint(path) and is_own(Run(path).saved()["run"]["family"])
    opened = load(path, device=device, model=layer) if is_own_run else open_model(path, device=device)
    continues = isinstance(opened, Pretrained) or hasattr(opened.task, "generate")
    model = opened.model  # loaded now: what is damaged is refused at the start
    if isinstance(model, torch.nn.Module):
        model.eval()
    scheduler = Scheduler(model, most, queue) if continues and model.streams else None
    return Served(name, path, opened, scheduler)


def check_memory(paths: Sequence[Path]) -> None:
    """Raise a `DataError` for models whose weights do not fit into memory, before any is read."""
    sizes = {path: sum(file.stat().st_size for file in path.glob("*.safetensors")) for path in paths}
    free = available_memory(torch.device("cpu"))
    total = SLACK * sum(sizes.values())
    if total > free:
        largest = max(sizes, key=lambda path: sizes[path])
        raise DataError(
            f"{largest}: the weights of all models take {total / 2**30:.1f} GiB, but {free / 2**30:.1f} GiB are free; "
            "serve fewer models, or on a machine with more memory"
        )


def named(models: Sequence[Served], name: str) -> Served:
    """Return a model by its name; raise a KeyError with the names there are."""
    for one in models:
        if one.name == name:
            return one
    names = [one.name for one in models]
    raise KeyError(f"model: got {name!r}, expected one of {', '.join(names)}{nearest(name, names)}")
