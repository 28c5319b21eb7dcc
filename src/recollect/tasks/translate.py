"""Translation, summaries, any sequence into another: a source is remembered, and the target predicted from it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from recollect.data.pairs.pair_batches import PairBatches
from recollect.data.pairs.pairs import Pairs, load_pairs, reopen_pairs
from recollect.data.text.line_tokenizer import LineTokenizer
from recollect.evaluation.likelihood import score_targets
from recollect.generation.settings import Search
from recollect.generation.translation import Tongues, translate
from recollect.models.translation import TranslationConfig, Translator
from recollect.runs.config import Recipe
from recollect.tasks.task import About, Say
from recollect.training.state import Batches

SAMPLE = 60  # symbols that a sample has at most
READ = 20  # symbols of a source, and of a target, after which the memory is measured


NOUNS = {
    "translate": {"en": "A translator", "zh": "翻译模型"},
    "summarise": {"en": "A model of summaries", "zh": "摘要模型"},
}


class TranslateTask:
    """Predict a target from its source, which a summary is to its text as a translation is to a sentence."""

    def __init__(self, name: str = "translate") -> None:
        self.name = name

    def open(self, recipe: Recipe) -> Pairs:
        """Read the pairs."""
        given: dict[str, Any] = {name: getattr(recipe, name) for name in ("tokenizer", "field", "valid", "test")}
        given |= {name: getattr(recipe, name) for name in ("joint", "vocab_size", "lowercase", "limit")}
        return load_pairs(recipe.data, **given)

    def reopen(self, name: str) -> Pairs | None:
        """Give the pairs from the cache."""
        return reopen_pairs(name)

    def config(self, recipe: Recipe, data: Pairs) -> TranslationConfig:
        """Give a family's model at a size; two ids stand behind the tokenizers' own."""
        return recipe.translator(data.source_tokenizer.model_size, data.target_tokenizer.model_size)

    def tokenizers(self, data: Pairs) -> dict[str, LineTokenizer]:
        """There are two, which may be one."""
        return {"source_tokenizer": data.source_tokenizer, "target_tokenizer": data.target_tokenizer}

    def batches(self, recipe: Recipe, data: Pairs, model: Translator) -> Batches:
        """Give pairs of like length, as many as `batch_size` · `steps` symbols hold."""
        tokens = recipe.batch_size * recipe.steps
        return PairBatches(data.train, begin=data.begin, end=data.end, tokens=tokens, seed=recipe.seed)

    def validate(self, recipe: Recipe, data: Pairs) -> Callable[[Any], float]:
        """Give the loss of the validation pairs' targets, each given its source."""
        return partial(_loss, data=data)

    def sampler(self, data: Pairs) -> Say:
        """Translate the first source of the validation part."""
        source = data.valid.source_text[0].tobytes().decode()
        tongues = Tongues(data.source_tokenizer, data.target_tokenizer)
        search = Search(width=1, tokens=SAMPLE)
        return lambda model: (source, " → " + translate(model, tongues, [source], search)[0][0].text)

    def about(self, data: Pairs, model: Translator) -> About:
        """Give what the card says."""
        return About(
            noun=NOUNS[self.name],
            symbols=data.target_tokenizer.kind,
            vocabulary=data.target_tokenizer.vocab_size,
            parts=(len(data.train), len(data.valid), len(data.test)),
            unit={"en": "pairs", "zh": "对"},
            memory=_bytes(model),
            read=READ,
            use="predict",
        )


def _loss(model: Translator, data: Pairs) -> float:
    return score_targets(model, data.valid, data.begin, data.end).loss


@torch.no_grad()
def _bytes(model: Translator) -> int:
    """Give the bytes that one row remembers after a source and a target."""
    place = next(model.parameters()).device
    ids, was_training = torch.zeros(1, READ, dtype=torch.long, device=place), model.training
    memory = model.eval()(ids, model.remember(ids))[1]
    model.train(was_training)
    return memory.nbytes
