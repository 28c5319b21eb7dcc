"""Recommendation: how an item will be rated by a user is predicted from learned factors of both."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray

from recollect.core.errors import nearest
from recollect.core.serialize import write_file
from recollect.core.settings import CheckedSettings, refuse_unused, setting
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
from recollect.core.types import JsonMapping
from recollect.data.error import DataError
from recollect.data.ratings.rating_files import AskedRating, asked_ratings, read_ratings
from recollect.data.ratings.ratings import (
    Names,
    RatingBatch,
    RatingBatches,
    RatingPart,
    Ratings,
    encode_ratings,
    load_ratings,
)
from recollect.data.synthetic.tastes import is_tastes
from recollect.data.text.input_lines import lines_of
from recollect.evaluation.ranking_metrics import mean_reciprocal_rank, ranks_of, recall_at
from recollect.models.recommendation import FAMILIES, Recommender, RecommenderConfig, settings_of

BEST = 10  # items that are recommended, and looked at by recall
MEASURES = {
    "rmse": Measure("RMSE", "root of the mean squared error of the ratings"),
    "mae": Measure("MAE", "mean absolute error of the ratings"),
    "mrr": Measure(
        "MRR", "mean over users of 1 / rank of the best test item rated above the mean", lower_is_better=False
    ),
    "recall": Measure(
        f"recall@{BEST}", f"share of test items rated above the mean among the first {BEST}", lower_is_better=False
    ),
}


@dataclass(frozen=True)
class RecommendOptions(CheckedSettings):
    """Settings of a recommender's run."""

    field: str | None = setting(None, help="the three columns of user, item and rating; by default the first three")
    valid: str | None = setting(None, help="other ratings to validate on; by default a tenth of DATA")
    test: str | None = setting(None, help="other ratings to test on; by default a tenth of DATA")
    batch_size: int = setting(256, least=1, help="ratings in a batch")
    penalty: float = setting(0.1, least=0.0, help="λ of the squared biases and factors, for each rating")


@dataclass(frozen=True)
class Rated:
    """What each user has rated in training, by id, as a file of the run: it is not recommended again."""

    items: tuple[tuple[int, ...], ...]

    def save(self, path: Path) -> None:
        """Write it as JSON."""
        write_file(path, json.dumps(self.items).encode())

    @classmethod
    def load(cls, path: Path) -> Rated:
        """Read it back."""
        return cls(tuple(tuple(row) for row in json.loads(path.read_text(encoding="utf-8"))))


class RecommendTask(TaskDefaults):
    """Predict ratings; recommend items."""

    name: ClassVar[str] = "recommend"
    Options: ClassVar[type] = RecommendOptions
    families: ClassVar[tuple[str, ...]] = FAMILIES
    Config: ClassVar[type] = RecommenderConfig
    default_model: ClassVar[str] = "factors"

    def __init__(self, options: RecommendOptions | None = None) -> None:
        super().__init__(options or RecommendOptions())

    def open(self, source: str) -> Ratings:
        """Read the ratings."""
        if is_tastes(source):
            refuse_unused(self.options, ("field",), f"{source} is generated and has no columns to choose")
        return load_ratings(source, self.options.field, self.options.valid, self.options.test)

    def read(self, source: str, assets: Assets) -> Ratings:
        """Read other ratings with the run's users and items, as a test part."""
        users, items = assets["users"], assets["items"]
        part = encode_ratings(list(read_ratings(source, self.options.field)), users, items)
        if not len(part):
            raise DataError(f"{source}: no ratings; give a table with a user, an item and a rating in each row")
        return Ratings(users, items, part, part, part, source)

    settings = staticmethod(settings_of)

    def config(self, family: str, size: str, dataset: Ratings, settings: JsonMapping) -> RecommenderConfig:
        """Return the config for the training part's users, items and ratings; its size is its width."""
        values = dataset.train.values
        scale = float(values.mean()), float(values.min()), float(values.max())
        return RecommenderConfig(family, len(dataset.users), len(dataset.items), *scale, **settings)

    def build(self, config: JsonMapping) -> Recommender:
        """Return a model with new weights."""
        return Recommender(RecommenderConfig(**config))

    def assets(self, dataset: Ratings) -> Assets:
        """Return the names of users and items, and what each user has rated."""
        rated: list[list[int]] = [[] for _ in dataset.users.names]
        for user, item in dataset.train.pairs.tolist():
            rated[user].append(item)
        return {"users": dataset.users, "items": dataset.items, "rated": Rated(tuple(map(tuple, rated)))}

    def load_assets(self, folder: Path) -> Assets:
        """Read them back."""
        names = {side: Names.load(folder / f"{side}.json") for side in ("users", "items")}
        return {**names, "rated": Rated.load(folder / "rated.json")}

    def batches(self, dataset: Ratings, model: Recommender, seed: int) -> Batches:
        """Return batches of `batch_size` ratings."""
        return RatingBatches(dataset.train, self.options.batch_size, seed)

    def loss(self, model: Recommender, batch: RatingBatch, memory: None) -> Loss:
        """Return Σ (r − r̂)² + λ (b_u² + b_i² + ‖p_u‖² + ‖q_i‖²) (Koren, Bell & Volinsky 2009, eq. 5)."""
        pairs = model.pair(*batch.x.unbind(-1))  # (B, 1)
        errors = model(pairs)[0][:, 0, 0] - batch.y
        return Loss(errors.square().sum() + self.options.penalty * model.penalty(pairs), batch.count)

    def measure(self, model: Recommender, dataset: Ratings, split: str, limit: int | None = None) -> Scores:
        """Return the error of the ratings of a part."""
        errors = _errors(model, getattr(dataset, split), limit)
        return Scores({"rmse": MEASURES["rmse"]}, {"ratings": {"rmse": _root_mean_square(errors)}})

    def item_scores(self, model: Recommender, dataset: Ratings, split: str) -> ItemScores:
        """Return the squared error of each rating."""
        errors = _errors(model, getattr(dataset, split))
        return ItemScores(np.square(errors).tolist(), [1.0] * len(errors), power=0.5)

    def evaluate(self, model: Recommender, dataset: Ratings, assets: Assets, steps: int | None = None) -> Scores:
        """Return the errors of the test part's ratings, and how well its users' favourites are ranked."""
        errors = _errors(model, dataset.test)
        ranks = list(_ranks(model, dataset.test, assets["rated"]))
        rows = {"ratings": {"rmse": _root_mean_square(errors), "mae": float(np.abs(errors).mean())}}
        if ranks:  # none where no known user liked a known item
            rows["new items"] = {"mrr": mean_reciprocal_rank(ranks), "recall": recall_at(BEST, ranks)}
        return Scores(MEASURES, rows, {"ratings": len(errors), "users": len(ranks)})

    def predict(
        self, model: Recommender, assets: Assets, inputs: str | Sequence[str], nbest: int = BEST
    ) -> Iterator[Prediction]:
        """Return items for a user, or the rating of `user,item`; of a line, of every line of a file or list.

        Of a table as the run was trained on, the rating of each row's user and item is predicted.
        """
        users, items = assets["users"], assets["items"]
        asked = asked_ratings(inputs, self.options.field, users.names[1:]) if isinstance(inputs, str) else None
        if asked is None:
            lines = lines_of(inputs) if isinstance(inputs, str) else inputs
            asked = [_asked(line) for line in lines]
        for one in asked:
            user = _known(one.user, users, "a user")
            ratings = model.rate_all(user).tolist()
            if one.item is None:
                yield Prediction(one.user, _best(ratings, assets, user, nbest))
            else:
                rating = ratings[_known(one.item, items, "an item")]
                yield Prediction(f"{one.user},{one.item}", [Answer(f"{rating:.2f}", 0.0, 0.0)])

    def baselines(self, dataset: Ratings) -> list[Baseline]:
        """Return the errors of the mean rating: of all, of the user, of the item."""
        rows = {"mean": None, "mean of the user": 0, "mean of the item": 1}
        return [Baseline(name, _mean_error(dataset, side)) for name, side in rows.items()]

    def sample(self, model: Recommender, dataset: Ratings) -> tuple[str, str]:
        """Return the first known user of the validation part, and an item for them."""
        user = next((int(u) for u in dataset.valid.pairs[:, 0] if u), 1)
        best = int(model.rate_all(user)[1:].argmax()) + 1
        return dataset.users.names[user], f" → {dataset.items.names[best]}"

    def about(self, dataset: Ratings, model: Recommender) -> About:
        """Return the contents of the model card."""
        tables = (table for table in (model.user_bias, model.tastes) if table is not None)
        return About(
            noun={"en": "A recommender", "zh": "推荐模型"},
            symbols="user and item",
            vocabulary=len(dataset.users) + len(dataset.items),
            parts=(len(dataset.train), len(dataset.valid), len(dataset.test)),
            unit={"en": "ratings", "zh": "条评分"},
            memory={1: sum(table.weight[0].nbytes for table in tables)},
            use="predict",
        )


def _asked(line: str) -> AskedRating:
    """Return what a line asks for: a user's items, or the rating of user and item."""
    user, has_item, item = line.replace("\t", ",").partition(",")
    return AskedRating(user.strip(), item.strip() if has_item else None)


def _known(name: str, names: Names, what: str) -> int:
    """Return an id; raise a DataError for a name that did not occur in training."""
    if not names.id(name):
        near = nearest(name, names.names[1:])
        raise DataError(f"{name!r}: {what} that the run does not know{near}; expected one of its training part")
    return names.id(name)


def _best(ratings: list[float], assets: Assets, user: int, nbest: int) -> list[Answer]:
    """Return the items with the highest ratings, without those that the user has rated; id 0 is no item."""
    rated = {0, *assets["rated"].items[user]}
    order = sorted((i for i in range(len(ratings)) if i not in rated), key=lambda i: -ratings[i])
    return [Answer(assets["items"].names[i], ratings[i], 0.0) for i in order[:nbest]]


@torch.no_grad()
def _errors(model: Recommender, part: RatingPart, limit: int | None = None) -> NDArray[np.float64]:
    pairs = torch.from_numpy(part.pairs[:limit]).to(next(model.parameters()).device)  # (N, 2)
    was_training = model.training
    found = model.eval()(model.pair(*pairs.unbind(-1))[None])[0][0, :, 0]
    model.train(was_training)
    return np.asarray(found.cpu().double().numpy() - part.values[:limit])


def _root_mean_square(errors: NDArray[np.float64]) -> float:
    return math.sqrt(float(np.square(errors).mean()))


def _ranks(model: Recommender, part: RatingPart, rated: Rated) -> Iterator[NDArray[np.int64]]:
    """Yield the ranks of each user's test items above the mean, among the items that the user has not rated."""
    liked: dict[int, list[int]] = {}
    for (user, item), value in zip(part.pairs.tolist(), part.values.tolist(), strict=True):
        if user and item and value > model.config.mean:
            liked.setdefault(user, []).append(item)
    for user, items in liked.items():
        scores = model.rate_all(user).cpu().double().numpy()
        scores[[0, *rated.items[user]]] = -np.inf
        yield ranks_of(scores, sorted(set(items)))


def _mean_error(dataset: Ratings, side: int | None) -> float:
    """Return the error of the mean rating by user (0), by item (1), or of all; unknown ones get that of all."""
    whole = float(dataset.train.values.mean())
    if side is None:
        return _root_mean_square(dataset.test.values.astype(np.float64) - whole)
    size = len((dataset.users, dataset.items)[side])
    ids = dataset.train.pairs[:, side]
    counts = np.bincount(ids, minlength=size)
    sums = np.bincount(ids, weights=dataset.train.values, minlength=size)
    means: Any = np.where(counts > 0, sums / np.maximum(counts, 1), whole)
    return _root_mean_square(dataset.test.values - means[dataset.test.pairs[:, side]])
