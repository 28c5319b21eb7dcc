"""A short and a long text through one vector: how much of an e-mail's subject is known from its body, by its length.

    RECOLLECT_DATA=FOLDER python benchmarks/one_vector.py [--seeds 3] [--updates 400]

The texts are those of aeslc: e-mails and their subjects. A GRU reads the first words of a body; the words of the
subject are predicted as a set, from its last state alone (one vector), or by attention, in which every word of the
vocabulary of subjects looks at all states for itself. The score is the loss of a subject's words by their frequencies
minus the model's, in nats a word, in groups of test mails by the words of the body; with the bodies of other mails it
must not be above 0. Each cell (variant and seed) takes some seconds and is saved when it is done; the same command
again does what benchmarks/results/one-vector.json does not hold. Writes that file.
"""

from __future__ import annotations

import argparse
import gzip
import json
import re
import time
from collections import Counter
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from common import SMOKE, data_folder, earlier, save_result
from recollect.core.padding import pad
from recollect.layers.pointwise import Embedding
from recollect.layers.recurrent.gru import GRU
from recollect.story.fitting import fit

NAME = "one-vector"
VARIANTS = ("one vector", "attention")
WORDS, SUBJECT_WORDS, WIDTH, ROWS = 4000, 300, 48, 32
GROUPS = ((1, 25), (26, 50), (51, 100), (101, 200))  # words of a body, at most so many are read
LONGEST = GROUPS[-1][1]
WORD = re.compile(r"[a-z]{2,}")
COMMON = frozenset(WORD.findall("the to and of for re fw in on at with from is your you we our an as by"))


class Summary(nn.Module):
    """A body (B, S) to the scores (B, V) of the words of a subject."""

    def __init__(self, variant: str) -> None:
        super().__init__()
        self.variant = variant
        self.embedding = Embedding(WORDS + 1, WIDTH)
        self.cell = GRU(WIDTH, WIDTH)
        self.query = nn.Linear(WIDTH, SUBJECT_WORDS, bias=False)
        self.out = nn.Linear(WIDTH, SUBJECT_WORDS)

    def forward(self, ids: Tensor, valid: Tensor) -> Tensor:
        """Return the scores of each word of the vocabulary of subjects."""
        states = self.cell(self.embedding.map(ids), valid=valid)[0]  # (B, S, D)
        if self.variant == "one vector":
            last = valid.sum(1) - 1
            return self.out(states[torch.arange(len(ids)), last])
        scores = self.query(states).masked_fill(~valid[..., None], -torch.inf)  # (B, S, V)
        weights = scores.softmax(1)
        return (weights * self.out(states)).sum(1)


class Mails:
    """Bodies and the words of their subjects, as ids, with the words of a body that were there."""

    def __init__(self) -> None:
        train, test = ([_words(row) for row in _rows(part)] for part in ("train", "test"))
        bodies = Counter(word for body, _ in train for word in body)
        subjects = Counter(word for _, subject in train for word in subject)
        self.words = {word: n for n, (word, _) in enumerate(bodies.most_common(WORDS), 1)}
        self.named = {word: n for n, (word, _) in enumerate(subjects.most_common(SUBJECT_WORDS))}
        self.train, self.test = self._kept(train), self._kept(test)
        counts = torch.zeros(SUBJECT_WORDS)
        for _, subject, _ in self.train:
            counts[subject] += 1
        self.usual = (counts / counts.sum()).log()  # (V,)

    def _kept(self, pairs: Sequence[tuple[list[str], list[str]]]) -> list[tuple[list[int], list[int], int]]:
        found = []
        for body, subject in pairs:
            named = sorted({self.named[word] for word in subject if word in self.named})
            if named and body:
                found.append(([self.words.get(word, 0) for word in body[:LONGEST]], named, len(body)))
        return found


def _rows(part: str) -> list[dict[str, str]]:
    with gzip.open(data_folder() / "aeslc" / f"{part}.jsonl.gz", "rt", encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def _words(row: dict[str, str]) -> tuple[list[str], list[str]]:
    body, subject = (WORD.findall(row[name].lower()) for name in ("email", "subject"))
    return body, [word for word in subject if word not in COMMON]


def _loss(scores: Tensor, subjects: Sequence[Sequence[int]]) -> Tensor:
    """Return the mean loss (B,) of the words of each subject."""
    log = scores.log_softmax(1)
    return torch.stack([-log[row, torch.tensor(words)].mean() for row, words in enumerate(subjects)])


def cell(mails: Mails, variant: str, seed: int, updates: int) -> dict[str, Any]:
    """Train one variant; return its gain over frequencies by the length of the body, and with other mails' bodies."""
    torch.manual_seed(seed)
    begun = time.process_time()
    model = Summary(variant)
    model.out.bias.data.copy_(mails.usual)  # both begin with the frequencies

    def loss() -> Tensor:
        chosen = [mails.train[int(i)] for i in torch.randint(len(mails.train), (ROWS,))]
        return _loss(model(*pad([body for body, _, _ in chosen])), [words for _, words, _ in chosen]).mean()

    fit(model, loss, updates)
    gains = {f"{low}-{high}": _gain(model, mails, low, high) for low, high in GROUPS}
    row: dict[str, Any] = {"variant": variant, "seed": seed, "updates": updates}
    row |= {"gain": {name: found[0] for name, found in gains.items()}, "mails": {n: f[2] for n, f in gains.items()}}
    return row | {"other": {n: f[1] for n, f in gains.items()}, "seconds": time.process_time() - begun}


@torch.no_grad()
def _gain(model: Summary, mails: Mails, low: int, high: int) -> tuple[float, float, int]:
    """Return the gains over frequencies in one group, with the bodies that belong and with others, and its size."""
    chosen = [one for one in mails.test if low <= one[2] <= high]
    scores = model(*pad([body for body, _, _ in chosen]))
    subjects = [words for _, words, _ in chosen]
    usual = _loss(mails.usual.expand(len(chosen), -1), subjects)
    own, other = (float((usual - _loss(given, subjects)).mean()) for given in (scores, scores.roll(1, 0)))
    return own, other, len(chosen)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--updates", type=int, default=400)
    parser.add_argument("--cells", type=int, default=100, help="do at most so many")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    mails = Mails()
    updates = 2 if SMOKE else asked.updates
    rows = [row for row in earlier(NAME) if row["updates"] == updates]
    done = {(row["variant"], row["seed"]) for row in rows}
    due = [(variant, seed) for seed in range(asked.seeds) for variant in VARIANTS if (variant, seed) not in done]
    for variant, seed in due[: asked.cells]:
        rows.append(cell(mails, variant, seed, updates))
        print(json.dumps(rows[-1]), flush=True)
        save_result(NAME, rows, groups=[list(group) for group in GROUPS], train=len(mails.train))


if __name__ == "__main__":
    main()
