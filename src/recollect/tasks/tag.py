"""Tagging: a tag for every word of a sequence."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray

from recollect.core.memory import Memory
from recollect.core.settings import setting
from recollect.core.task import Answer, Assets, Baseline, ItemScores, Loss, Prediction, Scores
from recollect.core.types import JsonMapping, JsonObject
from recollect.data.error import DataError
from recollect.data.labels.asked_files import asked_words
from recollect.data.labels.label_batches import LabelBatch, in_order
from recollect.data.labels.labelled import (
    Labelled,
    LabelNames,
    LabelPart,
    checked_scheme,
    converted,
    encode_tagged,
    load_tags,
)
from recollect.data.labels.subword_coder import Coder, SubwordCoder
from recollect.data.labels.tag_files import TaggedWords, read_tagged
from recollect.data.labels.tag_schemes import ANY, SCHEMES, UNTAGGED
from recollect.data.synthetic.label_generators import LABEL_TASKS
from recollect.data.text.input_lines import lines_of
from recollect.data.text.line_tokenizer import is_mostly_han
from recollect.evaluation.label_metrics import MEASURES, confusion, f1_by_label, macro_f1, span_counts, span_scores
from recollect.models.context_free import Majority
from recollect.models.encoding import EncoderConfig
from recollect.models.inherited import Trained
from recollect.models.tagging import Tagger, TaggerConfig, tagger_settings
from recollect.tasks.labelled_task import (
    ROWS,
    LabelledTask,
    LabelOptions,
    device_of,
    evaluating,
    most_frequent,
    refuse_columns,
)


@dataclass(frozen=True)
class TagOptions(LabelOptions):
    """Settings of a tagging run."""

    scheme: str | None = setting(
        None, choices=(*SCHEMES, ANY), help="the scheme of span tags, checked; by default found; any: unchecked"
    )
    convert: str | None = setting(None, choices=SCHEMES, help="train on span tags in this scheme")


class TagTask(LabelledTask):
    """Predict the tag of each word."""

    name: ClassVar[str] = "tag"
    Options: ClassVar[type[LabelOptions]] = TagOptions
    families: ClassVar[tuple[str, ...]] = TaggerConfig.families
    Config: ClassVar[type[TaggerConfig]] = TaggerConfig
    noun: ClassVar[Mapping[str, str]] = {"en": "A tagger of words", "zh": "序列标注模型"}
    unit: ClassVar[Mapping[str, str]] = {"en": "sequences", "zh": "个序列"}
    by_step: ClassVar[bool] = True
    options: TagOptions

    settings = staticmethod(tagger_settings)
    inherits: ClassVar[tuple[str, ...]] = ("crf", *LabelledTask.inherits)

    def open_with(self, source: str, tokenizer: Coder | None) -> Labelled:
        """Read the words and tags with a trained model's tokenizer, None: with a new one."""
        own = self.options
        refuse_columns(own, source, LABEL_TASKS)
        return load_tags(
            source,
            self.vocabulary(tokenizer),
            text=own.text,
            label=own.label,
            valid=own.valid,
            test=own.test,
            scheme=own.scheme,
            convert=own.convert,
        )

    def read(self, source: str, assets: Assets) -> Labelled:
        """Read other words with the run's tokenizer and tags, as a test part."""
        own = self.options
        rows = list(read_tagged(source, own.text, own.label))
        if assets["labels"].scheme is not None:
            checked_scheme(rows, own.scheme, own.convert)
        if own.convert is not None:
            rows = converted(rows, own.convert)
        part = encode_tagged(rows, assets["tokenizer"], assets["labels"])
        if not len(part):
            raise DataError(f"{source}: no examples in it; give a file with at least one")
        return Labelled(assets["tokenizer"], assets["labels"], part, part, part, source)

    def config_from(self, model: Trained, family: str, dataset: Labelled, settings: JsonMapping) -> EncoderConfig:
        """Return the config of a model whose encoder is a trained model's body: it reads words as rows of subwords."""
        coder = dataset.tokenizer
        assert isinstance(coder, SubwordCoder)
        return super().config_from(model, family, dataset, {**settings, "subwords": True, "frame": coder.frame})

    def build(self, config: JsonMapping) -> Tagger | Majority:
        """Return a model with new weights."""
        made = TaggerConfig(**config)
        return Majority(made, reads_words=True) if made.family == "majority" else Tagger(made)

    def loss(self, model: Any, batch: LabelBatch, memory: Memory | None) -> Loss:
        """Return −log p of the tags that are known."""
        known = batch.y >= 0
        total = model.tag_loss(batch.x, batch.y.clamp(min=0), batch.valid, known, self.options.smoothing)
        return Loss(total, known.sum())

    def fit(self, model: Any, dataset: Labelled, limit: int | None = None) -> int:
        """Count the tags of each word."""
        tags = np.concatenate(dataset.train.targets[:limit])
        words = np.concatenate([ids if ids.ndim == 1 else ids[:, 0] for ids in dataset.train.ids[:limit]])
        known = tags >= 0
        model.count(torch.from_numpy(tags[known]), torch.from_numpy(words[known]))
        return int(known.sum())

    def measure(self, model: Tagger | Majority, dataset: Labelled, split: str, limit: int | None = None) -> Scores:
        """Return the F1 of spans where tags are those of spans, and the share of right tags."""
        part: LabelPart = getattr(dataset, split)
        part = part.first(limit)
        row = scores_of(self._tagged(model, part)[0], part.targets, dataset.labels)
        return Scores({name: MEASURES[name] for name in row}, {"tags": row})

    def item_scores(self, model: Tagger | Majority, dataset: Labelled, split: str) -> ItemScores:
        """Return the deciding figure by sequences: of spans F1 = 2 right / (found + true), else the share of right."""
        part: LabelPart = getattr(dataset, split)
        tags, _ = self._tagged(model, part)
        if dataset.labels.scheme is None:
            right = [float((found == true)[true >= 0].sum()) for found, true in zip(tags, part.targets, strict=True)]
            return ItemScores(right, [float((true >= 0).sum()) for true in part.targets])
        rows = zip(named_tags(part.targets, dataset.labels), named_tags(tags, dataset.labels), strict=True)
        counts = [span_counts(truth, found) for truth, found in rows]
        return ItemScores([2.0 * one["right"] for one in counts], [float(one["found"] + one["true"]) for one in counts])

    def evaluate(self, model: Tagger | Majority, dataset: Labelled, assets: Assets, steps: int | None = None) -> Scores:
        """Return every metric of the test part, and the F1 of each tag."""
        names = dataset.labels.names
        tags, _ = self._tagged(model, dataset.test)
        row = scores_of(tags, dataset.test.targets, dataset.labels)
        truth, found = np.concatenate(dataset.test.targets), np.concatenate(tags)
        matrix = confusion(truth[truth >= 0], found[truth >= 0], len(names))
        row |= {"macro_f1": macro_f1(matrix)}
        details: JsonObject = {"sequences": len(tags), "labels": list(names), "confusion": matrix.tolist()}
        details["f1"] = dict(zip(names, f1_by_label(matrix).tolist(), strict=True))
        return Scores({name: MEASURES[name] for name in row}, {"tags": row}, details)

    def _tagged(self, model: Tagger | Majority, part: LabelPart) -> tuple[list[NDArray[np.int64]], NDArray[np.float64]]:
        """Return the tags of each sequence, and their log probability (N,)."""
        found: list[NDArray[np.int64]] = [np.zeros(0, dtype=np.int64)] * len(part)
        logprobs = np.zeros(len(part))
        device = device_of(model)

        def work() -> None:
            for numbers, batch in in_order(part, ROWS, by_step=True):
                valid = None if batch.valid is None else batch.valid.to(device)
                tags, logprob = model.tags(batch.x.to(device), valid)
                logprobs[numbers] = logprob.double().cpu().numpy()
                for row, number in zip(tags.cpu().numpy(), numbers, strict=True):
                    found[number] = row[: len(part.ids[number])]

        evaluating(model, work)
        return found, logprobs

    def predict(self, model: Tagger | Majority, assets: Assets, inputs: str | Sequence[str]) -> Iterator[Prediction]:
        """Tag the words of a line, of the lines of a file or of standard input (`-`), or of a list of lines.

        Words stand between blanks; of a line of Han characters without blanks each character is a word. Of data as the
        run was trained on, CoNLL or lists in .jsonl, the words are read.
        """
        part = encode_tagged(self._untagged(inputs, assets["labels"]), assets["tokenizer"], assets["labels"])
        names = assets["labels"].names
        for text, tags, logprob in zip(part.texts, *self._tagged(model, part), strict=True):
            answer = " ".join(names[i] for i in tags)
            yield Prediction(text, [Answer(answer, float(np.exp(logprob)), float(logprob))])

    def _untagged(self, inputs: str | Sequence[str], labels: LabelNames) -> list[TaggedWords]:
        """Return the words of inputs, with no tags."""
        own = self.options
        if isinstance(inputs, str):
            rows = asked_words(inputs, own.text, own.label, labels.names, labels.scheme)
            if rows is not None:
                return rows
        lines = lines_of(inputs) if isinstance(inputs, str) else list(inputs)
        rows = []
        for number, line in enumerate(lines, 1):
            words = list(line.strip()) if is_mostly_han(line) and not line.strip().count(" ") else line.split()
            if not words:
                raise DataError(f"input {number}: the text is empty; give words to tag")
            rows.append(TaggedWords(tuple(words), (UNTAGGED,) * len(words), f"input {number}"))
        return rows

    def baselines(self, dataset: Labelled) -> list[Baseline]:
        """Return the deciding figure of the most frequent tag, of all words and of each word."""
        common = most_frequent(list(dataset.train.targets), len(dataset.labels))
        same = [np.full(len(one), common) for one in dataset.test.targets]
        dataset = by_words(dataset) if isinstance(dataset.tokenizer, SubwordCoder) else dataset
        size = 1 + max(int(ids.max()) for part in (dataset.train, dataset.test) for ids in part.ids)
        size = max(size, dataset.tokenizer.vocab_size)
        model = Majority(TaggerConfig("majority", size, labels=len(dataset.labels)), reads_words=True)
        self.fit(model, dataset)
        by_word, _ = self._tagged(model, dataset.test)
        return [
            Baseline(name, next(iter(scores_of(tags, dataset.test.targets, dataset.labels).values())))
            for name, tags in (("most frequent tag", same), ("most frequent tag of each word", by_word))
        ]

    def sample(self, model: Tagger | Majority, dataset: Labelled) -> tuple[str, str]:
        """Return the first sequence of the validation part, and its tags."""
        found = next(self.predict(model, self.assets(dataset), [dataset.valid.texts[0]]))
        return found.source, f" → {found.targets[0].text}"


def by_words(dataset: Labelled) -> Labelled:
    """Return the same data with one id for each word as it is written, where words were rows of subwords."""
    numbers: dict[str, int] = {}
    parts: dict[str, Any] = {}
    for name in ("train", "valid", "test"):
        part: LabelPart = getattr(dataset, name)
        rows = [np.array([numbers.setdefault(word, len(numbers)) for word in text.split(" ")]) for text in part.texts]
        parts[name] = LabelPart(rows, part.targets, part.texts)
    return replace(dataset, **parts)


def scores_of(
    tags: Sequence[NDArray[np.int64]], truth: Sequence[NDArray[np.int64]], labels: LabelNames
) -> dict[str, float]:
    """Return precision, recall and F1 of spans where tags are those of spans, and the share of right tags."""
    every, found = np.concatenate(truth), np.concatenate(tags)
    known = every >= 0
    right = {"accuracy": float((found == every)[known].mean()) if known.any() else 0.0}
    if labels.scheme is None:
        return right
    return {**span_scores(named_tags(truth, labels), named_tags(tags, labels)), **right}


def named_tags(rows: Sequence[NDArray[np.int64]], labels: LabelNames) -> list[list[str]]:
    """Return the names of tags; an unknown one is outside of any span."""
    return [[labels.names[i] if i >= 0 else "O" for i in row] for row in rows]
