"""What can be refused before torch is imported, which takes more than a second: names, numbers, budgets and files."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from recollect.core.errors import ContractError, check_choice, is_own, nearest
from recollect.core.settings import SettingError, parse
from recollect.data.error import DataError
from recollect.data.names import join_names
from recollect.data.pairs.pair_files import find_pairs
from recollect.data.text.source import find_text
from recollect.generation.settings import Settings
from recollect.models.line import LINE
from recollect.runs.budget import parse_budget
from recollect.tasks.register import guess_task, task_named

SIZES = ("tiny", "small", "base")
KINDS = ("char", "byte", "word", "space", "bpe")
DEVICES = ("auto", "cpu", "cuda")
FINDERS = {"language": find_text, "translate": find_pairs, "summarise": find_pairs}  # of the others, `open` refuses


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
    **numbers: int | None,
) -> None:
    """Raise a ValueError for words that no training accepts: those of `train` and `plan`."""
    parse_budget(budget)
    check_choice("--size", size, SIZES)
    if tokenizer is not None:
        check_choice("--tokenizer", tokenizer, KINDS)
    check_device(device)
    check_numbers(**numbers)
    for text in settings or []:
        parse(text)
    if task is not None and not is_own(task):
        check_task(task)
    named = join_names(list(data))
    kind = task or guess_task(named)
    check_model(kind, model)
    if kind in FINDERS and not settings:  # else the settings are checked first, by whoever declares them
        FINDERS[kind](named)


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
    if data and task in FINDERS:
        FINDERS[task](join_names(list(data)))


def check_folder(folder: str) -> None:
    """Raise a DataError for a folder that is not there, and can hold neither a run nor a pretrained model."""
    if not Path(folder).is_dir():
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
        raise SettingError(f"--{name.replace('_', '-')}:{rest.replace('greedy=True', '--greedy')}") from error
