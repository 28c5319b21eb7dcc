"""Image captioning: the words of a caption are predicted from the memory of a picture."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import torch

from recollect.core.serialize import write_file
from recollect.core.settings import CheckedSettings, setting
from recollect.core.task import About, Assets, Baseline, Batches, ItemScores, Prediction, Scores
from recollect.core.types import JsonMapping
from recollect.data.images.caption_batches import CaptionBatches
from recollect.data.images.captions import Captions, load_captions, read_caption_part, reopen_captions
from recollect.data.images.pictures import open_pictures
from recollect.data.text.line_tokenizer import LineTokenizer
from recollect.data.text.vocabulary import SIZES
from recollect.evaluation.baselines import unigram_loss
from recollect.evaluation.item_losses import caption_items
from recollect.evaluation.likelihood import score_captions, scores_of
from recollect.generation.captions import caption, patient, remember
from recollect.models.captioning import FAMILIES, CaptionConfig, Captioner, settings_of
from recollect.models.sizes import sized_captioner
from recollect.tasks.translate import LONGEST, MEASURES, READ, SAMPLE, agreement, answered
from recollect.training.objective import NextSymbol


@dataclass(frozen=True)
class CaptionOptions(CheckedSettings):
    """Settings of a captioning run."""

    tokenizer: str | None = setting(
        None, choices=("char", "byte", "word", "space", "bpe"), help="how text is split; by default chosen by the text"
    )
    field: str | None = setting(None, help="the columns of a .tsv: picture,caption and optionally a group")
    valid: str | None = setting(None, help="other captions to validate on; by default a part of DATA")
    test: str | None = setting(None, help="other captions to test on; by default a part of DATA")
    batch_size: int = setting(16, least=1, help="captions in a batch")
    vocab_size: int | None = setting(None, least=16, help="of words and byte pairs; by default fitted to text and size")
    vocab_for: str = setting("tiny", choices=SIZES, help="the size that the vocabulary is fitted to; by default --size")
    lowercase: bool = setting(False, help="train on lower case")
    smoothing: float = setting(0.0, least=0.0, below=1.0, help="label smoothing")


@dataclass(frozen=True)
class PictureSize:
    """Height, width and channels of a run's pictures, as a file of the run."""

    size: tuple[int, ...]

    def save(self, path: Path) -> None:
        """Write it as JSON."""
        write_file(path, json.dumps(self.size).encode())

    @classmethod
    def load(cls, path: Path) -> PictureSize:
        """Read it back."""
        return cls(tuple(json.loads(path.read_text(encoding="utf-8"))))


class CaptionTask:
    """Predict a caption from its picture."""

    name: ClassVar[str] = "caption"
    Options: ClassVar[type] = CaptionOptions
    families: ClassVar[tuple[str, ...]] = FAMILIES
    Config: ClassVar[type] = CaptionConfig
    default_model: ClassVar[str] = "show-attend-tell"
    takes_layers: ClassVar[bool] = False
    shows_names: ClassVar[bool] = True
    predicts_files: ClassVar[bool] = True

    def __init__(self, options: CaptionOptions | None = None) -> None:
        self.options = options or CaptionOptions()
        self.loss = NextSymbol(self.options.smoothing)

    def open(self, source: str) -> Captions:
        """Read the pictures and captions."""
        names = ("tokenizer", "field", "valid", "test", "vocab_size", "vocab_for", "lowercase")
        return load_captions(source, **{name: getattr(self.options, name) for name in names})

    def reopen(self, name: str) -> Captions | None:
        """Return the pictures and captions from the cache."""
        return reopen_captions(name)

    def read(self, source: str, assets: Assets) -> Captions:
        """Read other captions with the run's tokenizer, as a test part; pictures must have the run's size."""
        tokenizer: LineTokenizer = assets["target_tokenizer"]
        part = read_caption_part(source, tokenizer, assets["picture_size"].size, self.options.field)
        return Captions(tokenizer, part, part, part, source)

    settings = staticmethod(settings_of)

    @staticmethod
    def usual(family: str, size: str) -> JsonMapping:
        """Return the settings whose default depends on family or size: the vocabulary is fitted to the size."""
        return {"vocab_for": size}

    def config(self, family: str, size: str, dataset: Captions, settings: JsonMapping) -> CaptionConfig:
        """Return a family's config at a size; the vocabulary has two ids more than the tokenizer."""
        return sized_captioner(family, dataset.tokenizer.model_size, dataset.size, size, **settings)

    def build(self, config: JsonMapping) -> Captioner:
        """Return a model with new weights."""
        return Captioner(CaptionConfig(**config))

    def assets(self, dataset: Captions) -> Assets:
        """Return the tokenizer of the captions, and the size of the pictures."""
        return {"target_tokenizer": dataset.tokenizer, "picture_size": PictureSize(dataset.size)}

    def load_assets(self, folder: Path) -> Assets:
        """Read the assets back."""
        tokenizer = LineTokenizer.load(folder / "target_tokenizer.json")
        return {"target_tokenizer": tokenizer, "picture_size": PictureSize.load(folder / "picture_size.json")}

    @staticmethod
    def fixed(assets: Assets) -> JsonMapping:
        """Return the entries of the model's config that are the size of the run's pictures."""
        return dict(zip(("height", "breadth", "channels"), assets["picture_size"].size, strict=True))

    def batches(self, dataset: Captions, model: Captioner, seed: int) -> Batches:
        """Return batches of `batch_size` captions of similar length, with their pictures."""
        ends = {"begin": dataset.begin, "end": dataset.end}
        return CaptionBatches(dataset.train, batch_size=self.options.batch_size, seed=seed, **ends)

    def fit(self, model: Captioner, dataset: Captions, limit: int | None = None) -> int:
        """Raise a NotImplementedError: no family of this task is fitted by counting."""
        raise NotImplementedError

    def measure(self, model: Captioner, dataset: Captions, split: str, limit: int | None = None) -> Scores:
        """Return the loss of a part's captions, given their pictures (teacher forcing)."""
        unknown = dataset.tokenizer.unknown
        part = getattr(dataset, split)
        found = score_captions(model, part, dataset.begin, dataset.end, limit=limit, unknown=unknown)
        return scores_of("captions given", found, unknown)

    def item_scores(self, model: Captioner, dataset: Captions, split: str) -> ItemScores:
        """Return the loss of `measure` by captions, and by position in a caption."""
        return caption_items(model, getattr(dataset, split), dataset.begin, dataset.end, dataset.tokenizer.unknown)

    def evaluate(self, model: Captioner, dataset: Captions, assets: Assets, steps: int | None = None) -> Scores:
        """Return the loss of the captions, and the scores of generated ones: greedily, and with a beam of 5.

        A picture with several captions is compared with each of them.
        """
        part = dataset.test
        forced = score_captions(model, part, dataset.begin, dataset.end, unknown=dataset.tokenizer.unknown)
        given = forced.figures | {"perplexity": forced.perplexity}
        rows: dict[str, Mapping[str, float]] = {"captions given": given}
        signatures: list[str] = []
        for width in (1, 5):
            found = caption(model, dataset.tokenizer, part.pictures, patient(width, steps or LONGEST))
            lines = [found[int(number)][0].text for number in part.pairs.sources.flat]
            rows["greedy" if width == 1 else f"beam {width}"], signatures = agreement(lines, part.pairs.target_lines)
        return Scores(MEASURES, rows, {"pairs": len(part), "signatures": signatures})

    def predict(
        self, model: Captioner, assets: Assets, inputs: str, beam: int = 5, nbest: int = 1
    ) -> Iterator[Prediction]:
        """Return captions of a picture, of the pictures in a folder or of those in an array file."""
        pictures = open_pictures(inputs, model.config.size, "as those that the run was trained on")
        found = caption(model, assets["target_tokenizer"], pictures.pixels, patient(beam, LONGEST, nbest))
        return (answered(name, best) for name, best in zip(pictures.names, found, strict=True))

    def baselines(self, dataset: Captions) -> list[Baseline]:
        """Return the loss of the unigram model of captions."""
        flat = dataset.train.pairs.targets.flat, dataset.test.pairs.targets.flat
        tokenizer = dataset.tokenizer
        return [Baseline("unigram", unigram_loss(*flat, tokenizer.model_size, tokenizer.unknown))]

    def sample(self, model: Captioner, dataset: Captions) -> tuple[str, str]:
        """Return the name of the first picture of the validation part, and its caption."""
        picture = dataset.valid.pictures_of([0])
        found = caption(model, dataset.tokenizer, picture, patient(1, SAMPLE))
        return dataset.valid.pairs.source_line(0), " → " + found[0][0].text

    def about(self, dataset: Captions, model: Captioner) -> About:
        """Return the contents of the model card."""
        return About(
            noun={"en": "An image captioner", "zh": "图像描述模型"},
            symbols=dataset.tokenizer.kind,
            vocabulary=dataset.tokenizer.vocab_size,
            parts=(len(dataset.train), len(dataset.valid), len(dataset.test)),
            unit={"en": "captions", "zh": "条描述"},
            memory={READ: _bytes(model, dataset)},
            use="predict",
        )


@torch.no_grad()
def _bytes(model: Captioner, dataset: Captions) -> int:
    """Return the bytes of one row's memory after a picture and a caption."""
    memory = remember(model, dataset.valid.pictures_of([0]))
    was_training = model.training
    ids = torch.zeros(1, READ, dtype=torch.long, device=next(model.parameters()).device)
    after: int = model.eval()(ids, memory)[1].nbytes
    model.train(was_training)
    return after
