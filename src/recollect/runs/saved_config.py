"""config.json of a run, read and checked: what was edited in it is refused with the file and the entry, or used."""

from __future__ import annotations

import json
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any, get_type_hints

from safetensors import SafetensorError, safe_open

from recollect.core.errors import is_own
from recollect.core.meta import on_meta
from recollect.core.serialize import FileError
from recollect.core.settings import SettingError, check, is_plain
from recollect.core.task import Task
from recollect.core.types import JsonMapping, JsonObject
from recollect.runs.config import RunConfig
from recollect.tasks.register import task_named

VERSION = 3
WHOLE: dict[str, type] = {"run": dict, "model": dict, "dataset": str}
RUN: dict[str, type] = {"data": str, "task": str, "family": str, "size": str}
RUN |= {"options": dict, "training": dict, "settings": dict}
NAMES: dict[type, str] = {dict: "an object", str: "a string"}
AGAIN = "undo the change, or train a new run"


def read_saved(path: Path) -> JsonObject:
    """Read config.json as plain data; raise a `FileError` if it is missing, damaged or of another version."""
    if not path.is_file():
        raise FileError(f"{path.parent}: not a run, config.json is missing; train one with: recollect train DATA")
    try:
        saved: JsonObject = json.loads(path.read_text(encoding="utf-8"))
        version = saved["version"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise FileError(f"{path}: damaged, it cannot be read ({error}); {AGAIN}") from error
    if version != VERSION or isinstance(version, bool):
        raise FileError(f"{path}: a run of version {version}, this version reads {VERSION}; train it again")
    _check_kinds(path, saved, WHOLE, "")
    _check_kinds(path, saved["run"], RUN, "run.")
    if not is_own(saved["run"]["task"]):  # earlier runs said `depth` for `layers`; a window model had one layer then
        for settings in (saved["model"], saved["run"]["settings"]):
            if "depth" in settings:
                layers = settings.pop("depth")
                settings["layers"] = 1 if saved["run"]["family"] == "window" else layers
    return saved


def _check_kinds(path: Path, saved: JsonMapping, kinds: dict[str, type], where: str) -> None:
    for name, kind in kinds.items():
        if not isinstance(saved.get(name), kind):
            got = json.dumps(saved[name]) if name in saved else "nothing"
            raise FileError(f"{path}: {where}{name}: got {got}, expected {NAMES[kind]}; {AGAIN}")


def config_of(path: Path, saved: JsonObject) -> RunConfig:
    """Return the run's config; raise a `FileError` for an entry that it cannot have."""
    try:
        config = RunConfig.from_json(saved["run"])
        kind = task_named(config.task)
        _check_model(kind, saved["model"], config.family)
    except (ValueError, TypeError) as error:
        if is_own(saved["run"]["task"]) or is_own(saved["run"]["family"]):
            raise  # code that was not passed: the error says how to pass it
        raise FileError(f"{path}: {error}; {AGAIN}") from error
    return config


def _check_model(kind: type[Task], model: JsonMapping, family: str) -> None:
    """Check every entry of the model's config against the dataclass that declares it."""
    declared = {f.name: f for f in fields(kind.Config)}
    hints = get_type_hints(kind.Config)
    for name, value in model.items():
        if name not in declared:
            raise SettingError(f"model.{name}: no such setting of the task {kind.name}")
        if is_plain(hints[name]):
            check(declared[name], hints[name], value, f"model.{name}")
        if hints[name] is int and declared[name].default is MISSING and value < 1:  # the size of a vocabulary
            raise SettingError(f"model.{name}: got {value}, expected at least 1")
    for name, field in declared.items():
        if name not in model and field.default is MISSING and field.default_factory is MISSING:
            raise SettingError(f"model.{name}: got nothing, expected a value")
    if model.get("family", family) != family:
        raise SettingError(f"model.family: got {model['family']!r}, but run.family is {family!r}")


def check_fixed(path: Path, model: JsonMapping, fixed: JsonMapping) -> None:
    """Raise a `FileError` for an entry of the model that the run's other files decide, and that differs from them."""
    for name, value in fixed.items():
        if model.get(name, value) != value:
            raise FileError(f"{path}: model.{name}: got {model[name]}, but the run's data have {value}; {AGAIN}")


def build_saved(path: Path, task: Task, model: JsonObject, weights: Path | None) -> Any:
    """Return a model with new weights; raise a `FileError` where none can be built, or another than was saved.

    It is built on the meta device first, which takes no memory, and compared with the saved weights.
    """
    try:
        if weights is not None:
            with on_meta():
                planned = {name: list(p.shape) for name, p in task.build(model).named_parameters()}
            _check_shapes(planned, weights)
        return task.build(model)
    except (TypeError, ValueError, RuntimeError, ArithmeticError, MemoryError) as error:
        raise FileError(f"{path}: its model does not fit ({error}); {AGAIN}") from error


def _check_shapes(planned: dict[str, list[int]], weights: Path) -> None:
    """Raise a ValueError for a parameter that was saved with another shape; a damaged file is left to its reader."""
    try:
        with safe_open(weights, framework="pt") as file:
            saved = {name: file.get_slice(name).get_shape() for name in file.keys()}  # noqa: SIM118 (no mapping)
    except (SafetensorError, OSError):
        return
    for name, shape in planned.items():
        if saved.get(name, shape) != shape:
            raise ValueError(f"{name} has the shape {shape}, but {weights.name} holds {saved[name]}")
