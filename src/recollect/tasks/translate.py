"""Sequence to sequence, such as translation and summaries: a target is predicted from the memory of its source."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch

from recollect.core.settings import CheckedSettings, refuse_unused, setting
from recollect.core.task import About, Answer, Assets, Baseline, Batches, ItemScores, Measure, Prediction, Scores
from recollect.core.types import JsonMapping, JsonObject
from recollect.data.audio.frame_coder import FrameCoder, Frames
from recollect.data.audio.recordings import SpokenPairs, load_spoken_pairs, pair_part
from recollect.data.audio.wav_files import find_recordings, is_audio, read_recordings
from recollect.data.error import DataError
from recollect.data.labels.subword_coder import SubwordCoder
from recollect.data.pairs.pair_batches import PairBatches
from recollect.data.pairs.pair_rows import PairPart
from recollect.data.pairs.pairs import Pairs, load_pairs, load_source_coder, read_part, reopen_pairs
from recollect.data.text.input_lines import lines_of
from recollect.data.text.line_tokenizer import LineTokenizer
from recollect.data.text.tokenizer import Ids
from recollect.data.text.vocabulary import SIZES
from recollect.evaluation.baselines import unigram_loss
from recollect.evaluation.item_losses import target_items
from recollect.evaluation.likelihood import NATS, UNKNOWN, score_targets, scores_of
from recollect.evaluation.text_metrics import bleu, chrf, exact_match, rouge_l, symbol_accuracy
from recollect.generation.settings import Search
from recollect.generation.translation import (
    TokenizerPair,
    Translation,
    attention_map,
    translate,
    translate_encoded,
)
from recollect.models.inherited import Trained, longest_of
from recollect.models.sizes import sized_translator
from recollect.models.translation import (
    FAMILIES,
    INHERITED,
    TranslationConfig,
    Translator,
    heirs_of,
    inherited_config,
    settings_of,
)
from recollect.training.objective import NextSymbol

SAMPLE = 60  # symbols of a sample, at most
READ = 20  # symbols of a source, and of a target, after which the memory is measured
LONGEST = 200  # symbols of a target, at most
USUAL: dict[str, JsonMapping] = {
    "luong": {"input_feeding": False},
    "transformer": {"norm": "pre", "rate": 2e-3, "warmup": 0.1},
}
MEASURES = {
    "loss": NATS,
    "perplexity": Measure("perplexity", "exp(nats per symbol), targets given"),
    "bleu": Measure("BLEU", "sacrebleu's corpus BLEU", lower_is_better=False),
    "bleu_lowercase": Measure("BLEU, lower case", "sacrebleu's corpus BLEU, lower case", lower_is_better=False),
    "chrf": Measure("chrF", "sacrebleu's chrF2", lower_is_better=False),
    "rouge_l": Measure("ROUGE-L", "F1 of the longest common subsequence, mean over pairs", lower_is_better=False),
    "exact": Measure("exact", "share of outputs that equal their reference", lower_is_better=False),
    "symbols": Measure("symbol accuracy", "1 − edits / symbols of the references", lower_is_better=False),
    "unknown": UNKNOWN,
}


@dataclass(frozen=True)
class PairOptions(CheckedSettings):
    """Settings of a run on pairs."""

    tokenizer: str | None = setting(
        None, choices=("char", "byte", "word", "space", "bpe"), help="how text is split; by default chosen by the text"
    )
    field: str | None = setting(None, help="the two fields of .jsonl, .csv and .tsv, as in en,fr")
    valid: str | None = setting(None, help="other pairs to validate on; by default a part of DATA")
    test: str | None = setting(None, help="other pairs to test on; by default a part of DATA")
    batch_size: int = setting(16, least=1, help="with steps: a batch holds batch_size · steps symbols")
    steps: int = setting(128, least=1, help="with batch_size: a batch holds batch_size · steps symbols")
    joint: bool | None = setting(None, help="one vocabulary for both sides; by default where they share a script")
    vocab_size: int | None = setting(None, least=16, help="of words and byte pairs; by default fitted to text and size")
    vocab_for: str = setting("tiny", choices=SIZES, help="the size that the vocabulary is fitted to; by default --size")
    lowercase: bool = setting(False, help="train on lower case")
    limit: int | None = setting(None, least=1, help="leave out pairs with more symbols than this on a side")
    smoothing: float = setting(0.0, least=0.0, below=1.0, help="label smoothing")
    bands: int = setting(40, least=2, help="of the log-mel frames of recordings")
    stack: int = setting(2, least=1, help="frames of recordings in one vector")


class TranslateTask:
    """Predict a target from its source."""

    name: ClassVar[str] = "translate"
    Options: ClassVar[type] = PairOptions
    families: ClassVar[tuple[str, ...]] = FAMILIES
    Config: ClassVar[type] = TranslationConfig
    default_model: ClassVar[str] = "luong"
    takes_layers: ClassVar[bool] = False
    shows_names: ClassVar[bool] = False
    takes_several: ClassVar[bool] = True
    noun: ClassVar[Mapping[str, str]] = {"en": "A translator", "zh": "翻译模型"}

    def __init__(self, options: PairOptions | None = None) -> None:
        self.options = options or PairOptions()
        self.loss = NextSymbol(self.options.smoothing)

    def open(self, source: str) -> Pairs:
        """Read the pairs."""
        own = self.options
        if is_audio(source):
            unused = ("field", "vocab_size", "lowercase", "limit")
            refuse_unused(own, unused, f"{source} holds recordings, which have none")
            return load_spoken_pairs(source, own.valid, own.test, own.bands, own.stack, own.tokenizer)
        names = ("tokenizer", "field", "valid", "test", "joint", "vocab_size", "vocab_for", "lowercase", "limit")
        return load_pairs(source, **{name: getattr(self.options, name) for name in names})

    inherits: ClassVar[tuple[str, ...]] = INHERITED
    settled: ClassVar[tuple[str, ...]] = ("joint",)  # the targets have a tokenizer of their own
    heirs = staticmethod(heirs_of)

    def open_with(self, source: str, tokenizer: SubwordCoder) -> Pairs:
        """Read the pairs, the sources with a trained model's tokenizer."""
        if is_audio(source):
            raise DataError(f"{source}: recordings, but the trained model reads text; train a model of recordings anew")
        own = self.options
        names = ("tokenizer", "field", "valid", "test", "vocab_size", "vocab_for", "lowercase", "limit")
        return load_pairs(source, given_source=tokenizer, **{name: getattr(own, name) for name in names})

    def tokenizer_for(self, model: Trained, tokenizer: Any) -> SubwordCoder:
        """Return a trained model's tokenizer for sources; raise a ValueError for a model that is no encoder."""
        if not heirs_of(model):
            raise ValueError(
                f"no translator has the cells of {model.config.family}: the encoder's last state begins the decoder, "
                "whose cells are of the same kind; expected a parent of lstm, gru, bilstm, bigru, transformer or bert; "
                "train one with: recollect train TEXT -m gru"
            )
        return SubwordCoder(tokenizer, longest_of(model))

    def config_from(self, model: Trained, family: str, dataset: Pairs, settings: JsonMapping) -> TranslationConfig:
        """Return the config of a translator whose encoder is a trained model's body."""
        return inherited_config(model, family, dataset.target_tokenizer.model_size, settings)

    def reopen(self, name: str) -> Pairs | None:
        """Return the pairs from the cache."""
        return reopen_pairs(name)

    def read(self, source: str, assets: Assets) -> Pairs:
        """Read other pairs with the run's tokenizers, as a test part."""
        sides = assets["source_tokenizer"], assets["target_tokenizer"]
        if isinstance(sides[0], FrameCoder):
            part = pair_part(read_recordings(source), *sides)
            return SpokenPairs(*sides, part, part, part, source)
        part = read_part(source, *sides, self.options.field)
        return Pairs(*sides, part, part, part, source)

    settings = staticmethod(settings_of)

    @staticmethod
    def usual(family: str, size: str) -> JsonMapping:
        """Return the settings whose default depends on family or size; those of families are what learns most in 90 s.

        Luong's decoder without input feeding reads all target steps at once; a Transformer needs norms before its
        layers and a long warm-up.
        """
        return {"vocab_for": size, **USUAL.get(family, {})}

    def config(self, family: str, size: str, dataset: Pairs, settings: JsonMapping) -> TranslationConfig:
        """Return a family's config at a size; the vocabularies have two ids more than the tokenizers."""
        shared = bool(settings.get("tied")) and dataset.is_joint
        coder = dataset.source_tokenizer
        assert not isinstance(coder, SubwordCoder)  # that of a trained model: see config_from
        sizes = coder.model_size, dataset.target_tokenizer.model_size
        frames = coder.width if isinstance(coder, FrameCoder) else 0
        return sized_translator(family, *sizes, size, shared=shared, frames=frames, **settings)

    def build(self, config: JsonMapping) -> Translator:
        """Return a model with new weights."""
        return Translator(TranslationConfig(**config))

    def assets(self, dataset: Pairs) -> Assets:
        """Return the tokenizers of both sides, which may be one."""
        return {"source_tokenizer": dataset.source_tokenizer, "target_tokenizer": dataset.target_tokenizer}

    def load_assets(self, folder: Path) -> Assets:
        """Read the tokenizers back."""
        path = folder / "source_tokenizer.json"
        source = FrameCoder.load(path) if FrameCoder.is_at(path) else load_source_coder(path)
        return {"source_tokenizer": source, "target_tokenizer": LineTokenizer.load(folder / "target_tokenizer.json")}

    def batches(self, dataset: Pairs, model: Translator, seed: int) -> Batches:
        """Return batches of pairs of similar length, of at most `batch_size` · `steps` symbols."""
        tokens = self.options.batch_size * self.options.steps
        return PairBatches(dataset.train, begin=dataset.begin, end=dataset.end, tokens=tokens, seed=seed)

    def fit(self, model: Translator, dataset: Pairs, limit: int | None = None) -> int:
        """Raise a NotImplementedError: no family of this task is fitted by counting."""
        raise NotImplementedError

    def measure(self, model: Translator, dataset: Pairs, split: str, limit: int | None = None) -> Scores:
        """Return the loss of a part's targets, given their sources (teacher forcing)."""
        unknown = dataset.target_tokenizer.unknown
        part = getattr(dataset, split)
        found = score_targets(model, part, dataset.begin, dataset.end, limit=limit, unknown=unknown)
        return scores_of("targets given", found, unknown)

    def item_scores(self, model: Translator, dataset: Pairs, split: str) -> ItemScores:
        """Return the loss of `measure` by targets, and by position in a target."""
        unknown = dataset.target_tokenizer.unknown
        return target_items(model, getattr(dataset, split), dataset.begin, dataset.end, unknown)

    def evaluate(self, model: Translator, dataset: Pairs, assets: Assets, steps: int | None = None) -> Scores:
        """Return the loss of the targets, and the scores of generated ones: greedily, and with a beam of 5."""
        part = dataset.test
        forced = score_targets(model, part, dataset.begin, dataset.end, unknown=dataset.target_tokenizer.unknown)
        given = forced.figures | {"perplexity": forced.perplexity}
        rows: dict[str, Mapping[str, float]] = {"targets given": given}
        signatures: list[str] = []
        for width in (1, 5):
            search = Search(width=width, tokens=steps or LONGEST)
            found = translate_encoded(model, dataset.target_tokenizer, _sources(part), search)
            lines = [best[0].text if best else "" for best in found]
            figures, signatures = agreement(lines, part.target_lines)
            if isinstance(dataset.source_tokenizer, FrameCoder):
                figures["symbols"] = symbol_accuracy(lines, part.target_lines)
            rows["greedy" if width == 1 else f"beam {width}"] = figures
        return Scores(MEASURES, rows, {"pairs": len(part), "signatures": signatures})

    def predict(
        self, model: Translator, assets: Assets, inputs: str | Sequence[str], beam: int = 5, nbest: int = 1
    ) -> Iterator[Prediction]:
        """Translate a line, the lines of a file or of standard input (`-`), or a list of lines.

        Of a run on recordings: a .wav, a folder of them, a built-in, or a list of those.
        """
        search = Search(width=beam, nbest=nbest, tokens=LONGEST)
        if isinstance(assets["source_tokenizer"], FrameCoder):
            recordings = find_recordings(inputs)
            frames = [assets["source_tokenizer"].of(one) for one in recordings]
            spelled = translate_encoded(model, assets["target_tokenizer"], frames, search)
            return (answered(one.where, best) for one, best in zip(recordings, spelled, strict=True))
        source = None if self.options.field is None else self.options.field.partition(",")[0].strip()
        lines = lines_of(inputs, source) if isinstance(inputs, str) else list(inputs)
        coder = assets["source_tokenizer"]
        for number, line in enumerate(lines, 1):
            if isinstance(coder, LineTokenizer):  # which scripts a trained model has read is not known
                coder.check_script(line, f"line {number}", "the sources that the run was trained on")
        found = translate(model, tokenizers_of(assets), lines, search)
        return (answered(line, best) for line, best in zip(lines, found, strict=True))

    def attention(self, model: Translator, assets: Assets, source: str, target: str) -> JsonObject:
        """Return the attention weights from each symbol of the target to each of the source, with their names."""
        sides = tokenizers_of(assets)
        weights = attention_map(model, sides, source, target)
        return {"weights": weights, "source": sides.source.symbols(source), "target": sides.target.symbols(target)}

    def baselines(self, dataset: Pairs) -> list[Baseline]:
        """Return the loss of the unigram model of targets."""
        flat = dataset.train.targets.flat, dataset.test.targets.flat
        tokenizer = dataset.target_tokenizer
        return [Baseline("unigram", unigram_loss(*flat, tokenizer.model_size, tokenizer.unknown))]

    def sample(self, model: Translator, dataset: Pairs) -> tuple[str, str]:
        """Return the first source of the validation part, and its translation."""
        source = dataset.valid.source_line(0)
        first = _sources(dataset.valid)[:1]
        found = translate_encoded(model, dataset.target_tokenizer, first, Search(width=1, tokens=SAMPLE))
        return source, " → " + found[0][0].text

    def about(self, dataset: Pairs, model: Translator) -> About:
        """Return the contents of the model card."""
        source = dataset.source_tokenizer
        steps = min(READ, source.most or READ) if isinstance(source, SubwordCoder) else READ
        return About(
            noun=self.noun,
            symbols=dataset.target_tokenizer.kind,
            vocabulary=dataset.target_tokenizer.vocab_size,
            parts=(len(dataset.train), len(dataset.valid), len(dataset.test)),
            unit={"en": "pairs", "zh": "对"},
            memory={steps: _bytes(model, steps)},
            use="predict",
            data=source.about() if isinstance(source, FrameCoder) else None,
        )


class SummariseTask(TranslateTask):
    """Predict a summary from its text, as a translation from its source."""

    name: ClassVar[str] = "summarise"
    noun: ClassVar[Mapping[str, str]] = {"en": "A summariser", "zh": "摘要模型"}


def tokenizers_of(assets: Assets) -> TokenizerPair:
    """Return a translator's tokenizers."""
    return TokenizerPair(assets["source_tokenizer"], assets["target_tokenizer"])


def _sources(part: PairPart) -> list[Ids | Frames]:
    """Return the ids or the frames of every source."""
    rows = [np.asarray(part.source(number)) for number in range(len(part))]
    if part.sources.flat.ndim > 1:
        return [row.astype(np.float32) for row in rows]
    return [row.astype(np.int64) for row in rows]


def answered(source: str, best: Sequence[Translation]) -> Prediction:
    """Return translations as a prediction."""
    return Prediction(source, [Answer(one.text, one.score, one.logprob) for one in best])


def agreement(lines: list[str], references: list[str]) -> tuple[dict[str, float], list[str]]:
    """Return every measure of lines against their references, and sacrebleu's signatures."""
    cased = bleu(lines, references)
    lower = bleu(lines, references, lowercase=True)
    characters = chrf(lines, references)
    figures = {
        "bleu": cased["score"],
        "bleu_lowercase": lower["score"],
        "chrf": characters["score"],
        "rouge_l": rouge_l(lines, references),
        "exact": exact_match(lines, references),
    }
    return figures, [cased["signature"], lower["signature"], characters["signature"]]


@torch.no_grad()
def _bytes(model: Translator, steps: int) -> int:
    """Return the bytes of one row's memory after a source and a target of so many symbols."""
    device = next(model.parameters()).device
    ids = torch.zeros(1, steps, dtype=torch.long, device=device)
    frames = model.config.frames
    source = torch.zeros(1, steps, frames, device=device) if frames else ids
    was_training = model.training
    memory = model.eval()(ids, model.remember(source))[1]
    model.train(was_training)
    return memory.nbytes
