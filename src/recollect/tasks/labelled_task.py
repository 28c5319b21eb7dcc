"""What classification and tagging have in common: data, models of every family, batches, and the card."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from recollect.core.settings import CheckedSettings, SettingError, refuse_unused, setting
from recollect.core.task import About, Assets, Batches
from recollect.core.types import JsonMapping
from recollect.data.audio.frame_coder import FrameCoder
from recollect.data.labels.label_batches import LabelBatches
from recollect.data.labels.labelled import Labelled, LabelNames, Vocabulary
from recollect.data.labels.subword_coder import Coder, SubwordCoder, load_coder
from recollect.models.classification import BAGS
from recollect.models.encoding import EncoderConfig
from recollect.models.inherited import Trained, inherited_shape, longest_of, saved_body
from recollect.models.sizes import sized_encoder

READ = 20  # symbols after which the memory is measured
ROWS = 128  # examples of a batch of an evaluation
SPOKEN = {"en": "A classifier of recordings", "zh": "录音分类模型"}
RECORDINGS = {"en": "recordings", "zh": "条录音"}


@dataclass(frozen=True)
class LabelOptions(CheckedSettings):
    """Settings of a run on labelled data."""

    text: str | int | None = setting(None, help="the column of texts or words: a name, or a number from 1")
    label: str | int | None = setting(None, help="the column of labels or tags: a name, or a number from 1")
    valid: str | None = setting(None, help="other examples to validate on; by default a tenth of DATA")
    test: str | None = setting(None, help="other examples to test on; by default a tenth of DATA")
    batch_size: int = setting(32, least=1, help="examples in a batch")
    vocab_size: int | None = setting(None, least=2, help="of words and byte pairs")
    least: int = setting(1, least=1, help="words that occur less often are unknown")
    lowercase: bool = setting(False, help="read words in lower case")
    letters: bool = setting(False, help="read the letters of words too")
    smoothing: float = setting(0.0, least=0.0, below=1.0, help="label smoothing")


class LabelledTask:
    """Base of the tasks on labelled data."""

    name: ClassVar[str]
    Options: ClassVar[type[LabelOptions]]
    Config: ClassVar[type[EncoderConfig]]
    default_model: ClassVar[str] = "bilstm"
    takes_layers: ClassVar[bool] = True
    shows_names: ClassVar[bool] = True
    noun: ClassVar[Mapping[str, str]]
    unit: ClassVar[Mapping[str, str]]
    by_step: ClassVar[bool]
    inherits: ClassVar[tuple[str, ...]] = ("dropout", "word_dropout")  # the settings of a model with a trained body

    def __init__(self, options: LabelOptions | None = None) -> None:
        self.options = options or self.Options()

    def vocabulary(self, coder: Coder | None = None) -> Vocabulary:
        """Return how texts become ids: by a trained model's tokenizer if given."""
        own = self.options
        kind = getattr(own, "tokenizer", None)
        return Vocabulary(kind, own.vocab_size, own.least, own.lowercase, own.letters, coder)

    def open(self, source: str) -> Labelled:
        """Read the data, and learn a tokenizer."""
        return self.open_with(source, None)

    def open_with(self, source: str, tokenizer: Coder | None) -> Labelled:
        """Read the data with a trained model's tokenizer, None: with a new one."""
        raise NotImplementedError

    def tokenizer_for(self, model: Trained, tokenizer: Any) -> SubwordCoder:
        """Return a trained model's tokenizer as this task uses it."""
        return SubwordCoder(tokenizer, longest_of(model))

    @staticmethod
    def added_steps(settings: JsonMapping) -> int:
        """Return how many steps a model reads besides a text's: the class token is one."""
        return int(settings.get("pooling") == "class-token")

    def config_from(self, model: Trained, family: str, dataset: Labelled, settings: JsonMapping) -> EncoderConfig:
        """Return the config of a model whose encoder is a trained model's body."""
        body = saved_body(model, settings.get("dropout"))
        own = {"labels": len(dataset.labels), "unknown": dataset.tokenizer.unknown, "body": body, **settings}
        return self.Config(family, model.vocab_size, **{**inherited_shape(model), **own})

    def reopen(self, name: str) -> Labelled | None:
        """Return None: labelled data are small and read again."""
        return None

    def config(self, family: str, size: str, dataset: Labelled, settings: JsonMapping) -> EncoderConfig:
        """Return a family's config at a size."""
        coder = dataset.tokenizer
        if settings.get("word_dropout") and coder.unknown is None and not coder.width:
            raise SettingError(f"word_dropout: got {coder.kind}, which has no unknown symbol; expected words")
        if coder.width and family in BAGS:
            raise SettingError(f"model: got {family}, which reads words; for recordings choose another, as per-word")
        longest = max(len(ids) for part in (dataset.train, dataset.valid, dataset.test) for ids in part.ids)
        check_positions(settings, longest + self.added_steps(settings), "examples")
        of_inputs = {"letters": coder.letter_count, "unknown": coder.unknown, "frames": coder.width}
        given = {"labels": len(dataset.labels), **of_inputs, **settings}
        return sized_encoder(self.Config, family, coder.vocab_size, size, **given)

    def assets(self, dataset: Labelled) -> Assets:
        """Return the tokenizer and the labels."""
        return {"tokenizer": dataset.tokenizer, "labels": dataset.labels}

    def load_assets(self, folder: Path) -> Assets:
        """Read the assets back."""
        path = folder / "tokenizer.json"
        return {
            "tokenizer": FrameCoder.load(path) if FrameCoder.is_at(path) else load_coder(path),
            "labels": LabelNames.load(folder / "labels.json"),
        }

    def batches(self, dataset: Labelled, model: Any, seed: int) -> Batches:
        """Return batches of `batch_size` examples of similar length."""
        return LabelBatches(dataset.train, self.options.batch_size, by_step=self.by_step, seed=seed)

    def about(self, dataset: Labelled, model: Any) -> About:
        """Return the contents of the model card."""
        coder = dataset.tokenizer
        is_spoken = isinstance(coder, FrameCoder)
        return About(
            noun=SPOKEN if is_spoken else self.noun,
            symbols=coder.kind,
            vocabulary=coder.vocab_size,
            parts=(len(dataset.train), len(dataset.valid), len(dataset.test)),
            unit=RECORDINGS if is_spoken else self.unit,
            memory=self._bytes(dataset, model),
            use="predict",
            data=coder.about() if isinstance(coder, FrameCoder) else None,
        )

    @torch.no_grad()
    def _bytes(self, dataset: Labelled, model: Any) -> dict[int, int]:
        """Return the bytes of one row's memory after some symbols, or as many as the model can read."""
        coder = dataset.tokenizer
        steps = min(READ, coder.most - len(coder.frame)) if isinstance(coder, SubwordCoder) and coder.most else READ
        first = dataset.train.ids[0]  # of words with letters, or of subwords, with another axis; of recordings, vectors
        dtype = torch.float32 if coder.width else torch.long
        x = torch.zeros((1, steps, *first.shape[1:]), dtype=dtype, device=device_of(model))
        if x.dim() == 3:
            x[..., 0] = 1
        after: int = model(x)[1].nbytes
        return {steps: after}


def check_positions(settings: JsonMapping, longest: int, of: str) -> None:
    """Raise a SettingError where a table of learned positions is shorter than what is read."""
    table = settings.get("max_length")
    if table is not None and table < longest:
        raise SettingError(
            f"max_length: got {table}, expected at least {longest}, the steps of the longest of the {of}"
        )


def refuse_columns(options: CheckedSettings, source: str, generated: Iterable[str]) -> None:
    """Raise a SettingError where columns of a built-in are chosen."""
    if source.partition(":")[0] in generated:
        names = ("text", "label", "query", "answer")
        refuse_unused(options, names, f"{source} is generated and has no columns to choose")


def device_of(model: Any) -> torch.device:
    """Return where a model is; one that counts has buffers only."""
    first: Tensor = next(iter([*model.parameters(), *model.buffers()]))
    return first.device


def evaluating(model: Any, work: Callable[[], Any]) -> Any:
    """Return the result of some work with a model in eval mode and without gradients."""
    was_training = model.training
    model.eval()
    try:
        with torch.no_grad():
            return work()
    finally:
        model.train(was_training)


def log_loss(scores: Tensor, truth: Tensor) -> float:
    """Return the summed −log p of the true labels."""
    return float(-scores.log_softmax(-1).gather(-1, truth[..., None]).sum())


def table_of(names: tuple[str, ...], rows: Mapping[str, list[str]]) -> list[str]:
    """Return lines of a table whose columns are aligned."""
    cells = [["", *names], *([name, *row] for name, row in rows.items())]
    widths = [max(len(row[i]) for row in cells) for i in range(len(cells[0]))]
    return ["  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in cells]


def most_frequent(targets: list[np.ndarray[Any, np.dtype[np.int64]]], labels: int) -> int:
    """Return the label that occurs most often."""
    every = np.concatenate(targets)
    return int(np.bincount(every[every >= 0], minlength=labels).argmax())
