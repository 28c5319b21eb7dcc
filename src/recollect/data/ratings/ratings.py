"""Ratings as ids and numbers in three parts, and their batches.

Id 0 of users and of items is everything that does not occur in the training part.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils._pytree import register_dataclass

from recollect.core.serialize import write_file
from recollect.data.error import DataError
from recollect.data.ratings.rating_files import RatingRow, read_ratings
from recollect.data.rounds import Numbers, Rounds

PARTS = ("train", "valid", "test")
SHARE = 10  # one rating in SHARE is held out for each part that is not given
LEAST = 10  # ratings to train, validate and test on
UNKNOWN = "<unknown>"


@dataclass(frozen=True)
class Names:
    """Names by id, as a file of the run; id 0 is any other name."""

    names: tuple[str, ...]
    _ids: dict[str, int] = field(default_factory=dict, repr=False, compare=False)

    def __post_init__(self) -> None:
        self._ids.update({name: i for i, name in enumerate(self.names)})

    @classmethod
    def learn(cls, names: Iterable[str]) -> Names:
        """Return the names in the order of their first occurrence."""
        return cls((UNKNOWN, *dict.fromkeys(names)))

    def __len__(self) -> int:
        return len(self.names)

    def id(self, name: str) -> int:
        """Return a name's id, 0 for one that is unknown."""
        return self._ids.get(name, 0)

    def save(self, path: str | Path) -> None:
        """Write them as JSON."""
        write_file(Path(path), json.dumps(self.names, ensure_ascii=False).encode())

    @classmethod
    def load(cls, path: str | Path) -> Names:
        """Read them back."""
        return cls(tuple(json.loads(Path(path).read_text(encoding="utf-8"))))


@dataclass(frozen=True)
class RatingPart:
    """Ratings by number."""

    pairs: NDArray[np.int64]  # (N, 2): ids of user and item
    values: NDArray[np.float32]  # (N,)

    def __len__(self) -> int:
        return len(self.values)


@dataclass(frozen=True)
class Ratings:
    """Users and items of the training part, and three parts."""

    users: Names
    items: Names
    train: RatingPart
    valid: RatingPart
    test: RatingPart
    name: str  # a hash of the ratings and their parts


def load_ratings(data: str, field: str | None = None, valid: str | None = None, test: str | None = None) -> Ratings:
    """Return DATA in three parts; those that are not given are drawn from DATA, a tenth each."""
    given = {part: source for part, source in zip(PARTS, (data, valid, test), strict=True) if source is not None}
    rows = {part: list(read_ratings(source, field)) for part, source in given.items()}
    if len(rows["train"]) < LEAST:
        raise DataError(f"{data}: got {len(rows['train'])} ratings, expected {LEAST} or more to train and test on")
    for part, own in rows.items():
        if not own:
            raise DataError(f"{given[part]}: no ratings in it, expected at least one, as it is the {part} part")
    if len({row.value for row in rows["train"]}) == 1:
        raise DataError(f"{data}: every rating is {rows['train'][0].value:g}; there is nothing to learn")
    _hold_out(rows)
    users = Names.learn(row.user for row in rows["train"])
    items = Names.learn(row.item for row in rows["train"])
    parts = {part: encode_ratings(rows[part], users, items) for part in PARTS}
    digest = hashlib.sha256()
    for part in PARTS:
        digest.update(repr([row[:3] for row in rows[part]]).encode())
    return Ratings(users, items, **parts, name=digest.hexdigest()[:24])


def _hold_out(rows: dict[str, list[RatingRow]]) -> None:
    """Draw the parts that are missing from the training part: the same ratings on every machine."""
    missing = [part for part in PARTS if part not in rows]
    order = np.random.default_rng(0).permutation(len(rows["train"]))
    size = max(len(order) // SHARE, 1)
    whole = rows["train"]
    for part in missing:
        rows[part] = [whole[i] for i in order[:size]]
        order = order[size:]
    rows["train"] = [whole[i] for i in sorted(order)]
    known = {row[:2] for row in rows["train"]}
    for part in missing:  # a rating that a table holds twice is not tested on where it was learned
        rows[part] = [row for row in rows[part] if row[:2] not in known] or rows[part]


def encode_ratings(rows: Sequence[RatingRow], users: Names, items: Names) -> RatingPart:
    """Return ratings as ids and numbers."""
    pairs = np.array([[users.id(row.user), items.id(row.item)] for row in rows], dtype=np.int64).reshape(-1, 2)
    return RatingPart(pairs, np.array([row.value for row in rows], dtype=np.float32))


@dataclass(frozen=True)
class RatingBatch:
    """Users and items, one pair a row, and their ratings."""

    x: Tensor  # (B, 1, 2)
    y: Tensor  # (B,)

    @property
    def count(self) -> int:
        """Ratings that are predicted."""
        return len(self.y)


register_dataclass(RatingBatch)


class RatingBatches(Rounds[RatingBatch]):
    """Every rating once an epoch, `batch_size` in a batch."""

    def __init__(self, part: RatingPart, batch_size: int, seed: int = 0) -> None:
        self.part, self.batch_size = part, batch_size
        super().__init__(len(part), seed)

    @property
    def predicted(self) -> int:
        """Number of ratings."""
        return len(self.part)

    def groups(self, shuffled: Numbers) -> list[Numbers]:
        """Return groups of equal size, but for the last."""
        return np.split(shuffled, range(self.batch_size, len(shuffled), self.batch_size))

    def gather(self, numbers: Numbers) -> RatingBatch:
        """Return a group as a batch."""
        return RatingBatch(
            torch.from_numpy(self.part.pairs[numbers])[:, None], torch.from_numpy(self.part.values[numbers])
        )
