"""Whether a model fits in memory, before a run is made: it is built on the meta device, which takes none."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, Field, fields, replace
from typing import Any

import torch

from recollect.core.errors import is_own
from recollect.core.machine import available_memory
from recollect.core.meta import on_meta
from recollect.core.settings import SettingError
from recollect.core.task import Task
from recollect.models.parameters import Parameters, count_apart
from recollect.models.sizes import TARGETS
from recollect.runs.config import RunConfig, usual_settings
from recollect.runs.progress import bytes_in_words
from recollect.tasks.register import task_named

FLOAT = 4  # bytes
ALONE = "weights and gradients alone take {}"
NARROW = 16  # a width that heads of every family divide


def check_memory(config: RunConfig, task: Task, model: Mapping[str, Any], device: torch.device) -> None:
    """Raise a `SettingError` for a model whose weights and gradients alone do not fit; one's own code is not tried."""
    if is_own(config.family) or is_own(config.task) or config.training.shard:
        return
    try:
        with on_meta():
            least = least_bytes(count_apart(task.build(dict(model))))
    except RuntimeError as error:  # more numbers than a tensor can have
        raise SettingError(f"{_cause(config)}: the model cannot be built ({error}); {_advice(config)}") from error
    available = available_memory(device)
    if least > available:
        took = ALONE.format(bytes_in_words(least))
        raise SettingError(f"{_cause(config)}: {took}, {bytes_in_words(available)} available; {_advice(config)}")


def least_bytes(parameters: Parameters) -> int:
    """Return what weights and gradients take in float32, below which nothing can be trained."""
    return 2 * FLOAT * parameters.total


def smaller(config: RunConfig) -> RunConfig:
    """Return a config of a smaller model: without what makes it large, else of a smaller size, or narrow."""
    name = largest_setting(config)
    if name is not None:
        return replace(config, settings={key: value for key, value in config.settings.items() if key != name})
    sizes = tuple(TARGETS)
    if config.size != sizes[0]:
        return replace(config, size=sizes[sizes.index(config.size) - 1])
    has_width = "width" in task_named(config.task).settings(config.family)
    return replace(config, settings={**config.settings, **({"width": NARROW} if has_width else {})})


def largest_setting(config: RunConfig) -> str | None:
    """Return the setting of the model that is furthest above its default; None where none is above it."""
    kind = task_named(config.task)
    usual = usual_settings(kind, config.family, config.size)
    ratios = {
        field.name: float(config.settings[field.name]) / _default(field, usual)
        for field in fields(kind.Config)
        if _is_number(config.settings.get(field.name))
    }
    name = max(ratios, key=lambda one: ratios[one], default=None)
    return name if name is not None and ratios[name] > 1 else None


def _default(field: Field[object], usual: Mapping[str, Any]) -> float:
    value = usual.get(field.name, None if field.default is MISSING else field.default)
    return max(float(value), 1.0) if _is_number(value) else 1.0


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _cause(config: RunConfig) -> str:
    name = largest_setting(config)
    return f"--size: got {config.size}" if name is None else f"{name}: got {config.settings[name]}"


def _advice(config: RunConfig) -> str:
    name = largest_setting(config)
    return "choose a smaller --size, or set a smaller width" if name is None else f"set a smaller {name}"
