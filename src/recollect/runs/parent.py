"""The model that a fine-tuning begins from: a run's, or somebody else's, with its tokenizer and its hash."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from recollect.core.serialize import FileError
from recollect.models.inherited import Trained
from recollect.models.language import LanguageModel
from recollect.models.masked import MaskedModel
from recollect.models.parameters import count_apart
from recollect.models.sizes import TARGETS
from recollect.pretrained.checkpoint import is_checkpoint
from recollect.pretrained.load import from_pretrained
from recollect.runs.run import Run, load


@dataclass(frozen=True, eq=False)
class Parent:
    """A trained model, its tokenizer, the folder it is in, and the hash of its weights."""

    name: str
    digest: str
    model: Trained
    tokenizer: Any
    size: str


def open_parent(source: str | Path | Run) -> Parent:
    """Return the trained model of a run or of a folder of weights; raise a `FileError` for others."""
    folder = source.folder if isinstance(source, Run) else Path(source)
    if not isinstance(source, Run) and is_checkpoint(folder):
        pretrained = from_pretrained(folder)
        return Parent(
            str(folder), digest_of(folder), pretrained.model, pretrained.tokenizer, nearest_size(pretrained.model)
        )
    run = source if isinstance(source, Run) else load(folder)
    model = run.load_model("cpu")
    again = f"train one with: recollect train {run.config().data} -m lstm" if run.task.name == "language" else ""
    if isinstance(model, LanguageModel) and not list(model.parameters()):
        raise FileError(f"{folder}: a {run.config().family} model counts and has no layers to adapt; {again}")
    if not isinstance(model, LanguageModel | MaskedModel):
        raise FileError(
            f"{folder}: a run of the task {run.task.name}, expected one of the task language or masked, or a folder of "
            "weights; train one with: recollect train DATA --task masked"
        )
    return Parent(str(folder), digest_of(folder), model, run.tokenizer, run.config().size)


def digest_of(folder: Path) -> str:
    """Return the SHA-256 of a folder's weights, all of its files together."""
    digest = hashlib.sha256()
    for path in sorted(folder.glob("*.safetensors")):
        with path.open("rb") as file:
            while block := file.read(1 << 20):
                digest.update(block)
    return digest.hexdigest()


def nearest_size(model: Trained) -> str:
    """Return the size whose number of parameters is nearest to a model's."""
    body = count_apart(model).body
    return min(TARGETS, key=lambda size: abs(TARGETS[size] - body))
