"""Masked language modelling: hidden symbols of a text are predicted from both sides (BERT, Devlin et al. 2019)."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from recollect.core.settings import CheckedSettings, SettingError, setting
from recollect.core.task import About, Answer, Assets, Baseline, Batches, ItemScores, Prediction, Scores
from recollect.core.threads import pace
from recollect.core.types import JsonMapping, JsonObject
from recollect.data.error import DataError
from recollect.data.text.corpus import Corpus, load_corpus, read_corpus, reopen_corpus
from recollect.data.text.framed import MASK, FramedTokenizer
from recollect.data.text.input_lines import lines_of
from recollect.data.text.line_tokenizer import is_mostly_han
from recollect.data.text.masked_batches import MaskedWindows, Masking, masked_rows
from recollect.data.text.vocabulary import SIZES
from recollect.evaluation.masked_likelihood import MEASURES, MaskedFigures, fill, fill_by_counts
from recollect.generation.embedding import SentencePooling, at_once, embed_rows
from recollect.models.masked import FAMILIES, MaskedConfig, MaskedModel, masked_settings
from recollect.models.sizes import sized_masked
from recollect.tasks.labelled_task import device_of, evaluating
from recollect.training.masked_objective import MaskedSymbols

READ = 128  # symbols after which the memory is measured
SHOWN = 3  # answers that a prediction has unless asked for more
SAMPLE = 16  # symbols of a sample


@dataclass(frozen=True)
class MaskedOptions(CheckedSettings):
    """Settings of a masked run."""

    tokenizer: str | None = setting(
        None, choices=("char", "byte", "word", "space", "bpe"), help="how text is split; by default bpe, for Han char"
    )
    vocab_size: int | None = setting(None, least=16, help="of words and byte pairs; by default fitted to text and size")
    vocab_for: str = setting("tiny", choices=SIZES, help="the size that the vocabulary is fitted to; by default --size")
    field: str | None = setting(None, help="the field of .jsonl, .csv and .tsv that holds the text")
    valid: str | None = setting(None, help="another text to validate on; by default a part of DATA")
    test: str | None = setting(None, help="another text to test on; by default a part of DATA")
    batch_size: int = setting(32, least=1, help="rows in a batch")
    steps: int = setting(128, least=8, help="symbols in a row, with [CLS] and [SEP]")
    share: float = setting(0.15, above=0.0, below=1.0, help="share of the symbols that are predicted")
    next_sentence: bool = setting(False, help="also predict whether a second text follows the first")


class MaskedTask:
    """Predict hidden symbols of a text."""

    name: ClassVar[str] = "masked"
    Options: ClassVar[type] = MaskedOptions
    families: ClassVar[tuple[str, ...]] = FAMILIES
    Config: ClassVar[type] = MaskedConfig
    default_model: ClassVar[str] = "bert"
    takes_layers: ClassVar[bool] = False
    shows_names: ClassVar[bool] = True
    takes_several: ClassVar[bool] = True
    loss = MaskedSymbols()

    def __init__(self, options: MaskedOptions | None = None) -> None:
        self.options = options or MaskedOptions()

    def open(self, source: str) -> Corpus:
        """Read the text."""
        names = ("tokenizer", "vocab_size", "vocab_for", "field", "valid", "test")
        return load_corpus(source, choose=pairs_or_characters, **{name: getattr(self.options, name) for name in names})

    def reopen(self, name: str) -> Corpus | None:
        """Return the text from the cache."""
        return reopen_corpus(name)

    def read(self, source: str, assets: Assets) -> Corpus:
        """Read another text with the run's tokenizer, as a test part."""
        return read_corpus(source, assets["tokenizer"].base, self.options.field)

    settings = staticmethod(masked_settings)
    inherits: ClassVar[tuple[str, ...]] = ("dropout",)

    def open_with(self, source: str, tokenizer: FramedTokenizer) -> Corpus:
        """Read the text with a trained model's tokenizer."""
        own = self.options
        return load_corpus(source, field=own.field, valid=own.valid, test=own.test, given_tokenizer=tokenizer.base)

    def tokenizer_for(self, model: Any, tokenizer: Any) -> FramedTokenizer:
        """Return a trained model's tokenizer; raise a ValueError for a model that has not learned to fill masks."""
        if not isinstance(model, MaskedModel):
            raise ValueError("it reads from left to right and has learned no [MASK]; try --task language")
        return tokenizer if isinstance(tokenizer, FramedTokenizer) else FramedTokenizer(tokenizer)

    def config_from(self, model: MaskedModel, family: str, dataset: Corpus, settings: JsonMapping) -> MaskedConfig:
        """Return the config of a trained model, whose training is continued."""
        longest = model.config.max_length
        steps = self.options.steps
        if model.config.family == "bert" and steps > longest:
            raise SettingError(f"steps: got {steps}, expected at most {longest}, the positions of the model")
        own = {"next_sentence": True, "pooled": True} if self.options.next_sentence else {}
        return replace(model.config, **{"masked": True, **settings, **own})  # sentence encoders have no such head

    @staticmethod
    def usual(family: str, size: str) -> JsonMapping:
        """Return the settings whose default depends on family or size: post-norm blocks need a lower rate, slowly."""
        rates = {"rate": 1e-3, "warmup": 0.1} if family == "bert" else {}
        return {"vocab_for": size, **rates}

    def config(self, family: str, size: str, dataset: Corpus, settings: JsonMapping) -> MaskedConfig:
        """Return a family's config at a size; learned positions are as many as a row has symbols."""
        steps = self.options.steps
        longest = settings.get("max_length", steps)
        if longest < steps:
            raise SettingError(f"max_length: got {longest}, expected at least {steps}, the symbols of a row (steps)")
        own = {"next_sentence": True, "pooled": True} if self.options.next_sentence else {}
        size_of = framed(dataset).vocab_size
        return sized_masked(family, size_of, size, **{**settings, "max_length": longest, **own})

    def build(self, config: JsonMapping) -> MaskedModel:
        """Return a model with new weights."""
        return MaskedModel(MaskedConfig(**config))

    def assets(self, dataset: Corpus) -> Assets:
        """Return the tokenizer, with its marks."""
        return {"tokenizer": framed(dataset)}

    def load_assets(self, folder: Path) -> Assets:
        """Read the tokenizer back."""
        return {"tokenizer": FramedTokenizer.load(folder / "tokenizer.json")}

    def masking(self, dataset: Corpus) -> Masking:
        """Return how rows are made of the text."""
        own = self.options
        return Masking(framed(dataset), own.steps, own.share, own.next_sentence)

    def batches(self, dataset: Corpus, model: MaskedModel, seed: int) -> Batches:
        """Return random rows, with other symbols hidden every time."""
        masking = self.masking(dataset)
        return MaskedWindows(dataset.train, dataset.ends["train"], masking, self.options.batch_size, seed)

    def fit(self, model: MaskedModel, dataset: Corpus, limit: int | None = None) -> int:
        """Raise NotImplementedError: no masked model counts."""
        raise NotImplementedError

    def measure(self, model: MaskedModel, dataset: Corpus, split: str, limit: int | None = None) -> Scores:
        """Return the figures of a part, of which the same symbols are hidden each time."""
        return _scores({"masked": self._filled(model, dataset, split, limit).figures})

    def item_scores(self, model: MaskedModel, dataset: Corpus, split: str) -> ItemScores:
        """Return the loss of `measure` by rows."""
        found = self._filled(model, dataset, split, None)
        return ItemScores(found.nats, [float(count) for count in found.counts])

    def evaluate(self, model: MaskedModel, dataset: Corpus, assets: Assets, steps: int | None = None) -> Scores:
        """Return every figure of the test part, beside those of models without context where they can be counted."""
        if len(dataset.test) < 2:
            raise DataError(f"{dataset.name}: got {len(dataset.test)} symbols, expected at least 2; give more text")
        task = self if steps is None else MaskedTask(replace(self.options, steps=max(steps, 8)))
        rows = {"masked": task._filled(model, dataset, "test", None).figures}
        if len(dataset.train):
            rows |= task._naive(dataset)
        return _scores(rows, {"symbols": len(dataset.test), "unknown": dataset.unknown.get("test", 0)})

    def _filled(self, model: MaskedModel, dataset: Corpus, split: str, limit: int | None) -> MaskedFigures:
        ids, ends = getattr(dataset, split), dataset.ends[split]
        batches = masked_rows(ids, ends, self.masking(dataset), self.options.batch_size, limit)
        found = fill(model, batches, device_of(model), dataset.unknown_id(split))
        if not sum(found.counts):
            raise DataError(
                f"{dataset.name}: of {found.unknown} hidden symbols in the {split} part none is in the vocabulary; "
                "give more text, or another --tokenizer"
            )
        return found

    def _naive(self, dataset: Corpus) -> dict[str, dict[str, float]]:
        masking = self.masking(dataset)
        counts = np.bincount(np.asarray(dataset.train, dtype=np.int64), minlength=dataset.tokenizer.vocab_size)
        rows = masked_rows(dataset.test, dataset.ends["test"], masking, self.options.batch_size)
        return fill_by_counts(counts, rows, has_pairs=masking.is_pair, unknown=dataset.unknown_id("test"))

    def baselines(self, dataset: Corpus) -> list[Baseline]:
        """Return the losses of the uniform and of the unigram model on the same hidden symbols."""
        found = self._naive(dataset)
        return [Baseline(name, found[name]["loss"]) for name in ("uniform", "unigram")]

    def predict(
        self, model: MaskedModel, assets: Assets, inputs: str | Sequence[str], nbest: int | None = None
    ) -> Iterator[Prediction]:
        """Fill each [MASK] of a text, of the lines of a file or of standard input (`-`), or of a list of texts."""
        lines = lines_of(inputs, self.options.field) if isinstance(inputs, str) else list(inputs)
        tokenizer: FramedTokenizer = assets["tokenizer"]
        for number, line in enumerate(lines, 1):
            if MASK not in line:
                raise DataError(
                    f"input {number}: got {line[:60]!r}, expected a text with {MASK} where a symbol is hidden"
                )
            ids = torch.from_numpy(tokenizer.encode(line))
            _check_length(model, len(ids), f"input {number}")
            pace()
            yield Prediction(line, filled(model, tokenizer, ids, nbest or SHOWN))

    def embed(self, model: MaskedModel, assets: Assets, texts: Sequence[str]) -> Tensor:
        """Return one vector for each text: the mean of its symbols' features, normalised."""
        longest = model.config.max_length if model.config.family == "bert" else None
        rows = [assets["tokenizer"].encode(text)[:longest] for text in texts]
        return embed_rows(at_once(model.encode), rows, SentencePooling(), device=device_of(model))

    def sample(self, model: MaskedModel, dataset: Corpus) -> tuple[str, str]:
        """Return the beginning of the validation text with its middle symbol hidden, and what the model fills in."""
        tokenizer = framed(dataset)
        most = min(SAMPLE, self.options.steps - 2, int(dataset.ends["valid"][0]))
        ids = np.asarray(dataset.valid[:most], dtype=np.int64)
        ids[len(ids) // 2] = tokenizer.mask
        text = " ".join(tokenizer.decode(ids).split())
        row = torch.from_numpy(np.concatenate([[tokenizer.begin], ids, [tokenizer.end]]))
        best = filled(model, tokenizer, row, 1)[0]
        return text, f" → {' '.join(best.text.split())} {best.score:.2f}"

    def about(self, dataset: Corpus, model: MaskedModel) -> About:
        """Return the contents of the model card."""
        steps = min(READ, self.options.steps)
        return About(
            noun={"en": "A masked language model", "zh": "掩码语言模型"},
            symbols=dataset.tokenizer.kind,
            vocabulary=framed(dataset).vocab_size,
            parts=(len(dataset.train), len(dataset.valid), len(dataset.test)),
            unit={"en": "symbols", "zh": "个符号"},
            memory={steps: _bytes(model, steps)},
            use="predict",
        )


def framed(dataset: Corpus) -> FramedTokenizer:
    """Return the text's tokenizer, with the marks."""
    return FramedTokenizer(dataset.tokenizer)


def pairs_or_characters(sample: str, size: int) -> str:
    """Return how a text is divided by default: into byte pairs, where it is mostly Han into characters."""
    return "char" if is_mostly_han(sample) else "bpe"


def filled(model: MaskedModel, tokenizer: FramedTokenizer, ids: Tensor, nbest: int) -> list[Answer]:
    """Return the most probable fillings of a text's masks, each filled on its own: p is the product of theirs."""
    device = device_of(model)
    logits: Tensor = evaluating(model, lambda: model(ids[None].to(device))[0])[0].double().cpu()  # (T, V)
    places = (ids == tokenizer.mask).nonzero().flatten().tolist()
    logits[:, tokenizer.unseen] = -torch.inf
    logs, symbols = logits[places].log_softmax(-1).topk(min(nbest, logits.shape[1] - len(tokenizer.unseen)), dim=-1)
    best: list[tuple[float, tuple[int, ...]]] = [(0.0, ())]
    for some_logs, some in zip(logs.tolist(), symbols.tolist(), strict=True):
        longer = ((log + more, (*ids, i)) for log, ids in best for more, i in zip(some_logs, some, strict=True))
        best = heapq.nlargest(nbest, longer)
    answers = []
    for log, found in best:
        row = ids.clone()
        row[places] = torch.tensor(found)
        answers.append(Answer(tokenizer.decode(row.tolist()).strip(), float(np.exp(log)), log))
    return answers


def _check_length(model: MaskedModel, length: int, where: str) -> None:
    longest = model.config.max_length
    if model.config.family == "bert" and length > longest:
        raise DataError(f"{where}: got {length} symbols, expected at most {longest}, which the model has positions for")


def _scores(rows: dict[str, dict[str, float]], details: JsonObject | None = None) -> Scores:
    names = rows["masked"]
    return Scores({name: MEASURES[name] for name in names}, rows, details or {})


@torch.no_grad()
def _bytes(model: MaskedModel, steps: int) -> int:
    after: int = model(torch.zeros(1, steps, dtype=torch.long, device=device_of(model)))[1].nbytes
    return after
