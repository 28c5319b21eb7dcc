"""Matching: which text is right for a query, or where in a text the answer stands."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from recollect.core.memory import Memory
from recollect.core.record import record
from recollect.core.settings import CheckedSettings, SettingError, setting
from recollect.core.task import (
    About,
    Answer,
    Assets,
    Baseline,
    Batches,
    ItemScores,
    Loss,
    Measure,
    Prediction,
    Scores,
    TaskDefaults,
)
from recollect.core.threads import pace
from recollect.core.types import JsonMapping, JsonObject
from recollect.data.error import DataError
from recollect.data.labels.labelled import Vocabulary
from recollect.data.labels.subword_coder import PartCoder, SubwordCoder, load_coder
from recollect.data.matches.match_files import Columns, asked_questions, read_questions
from recollect.data.matches.matches import (
    Kind,
    Match,
    MatchBatch,
    MatchBatches,
    MatchCoder,
    Matches,
    encode_match,
    encode_matches,
    gather_matches,
    load_matches,
    shown_symbols,
)
from recollect.data.synthetic.match_generators import MATCH_TASKS, Question
from recollect.data.text.input_lines import lines_of, one_line
from recollect.evaluation.bag_of_words import naive_accuracies
from recollect.evaluation.ranking_metrics import mean_reciprocal_rank, ranks_of, recall_at
from recollect.models.inherited import Trained, inherited_shape, longest_of, saved_body
from recollect.models.matching import MATCHERS, Matcher, MatcherConfig, matcher_settings
from recollect.models.sizes import sized_encoder
from recollect.tasks.labelled_task import check_positions, device_of, evaluating, refuse_columns

SHOWN = 3  # answers that a prediction names unless asked for more
DEEP = 3  # candidates that recall looks at
ROWS = 64  # questions of a batch of an evaluation
READ = 20  # symbols after which the memory is measured
MEASURES = {
    "accuracy": Measure("accuracy", "share of questions whose best candidate is right", lower_is_better=False),
    "mrr": Measure("MRR", "mean over questions of 1 / rank of the best right candidate", lower_is_better=False),
    "recall": Measure(f"recall@{DEEP}", f"share of right candidates among the first {DEEP}", lower_is_better=False),
    "loss": Measure("loss", "mean −log p of what is right, in nats"),
}


@dataclass(frozen=True)
class MatchOptions(CheckedSettings):
    """Settings of a run on questions."""

    text: str = setting("text", help="the column of texts")
    query: str = setting("query", help="the column of queries")
    answer: str = setting("answer", help="the column of answers, which stand in the text")
    label: str = setting("label", help="the column of labels, where there are no answers: 1 right, 0 wrong")
    valid: str | None = setting(None, help="other questions to validate on; by default a tenth of DATA")
    test: str | None = setting(None, help="other questions to test on; by default a tenth of DATA")
    batch_size: int = setting(32, least=1, help="questions in a batch")
    tokenizer: str | None = setting(
        None, choices=("char", "byte", "word", "space", "bpe"), help="how text is split; by default word, for Han char"
    )
    vocab_size: int | None = setting(None, least=2, help="of words and byte pairs")
    least: int = setting(1, least=1, help="words that occur less often are unknown")
    lowercase: bool = setting(False, help="read words in lower case")


class MatchTask(TaskDefaults):
    """Find the right text for a query, or the answer in a text."""

    name: ClassVar[str] = "match"
    Options: ClassVar[type] = MatchOptions
    families: ClassVar[tuple[str, ...]] = MATCHERS
    Config: ClassVar[type] = MatcherConfig
    default_model: ClassVar[str] = "bigru"
    takes_layers: ClassVar[bool] = True
    options: MatchOptions

    def __init__(self, options: MatchOptions | None = None) -> None:
        super().__init__(options or MatchOptions())

    settings = staticmethod(matcher_settings)

    @property
    def columns(self) -> Columns:
        """The names of the columns."""
        own = self.options
        return Columns(own.text, own.query, own.answer, own.label)

    def open(self, source: str) -> Matches:
        """Read the questions."""
        return self.open_with(source, None)

    inherits: ClassVar[tuple[str, ...]] = ("dropout", "word_dropout")

    def open_with(self, source: str, tokenizer: PartCoder | None) -> Matches:
        """Read the questions with a trained model's tokenizer, None: with a new one."""
        own = self.options
        refuse_columns(own, source, MATCH_TASKS)
        vocabulary = Vocabulary(own.tokenizer, own.vocab_size, own.least, own.lowercase, coder=tokenizer)
        return load_matches(source, vocabulary, self.columns, own.valid, own.test)

    def tokenizer_for(self, model: Trained, tokenizer: Any) -> PartCoder:
        """Return a trained model's tokenizer as this task uses it."""
        return PartCoder(tokenizer, longest_of(model))

    def config_from(self, model: Trained, family: str, dataset: Matches, settings: JsonMapping) -> MatcherConfig:
        """Return the config of a model whose encoder is a trained model's body."""
        coder, kind = dataset.tokenizer, dataset.kind
        own = {"unknown": coder.unknown, "points": kind.points, "pointers": kind.pointers, "separator": coder.separator}
        body = saved_body(model, settings.get("dropout"))
        size = max(model.vocab_size, coder.separator + 1)
        return MatcherConfig(family, size, **{**inherited_shape(model), **own, "body": body, **settings})

    def read(self, source: str, assets: Assets) -> Matches:
        """Read other questions with the run's tokenizer, as a test part."""
        part = encode_matches(read_questions(source, self.columns), assets["tokenizer"], assets["kind"])
        if not part:
            raise DataError(f"{source}: no questions in it; give a file with at least one")
        return Matches(assets["tokenizer"], assets["kind"], part, part, part, source)

    def config(self, family: str, size: str, dataset: Matches, settings: JsonMapping) -> MatcherConfig:
        """Return a family's config at a size; the separator is one id more than the tokenizer's."""
        coder, kind = dataset.tokenizer, dataset.kind
        if settings.get("word_dropout") and coder.unknown is None:
            raise SettingError(f"word_dropout: got {coder.kind}, which has no unknown symbol; expected words")
        longest = max(one.length for part in (dataset.train, dataset.valid, dataset.test) for one in part)
        check_positions(settings, longest, "questions with their texts")
        own = {"unknown": coder.unknown, "points": kind.points, "pointers": kind.pointers}
        return sized_encoder(MatcherConfig, family, coder.vocab_size + 1, size, **own, **settings)

    def build(self, config: JsonMapping) -> Matcher:
        """Return a model with new weights."""
        return Matcher(MatcherConfig(**config))

    def assets(self, dataset: Matches) -> Assets:
        """Return the tokenizer and the kind of questions."""
        return {"tokenizer": dataset.tokenizer, "kind": dataset.kind}

    def load_assets(self, folder: Path) -> Assets:
        """Read them back."""
        coder = load_coder(folder / "tokenizer.json")
        if isinstance(coder, SubwordCoder):
            coder = PartCoder(coder.tokenizer, coder.most)
        return {"tokenizer": coder, "kind": Kind.load(folder / "kind.json")}

    def batches(self, dataset: Matches, model: Matcher, seed: int) -> Batches:
        """Return batches of `batch_size` questions of similar length."""
        return MatchBatches(dataset.train, self.options.batch_size, seed)

    def loss(self, model: Matcher, batch: MatchBatch, memory: Memory | None) -> Loss:
        """Return −log of the probability of all that is right, summed over pointers and questions."""
        logs = log_probabilities(model, batch)
        return Loss(-logs.masked_fill(~batch.right, -torch.inf).logsumexp(2).sum(), batch.count)

    def measure(self, model: Matcher, dataset: Matches, split: str, limit: int | None = None) -> Scores:
        """Return the accuracy on a part, and the loss."""
        ranks, loss = self._ranks(model, dataset, getattr(dataset, split)[:limit])
        row = {"accuracy": recall_at_one(ranks), "loss": loss}
        return Scores({name: MEASURES[name] for name in row}, {"questions": row})

    def item_scores(self, model: Matcher, dataset: Matches, split: str) -> ItemScores:
        """Return whether each question's best candidate is right."""
        ranks, _ = self._ranks(model, dataset, getattr(dataset, split))
        return ItemScores([float(one.min() == 1) for one in ranks], [1.0] * len(ranks))

    def evaluate(self, model: Matcher, dataset: Matches, assets: Assets, steps: int | None = None) -> Scores:
        """Return every metric of the test part."""
        ranks, loss = self._ranks(model, dataset, dataset.test)
        row = {
            "accuracy": recall_at_one(ranks),
            "mrr": mean_reciprocal_rank(ranks),
            "recall": recall_at(DEEP, ranks),
            "loss": loss,
        }
        return Scores(MEASURES, {"questions": row}, {"questions": len(ranks)})

    def _ranks(self, model: Matcher, dataset: Matches, part: Sequence[Match]) -> tuple[list[NDArray[np.int64]], float]:
        """Return the ranks of each question's right candidates, and the mean loss."""
        ranks: list[NDArray[np.int64]] = []
        loss = 0.0
        for one, logs in zip(part, _logs_of(model, part), strict=True):
            names, scores = candidates(one, logs, dataset.tokenizer, dataset.kind)
            right = [i for i, name in enumerate(names) if name in _right_names(one, dataset.tokenizer)]
            if dataset.kind.points:
                ranks.append(ranks_of(scores, right))
            else:
                ranks.append(ranks_of(scores, np.flatnonzero(one.right[0])))
            loss -= float(np.sum([np.logaddexp.reduce(log[own]) for log, own in zip(logs, one.right, strict=True)]))
        return ranks, loss / max(len(part), 1)

    def predict(
        self, model: Matcher, assets: Assets, inputs: str | Sequence[Any], nbest: int | None = None
    ) -> Iterator[Prediction]:
        """Answer a question, the lines of a file or of standard input (`-`), or a list.

        Each is `text | query` where answers are pointed at, else `query | text | text …`, divided by tabs or by ` | `;
        in a list also a tuple. Of a table as the run was trained on the columns are read.
        """
        coder, kind = assets["tokenizer"], assets["kind"]
        questions = asked_questions(inputs, self.columns, points=kind.points) if isinstance(inputs, str) else None
        if questions is None:
            lines = lines_of(inputs) if isinstance(inputs, str) else list(inputs)
            questions = [asked(line, kind, f"input {i}") for i, line in enumerate(lines, 1)]
        else:
            lines = [as_asked(one, kind) for one in questions]
        part = [encode_match(one, coder, kind) for one in questions]
        for line, one, logs in zip(lines, part, _logs_of(model, part), strict=True):
            names, scores = candidates(one, logs, coder, kind)
            best = np.argsort(-scores, kind="stable")[: nbest or SHOWN]
            found = [Answer(names[i], math.exp(scores[i]), float(scores[i])) for i in best]
            yield Prediction(line if isinstance(line, str) else " | ".join(line), found)

    def attention(self, model: Matcher, assets: Assets, source: str, target: str) -> JsonObject:
        """Return the weight of each symbol of a text in the answer to its query: which words matter."""
        coder, kind = assets["tokenizer"], assets["kind"]
        if not kind.points:
            raise ValueError("maps: got a run that ranks texts; those that point at answers have maps")
        one = encode_match(asked(source, kind, "input 1"), coder, kind)
        with record(model) as inner:
            _logs_of(model, [one])
        weights = inner["weights"][0, :, one.begins :].double().cpu().numpy()  # (P, T)
        names = ["first symbol"] if len(weights) > 1 else []  # the row of the end follows
        return {"weights": weights, "source": shown_symbols(one, coder)[one.begins :], "target": names}

    def baselines(self, dataset: Matches) -> list[Baseline]:
        """Return the accuracy of chance, of the most frequent place, and of words in common."""
        found = naive_accuracies(dataset.train, dataset.test, dataset.tokenizer, points=dataset.kind.points)
        return [Baseline(name, value) for name, value in found.items()]

    def sample(self, model: Matcher, dataset: Matches) -> tuple[str, str]:
        """Return the first question of the validation part, in the form that `predict` reads, and its answer."""
        one = dataset.valid[0]
        names, scores = candidates(one, _logs_of(model, [one])[0], dataset.tokenizer, dataset.kind)
        return as_asked(one.question, dataset.kind), f" → {names[int(scores.argmax())]}"

    @torch.no_grad()
    def about(self, dataset: Matches, model: Matcher) -> About:
        """Return the contents of the model card."""
        ids = torch.zeros(1, READ, dtype=torch.long, device=device_of(model))
        return About(
            noun={"en": "A model that answers questions", "zh": "问答匹配模型"},
            symbols=dataset.tokenizer.kind,
            vocabulary=dataset.tokenizer.vocab_size,
            parts=(len(dataset.train), len(dataset.valid), len(dataset.test)),
            unit={"en": "questions", "zh": "个问题"},
            memory={READ: model(ids)[1].nbytes},
            use="predict",
        )


def log_probabilities(model: Matcher, batch: MatchBatch) -> Tensor:
    """Return log p of each place (G, P, T), or of each text (G, 1, C); −∞ where there is none."""
    if model.points:
        return model.point(batch.x[:, 0], batch.valid[:, 0])
    scores = model.rank(batch.x.flatten(0, 1), batch.valid.flatten(0, 1)).view(batch.x.shape[:2])  # (G, C)
    return scores.masked_fill(~batch.valid[:, :, 0], -torch.inf).log_softmax(1)[:, None]


def _logs_of(model: Matcher, part: Sequence[Match]) -> list[NDArray[np.float64]]:
    """Return the log probabilities of each question's places (P, T) or texts (1, C)."""
    found: list[NDArray[np.float64]] = [np.empty(0)] * len(part)
    order = sorted(range(len(part)), key=lambda i: -part[i].length)
    device = device_of(model)

    def work() -> None:
        for first in range(0, len(order), ROWS):
            pace()
            numbers = order[first : first + ROWS]
            batch = gather_matches([part[i] for i in numbers])
            batch = MatchBatch(batch.x.to(device), batch.valid.to(device), batch.right.to(device))
            logs = log_probabilities(model, batch).double().cpu().numpy()
            for i, one in zip(numbers, logs, strict=True):
                found[i] = one[:, : part[i].right.shape[1]]

    evaluating(model, work)
    return found


def candidates(
    match: Match, logs: NDArray[np.float64], coder: MatchCoder, kind: Kind
) -> tuple[list[str], NDArray[np.float64]]:
    """Return a question's candidates and log p of each: its texts, or every sequence of up to `longest` symbols."""
    if not kind.points:
        return list(match.question.texts), logs[0]
    symbols, ids = shown_symbols(match, coder)[match.begins :], match.ids[0][match.begins :]
    first, last = logs[0, match.begins :], logs[-1, match.begins :]
    sums: dict[str, float] = {}
    for begin in range(len(symbols)):
        for end in range(begin, min(begin + kind.longest, len(symbols))):
            name = coder.joined(symbols[begin : end + 1], ids[begin : end + 1])
            value = first[begin] + (last[end] if kind.pointers > 1 else 0.0)
            sums[name] = float(np.logaddexp(sums.get(name, -np.inf), value))
    return list(sums), np.array(list(sums.values()))


def _right_names(match: Match, coder: MatchCoder) -> tuple[str, ...]:
    answer = match.question.answer
    return () if answer is None else (coder.joined(coder.symbols(answer), coder.encode(answer)),)


def recall_at_one(ranks: Sequence[NDArray[np.int64]]) -> float:
    """Return the share of questions whose best candidate is right."""
    return float(np.mean([one.min() == 1 for one in ranks])) if ranks else math.nan


def asked(line: str | Sequence[str], kind: Kind, where: str) -> Question:
    """Return an input as a question without an answer."""
    parts = list(line) if not isinstance(line, str) else line.split("\t" if "\t" in line else " | ")
    parts = [part.strip() for part in parts]
    form = "text | query" if kind.points else "query | text | text …"
    if len(parts) < 2 or (kind.points and len(parts) > 2) or not all(parts):
        raise DataError(f"{where}: got {' | '.join(parts)[:60]!r}, expected {form}, divided by tabs or by ' | '")
    if kind.points:
        return Question(parts[1], (parts[0],), "", (), where)
    return Question(parts[0], tuple(parts[1:]), None, (False,) * len(parts[1:]), where)


def as_asked(question: Question, kind: Kind) -> str:
    """Return a question in the line that `asked` reads."""
    parts = (question.texts[0], question.query) if kind.points else (question.query, *question.texts)
    lines = [one_line(part) for part in parts]
    return ("\t" if any(" | " in line for line in lines) else " | ").join(lines)
