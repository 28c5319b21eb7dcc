"""A folder as Hugging Face writes it, to a model and back: config.json and model.safetensors, or shards of it.

Nothing is unpickled: pytorch_model.bin and its like are refused.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from recollect.core.errors import nearest
from recollect.core.serialize import PICKLE, FileError, read_tensors, write_file, write_tensors
from recollect.core.types import JsonObject
from recollect.models.language import LanguageModel
from recollect.models.masked import MaskedModel
from recollect.pretrained.bert import ALBERT, BERT
from recollect.pretrained.entries import load_tensors, saved_tensors, without_prefix
from recollect.pretrained.format import OTHER_KIND, Format
from recollect.pretrained.gpt2 import GPT2
from recollect.pretrained.llama import Llama

FORMATS: dict[str, Format] = {"gpt2": GPT2(), "llama": Llama(), "mistral": Llama(), "bert": BERT(), "albert": ALBERT()}
WRITTEN = ("gpt2", "llama", "bert", "albert")
WEIGHTS, INDEX = "model.safetensors", "model.safetensors.index.json"
PICKLES = (".bin", ".pt", ".pth", ".ckpt", ".pkl", ".pickle")
MADE = {"made_by": "recollect"}  # an entry of every config.json that is written


def is_checkpoint(folder: Path) -> bool:
    """Return whether a folder or file is a model of Hugging Face, complete or not, and no run."""
    config = folder / "config.json"
    if config.is_file():
        return "model_type" in read_json(config)
    return folder.suffix in PICKLES or any(
        path.name.endswith((".safetensors", *PICKLES)) for path in folder.glob("*") if path.is_file()
    )


def read_model(folder: str | Path) -> LanguageModel | MaskedModel:
    """Return the model of a folder, in eval mode, in float32; raise a `FileError` for what cannot be loaded."""
    folder = Path(folder)
    _refuse_pickle(folder)
    config = read_config(folder)
    kind = str(config.get("model_type"))
    if kind not in FORMATS:
        known = ", ".join(FORMATS)
        raise FileError(
            f"{folder / 'config.json'}: model_type: got {kind!r}, expected one of {known}{nearest(kind, FORMATS)}"
        )
    form = FORMATS[kind]
    tensors, where = _read_weights(folder)
    tensors = {_modern(name): t for name, t in tensors.items() if not re.search(form.ignored, name)}
    try:
        model: Any = form.build(form.read(config, tensors))
    except FileError as error:
        raise FileError(f"{folder}: {error}") from error
    except (ValueError, TypeError, ArithmeticError, AttributeError) as error:  # a size that no model can have
        raise FileError(f"{folder}: config.json: {error}; it does not belong to the weights") from error
    entries = form.entries(model)
    is_bare = not any(name.startswith(form.prefix) for name in tensors)
    prefix = form.prefix if is_bare else ""
    entries = without_prefix(entries, prefix)
    known_names = {name for entry in entries for name in entry.theirs}
    for copy, original in form.copies:
        if copy in tensors and copy not in known_names:
            _drop_copy(tensors, copy, original.removeprefix(prefix), where)
    load_tensors(model, entries, tensors, where)
    loaded: LanguageModel | MaskedModel = model.eval()
    return loaded


def read_config(folder: Path) -> JsonObject:
    """Return config.json; raise a `FileError` where it is missing or damaged."""
    path = folder / "config.json"
    if not path.is_file():
        what = f"{folder}: there is no such folder" if not folder.is_dir() else f"{path}: missing"
        raise FileError(f"{what}; expected a folder with config.json, {WEIGHTS} and tokenizer.json")
    return read_json(path)


def read_json(path: Path) -> JsonObject:
    """Return a file's object; raise a `FileError` where it has none."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise FileError(f"{path}: damaged, it cannot be read ({error})") from error
    if not isinstance(found, dict):
        raise FileError(f"{path}: got a {type(found).__name__}, expected an object")
    return found


def _read_weights(folder: Path) -> tuple[dict[str, Tensor], str]:
    """Return all tensors by name, and the file or index they are of."""
    if (folder / WEIGHTS).is_file():
        path = folder / WEIGHTS
        return read_tensors(path)[1], str(path)
    if (folder / INDEX).is_file():
        places = read_json(folder / INDEX).get("weight_map", {})
        tensors: dict[str, Tensor] = {}
        for name in sorted(set(places.values())):
            tensors |= read_tensors(folder / name)[1]
        return tensors, str(folder / INDEX)
    pickles = sorted(path for path in folder.iterdir() if path.suffix in PICKLES)
    if pickles:
        raise FileError(f"{pickles[0]}: {PICKLE}")
    raise FileError(f"{folder / WEIGHTS}: missing; expected the weights that belong to config.json")


def _refuse_pickle(path: Path) -> None:
    if path.suffix in PICKLES and not path.is_dir():
        raise FileError(f"{path}: {PICKLE}")


def _modern(name: str) -> str:
    """Return a tensor's present name: checkpoints of TensorFlow say gamma and beta."""
    return re.sub(r"LayerNorm\.(gamma|beta)$", lambda m: "LayerNorm." + {"gamma": "weight", "beta": "bias"}[m[1]], name)


def _drop_copy(tensors: dict[str, Tensor], copy: str, original: str, where: str) -> None:
    """Delete a tensor that repeats another; raise a `FileError` where it does not."""
    if original in tensors and not torch.equal(tensors[copy], tensors[original]):
        raise FileError(f"{where}: {copy} differs from {original}, expected equal tensors: config.json ties them")
    del tensors[copy]


# ---- to a folder ---------------------------------------------------------------------------------


def is_made_here(folder: Path) -> bool:
    """Return whether a folder's config.json was written by `write_model`."""
    try:
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return isinstance(config, dict) and config.items() >= MADE.items()


def find_format(model: Any) -> Format:
    """Return the format that a model of ours can be written in; raise a ValueError with the reasons against each."""
    reasons = {name: FORMATS[name].refusals(model) for name in WRITTEN}
    for name, found in reasons.items():
        if not found:
            return FORMATS[name]
    what = type(model).__name__
    family = getattr(getattr(model, "config", None), "family", None)
    what += f" of the family {family}" if family else ""
    near = {name: found for name, found in reasons.items() if not found[0].startswith(OTHER_KIND)} or reasons
    why = "; ".join(f"{name}: {', '.join(found)}" for name, found in near.items())
    raise ValueError(f"{what}: transformers has no such model without custom code ({why})")


def write_model(model: Any, folder: str | Path, **more: Any) -> None:
    """Write config.json and model.safetensors so that transformers loads them; `more` are entries of the config."""
    form = find_format(model)
    config = {"model_type": form.model_type, **form.write(model), "dtype": "float32", **MADE, **more}
    tensors = {name: t.float() for name, t in saved_tensors(model, form.entries(model)).items()}
    target = Path(folder)
    target.mkdir(parents=True, exist_ok=True)
    write_tensors(tensors, target / WEIGHTS, {"format": "pt"})
    write_file(target / "config.json", json.dumps(config, indent=1).encode() + b"\n")
