"""Captions: a picture is remembered, and words about it predicted."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from recollect.data.images.caption_batches import CaptionBatches
from recollect.data.images.captions import Captions, load_captions, reopen_captions
from recollect.data.text.line_tokenizer import LineTokenizer
from recollect.evaluation.likelihood import score_captions
from recollect.generation.captions import caption, patient, remember
from recollect.models.captioning import CaptionConfig, Captioner
from recollect.runs.config import Recipe
from recollect.tasks.task import About, Say
from recollect.training.state import Batches

SAMPLE = 60  # symbols that a sample has at most
READ = 20  # symbols of a caption after which the memory is measured


class CaptionTask:
    """Predict a caption from its picture."""

    def open(self, recipe: Recipe) -> Captions:
        """Read the pictures and captions."""
        names = ("tokenizer", "field", "valid", "test", "vocab_size", "lowercase")
        return load_captions(recipe.data, **{name: getattr(recipe, name) for name in names})

    def reopen(self, name: str) -> Captions | None:
        """Give them from the cache."""
        return reopen_captions(name)

    def config(self, recipe: Recipe, data: Captions) -> CaptionConfig:
        """Give a family's model at a size; two ids stand behind the tokenizer's own."""
        return recipe.captioner(data.tokenizer.model_size, data.size)

    def tokenizers(self, data: Captions) -> dict[str, LineTokenizer]:
        """There is one, of the captions."""
        return {"target_tokenizer": data.tokenizer}

    def batches(self, recipe: Recipe, data: Captions, model: Captioner) -> Batches:
        """Give captions of like length, `batch_size` of them with their pictures."""
        ids = {"begin": data.begin, "end": data.end, "seed": recipe.seed}
        return CaptionBatches(data.train, batch_size=recipe.batch_size, **ids)

    def validate(self, recipe: Recipe, data: Captions) -> Callable[[Any], float]:
        """Give the loss of the validation captions, each given its picture."""
        return partial(_loss, data=data)

    def sampler(self, data: Captions) -> Say:
        """Say what is on the first picture of the validation part."""
        name, picture = data.valid.pairs.source_line(0), data.valid.pictures_of([0])
        greedy = patient(1, SAMPLE)
        return lambda model: (name, " → " + caption(model, data.tokenizer, picture, greedy)[0][0].text)

    def about(self, data: Captions, model: Captioner) -> About:
        """Give what the card says."""
        return About(
            noun={"en": "A captioner", "zh": "看图说话模型"},
            symbols=data.tokenizer.kind,
            vocabulary=data.tokenizer.vocab_size,
            parts=(len(data.train), len(data.valid), len(data.test)),
            unit={"en": "captions", "zh": "条描述"},
            memory=_bytes(model, data),
            read=READ,
            use="predict",
        )


def _loss(model: Captioner, data: Captions) -> float:
    return score_captions(model, data.valid, data.begin, data.end).loss


@torch.no_grad()
def _bytes(model: Captioner, data: Captions) -> int:
    """Give the bytes that one row remembers after a picture and a caption."""
    memory, was_training = remember(model, data.valid.pictures_of([0])), model.training
    ids = torch.zeros(1, READ, dtype=torch.long, device=next(model.parameters()).device)
    after: int = model.eval()(ids, memory)[1].nbytes
    model.train(was_training)
    return after
