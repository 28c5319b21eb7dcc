"""`finetune`: from a trained model and other data to a run of any task that can begin from one."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from recollect.core.machine import choose_device
from recollect.core.meta import on_meta
from recollect.core.settings import SettingError
from recollect.core.task import Task
from recollect.core.types import JsonMapping
from recollect.data.names import Named, join_names
from recollect.models.inherited import Trained
from recollect.models.language import RECURRENT
from recollect.models.masked import BOTH_WAYS
from recollect.runs.budget import with_budget
from recollect.runs.config import RunConfig
from recollect.runs.interrupts import remembered
from recollect.runs.parent import Parent, open_parent
from recollect.runs.run import Run
from recollect.runs.together import check_out, create, discarded_if_refused, is_restarted, taking_part
from recollect.runs.train import Report, learn, resume, shape_in_words, start, task_for
from recollect.tasks.register import task_named

SETTLED = (
    "tokenizer",
    "vocab_size",
    "vocab_for",
    "least",
    "lowercase",
    "letters",
)  # options that a parent's tokenizer decides
HEIRS = "classify, tag, match, translate, summarise, language or masked"
RATE_OF_WIDTH = 0.04  # an attention model's rate, times its width: 1e-4 at 384, as for BERT
LARGEST_RATE = 5e-4
RECURRENT_RATE = 2e-3


def finetune(
    parent: str | Path | Run,
    data: Named,
    *,
    task: str | type[Task] | None = None,
    model: str | None = None,
    budget: str = "60s",
    out: str | Path | None = None,
    seed: int = 0,
    device: str = "auto",
    report: Report | None = None,
    **settings: Any,
) -> Run:
    """Train a model that begins from a trained one's layers, with its tokenizer, and return the run.

    parent: a run of the task language or masked, or a folder in the layout of Hugging Face (see `from_pretrained`).
    model: where several models may begin from the parent, as a translator whose encoder it is, their name. data, task,
    budget, out, seed, device and report are as in `train`. settings: those of the training and the task,
    and of the transfer: `frozen`, `unfreeze`, `layer_decay`, `head_factor`, `lora_rank`, `lora_alpha`, `lora_targets`.

    >>> import tempfile
    >>> folder = tempfile.mkdtemp()
    >>> parent = rc.train("recall:count=200", model="gru", budget="2steps", out=folder + "/lm", width=16)
    >>> run = rc.finetune(parent, "kindness:count=60", budget="2steps", out=folder + "/mood", unfreeze=0.5)
    >>> run.task.name, run.config().transfer.parent == folder + "/lm"
    ('classify', True)
    """
    check_out(out)
    known = open_parent(parent)
    config = configure_transfer(
        known, data, task=task, model=model, budget=budget, seed=seed, device=device, **settings
    )
    run = Run(out or f"{known.name}-{config.task.rpartition(':')[2]}", device)
    if is_restarted(run):
        resume(run, report or (lambda row: None), run.notice)
    else:
        begin_from(known, config, run, report or (lambda row: None), run.notice)
    return run


def configure_transfer(
    parent: Parent,
    data: Named,
    *,
    task: str | type[Task] | None,
    model: str | None = None,
    budget: str,
    **settings: Any,
) -> RunConfig:
    """Return the checked config of a fine-tuning."""
    named = join_names(data)
    name = task_for(named, task)
    kind = task_named(name)
    inherited_tokenizer(kind, parent)
    family = family_of(kind, parent, model)
    settled = getattr(kind, "settled", SETTLED)
    for word in settled:
        if settings.get(word) is not None:
            got = json.dumps(settings[word])
            raise SettingError(f"{word}: got {got}, but the tokenizer of {parent.name} is used; leave it out")
    settings = {name: value for name, value in settings.items() if name not in settled}
    given = {**usual_transfer(parent.model), **with_budget(budget, settings)}
    origin = {"parent": parent.name, "digest": parent.digest}
    return RunConfig.make(named, family, parent.size, task=name, transfer=origin, **given)


def family_of(kind: type[Task], parent: Parent, asked: str | None) -> str:
    """Return the family of a model that begins from a parent: the parent's, or one of those that the task names."""
    known: tuple[str, ...] = getattr(kind, "heirs", lambda model: (model.config.family,))(parent.model)
    if asked is not None and asked not in known:
        raise SettingError(
            f"model: got {asked}, but from {parent.name}, of the family {parent.model.config.family}, begins only "
            f"{' or '.join(known)} in the task {kind.name}; leave -m out"
        )
    return asked or known[0]


def inherited_tokenizer(kind: type[Task], parent: Parent, settings: JsonMapping | None = None) -> Any:
    """Return a parent's tokenizer as a task uses it; raise a ValueError where it cannot begin from it.

    Where a task's model reads more steps than the ids, by its settings, fewer ids are read: positions may be a table.
    """
    if not hasattr(kind, "config_from"):
        raise ValueError(
            f"task: {kind.name} begins from no trained model; expected {HEIRS}; "
            f"train a new one with: recollect train DATA --task {kind.name}"
        )
    task: Any = kind(kind.Options())
    try:
        tokenizer = task.tokenizer_for(parent.model, parent.tokenizer)
    except ValueError as error:
        raise ValueError(f"{parent.name}: no model for the task {kind.name}: {error}") from error
    added = task.added_steps(settings or {}) if hasattr(task, "added_steps") else 0
    if added and tokenizer.most is not None:
        tokenizer.most -= added
    return tokenizer


def usual_transfer(model: Trained) -> JsonMapping:
    """Return the settings whose default depends on the parent: a lower rate the wider its attention layers are."""
    if model.config.family in (*RECURRENT, *BOTH_WAYS, "window"):
        return {"rate": RECURRENT_RATE, "warmup": 0.1}
    return {"rate": min(LARGEST_RATE, RATE_OF_WIDTH / model.config.width), "warmup": 0.1}


def _check_transfer(config: RunConfig, build: Callable[[JsonMapping], Any], model: Any) -> None:
    """Raise a SettingError for a transfer that does not fit, before there is a folder."""
    if config.transfer is not None and config.transfer.lora_rank is not None:
        with on_meta():  # takes no memory and draws nothing
            config.transfer.prepare(build(asdict(model)))


def begin_from(
    parent: Parent,
    config: RunConfig,
    run: Run,
    report: Report,
    notice: Callable[[str], None] = lambda text: None,
) -> bool:
    """Train a new run from a parent; return whether its budget was spent."""
    task: Any = config.make_task()
    device = choose_device(config.training.device)
    with taking_part(config, run, device, is_new=True) as workers, remembered():
        dataset = workers.in_turn(
            lambda: task.open_with(config.data, inherited_tokenizer(type(task), parent, config.settings))
        )
        torch.manual_seed(config.training.seed)
        model_config = task.config_from(parent.model, config.family, dataset, config.settings)
        _check_transfer(config, task.build, model_config)
        create(run, workers, config, model_config, task.assets(dataset), dataset.name)
        with discarded_if_refused(run, workers):
            model = run.build()
            model.adopt(parent.model)
            run.prepare(model)
            if workers.is_first:
                notice(f"{shape_in_words(config, model)}, from {shlex.quote(parent.name)}")
            state = start(config, task, model.to(device), dataset, workers)
        return learn(config, run, state, dataset, report)
