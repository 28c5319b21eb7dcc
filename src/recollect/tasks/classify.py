"""Classification: one label for a text or a recording."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor
from torch.utils._pytree import tree_map

from recollect.core.memory import Memory
from recollect.core.record import record
from recollect.core.settings import refuse_unused, setting
from recollect.core.task import Answer, Assets, Baseline, ItemScores, Loss, Prediction, Scores
from recollect.core.types import JsonMapping, JsonObject
from recollect.data.audio.frame_coder import FrameCoder
from recollect.data.audio.recordings import label_part, load_spoken_labels
from recollect.data.audio.wav_files import find_recordings, is_audio, read_recordings
from recollect.data.error import DataError
from recollect.data.labels.asked_files import asked_texts
from recollect.data.labels.label_batches import LabelBatch, in_order
from recollect.data.labels.label_files import LabelledText, read_texts
from recollect.data.labels.labelled import Labelled, LabelPart, encode_texts, load_texts
from recollect.data.labels.subword_coder import Coder
from recollect.data.synthetic.label_generators import LABEL_TASKS
from recollect.data.text.input_lines import lines_of, one_line
from recollect.evaluation.label_metrics import (
    ACCURACY,
    LOSS,
    MEASURES,
    accuracy,
    calibration_error,
    confusion,
    f1_by_label,
    macro_f1,
    micro_f1,
)
from recollect.models.classification import CLASSIFIERS, Classifier, ClassifierConfig, classifier_settings
from recollect.models.context_free import BagOfWords, Majority
from recollect.models.encoding import EncoderConfig
from recollect.models.inherited import Trained
from recollect.models.ngram_bag import BagOfNGrams
from recollect.tasks.labelled_task import (
    ROWS,
    LabelledTask,
    LabelOptions,
    device_of,
    evaluating,
    log_loss,
    most_frequent,
    refuse_columns,
    table_of,
)

SHOWN = 3  # labels that a prediction names unless asked for more
MOST = 2**28  # values of features that are kept
FRAMING = ("bands", "stack")  # settings of recordings, and those of texts
WRITTEN = ("text", "label", "tokenizer", "vocab_size", "least", "lowercase", "letters")
LARGEST = 12  # labels whose confusion matrix is printed
Model = Classifier | Majority | BagOfWords | BagOfNGrams


@dataclass(frozen=True)
class ClassifyOptions(LabelOptions):
    """Settings of a classification run."""

    tokenizer: str | None = setting(
        None,
        choices=("char", "byte", "word", "space", "bpe"),
        help="how text is split; by default word; char for Han and names",
    )
    bands: int = setting(40, least=2, help="of the log-mel frames of recordings")
    stack: int = setting(1, least=1, help="frames of recordings in one vector")


class ClassifyTask(LabelledTask):
    """Predict the label of a text or of a recording."""

    name: ClassVar[str] = "classify"
    options: ClassifyOptions
    Options: ClassVar[type[LabelOptions]] = ClassifyOptions
    families: ClassVar[tuple[str, ...]] = CLASSIFIERS
    Config: ClassVar[type[ClassifierConfig]] = ClassifierConfig
    noun: ClassVar[Mapping[str, str]] = {"en": "A classifier of texts", "zh": "文本分类模型"}
    unit: ClassVar[Mapping[str, str]] = {"en": "texts", "zh": "条文本"}
    by_step: ClassVar[bool] = False

    settings = staticmethod(classifier_settings)
    inherits: ClassVar[tuple[str, ...]] = ("pooling", *LabelledTask.inherits)

    def open_with(self, source: str, tokenizer: Coder | None) -> Labelled:
        """Read the texts and labels with a trained model's tokenizer, None: with a new one."""
        own = self.options
        if is_audio(source) and tokenizer is not None:
            raise DataError(f"{source}: recordings, but the trained model reads text; train a model of recordings anew")
        if is_audio(source):
            refuse_unused(own, WRITTEN, f"{source} holds recordings, which have none")
            return load_spoken_labels(source, own.valid, own.test, own.bands, own.stack)
        refuse_unused(own, FRAMING, f"{source} holds texts; it is for recordings")
        refuse_columns(own, source, LABEL_TASKS)
        given = {name: getattr(own, name) for name in ("text", "label", "valid", "test")}
        return load_texts(source, self.vocabulary(tokenizer), **given)

    def read(self, source: str, assets: Assets) -> Labelled:
        """Read other texts with the run's tokenizer and labels, as a test part."""
        coder = assets["tokenizer"]
        if isinstance(coder, FrameCoder):
            part = label_part(read_recordings(source), coder, assets["labels"])
        else:
            part = encode_texts(read_texts(source, self.options.text, self.options.label), coder, assets["labels"])
        if not len(part):
            raise DataError(f"{source}: no examples in it; give a file with at least one")
        return Labelled(coder, assets["labels"], part, part, part, source)

    def config_from(self, model: Trained, family: str, dataset: Labelled, settings: JsonMapping) -> EncoderConfig:
        """Return the config of a model whose encoder is a trained model's body; its steps are averaged by default."""
        return super().config_from(model, family, dataset, {"pooling": "mean", **settings})

    def build(self, config: JsonMapping) -> Model:
        """Return a model with new weights."""
        made = ClassifierConfig(**config)
        if made.family == "majority":
            return Majority(made, reads_words=False)
        if made.family == "bag-of-ngrams":
            return BagOfNGrams(made)
        return BagOfWords(made) if made.family == "bag-of-words" else Classifier(made)

    def loss(self, model: Any, batch: LabelBatch, memory: Memory | None) -> Loss:
        """Return the cross-entropy of the labels."""
        scores = _scores(model, batch).float()
        total = F.cross_entropy(scores, batch.y, reduction="sum", label_smoothing=self.options.smoothing)
        return Loss(total, batch.y.shape[0])

    def fit(self, model: Any, dataset: Labelled, limit: int | None = None) -> int:
        """Count the labels; of a bag of n-grams the n-grams with each label, anew."""
        if isinstance(model, BagOfNGrams):
            return _count_ngrams(model, dataset.train.first(limit))
        targets = np.concatenate(dataset.train.targets[:limit])
        model.count(torch.from_numpy(targets))
        return len(targets)

    def measure(self, model: Model, dataset: Labelled, split: str, limit: int | None = None) -> Scores:
        """Return the accuracy on a part, and the loss."""
        truth, probabilities, loss = self._classified(model, getattr(dataset, split).first(limit))
        right = float((probabilities.argmax(1) == truth).mean())
        return Scores({"accuracy": ACCURACY, "loss": LOSS}, {"labels": {"accuracy": right, "loss": loss}})

    def item_scores(self, model: Model, dataset: Labelled, split: str) -> ItemScores:
        """Return whether each text's label is right."""
        truth, probabilities, _ = self._classified(model, getattr(dataset, split))
        right = (probabilities.argmax(1) == truth).astype(float)
        return ItemScores(right.tolist(), [1.0] * len(right))

    def with_features(self, model: Model, dataset: Labelled) -> Labelled:
        """Return the data with the vector of each text, computed once where the head alone is trained.

        A word that is hidden, and dropout below the head, would change the vectors: the first is not done, and the
        second is left out.
        """
        count = len(dataset.train) + len(dataset.valid)
        if not isinstance(model, Classifier) or not model.trains_head_alone or count * model.head.in_features > MOST:
            return dataset
        train, valid = (
            replace(part, features=_features(model, part).numpy()) for part in (dataset.train, dataset.valid)
        )
        return replace(dataset, train=train, valid=valid)

    def evaluate(self, model: Model, dataset: Labelled, assets: Assets, steps: int | None = None) -> Scores:
        """Return every metric of the test part, the F1 of each label, and the confusion matrix."""
        names = dataset.labels.names
        truth, probabilities, loss = self._classified(model, dataset.test)
        found = probabilities.argmax(1)
        matrix = confusion(truth, found, len(names))
        row = {
            "accuracy": accuracy(matrix),
            "macro_f1": macro_f1(matrix),
            "micro_f1": micro_f1(matrix),
            "calibration": calibration_error(probabilities.max(1), found == truth),
            "loss": loss,
        }
        details: JsonObject = {"examples": len(truth), "labels": list(names), "confusion": matrix.tolist()}
        details["f1"] = dict(zip(names, f1_by_label(matrix).tolist(), strict=True))
        if len(names) <= LARGEST:
            rows = {name: [str(count) for count in counts] for name, counts in zip(names, matrix, strict=True)}
            details["lines"] = ["", "confusion matrix: a row for each true label", *table_of(names, rows)]
        return Scores({name: MEASURES[name] for name in row}, {"labels": row}, details)

    def _classified(self, model: Model, part: LabelPart) -> tuple[NDArray[np.int64], NDArray[np.float64], float]:
        """Return the true labels (N,), the probabilities (N, C), and the mean loss."""
        truth = np.concatenate(part.targets)
        found = np.zeros((len(part), model.width_out))
        device = device_of(model)

        def work() -> float:
            total = 0.0
            for numbers, batch in in_order(part, ROWS, by_step=False):
                scores = _scores(model, tree_map(lambda t: t.to(device), batch)).double().cpu()
                found[numbers] = scores.softmax(1).numpy()
                total += log_loss(scores, batch.y)
            return total

        return truth, found, evaluating(model, work) / len(part)

    def predict(
        self, model: Model, assets: Assets, inputs: str | Sequence[str], nbest: int | None = None
    ) -> Iterator[Prediction]:
        """Label a text, the lines of a file or of standard input (`-`), or a list of texts; with probabilities.

        Of data as the run was trained on, a table or a folder, the texts are read. Of a run on recordings: a .wav, a
        folder of them, a built-in, or a list of those.
        """
        return self._predicted(model, self._unlabelled(inputs, assets), assets["labels"].names, nbest)

    def _unlabelled(self, inputs: str | Sequence[str], assets: Assets) -> LabelPart:
        """Return inputs as a part whose labels do not matter."""
        coder, names = assets["tokenizer"], assets["labels"]
        if isinstance(coder, FrameCoder):
            return label_part((one._replace(label=names.names[0]) for one in find_recordings(inputs)), coder, names)
        rows = asked_texts(inputs, self.options.text, names.names) if isinstance(inputs, str) else None
        is_data = rows is not None
        if rows is None:
            lines = lines_of(inputs) if isinstance(inputs, str) else list(inputs)
            rows = [LabelledText(line, "", f"input {number}") for number, line in enumerate(lines, 1)]
        for row in rows:
            if not row.text.strip():
                raise DataError(f"{row.where}: the text is empty; give a text to label")
        part = encode_texts((row._replace(label=names.names[0]) for row in rows), coder, names)
        return replace(part, texts=[one_line(text) for text in part.texts]) if is_data else part

    def _predicted(
        self, model: Model, part: LabelPart, names: Sequence[str], nbest: int | None = None
    ) -> Iterator[Prediction]:
        for text, found in zip(part.texts, self._classified(model, part)[1], strict=True):
            best = np.argsort(-found, kind="stable")[: nbest or min(SHOWN, len(names))]
            logs = np.log(np.maximum(found, 1e-300))
            yield Prediction(text, [Answer(names[i], float(found[i]), float(logs[i])) for i in best])

    def attention(self, model: Model, assets: Assets, source: str, target: str) -> JsonObject:
        """Return the weight of each symbol of a text in the attention pool: which words matter."""
        if not isinstance(model, Classifier) or model.pooling != "attention":
            raise ValueError("maps: got a classifier without an attention pool; train one with --set pooling=attention")
        coder = assets["tokenizer"]
        ids = torch.from_numpy(coder.encode(source))[None].to(device_of(model))
        with record(model) as inner:
            evaluating(model, lambda: model.classify(ids))
        weights = inner["pool.weights"][0].double().cpu().numpy()  # (1, S)
        return {"weights": weights, "source": coder.symbols(source), "target": []}

    def baselines(self, dataset: Labelled) -> list[Baseline]:
        """Return the accuracy of the most frequent label, and of naive Bayes on the words."""
        truth = np.concatenate(dataset.test.targets)
        common = most_frequent(list(dataset.train.targets), len(dataset.labels))
        rows = [Baseline("most frequent label", float((truth == common).mean()))]
        if dataset.tokenizer.width:
            nearest = nearest_mean(dataset.train, dataset.test, len(dataset.labels))
            return [*rows, Baseline("nearest mean frame", float((truth == nearest).mean()))]
        bayes = naive_bayes(dataset.train, dataset.test, dataset.tokenizer.vocab_size, len(dataset.labels))
        return [*rows, Baseline("naive Bayes on words", float((truth == bayes).mean()))]

    def sample(self, model: Model, dataset: Labelled) -> tuple[str, str]:
        """Return the first text of the validation part, and its label."""
        found = next(self._predicted(model, dataset.valid.first(1), dataset.labels.names))
        best = found.targets[0]
        return found.source, f" → {best.text} {best.score:.2f}"


def _count_ngrams(model: BagOfNGrams, part: LabelPart) -> int:
    model.forget()
    device = device_of(model)
    for _, batch in in_order(part, ROWS, by_step=False):
        given = tree_map(lambda t: t.to(device), batch)
        model.count(given.x, given.y, given.valid)
    return len(part)


def _scores(model: Any, batch: LabelBatch) -> Tensor:
    """Return the scores of the labels of a batch (B, C); of features that are known only the head is computed."""
    return model.classify(batch.x, batch.valid) if batch.features is None else model.score(batch.features)


def _features(model: Classifier, part: LabelPart) -> Tensor:
    """Return the input of the head for each text of a part (N, D), in batches that are always the same."""
    found = torch.zeros(len(part), model.head.in_features)
    device = device_of(model)

    def work() -> None:
        for numbers, batch in in_order(part, ROWS, by_step=False):
            valid = None if batch.valid is None else batch.valid.to(device)
            x = model.enter(batch.x.to(device), valid)
            found[torch.from_numpy(numbers)] = model.pooled(x, valid=valid)[0].float().cpu()

    evaluating(model, work)
    return found


def naive_bayes(train: LabelPart, test: LabelPart, vocab_size: int, labels: int) -> NDArray[np.int64]:
    """Return the labels of the test part by multinomial naive Bayes on word counts, with one added to each count."""
    counts = np.ones((labels, vocab_size))
    priors = np.zeros(labels)
    for ids, target in zip(train.ids, train.targets, strict=True):
        np.add.at(counts[target[0]], _words(ids), 1)
        priors[target[0]] += 1
    weights = np.log(counts / counts.sum(1, keepdims=True))
    base = np.log(np.maximum(priors, 1e-300) / priors.sum())
    return np.array([(weights[:, _words(ids)].sum(1) + base).argmax() for ids in test.ids])


def nearest_mean(train: LabelPart, test: LabelPart, labels: int) -> NDArray[np.int64]:
    """Return the labels of the test part's recordings by the nearest of the labels' mean frames."""
    means = np.stack([frames.mean(0) for frames in train.ids])  # (N, D)
    numbers = np.concatenate(train.targets)
    centres = np.stack([means[numbers == label].mean(0) for label in range(labels)])
    found = np.stack([frames.mean(0) for frames in test.ids])
    return np.asarray(np.square(found[:, None] - centres).sum(2).argmin(1))


def _words(ids: NDArray[np.int64]) -> NDArray[np.int64]:
    return ids if ids.ndim == 1 else ids[:, 0]
