"""A run is a folder: the model, how it was trained, on what data, and the metrics.

config.json         the model and how it was trained
model.safetensors   the best weights
tokenizer.json      symbols to ids and back, or other assets of the task
metrics.jsonl       one line per update and evaluation
samples.jsonl       a sample of the model at each evaluation
checkpoints/        what `resume` continues from
README.md           the model card
"""

from __future__ import annotations

import fcntl
import json
import shlex
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from functools import cached_property
from importlib import import_module
from inspect import signature
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from recollect.core.errors import is_own
from recollect.core.machine import choose_device
from recollect.core.serialize import FileError, WriteFailed, load_weights, write_file
from recollect.core.settings import SettingError
from recollect.core.task import Assets, Prediction, Scores, Task
from recollect.core.threads import fitting_threads
from recollect.core.types import JsonMapping, JsonObject
from recollect.data.error import DataError
from recollect.data.names import Named, in_short, join_names
from recollect.data.text.tokenizer import Tokenizer
from recollect.models.own import MakeLayer, code_option, register_layer
from recollect.runs.config import RunConfig, check_number
from recollect.runs.result import later_best, save_result
from recollect.runs.saved_config import VERSION, build_saved, check_fixed, config_of, read_saved
from recollect.tasks.register import register_task
from recollect.training.checkpoint import load_result, newest_checkpoint, read_state


class Run:
    """One run folder: its config, its model, and the methods that use it.

    >>> import tempfile
    >>> rc.train("recall:count=200", model="markov", out=(folder := tempfile.mkdtemp() + "/run")).is_spent
    True
    >>> run = rc.load(folder)
    >>> run.config().family, run.task.name, type(run.model).__name__
    ('markov', 'language', 'LanguageModel')
    """

    def __init__(self, folder: str | Path, device: str = "auto") -> None:
        self.folder = Path(folder)
        self.checkpoints = self.folder / "checkpoints"
        self._config = self.folder / "config.json"
        self.device = device
        self.notice: Callable[[str], None] = lambda text: print(f"recollect: {text}", file=sys.stderr)
        self.is_spent: bool | None = None  # whether the last training ended because its budget was spent

    # ---- contents ---------------------------------------------------------------------------------

    def saved(self) -> JsonObject:
        """Read config.json as plain data; raise a `FileError` if it is missing, damaged or of another version."""
        return read_saved(self._config)

    def config(self) -> RunConfig:
        """Return the run's config."""
        return config_of(self._config, self.saved())

    @cached_property
    def task(self) -> Task:
        """The run's task, with its options."""
        return self.config().make_task()

    @cached_property
    def model(self) -> Any:
        """The trained model, in eval mode on the run's device."""
        return self.load_model(self.device)

    @cached_property
    def assets(self) -> Assets:
        """What the task saved with the weights."""
        try:
            return self.task.load_assets(self.folder)
        except (DataError, FileError) as error:
            raise FileError(f"{error}; take the file from another copy of the run, or train a new run") from error

    @property
    def tokenizer(self) -> Any:
        """The tokenizer; of a run with sources and targets, the targets'."""
        return self.assets.get("tokenizer", self.assets.get("target_tokenizer"))

    def build(self) -> Any:
        """Return the run's model with new weights."""
        known = (self.folder / "model.safetensors", *sorted(self.checkpoints.glob("step-????????/model.safetensors")))
        weights = next((path for path in known if path.is_file()), None)
        saved = self.saved()["model"]
        fixed = getattr(self.task, "fixed", None)
        if fixed is not None:
            check_fixed(self._config, saved, fixed(self.assets))
        return build_saved(self._config, self.task, saved, weights)

    def prepare(self, model: Any) -> None:
        """Make a model as it is trained: of one that begins from another, with what is frozen and added."""
        transfer = self.config().transfer
        if transfer is None:
            return
        has_parts = hasattr(model, "stages") and getattr(model.config, "body", self) is not None
        if not has_parts:
            raise FileError(f"{self._config}: run.transfer: expected null: its model does not begin from a trained one")
        transfer.prepare(model)

    def read_result(self, checkpoint: Path) -> Any:
        """Return the model that a checkpoint was measured with, without what was added for training."""
        model = self.build()
        self.prepare(model)
        load_result(checkpoint, model)
        transfer = self.config().transfer
        if transfer is not None:
            transfer.merge(model)
        return model

    def load_model(self, device: str = "cpu") -> Any:
        """Return the trained model, in eval mode on a device."""
        place = choose_device(device)
        result = self.folder / "model.safetensors"
        later = later_best(self.checkpoints, result)
        if later is not None:
            self._tell_unfinished(later)
            return self.read_result(later).to(place).eval()
        model = self.build()
        try:
            load_weights(model, result)
        except FileError as error:
            model = self._load_checkpoint(error)
        return model.to(place).eval()

    def _tell_unfinished(self, used: Path) -> None:
        """Tell that a checkpoint's weights stand in place of the result, which is older or not there."""
        unfinished = f"{self.folder}: not finished, these are the weights of {used.name}"
        self.notice(f"{unfinished}. Resume with: {self.command('resume')}")

    def _load_checkpoint(self, problem: FileError) -> Any:
        """Return the best checkpoint's model in place of a result that is missing or damaged; raise its error without.

        A run that is still being trained has no result yet; one that was damaged is written again.
        """
        try:
            newest, _ = newest_checkpoint(self.checkpoints)
        except FileError:
            again = "there is no checkpoint to restore it from. Train it again with"
            raise FileError(f"{problem}; {again}: {self.command('resume')}") from None
        step = read_state(newest)["progress"]["best_step"] or 0
        best = self.checkpoints / f"step-{step:08d}"
        used = best if best.exists() else newest
        model = self.read_result(used)
        is_damaged = (self.folder / "model.safetensors").exists()
        if is_damaged:
            self.finish(model, step if used == best else None)
            self.notice(f"{problem}; restored from {used.name}")
        else:
            self._tell_unfinished(used)
        return model

    def dataset(self) -> Any:
        """Return the run's data: from the cache, else read again; raise a `DataError` if they have changed."""
        source = self.config().data
        name = self.saved()["dataset"]
        data = self.task.reopen(name)
        if data is None and source == "-":
            raise DataError(f"{self.folder}: its text came from standard input and is not kept; train a new run")
        data = data or self._open(source)
        if data.name != name:
            raise DataError(
                f"{in_short(source)}: not the data that {self.folder} was started on; restore them or train a new run"
            )
        return data

    def _open(self, source: str) -> Any:
        """Read the data as training did: with a tokenizer of their own, or with that of the parent, which was kept."""
        if self.config().transfer is None:
            return self.task.open(source)
        task: Any = self.task
        return task.open_with(source, self.assets.get("source_tokenizer") or self.assets["tokenizer"])

    # ---- use --------------------------------------------------------------------------------------

    def stream(self, prompt: str, stop: Sequence[str] = (), **settings: Any) -> Iterator[str]:
        """Return an iterator over chunks of the text that follows a prompt; arguments are checked at once."""
        generate = getattr(self.task, "generate", None)
        if generate is None:
            raise ValueError(
                f"{self.folder}: a run of the task {self.task.name} needs an input; "
                f"try: {self.command('predict', 'INPUT')}"
            )
        try:
            stream: Iterator[str] = generate(self.model, self.assets, prompt, stop, **settings)
        except DataError as error:
            raise DataError(f"prompt: {error}. Try: {self.command('generate', self.prompt())}") from error
        return stream

    def generate(self, prompt: str, *, tokens: int = 200, stop: Sequence[str] = (), **settings: Any) -> str:
        """Return a prompt and the model's continuation.

        `temperature`, `top_k`, `top_p`, `min_p`, `repetition_penalty`, `greedy` and `seed` are as in `Settings`.
        """
        with fitting_threads(self.notice):
            return prompt + "".join(self.stream(prompt, stop, tokens=tokens, **settings))

    def predict(self, inputs: Any, **settings: Any) -> list[Prediction]:
        """Return the model's predictions for inputs: translations of lines, captions of pictures."""
        predict = getattr(self.task, "predict", None)
        if predict is None:
            raise ValueError(
                f"{self.folder}: a run of the task {self.task.name} continues a prompt; "
                f"try: {self.command('generate', 'TEXT')}"
            )
        for name in settings:
            if name not in signature(predict).parameters:
                raise SettingError(f"--{name}: predict has no setting {name!r} in the task {self.task.name}")
        with fitting_threads(self.notice):
            return list(predict(self.model, self.assets, inputs, **settings))

    def finetune(self, data: Named, **options: Any) -> Run:
        """Return a new run of another task, or of other data, that begins from this run's model: see `finetune`."""
        verb: Any = import_module("recollect.runs.finetune")  # it is above this module
        made: Run = verb.finetune(self, data, **options)
        return made

    def embed(self, texts: Sequence[str]) -> Tensor:
        """Return one vector for each text, (N, D), where the task has them."""
        find = getattr(self.task, "embed", None)
        if find is None:
            raise ValueError(f"{self.folder}: a run of the task {self.task.name} has no vectors of texts")
        with fitting_threads(self.notice):
            vectors: Tensor = find(self.model, self.assets, texts)
        return vectors

    def plot(self, predictions: Sequence[Prediction], path: str | Path) -> None:
        """Draw predictions as a .svg or .html file, where the task has plots."""
        task: Any = self.task
        name, ending = f"{self.config().family}, {self.folder.name}", Path(path).suffix.lower()
        if ending not in (".svg", ".html"):
            raise ValueError(f"{path}: got the ending {ending!r}, expected .svg or .html")
        write_file(Path(path), task.plot(predictions, name, is_page=ending == ".html").encode())

    def attention(self, source: str, target: str) -> JsonObject:
        """Return the attention weights from each symbol of a target to each of a source, where the task has them."""
        task: Any = self.task
        return dict(task.attention(self.model, self.assets, source, target))

    def evaluate(self, data: Named | None = None, steps: int | None = None) -> Scores:
        """Return every score on the run's own test part, or on other data, with their definitions."""
        if steps is not None and steps < 1:
            raise SettingError(f"--steps: got {steps}, expected at least 1")
        with fitting_threads(self.notice):
            if data is None:
                return self.task.evaluate(self.model, self.dataset(), self.assets, steps)
            named = join_names(data)
            check_number(type(self.task), named)
            return self.task.evaluate(self.model, self.task.read(named, self.assets), self.assets, steps)

    # ---- the folder -------------------------------------------------------------------------------

    def check_place(self) -> None:
        """Raise a `FileError` for a folder that holds a run already, or other files, and for what is no folder."""
        if self._config.exists():
            again = shlex.join(["recollect", "resume", str(self.folder)])
            raise FileError(f"{self.folder}: a run already exists; resume it with: {again}")
        parent = next(path for path in (self.folder, *self.folder.parents) if path.exists() or path.is_symlink())
        if not parent.is_dir():
            beside = self.folder.with_name(f"{self.folder.name}-run") if parent == self.folder else Path("runs/run")
            raise FileError(f"{parent}: no folder, so no run can be made in it; choose another, as in --out {beside}")
        foreign = sorted(path.name for path in self.folder.glob("*") if path.name != ".lock")
        if foreign:
            problem = f"holds {foreign[0]!r} and is not a run; nothing was overwritten"
            raise FileError(f"{self.folder}: {problem}; choose another, as in --out {self.folder / 'run'}")

    def create(self, config: RunConfig, model: Any, assets: Assets, dataset: str) -> None:
        """Create the folder: write the config, with the name of the data in the cache, and the assets."""
        self.folder.mkdir(parents=True, exist_ok=True)
        for name, asset in assets.items():
            asset.save(self.folder / f"{name}.json")
        saved = {"version": VERSION, "run": config.as_json(), "model": asdict(model), "dataset": dataset}
        write_file(self._config, json.dumps(saved, ensure_ascii=False, indent=1).encode() + b"\n")

    def discard(self) -> None:
        """Delete a run that was just created and has learned nothing; its folder is free for another."""
        self._config.unlink(missing_ok=True)  # first: without it, it is no run
        for pattern in ("*.json", "*.jsonl"):
            for path in self.folder.glob(pattern):
                path.unlink(missing_ok=True)

    def extend(self, limits: Mapping[str, float]) -> None:
        """Set the budget to what is spent so far plus these limits."""
        saved = self.saved()
        rows = [row for row in self.metrics() if "tokens" in row]
        last = rows[-1] if rows else {"step": 0, "tokens": 0, "seconds": 0.0}
        spent = {"max_steps": last["step"], "max_tokens": last["tokens"], "max_seconds": last["seconds"]}
        ((name, more),) = limits.items()
        if name not in spent:
            raise SettingError(f"--budget: got {more:g} epochs more, expected seconds, steps or tokens, as in 5m")
        training = saved["run"]["training"]
        training |= {"max_epochs": None} | dict.fromkeys(spent) | {name: spent[name] + more}
        RunConfig.from_json(saved["run"])  # checks it
        write_file(self._config, json.dumps(saved, ensure_ascii=False, indent=1).encode() + b"\n")

    def finish(self, model: nn.Module, step: int | None = None) -> None:
        """Save these weights as the run's result, with the step that they are of."""
        save_result(model, self.folder / "model.safetensors", step)
        self.__dict__.pop("model", None)  # loaded before

    def log(self, row: JsonMapping, name: str = "metrics") -> None:
        """Append a line to the metrics, or to the samples."""
        with (self.folder / f"{name}.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps(row, ensure_ascii=False) + "\n")

    def metrics(self) -> list[JsonObject]:
        """Return the rows of every update and evaluation."""
        return self._rows("metrics")

    def samples(self) -> list[JsonObject]:
        """Return the sample of each evaluation."""
        return self._rows("samples")

    def _rows(self, name: str) -> list[JsonObject]:
        """Return a log's rows, without a last line that a crash left incomplete."""
        path = self.folder / f"{name}.jsonl"
        lines = path.read_text(encoding="utf-8").split("\n")[:-1] if path.exists() else []
        rows: list[JsonObject] = []
        for number, line in enumerate(lines, 1):
            try:
                row = json.loads(line)
                is_row = isinstance(row["step"], int)
            except (ValueError, LookupError, TypeError):
                is_row = False
            if not is_row:
                raise FileError(f"{path}, line {number}: damaged, it is no row of this run; delete that line")
            rows.append(row)
        return rows

    def cut_log(self, step: int) -> None:
        """Delete the rows after a step: they will be logged again."""
        for name in ("metrics", "samples"):
            kept = [json.dumps(row, ensure_ascii=False) + "\n" for row in self._rows(name) if row["step"] <= step]
            write_file(self.folder / f"{name}.jsonl", "".join(kept).encode())

    def prompt(self) -> str:
        """Return an input of known symbols: the beginning of its samples' input, or else a symbol of the tokenizer."""
        rows = self.samples()
        lines = [line for line in (rows[-1]["prompt"] if rows else "").splitlines() if line.strip()]
        tokenizer = self.assets.get("tokenizer")
        if not isinstance(tokenizer, Tokenizer):  # inputs of other tasks may hold unknown symbols
            return lines[0] if lines else "The "
        beginnings = [line[:end] for line in lines for end in range(len(line), 0, -1)]
        known = (text for text in beginnings if text.strip() and not tokenizer.unknown_in(text))
        return next(known, None) or tokenizer.decode([0])

    def command(self, verb: str, *words: str) -> str:
        """Return a command on this run as it is typed; code of one's own is named again.

        `--` stands before words that begin with a dash, which would be read as options.
        """
        config = self.config()
        code = [code_option(config.family)] if is_own(config.family) else []
        code += [code_option(config.task, "--task")] if is_own(config.task) else []
        words = (str(self.folder), *words)
        if any(word.startswith("-") for word in words):
            return " ".join(["recollect", verb, *code, shlex.join(["--", *words])])
        return " ".join([shlex.join(["recollect", verb, *words]), *code])

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Lock the folder, so that no other process trains in it."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            file = (self.folder / ".lock").open("w")
        except OSError as error:
            raise WriteFailed(f"{self.folder}: cannot be written ({error.strerror}); choose another --out") from error
        with file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                raise FileError(f"{self.folder}: another process is training here; choose another --out") from error
            yield


def load(
    folder: str | Path, *, device: str = "auto", model: MakeLayer | None = None, task: type[Task] | None = None
) -> Run:
    """Return a run by its folder.

    A run on a user-defined layer or task keeps its name, never its code: pass the class again as `model` or `task`.

    >>> import tempfile
    >>> folder = tempfile.mkdtemp() + "/run"
    >>> _ = rc.train("recall:count=200", model="markov", out=folder)
    >>> run = rc.load(folder)
    >>> len(run.generate("a", tokens=5, greedy=True))
    6
    """
    run = Run(folder, device)
    saved = run.saved()
    names = saved["run"]["family"], saved["run"]["task"]
    for given, name, kind in zip((model, task), names, ("model", "task"), strict=True):
        if given is not None and not is_own(name):
            raise ValueError(f"{kind}: got code of one's own, but {run.folder} was trained with {name}; leave it out")
    if model is not None:
        register_layer(model, names[0])
    if task is not None:
        register_task(task, names[1])
    run.config()
    return run
