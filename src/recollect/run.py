"""A run is a folder: what was trained, how, on what, and how it went.

config.json         the model and how it was trained
model.safetensors   the best weights
tokenizer.json      symbols to ids and back
metrics.jsonl       one line per update and evaluation
checkpoints/        what `resume` goes on from
"""

from __future__ import annotations

import fcntl
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from recollect.data.tokenizer import Tokenizer
from recollect.models.language import LanguageConfig, LanguageModel
from recollect.saving import FileError, load_weights, save_weights, write_file

VERSION = 1


class Run:
    """One run folder."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self.checkpoints = self.folder / "checkpoints"

    def create(self, model: LanguageConfig, tokenizer: Tokenizer, training: dict[str, Any]) -> None:
        """Begin a run: write its config and tokenizer."""
        if (self.folder / "config.json").exists():
            raise FileError(f"{self.folder}: there is a run already; go on with: recollect resume {self.folder}")
        self.folder.mkdir(parents=True, exist_ok=True)
        tokenizer.save(self.folder / "tokenizer.json")
        config = {"version": VERSION, "model": asdict(model), "training": training}
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

    def build(self) -> LanguageModel:
        """Make the run's model, with new weights."""
        return LanguageModel(LanguageConfig(**self.config()["model"]))

    def load(self) -> tuple[LanguageModel, Tokenizer]:
        """Give the trained model, in eval mode, and its tokenizer."""
        model = self.build()
        load_weights(model, self.folder / "model.safetensors")
        return model.eval(), Tokenizer.load(self.folder / "tokenizer.json")

    def finish(self, model: LanguageModel) -> None:
        """Keep these weights as the run's result."""
        save_weights(model, self.folder / "model.safetensors")

    def log(self, row: dict[str, Any]) -> None:
        """Add a line to the metrics."""
        with (self.folder / "metrics.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")

    def cut_log(self, step: int) -> None:
        """Drop what was logged after a step: it will be logged again."""
        path = self.folder / "metrics.jsonl"
        lines = path.read_text(encoding="utf-8").splitlines(keepends=True) if path.exists() else []
        kept = [line for line in lines if line.endswith("\n") and json.loads(line)["step"] <= step]
        write_file(path, "".join(kept).encode())

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
