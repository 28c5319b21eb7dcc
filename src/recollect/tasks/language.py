"""Language modelling: the next symbol of a text is predicted."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any, ClassVar, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from recollect.core.errors import nearest
from recollect.core.meta import on_meta
from recollect.core.settings import CheckedSettings, SettingError, setting
from recollect.core.task import About, Assets, Baseline, Batches, ItemScores, Measure, Scores
from recollect.core.types import JsonMapping, JsonObject
from recollect.data.error import DataError
from recollect.data.text.batches import Streams, Windows, gather
from recollect.data.text.corpus import Corpus, CorpusTokenizer, load_corpus, read_corpus, reopen_corpus
from recollect.data.text.documents import Documents, Ends
from recollect.data.text.pretrained_tokenizer import PretrainedTokenizer
from recollect.data.text.tokenizer import Tokenizer
from recollect.data.text.tokenizer_files import load_tokenizer
from recollect.data.text.vocabulary import SIZES
from recollect.evaluation.baselines import unigram_loss
from recollect.evaluation.item_losses import text_items
from recollect.evaluation.likelihood import (
    NATS,
    UNKNOWN,
    Likelihood,
    loss_by_position,
    score_carried,
    score_windows,
    validation_scores,
)
from recollect.generation.beam import beam
from recollect.generation.continuation import StopStrings, generate_text, stream_text
from recollect.generation.embedding import SentencePooling, embed_rows, in_chunks
from recollect.generation.settings import Search, Settings
from recollect.layers.ngram.markov import Markov
from recollect.models.language import FAMILIES, LanguageConfig, LanguageModel, settings_of
from recollect.models.sizes import sized
from recollect.training.objective import NextSymbol
from recollect.training.truncation import Kind, Truncation

PROMPT = 8  # symbols of the validation text that a sample continues
SAMPLE = 60  # symbols of a sample
READ = (1_000, 16_000)  # numbers of symbols after which the memory is measured
CHUNK = 10_000_000  # symbols that are counted in one call
TRUNCATIONS = ("regular", "full", "random", "reweighted")
MEASURES = {
    "loss": NATS,
    "perplexity": Measure("perplexity", "exp(nats per symbol), over the known symbols"),
    "bpc": Measure("bits per character", "all nats / log 2 / characters of the known symbols predicted"),
    "bpb": Measure("bits per byte", "all nats / log 2 / bytes (UTF-8) of the known symbols predicted"),
    "unknown": UNKNOWN,
}


SAMPLED = tuple(field.name for field in fields(Settings) if field.name != "prohibited")  # which the run sets


@dataclass(frozen=True)
class LanguageOptions(CheckedSettings):
    """Settings of a language run."""

    tokenizer: str | None = setting(
        None, choices=("char", "byte", "word", "space", "bpe"), help="how text is split; by default chosen by the text"
    )
    vocab_size: int | None = setting(None, least=16, help="of words and byte pairs; by default fitted to text and size")
    vocab_for: str = setting("tiny", choices=SIZES, help="the size that the vocabulary is fitted to; by default --size")
    field: str | None = setting(None, help="the field of .jsonl, .csv and .tsv that holds the text")
    valid: str | None = setting(None, help="another text to validate on; by default a part of DATA")
    test: str | None = setting(None, help="another text to test on; by default a part of DATA")
    batch_size: int = setting(16, least=1, help="rows in a batch")
    steps: int = setting(128, least=1, help="symbols in a row of a batch; the mean where lengths are random")
    sampling: str | None = setting(
        None,
        choices=("streams", "windows"),
        help="streams carry the memory from batch to batch, windows start from the initial one; by default streams "
        "where it is bounded",
    )
    truncation: str = setting("regular", choices=TRUNCATIONS, help="where back-propagation through time is cut")
    every: int = setting(16, least=1, help="random, reweighted: symbols between possible cuts")
    smoothing: float = setting(0.0, least=0.0, below=1.0, help="label smoothing")


class LanguageTask:
    """Predict a text's next symbol."""

    name: ClassVar[str] = "language"
    Options: ClassVar[type] = LanguageOptions
    families: ClassVar[tuple[str, ...]] = FAMILIES
    Config: ClassVar[type] = LanguageConfig
    default_model: ClassVar[str] = "lstm"
    takes_layers: ClassVar[bool] = True
    shows_names: ClassVar[bool] = False
    takes_several: ClassVar[bool] = True
    reference_models: ClassVar[tuple[str, ...]] = ("markov",)

    def __init__(self, options: LanguageOptions | None = None) -> None:
        self.options = options or LanguageOptions()
        kind = cast(Kind, self.options.truncation)  # checked by the options
        self.truncation = Truncation(kind, self.options.steps, self.options.every)
        is_carried = self.options.sampling != "windows"
        self.loss = NextSymbol(self.options.smoothing, self.truncation, is_carried=is_carried)

    def open(self, source: str) -> Corpus:
        """Read the text."""
        names = ("tokenizer", "vocab_size", "vocab_for", "field", "valid", "test")
        return load_corpus(source, **{name: getattr(self.options, name) for name in names})

    inherits: ClassVar[tuple[str, ...]] = ("dropout",)

    def open_with(self, source: str, tokenizer: CorpusTokenizer) -> Corpus:
        """Read the text with a trained model's tokenizer."""
        own = self.options
        return load_corpus(source, field=own.field, valid=own.valid, test=own.test, given_tokenizer=tokenizer)

    def tokenizer_for(self, model: Any, tokenizer: Any) -> CorpusTokenizer:
        """Return a trained model's tokenizer; raise a ValueError for a model that sees both sides of a symbol."""
        if not isinstance(model, LanguageModel):
            raise ValueError("it sees both sides of a symbol and predicts none from the left; try --task masked")
        assert isinstance(tokenizer, Tokenizer | PretrainedTokenizer)
        return tokenizer

    def config_from(self, model: LanguageModel, family: str, dataset: Corpus, settings: JsonMapping) -> LanguageConfig:
        """Return the config of a trained model, whose training is continued."""
        self._check_positions(model.config.max_length)
        return self._sampled(replace(model.config, **settings))

    def reopen(self, name: str) -> Corpus | None:
        """Return the text from the cache."""
        return reopen_corpus(name)

    def read(self, source: str, assets: Assets) -> Corpus:
        """Read another text with the run's tokenizer, as a test part."""
        return read_corpus(source, assets["tokenizer"], self.options.field)

    settings = staticmethod(settings_of)

    @staticmethod
    def usual(family: str, size: str) -> JsonMapping:
        """Return the settings whose default depends on family or size: the vocabulary is fitted to the size."""
        return {"vocab_for": size}

    def config(self, family: str, size: str, dataset: Corpus, settings: JsonMapping) -> LanguageConfig:
        """Return a family's config at a size."""
        self._check_positions(settings.get("max_length"))
        return self._sampled(sized(family, dataset.tokenizer.vocab_size, size, **settings))

    def _sampled(self, config: LanguageConfig) -> LanguageConfig:
        """Return the config; raise a SettingError where its model cannot be trained on what `sampling` asks for."""
        own = self.options
        if own.sampling == "windows" and own.truncation != "regular":
            got = f"truncation: got {own.truncation}, but sampling=windows carries no memory whose gradient is cut"
            raise SettingError(f"{got}; leave one of them out")
        if own.sampling == "streams":
            with torch.device("meta"):  # takes no memory and draws nothing
                carries = LanguageModel(config).carries
            if not carries:
                got = f"sampling: got streams, but the memory of {config.family} grows with all that was read"
                raise SettingError(f"{got}; set a window, as window=64, or sampling=windows")
        return config

    def _carries(self, model: LanguageModel) -> bool:
        """Return whether training carries the memory from batch to batch."""
        return model.carries and self.options.sampling != "windows"

    def _check_positions(self, longest: int | None) -> None:
        """Raise a SettingError where a row is longer than a table of learned positions."""
        steps = self.options.steps
        if longest is not None and longest < steps:
            got = f"steps: got {steps}, expected at most {longest}, the positions that are learned (max_length)"
            raise SettingError(f"{got}; set steps={longest}, or more positions")

    def build(self, config: JsonMapping) -> LanguageModel:
        """Return a model with new weights."""
        return LanguageModel(LanguageConfig(**config))

    def assets(self, dataset: Corpus) -> Assets:
        """Return the tokenizer."""
        return {"tokenizer": dataset.tokenizer}

    def load_assets(self, folder: Path) -> Assets:
        """Read the tokenizer back."""
        return {"tokenizer": load_tokenizer(folder / "tokenizer.json")}

    def batches(self, dataset: Corpus, model: LanguageModel, seed: int) -> Batches:
        """Return streams, where the memory is carried from batch to batch, else windows."""
        ids = dataset.train
        ends = dataset.ends["train"]
        rows, steps = self.options.batch_size, self.options.steps
        if self._carries(model):
            return Streams(ids, rows, steps, ends=ends, seed=seed, length=self.truncation.length)
        return Windows(ids, rows, steps, ends=ends, seed=seed)

    def fit(self, model: LanguageModel, dataset: Corpus, limit: int | None = None) -> int:
        """Count n-grams, and return the number of symbols counted; each document is one row."""
        ids, ends = _beginning(dataset, "train", limit)
        count_symbols(model, ids, ends=ends)
        return len(ids)

    def measure(self, model: LanguageModel, dataset: Corpus, split: str, limit: int | None = None) -> Scores:
        """Return the loss over a part: with a carried memory where training carries it, else in separate windows."""
        ids, ends = _beginning(dataset, split, limit)
        unknown, carried = dataset.unknown_id(split), self._carries(model)
        return validation_scores(model, ids, self.options.steps, ends, unknown, carried=carried)

    def item_scores(self, model: LanguageModel, dataset: Corpus, split: str) -> ItemScores:
        """Return the loss of `measure` by blocks of the text, and by position in a window."""
        ids, ends = _beginning(dataset, split, None)
        unknown, carried = dataset.unknown_id(split), self._carries(model)
        return text_items(model, ids, self.options.steps, ends, unknown, carried=carried)

    def evaluate(self, model: LanguageModel, dataset: Corpus, assets: Assets, steps: int | None = None) -> Scores:
        """Return every score of the test part, with a carried memory and in cold windows, and the loss by position.

        What training does comes first: it decides.
        """
        ids = np.asarray(dataset.test)
        ends = dataset.ends["test"]
        if len(ids) == len(ends):
            raise DataError(f"{dataset.name}: got {len(ids)} symbols, expected at least 2 to predict one")
        steps = steps or self.options.steps
        unknown = dataset.unknown_id("test")
        predicted = np.delete(ids, [0, *ends[:-1]])  # not the documents' first symbols
        known = predicted if unknown is None else predicted[predicted != unknown]
        if not len(known):
            raise DataError(f"{dataset.name}: none of the {len(ids)} symbols is known to the run; give another text")
        text = assets["tokenizer"].decode(known)
        variants = {"carried": score_carried, "cold windows": score_windows}
        if not self._carries(model):
            variants = {name: variants[name] for name in reversed(variants) if model.carries or name != "carried"}
        rows = {
            name: _scores(score(model, ids, steps, ends=ends, unknown=unknown), text)
            for name, score in variants.items()
        }
        details: JsonObject = {"symbols": len(ids), "unknown": dataset.unknown.get("test", 0), "steps": steps}
        details["by_position"] = loss_by_position(model, ids, steps, ends=ends, unknown=unknown)
        return Scores(MEASURES, rows, details)

    def generate(
        self, model: LanguageModel, assets: Assets, prompt: str, stop: Sequence[str] = (), **settings: Any
    ) -> Iterator[str]:
        """Return an iterator over chunks of the text that follows a prompt; arguments are checked at once.

        With `beam`, the likeliest text that a search of this width finds comes as one chunk.
        """
        tokenizer: Tokenizer = assets["tokenizer"]
        ids = tokenizer.encode(prompt, strict=True)  # refuses unknown symbols
        if not len(ids):
            raise DataError("got no text, expected one to continue")
        width = settings.pop("beam", None)
        for name in settings:
            if name not in SAMPLED:
                raise SettingError(f"{name}: generate has no such setting{nearest(name, [*SAMPLED, 'beam'])}")
        how = Settings(prohibited=tokenizer.unseen, **settings)
        if width is not None:
            best = beam(model, [ids], Search(width=width, tokens=how.tokens, prohibited=how.prohibited))[0][0]
            decoder, ending = tokenizer.stream(prompt), StopStrings(stop)
            text = ending.step("".join(decoder.step(i) or "" for i in best.ids)) + ending.rest()
            return iter([text])
        return (chunks[0] for chunks in stream_text(model, tokenizer, [prompt], how, stop=stop))

    def embed(self, model: LanguageModel, assets: Assets, texts: Sequence[str]) -> Tensor:
        """Return one vector for each text: the mean of its symbols' features, normalised."""
        rows = [assets["tokenizer"].encode(text) for text in texts]
        device = model._home()[1] or torch.device("cpu")
        return embed_rows(in_chunks(model), rows, SentencePooling(), device=device)

    def baselines(self, dataset: Corpus) -> list[Baseline]:
        """Return the losses of the uniform and of the unigram model."""
        size = dataset.tokenizer.vocab_size
        unknown = dataset.unknown_id("test")
        return [
            Baseline("uniform", math.log(size)),
            Baseline("unigram", unigram_loss(dataset.train, dataset.test, size, unknown)),
        ]

    def sample(self, model: LanguageModel, dataset: Corpus) -> tuple[str, str]:
        """Return the beginning of the validation text, and the model's continuation."""
        tokenizer = dataset.tokenizer
        prompt = first_words(tokenizer, dataset.valid[: dataset.ends["valid"][0]])
        table = model.config.max_length  # of learned positions
        left = SAMPLE if table is None else max(table - len(tokenizer.encode(prompt)), 0)
        # Sampling has its own random generator, so that training does not depend on it.
        settings = Settings(tokens=min(SAMPLE, left), temperature=0.8, prohibited=tokenizer.unseen)
        return prompt, generate_text(model, tokenizer, [prompt], settings)[0].text

    def about(self, dataset: Corpus, model: LanguageModel) -> About:
        """Return the contents of the model card."""
        reads = (min(read, model.config.max_length or read) for read in READ)  # a table of positions has an end
        return About(
            noun={"en": "A language model", "zh": "语言模型"},
            symbols=dataset.tokenizer.kind,
            vocabulary=dataset.tokenizer.vocab_size,
            parts=(len(dataset.train), len(dataset.valid), len(dataset.test)),
            unit={"en": "symbols", "zh": "个符号"},
            memory={read: bytes_after(model, read) for read in reads},
            use="generate",
        )


def count_symbols(model: LanguageModel, ids: NDArray[Any], chunk: int = CHUNK, ends: Ends = None) -> None:
    """Fit a Markov model: each document is one row, counted once."""
    markov = model.body
    assert isinstance(markov, Markov)
    for places, lengths in Documents(ids, ends).by_length(rows=chunk, cells=chunk):
        for done in range(0, int(lengths[0]), chunk):
            x, _, valid = gather(ids, places + done, np.minimum(lengths - done, chunk))
            markov.count(x, valid)


def first_words(tokenizer: CorpusTokenizer, ids: NDArray[Any]) -> str:
    """Return the beginning of a text, without an incomplete character at its end."""
    decoding = tokenizer.stream()
    some = [int(i) for i in ids[:PROMPT]]
    return "".join(decoding.step(i) or "" for i in some) or tokenizer.decode(some)


def bytes_after(model: LanguageModel, steps: int) -> int:
    """Return the bytes of one row's memory after so many symbols.

    Where they are constant, the first thousand symbols are read. Where they grow, all are, on the meta device, since
    attention to all of 16,000 steps would take long.
    """
    if model.growth == "constant":
        device = model._home()[1] or torch.device("cpu")
        ids = torch.zeros(1, min(steps, READ[0]), dtype=torch.long, device=device)
        was_training = model.training
        with torch.no_grad():
            memory = model.eval()(ids)[1]
        model.train(was_training)
    else:
        with torch.no_grad(), on_meta():
            twin = LanguageModel(LanguageConfig(**asdict(model.config))).eval()
            memory = twin(torch.zeros(1, steps, dtype=torch.long))[1]
    return memory.nbytes


def _scores(score: Likelihood, text: str) -> dict[str, float]:
    return {
        "loss": score.loss,
        "perplexity": score.perplexity if score.loss < 700 else math.inf,
        "bpc": score.bits_per(len(text)),
        "bpb": score.bits_per(len(text.encode())),
        "unknown": score.figures["unknown"],
    }


def _beginning(dataset: Corpus, split: str, limit: int | None) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """Return the first `limit` symbols of a part (None: all), and the ends of the documents in them."""
    ids: NDArray[Any] = getattr(dataset, split)
    ends = dataset.ends[split]
    size = len(ids) if limit is None else min(limit, len(ids))
    return ids[:size], np.append(ends[ends < size], size)
