"""Language models: a text is read, and what comes next is predicted."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from numpy.typing import NDArray

from recollect.data.text.batches import Streams, Windows
from recollect.data.text.corpus import Corpus, load_corpus, reopen_corpus
from recollect.data.text.tokenizer import Tokenizer
from recollect.generation.continuation import generate_text
from recollect.generation.settings import Settings
from recollect.models.language import LanguageConfig, LanguageModel
from recollect.runs.config import Recipe
from recollect.tasks.task import About, Say
from recollect.training.loop import validation_loss
from recollect.training.state import Batches

PROMPT = 8  # symbols of the validation text that a sample goes on from
SAMPLE = 60  # symbols that it adds
READ = 1000  # symbols after which the memory is measured


class LanguageTask:
    """Predict a text's next symbol."""

    def open(self, recipe: Recipe) -> Corpus:
        """Read the text."""
        given = {"valid": recipe.valid, "test": recipe.test}
        return load_corpus(recipe.data, tokenizer=recipe.tokenizer, field=recipe.field, **given)

    def reopen(self, name: str) -> Corpus | None:
        """Give the text from the cache."""
        return reopen_corpus(name)

    def config(self, recipe: Recipe, data: Corpus) -> LanguageConfig:
        """Give a family's model at a size."""
        return recipe.language_model(data.tokenizer.vocab_size)

    def tokenizers(self, data: Corpus) -> dict[str, Tokenizer]:
        """There is one."""
        return {"tokenizer": data.tokenizer}

    def batches(self, recipe: Recipe, data: Corpus, model: LanguageModel) -> Batches:
        """Give a carried stream, or windows where nothing is carried."""
        text: dict[str, Any] = {"ids": data.train, "ends": data.ends["train"], "seed": recipe.seed}
        text |= {"batch_size": recipe.batch_size, "steps": recipe.steps}
        return Streams(length=recipe.cuts().length, **text) if model.carries else Windows(**text)

    def validate(self, recipe: Recipe, data: Corpus) -> Callable[[Any], float]:
        """Give the loss on the validation part, read as it is trained."""
        return partial(validation_loss, ids=data.valid, steps=recipe.steps, ends=data.ends["valid"])

    def sampler(self, data: Corpus) -> Say:
        """Go on from the beginning of the validation text."""
        prompt = first_words(data.tokenizer, data.valid[: data.ends["valid"][0]])
        return lambda model: (prompt, say(model, data.tokenizer, prompt))

    def about(self, data: Corpus, model: LanguageModel) -> About:
        """Give what the card says."""
        read = min(READ, model.config.max_length or READ)  # a table of positions ends
        return About(
            noun={"en": "A language model", "zh": "语言模型"},
            symbols=data.tokenizer.kind,
            vocabulary=data.tokenizer.vocab_size,
            parts=(len(data.train), len(data.valid), len(data.test)),
            unit={"en": "symbols", "zh": "个符号"},
            memory=bytes_after(model, read),
            read=read,
            use="generate",
        )


def first_words(tokenizer: Tokenizer, ids: NDArray[Any]) -> str:
    """Give the beginning of a text, without a character that is cut in half."""
    decoding, some = tokenizer.stream(), [int(i) for i in ids[:PROMPT]]
    return "".join(decoding.step(i) or "" for i in some) or tokenizer.decode(some)


def say(model: LanguageModel, tokenizer: Tokenizer, prompt: str) -> str:
    """Go on from a prompt for a line; the draws come from a generator of their own, so that training is not moved."""
    table = model.config.max_length  # of learned positions
    room = SAMPLE if table is None else max(table - len(tokenizer.encode(prompt)), 0)
    settings = Settings(tokens=min(SAMPLE, room), temperature=0.8, prohibited=tokenizer.unseen)
    return generate_text(model, tokenizer, [prompt], settings)[0].text


def bytes_after(model: LanguageModel, steps: int) -> int:
    """Give the bytes that one row remembers after so many symbols.

    Where the bytes are constant the first thousand are really read. Where they grow all are, but by tensors that have
    shapes and no values: attention to all of 16,000 steps would take its time.
    """
    if model.growth == "constant":
        place = model._home()[1] or torch.device("cpu")
        ids, was_training = torch.zeros(1, min(steps, READ), dtype=torch.long, device=place), model.training
        with torch.no_grad():
            memory = model.eval()(ids)[1]
        model.train(was_training)
    else:
        with torch.no_grad(), torch.device("meta"):
            memory = LanguageModel(model.config).eval()(torch.zeros(1, steps, dtype=torch.long))[1]
    return memory.nbytes
