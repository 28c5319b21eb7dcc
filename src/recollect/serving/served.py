"""The models of a server: runs of any task, and pretrained models, each opened once."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import torch

from recollect.core.errors import is_own, nearest
from recollect.core.machine import choose_device, free_memory
from recollect.core.serialize import module_checksum
from recollect.data.error import DataError
from recollect.generation.prefill import home
from recollect.generation.scheduler import Scheduler
from recollect.models.own import MakeLayer
from recollect.pretrained.checkpoint import is_checkpoint
from recollect.pretrained.load import Pretrained
from recollect.runs.embed import open_model
from recollect.runs.run import Run, load
from recollect.serving.shown_model import ShownModel, runs_in
from recollect.serving.worker import Worker

SLACK = 1.2  # of the bytes of the weights: what loading and one step take beside them
MOST, QUEUE = 64, 256  # rows of a batch, and requests that may wait for it
SHARE = 0.5  # of the memory that is free once all is loaded: what the batches may take together


@dataclass(eq=False)
class Served:
    """One model: its name, its folder, and what it can be asked for."""

    name: str
    folder: Path
    opened: Run | Pretrained
    scheduler: Scheduler | None = None  # of a model that continues texts
    worker: Worker = field(default_factory=lambda: Worker(QUEUE))  # of its predictions
    created: int = field(default_factory=lambda: int(time.time()))

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
    def continues(self) -> bool:
        """Whether it continues texts, and can be read in chunks."""
        is_able = isinstance(self.opened, Pretrained) or hasattr(self.opened.task, "generate")
        return is_able and bool(self.model.streams)

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

    def as_shown(self, number: int) -> ShownModel:
        """Return it as the page shows it, as its model of this number: names may differ in what an id cannot hold."""
        run = self.opened if isinstance(self.opened, Run) else None
        plain = "".join(c if c.isascii() and c.isalnum() else "-" for c in self.name)
        own = plain if plain == self.name else f"{plain}-{number}-"
        return ShownModel(own, self.name, self.folder, self.model.config.family, self.model, self.tokenizer, run)


def open_served(
    folders: Sequence[str],
    device: str = "auto",
    layer: MakeLayer | None = None,
    *,
    most: int = MOST,
    queue: int = QUEUE,
    most_bytes: int | None = None,
) -> list[Served]:
    """Open runs and pretrained models, or all runs of a folder; raise a `DataError` for what cannot be served.

    `most_bytes` bounds each model's batch; None: by a share of the memory that is free.
    """
    paths = [path for folder in folders for path in runs_in(Path(folder))]
    if not paths:
        raise DataError(f"{folders[0]}: holds no run; train one with: recollect train DATA")
    check_memory(paths, choose_device(device))
    found: list[Served] = []
    for path in paths:
        name = path.resolve().name
        taken = {one.name for one in found}
        name = next(n for n in [name, *(f"{name}-{i}" for i in range(2, len(paths) + 2))] if n not in taken)
        found.append(Served(name, path, _open(path, device, layer), worker=Worker(queue)))
    for one in found:
        if one.continues:
            room = most_bytes or _share(one, len(found))
            one.scheduler = Scheduler(one.model, most, queue, room)
    return found


def _share(one: Served, among: int) -> int:
    """Return the bytes that a model's batch may take, of what is free beside all models."""
    return int(SHARE * free_memory(home(one.model, None)) / among)


def _open(path: Path, device: str, layer: MakeLayer | None) -> Run | Pretrained:
    is_own_run = layer is not None and not is_checkpoint(path) and is_own(Run(path).saved()["run"]["family"])
    opened = load(path, device=device, model=layer) if is_own_run else open_model(path, device=device)
    if isinstance(opened, Run):
        _ = opened.assets  # all is loaded now: what is damaged is refused at the start, and the folder may then go
    if isinstance(opened.model, torch.nn.Module):
        opened.model.eval()
    return opened


def check_memory(paths: Sequence[Path], device: torch.device) -> None:
    """Raise a `DataError` for models whose weights do not fit into a device's memory, before any is read."""
    sizes = {path: sum(file.stat().st_size for file in path.glob("*.safetensors")) for path in paths}
    free = free_memory(device)
    total = SLACK * sum(sizes.values())
    if total > free:
        largest = max(sizes, key=lambda path: sizes[path])
        raise DataError(
            f"{largest}: the weights of all models take {total / 2**30:.1f} GiB, but {free / 2**30:.1f} GiB "
            f"of {device} are free; serve fewer models, or on a machine with more memory"
        )


def named(models: Sequence[Served], name: str) -> Served:
    """Return a model by its name; raise a KeyError with the names there are."""
    for one in models:
        if one.name == name:
            return one
    names = [one.name for one in models]
    raise KeyError(f"model: got {name!r}, expected one of {', '.join(names)}{nearest(name, names)}")
