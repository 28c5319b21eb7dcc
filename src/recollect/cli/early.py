"""What can be refused before torch is imported, which takes more than a second: names, numbers, budgets and files."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import fields
from importlib import import_module
from pathlib import Path
from typing import Any

from recollect.cli.app import NO_SETTINGS, flags_of
from recollect.cli.declared import check_settings
from recollect.core.errors import ContractError, check_choice, is_own, nearest
from recollect.core.launch import launched
from recollect.core.settings import SettingError, parse
from recollect.data.audio.wav_files import is_audio
from recollect.data.error import DataError
from recollect.data.names import join_names, split_names
from recollect.generation.settings import Settings
from recollect.models.line import LINE
from recollect.runs.budget import parse_budget
from recollect.tasks.register import guess_task, task_named

SIZES = ("tiny", "small", "base")
KINDS = ("char", "byte", "word", "space", "bpe")
DEVICES = ("auto", "cpu", "cuda")
FINDERS = {  # by task: what raises for data that are not there; imported when it is needed
    "language": ("recollect.data.text.source", "find_text"),
    "masked": ("recollect.data.text.source", "find_text"),
    "translate": ("recollect.data.pairs.pair_files", "find_pairs"),
    "summarise": ("recollect.data.pairs.pair_files", "find_pairs"),
    "caption": ("recollect.data.images.caption_files", "find_captions"),
    "classify": ("recollect.data.labels.label_files", "find_texts"),
    "tag": ("recollect.data.labels.label_files", "find_texts"),
    "match": ("recollect.data.matches.match_files", "find_questions"),
    "recommend": ("recollect.data.ratings.rating_files", "find_ratings"),
    "forecast": ("recollect.data.synthetic.series_generators", "find_series"),
    "fill": ("recollect.data.synthetic.series_generators", "find_series"),
}
TAKE_SEVERAL = ("language", "masked", "translate", "summarise")


def check_training(
    data: Sequence[str],
    *,
    task: str | None,
    model: str | None,
    size: str,
    budget: str,
    tokenizer: str | None,
    device: str,
    settings: Sequence[str] | None,
    is_finetuned: bool = False,
    **numbers: int | None,
) -> None:
    """Raise a ValueError for words that no training accepts: those of `train`, `finetune` and `plan`."""
    launched()
    parse_budget(budget)
    check_choice("--size", size, SIZES)
    if tokenizer is not None:
        check_choice("--tokenizer", tokenizer, KINDS)
    check_device(device)
    check_numbers(**numbers)
    given = dict(parse(text) for text in settings or [])
    if task is not None and not is_own(task):
        check_task(task)
    named = join_names(list(data))
    kind = task or guess_task(named)
    check_model(kind, model)
    if not is_own(kind):
        own = {name: value for name, value in given.items() if name not in NO_SETTINGS}
        check_settings(kind, own, flags_of("finetune" if is_finetuned else "train"), is_finetuned=is_finetuned)
        for data_of_a_part in (named, given.get("valid"), given.get("test")):
            check_data(kind, data_of_a_part)


def check_comparison(
    data: Sequence[str], models: str, *, task: str | None, size: str, device: str, settings: Mapping[str, object]
) -> None:
    """Raise a ValueError for words that no comparison accepts; what single models do not take is told by the table."""
    check_choice("--size", size, SIZES)
    check_device(device)
    known = [station.name for station in LINE]
    for name in models.split(","):
        if not is_own(name) and name not in known:
            raise SettingError(f"-m: got {name!r}, which is no model{nearest(name, known)}; see: recollect models")
    if task is not None and not is_own(task):
        check_task(task)
    named = join_names(list(data))
    kind = task or guess_task(named)
    if not is_own(kind):
        check_settings(kind, settings, flags_of("compare"))
        check_data(kind, named)


def check_data(task: str, named: object) -> None:
    """Raise a DataError for data that are not there, where the task knows how they are named."""
    is_one = isinstance(named, str) and (task in TAKE_SEVERAL or len(split_names(named)) == 1)
    is_found_later = isinstance(named, str) and is_audio(named)  # recordings, by the task
    if task in FINDERS and is_one and not is_found_later:  # several names of a task that reads one: by their number
        module, find = FINDERS[task]
        getattr(import_module(module), find)(named)


def check_task(name: str) -> None:
    """Raise a ValueError for a name of no task; those that exist are not imported."""
    from recollect.tasks.register import HOMES

    if name not in HOMES:
        task_named(name)


def check_model(task: str, name: str | None) -> None:
    """Raise a SettingError for a name of no model of the task."""
    known = [station.name for station in LINE if task in station.tasks]
    if name is not None and known and not is_own(name) and name not in known:
        raise SettingError(
            f"model: got {name!r}, expected one of {', '.join(known)} for the task {task}{nearest(name, known)}"
            "; see: recollect models"
        )


def check_device(name: str | None) -> None:
    """Raise a SettingError for a name of no device."""
    if name is not None and name.partition(":")[0] not in DEVICES:
        raise SettingError(f"--device: got {name!r}, expected auto, cpu, cuda or cuda:N")


def check_numbers(**numbers: int | None) -> None:
    """Raise a SettingError for a flag that counts something and is less than 1; a seed may be 0."""
    for flag, number in numbers.items():
        least = 0 if flag == "seed" else 1
        if number is not None and number < least:
            raise SettingError(f"--{flag}: got {number}, expected at least {least}")


def check_run(folder: str, data: Sequence[str] | None = None, device: str | None = None) -> None:
    """Raise a DataError for a folder that holds no run, and for data of its task that are not there."""
    check_device(device)
    path = Path(folder) / "config.json"
    if not path.is_file():
        raise DataError(f"{folder}: not a run, config.json is missing; train one with: recollect train DATA")
    try:
        task = json.loads(path.read_text(encoding="utf-8"))["run"]["task"]
    except (ValueError, KeyError, TypeError):  # damaged, or not ours: refused when it is opened, with the reason
        return
    if data:
        check_data(task, join_names(list(data)))


def check_folder(folder: str) -> None:
    """Raise a DataError for what is not there, and can be neither a run nor a pretrained model."""
    if not Path(folder).exists():
        raise DataError(f"{folder}: not a run, config.json is missing; train one with: recollect train DATA")


def check_sampling(**settings: Any) -> None:
    """Raise a SettingError for a setting of generation that is out of range, by the name of its flag."""
    known = [declared.name for declared in fields(Settings) if declared.name not in ("stop", "prohibited", "begin")]
    for name in settings.keys() - set(known):
        raise SettingError(f"--set {name}: no such setting of generate, which has {', '.join(known)}")
    try:
        Settings(**settings)
    except ContractError as error:
        name, _, rest = str(error).partition(":")
        flag = f"--{name.replace('_', '-')}"
        typed = flag if flag in flags_of("generate") else f"--set {name}"
        raise SettingError(f"{typed}:{rest.replace('greedy=True', '--greedy')}") from error
