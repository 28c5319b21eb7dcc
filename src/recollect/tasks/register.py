"""The tasks by name: the package's own, and user-defined ones as path/to/file.py:Name."""

from __future__ import annotations

from dataclasses import is_dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, cast

from recollect.core.errors import is_own, nearest
from recollect.data.audio.wav_files import is_audio, task_of_audio
from recollect.data.error import Notify, silent
from recollect.data.labels.tag_files import is_tag_file
from recollect.data.names import in_short, split_names
from recollect.data.pairs.pair_guess import judge_pairs
from recollect.data.synthetic.label_generators import LABEL_TASKS
from recollect.data.synthetic.match_generators import MATCH_TASKS
from recollect.data.synthetic.pair_generators import PAIR_TASKS

if TYPE_CHECKING:
    from recollect.core.task import Task

HOMES = {  # imported when first used: the command line lists the names without importing torch
    "language": ("recollect.tasks.language", "LanguageTask"),
    "masked": ("recollect.tasks.masked", "MaskedTask"),
    "translate": ("recollect.tasks.translate", "TranslateTask"),
    "summarise": ("recollect.tasks.translate", "SummariseTask"),
    "caption": ("recollect.tasks.caption", "CaptionTask"),
    "classify": ("recollect.tasks.classify", "ClassifyTask"),
    "tag": ("recollect.tasks.tag", "TagTask"),
    "match": ("recollect.tasks.match", "MatchTask"),
    "recommend": ("recollect.tasks.recommend", "RecommendTask"),
    "forecast": ("recollect.tasks.forecast", "ForecastTask"),
    "fill": ("recollect.tasks.fill", "FillTask"),
}
_own: dict[str, type[Task]] = {}


def register_task(kind: type[Task], name: str | None = None) -> str:
    """Register a user-defined task under a name, by default `module:Name`, and return the name."""
    missing = [
        part for part in ("name", "Options", "families", "default_model", "open", "build") if not hasattr(kind, part)
    ]
    if missing or not is_dataclass(kind.Options):
        lacks = ", ".join(missing) or "Options that are a dataclass"
        raise ValueError(f"{kind.__name__}: not a task, it lacks {lacks}; see docs/guide/add-a-task.md")
    known = name or f"{kind.__module__}:{kind.__qualname__}"
    _own[known] = kind
    return known


def task_named(name: str) -> type[Task]:
    """Return a task's class; raise a ValueError for an unknown name, and for user code that is not registered."""
    if name in _own:
        return _own[name]
    if name in HOMES:
        module, kind = HOMES[name]
        return cast("type[Task]", getattr(import_module(module), kind))
    if is_own(name):
        raise ValueError(
            f"task: {name} is user code, which is never loaded without a request; "
            f"pass the class (rc.load(RUN, task=MyTask)) or the file (--task {name})"
        )
    raise ValueError(f"task: got {name!r}, expected one of {', '.join(HOMES)}{nearest(name, HOMES)}")


def guess_task(data: str, notify: Notify = silent) -> str:
    """Return the task that data are for: generated ones by name, tags, captioned pictures, pairs, or else a text.

    What is decided by what files hold is told, with the way to decide otherwise.
    """
    name = data.partition(":")[0]
    if is_audio(data):
        return task_of_audio(data)
    if name in MATCH_TASKS:
        return "match"
    if name in LABEL_TASKS:
        return LABEL_TASKS[name].task
    if is_tag_file(data):
        return "tag"
    if name in PAIR_TASKS:
        return "translate"
    if name == "tastes":
        return "recommend"
    if name in import_module("recollect.data.synthetic.series_generators").GENERATORS:
        return "forecast"
    if name == "shapes" or (Path(data) / "captions.tsv").is_file():
        return "caption"
    verdict = judge_pairs(split_names(data))
    if verdict.are_pairs:
        notify(f"{in_short(data)}: pairs ({verdict.reason}), so the task is translate; for text: --task language")
    elif verdict.reason:
        notify(f"{in_short(data)}: {verdict.reason}, so the task is language; {verdict.otherwise}")
    return "translate" if verdict.are_pairs else "language"
