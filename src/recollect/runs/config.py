"""The config of a run: data, task, model, and every setting, checked before anything starts.

A setting belongs to the training, to the task or to the model. One that belongs to none of the three raises an error
with the nearest name; one that a family does not use, an error with the families that do.
"""

from __future__ import annotations

import json
import shlex
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Literal, cast

from recollect.core.errors import check_choice, is_own, nearest
from recollect.core.settings import (
    CheckedSettings,
    SettingError,
    check_against,
    described,
    differing,
    setting,
    share_out,
)
from recollect.core.task import Task, TaskDefaults
from recollect.core.types import JsonMapping, JsonObject
from recollect.data.names import split_names
from recollect.models.sizes import TARGETS
from recollect.tasks.register import guess_task, task_named
from recollect.training.optimizer import ALGORITHMS, SCHEDULES, Optimizer
from recollect.training.state import PRECISIONS, TrainingBudget, TrainingPlan
from recollect.training.transfer import Transfer

UNITS = {"max_seconds": "s", "max_steps": "steps", "max_tokens": "tokens", "max_epochs": "epochs"}
FLAGS = {
    "tokenizer": "--tokenizer",
    "batch_size": "--batch",
    "steps": "--steps",
    "seed": "--seed",
    "device": "--device",
}
ORIGIN = ("parent", "digest")  # of a transfer: what is no setting
OPTIMIZER = (  # the settings of `Optimizer`
    "optimiser",
    "rate",
    "schedule",
    "warmup",
    "stages",
    "first_stages",
    "decay",
    "weight_decay",
    "clip_norm",
    "clip_value",
)


@dataclass(frozen=True)
class TrainingOptions(CheckedSettings):
    """Settings of the training, for every task."""

    max_steps: int | None = setting(None, least=1, help="budget in updates")
    max_tokens: int | None = setting(None, least=1, help="budget in symbols")
    max_epochs: float | None = setting(None, above=0.0, help="budget in epochs")
    max_seconds: float | None = setting(None, above=0.0, help="budget in seconds; the first limit reached ends the run")
    patience: int | None = setting(None, least=1, help="stop after so many evaluations without an improvement")
    accumulate: int = setting(1, least=1, help="batches in one update")
    optimiser: str = setting("adamw", choices=ALGORITHMS, help="algorithm")
    rate: float = setting(3e-3, above=0.0, help="peak learning rate")
    schedule: str = setting("cosine", choices=SCHEDULES, help="learning rate over the budget")
    warmup: float = setting(0.02, least=0.0, most=1.0, help="share of the budget during which the rate rises")
    stages: int = setting(20, least=1, help="schedule step: equal parts of the budget")
    first_stages: int = setting(10, least=0, help="schedule step: stages at the full rate")
    decay: float = setting(0.5, above=0.0, most=1.0, help="schedules step and plateau: factor of the rate")
    weight_decay: float = setting(0.1, least=0.0, help="AdamW's, for matrices")
    clip_norm: float | None = setting(1.0, above=0.0, help="largest norm of the gradient")
    clip_value: float | None = setting(None, above=0.0, help="largest entry of the gradient")
    average: float = setting(
        0.0, least=0.0, below=1.0, help="decay of the running average of weights that is evaluated and saved; 0: none"
    )
    precision: str = setting("fp32", choices=PRECISIONS, help="bf16: matmuls in bfloat16")
    compile: bool = setting(False, help="torch.compile model and loss for updates")
    capture: bool = setting(True, help="on a GPU: replay CUDA graphs where batches have equal shapes")
    shard: bool = setting(
        False, help="of several processes: each keeps its part of weights, gradients and optimiser (FSDP)"
    )
    seed: int = setting(0, least=0, most=2**63 - 1, help="of weights and of the order of the data")
    evaluate_every: int = setting(200, least=1, help="updates between two evaluations")
    device: str = setting("auto", help="cpu, cuda, cuda:1 …; auto: a GPU where there is one")
    tensorboard: bool = setting(False, help="also write TensorBoard's files")

    def budget(self, epoch: int) -> TrainingBudget:
        """Return the budget, where one epoch predicts `epoch` symbols; 60 seconds where none was set."""
        rounds = None if self.max_epochs is None else max(1, round(self.max_epochs * epoch))
        tokens = min((n for n in (self.max_tokens, rounds) if n is not None), default=None)
        budget = TrainingBudget(self.max_steps, tokens, self.max_seconds)
        return TrainingBudget(seconds=60.0) if budget == TrainingBudget() else budget

    def optimizer(self) -> Optimizer:
        """Return the settings of the optimizer."""
        return Optimizer(**{name: getattr(self, name) for name in OPTIMIZER})

    def plan(self, epoch: int) -> TrainingPlan:
        """Return the plan of training, where one epoch predicts `epoch` symbols."""
        return TrainingPlan(
            self.budget(epoch),
            self.optimizer(),
            accumulate=self.accumulate,
            average=self.average,
            patience=self.patience,
            capture=self.capture,
            evaluate_every=self.evaluate_every,
            save_every=self.evaluate_every,
            precision=cast(Literal["fp32", "bf16"], self.precision),  # checked by the settings
        )


@dataclass(frozen=True)
class RunConfig:
    """The config of a run; saved in its folder, so that `resume` needs nothing else."""

    data: str
    task: str
    family: str
    size: str
    options: Any  # of the task, an instance of its Options
    training: TrainingOptions = field(default_factory=TrainingOptions)
    settings: JsonMapping = field(default_factory=dict)  # of the model, those that were given or are usual
    transfer: Transfer | None = None  # of a model that begins from a trained one

    @classmethod
    def make(
        cls,
        data: str,
        model: str | None = None,
        size: str = "tiny",
        *,
        task: str = "language",
        transfer: JsonMapping | None = None,
        **given: Any,
    ) -> RunConfig:
        """Return a checked config; raise a `SettingError` for a setting that nothing uses.

        `transfer`: what is known of the trained model that this one begins from; its shape cannot be set.
        """
        kind = task_named(task)
        family = model or kind.default_model
        check_family(kind, family)
        check_number(kind, data)
        check_choice("size", size, tuple(TARGETS))
        is_heir = transfer is not None
        owners = {owner: names for owner, (_, names) in _owners(kind, family, is_heir=is_heir).items()}
        for name in given:
            if is_heir and name in kind.settings(family) and name not in owners["model"]:
                rest = ", ".join(owners["model"])
                raise SettingError(f"{name}: the trained model decides it; settings of the model are {rest}")
            users = [other for other in kind.families if name in kind.settings(other)]
            if users and not any(name in names for names in owners.values()):
                raise SettingError(f"{name}: {family} does not use it; in the task {task} these do: {', '.join(users)}")
        given = {**({} if is_heir else usual_settings(kind, family, size)), **given}
        shares = share_out(given, owners, f"the task {task} with the model {family}")
        check_against(kind.Config, shares["model"])
        options = kind.Options(**shares["task"])
        kind(options)  # checks what depends on several options
        training = TrainingOptions(**shares["training"])
        beginning = None if transfer is None else Transfer(**transfer, **shares["transfer"])
        return cls(data, task, family, size, options, training, shares["model"], beginning)

    def make_task(self) -> Task:
        """Return the task with this run's options."""
        return task_named(self.task)(self.options)

    def as_json(self) -> JsonObject:
        """Return the config as plain data."""
        return asdict(self)

    @classmethod
    def from_json(cls, saved: JsonMapping) -> RunConfig:
        """Return the config of plain data, checked."""
        kind = task_named(saved["task"])
        check_family(kind, saved["family"])
        check_choice("size", saved["size"], tuple(TARGETS))
        options = kind.Options(**saved["options"])
        kind(options)  # checks what depends on several options
        share_out(saved["settings"], {"model": [f.name for f in fields(kind.Config)]}, f"the task {kind.name}")
        rest = {name: saved[name] for name in ("data", "task", "family", "size", "settings")}
        transfer = None if saved.get("transfer") is None else Transfer(**saved["transfer"])
        return cls(options=options, training=TrainingOptions(**saved["training"]), transfer=transfer, **rest)

    def command(self) -> str:
        """Return the command line that makes such a run."""
        return f"recollect {'train' if self.transfer is None else 'finetune'} {self.typed()}"

    def typed(self) -> str:
        """Return the arguments of the command line: DATA, model, budget, and the settings that are not defaults.

        Of a model that begins from a trained one, that one's folder stands in place of the model.
        """
        words = [*split_names(self.data), "-m", self.family, "--size", self.size]
        usual = usual_settings(task_named(self.task), self.family, self.size)
        if self.transfer is not None:
            words, usual = [self.transfer.parent, *split_names(self.data)], {}
            words += ["-m", self.family] if hasattr(task_named(self.task), "heirs") else []
        words += [] if self.task == guess_task(self.data) else ["--task", self.task]
        changed = {**differing(self.training, usual), **differing(self.options, usual)}
        if self.transfer is not None:
            own = differing(self.transfer, {})
            changed |= {name: value for name, value in own.items() if name not in ORIGIN}
        changed |= {name: value for name, value in self.settings.items() if usual.get(name) != value}
        first = next((name for name in UNITS if name in changed), None)
        if first is not None:
            words += ["--budget", f"{changed.pop(first)}".removesuffix(".0") + UNITS[first]]
        for name, value in changed.items():
            text = value if isinstance(value, str) else json.dumps(value)
            words += [FLAGS[name], text] if name in FLAGS else ["--set", f"{name}={text}"]
        return shlex.join(words)


def check_number(kind: type[Task], data: str) -> None:
    """Raise a `SettingError` for several DATA where the task reads one."""
    count = len(split_names(data))
    if count > 1 and not getattr(kind, "takes_several", False):
        raise SettingError(f"DATA: got {count} names, expected one for the task {kind.name}: a file or a folder")


def usual_settings(kind: type[Task], family: str, size: str) -> JsonMapping:
    """Return the settings of a task whose default depends on the model's family or size."""
    usual: JsonMapping = getattr(kind, "usual", TaskDefaults.usual)(family, size)
    return usual


def check_family(kind: type[Task], family: str) -> None:
    """Raise a `SettingError` for a model that the task does not have."""
    known = kind.families
    if is_own(family) and not kind.takes_layers:
        raise SettingError(
            f"model: got {family}, but the task {kind.name} takes no layer of one's own; "
            f"expected one of {', '.join(known)}; see: recollect models"
        )
    if not is_own(family) and family not in known:
        raise SettingError(
            f"model: got {family!r}, expected one of {', '.join(known)} for the task {kind.name}"
            f"{nearest(family, known)}; see: recollect models"
        )


def _owners(kind: type[Task], family: str, *, is_heir: bool = False) -> dict[str, tuple[type, list[str]]]:
    """Return, for training, task and model, the dataclass that declares the settings and the names of those in use.

    `is_heir`: of a model that begins from a trained one, which has settings of the transfer and few of the model.
    """
    used = kind.settings(family)
    if is_heir:
        used = [name for name in getattr(kind, "inherits", ()) if name in used]
    names = [f.name for f in fields(Transfer) if f.name not in ORIGIN]
    transfer = {"transfer": (Transfer, names)} if is_heir else {}
    return {
        **transfer,
        "training": (TrainingOptions, [f.name for f in fields(TrainingOptions)]),
        "task": (kind.Options, [f.name for f in fields(kind.Options)]),
        "model": (kind.Config, [f.name for f in fields(kind.Config) if f.name in used]),
    }


def list_settings(task: str = "language", model: str | None = None) -> list[JsonObject]:
    """Return every setting of a task with a model: its name, its owner, default, range and meaning."""
    kind = task_named(task)
    family = model or kind.default_model
    check_family(kind, family)
    usual = usual_settings(kind, family, "tiny")
    return [
        {
            "name": declared.name,
            "of": owner,
            "default": usual.get(declared.name, declared.default),
            "range": words,
            "meaning": meaning,
        }
        for owner, (config, names) in _owners(kind, family).items()
        for declared, words, meaning in described(config)
        if declared.name in names
    ]
