"""A run is a folder: what was trained, how, on what, and how it went.

config.json         the model and how it was trained
model.safetensors   the best weights
tokenizer.json      symbols to ids and back
metrics.jsonl       one line per update and evaluation
samples.jsonl       what the model said at each evaluation
checkpoints/        what `resume` goes on from
README.md           the model card
"""

from __future__ import annotations

import fcntl
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from recollect.core.machine import choose_device
from recollect.core.serialize import FileError, load_weights, save_weights, write_file
from recollect.data.text.line_tokenizer import LineTokenizer
from recollect.data.text.tokenizer import Tokenizer
from recollect.models.captioning import CaptionConfig, Captioner
from recollect.models.language import LanguageConfig, LanguageModel
from recollect.models.translation import TranslationConfig, Translator

VERSION = 2
MODELS: dict[str, tuple[Any, Any]] = {  # by task: config and model
    "language": (LanguageConfig, LanguageModel),
    "translate": (TranslationConfig, Translator),
    "summarise": (TranslationConfig, Translator),
    "caption": (CaptionConfig, Captioner),
}


class Run:
    """One run folder."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self.checkpoints = self.folder / "checkpoints"

    def create(
        self, model: Any, tokenizers: Mapping[str, Tokenizer | LineTokenizer], training: dict[str, Any], data: str
    ) -> None:
        """Begin a run: write its config, with the name of its data in the cache, and its tokenizers."""
        if (self.folder / "config.json").exists():
            raise FileError(f"{self.folder}: there is a run already; go on with: recollect resume {self.folder}")
        self.folder.mkdir(parents=True, exist_ok=True)
        for name, tokenizer in tokenizers.items():
            tokenizer.save(self.folder / f"{name}.json")
        config = {"version": VERSION, "model": asdict(model), "training": training, "data": data}
        write_file(self.folder / "config.json", json.dumps(config, ensure_ascii=False, indent=1).encode() + b"\n")

    def config(self) -> dict[str, Any]:
        """Read the config, and refuse one of another version."""
        path = self.folder / "config.json"
        if not path.is_file():
            raise FileError(f"{self.folder}: not a run, config.json is missing; train one with: recollect train DATA")
        try:
            config: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
            version = config["version"]
        except (ValueError, KeyError, TypeError) as error:
            raise FileError(f"{path}: damaged, it cannot be read ({error})") from error
        if version != VERSION:
            raise FileError(f"{path}: a run of version {version}, this version reads {VERSION}; train it again")
        return config

    def build(self) -> Any:
        """Make the run's model, with new weights."""
        config = self.config()
        make_config, make = MODELS[config["training"]["task"]]
        return make(make_config(**config["model"]))

    def load(self, device: str = "cpu") -> Any:
        """Give the trained model, in eval mode on a device."""
        place = choose_device(device)
        model = self.build()
        load_weights(model, self.folder / "model.safetensors")
        return model.to(place).eval()

    def tokenizer(self, name: str = "tokenizer") -> Tokenizer:
        """Give a tokenizer by its file's name."""
        return Tokenizer.load(self.folder / f"{name}.json")

    def finish(self, model: Any) -> None:
        """Keep these weights as the run's result."""
        save_weights(model, self.folder / "model.safetensors")

    def log(self, row: dict[str, Any]) -> None:
        """Add a line to the metrics."""
        self._append("metrics", row)

    def log_sample(self, row: dict[str, Any]) -> None:
        """Add a line to the samples."""
        self._append("samples", row)

    def _append(self, name: str, row: dict[str, Any]) -> None:
        with (self.folder / f"{name}.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps(row, ensure_ascii=False) + "\n")

    def metrics(self) -> list[dict[str, Any]]:
        """Give every update and evaluation."""
        return self._rows("metrics")

    def samples(self) -> list[dict[str, Any]]:
        """Give what the model said at each evaluation."""
        return self._rows("samples")

    def _rows(self, name: str) -> list[dict[str, Any]]:
        """Give a log's rows; a last line that was cut short by a crash is none."""
        path = self.folder / f"{name}.jsonl"
        lines = path.read_text(encoding="utf-8").split("\n")[:-1] if path.exists() else []
        return [json.loads(line) for line in lines]

    def cut_log(self, step: int) -> None:
        """Drop what was logged after a step: it will be logged again."""
        for name in ("metrics", "samples"):
            kept = [json.dumps(row, ensure_ascii=False) + "\n" for row in self._rows(name) if row["step"] <= step]
            write_file(self.folder / f"{name}.jsonl", "".join(kept).encode())

    def prompt(self) -> str:
        """Give a prompt of symbols that the run knows: the beginning of what its samples went on from."""
        rows = self.samples()
        known = rows[-1]["prompt"].partition("\ufffd")[0] if rows else ""
        lines = (line.lstrip("-") for line in known.splitlines())  # a leading dash would be read as an option
        return next((line for line in lines if line.strip()), "The ")

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Keep other processes from training in this folder."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with (self.folder / ".lock").open("w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                raise FileError(f"{self.folder}: another process is training here; choose another --out") from error
            yield
