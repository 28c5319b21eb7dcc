"""Translators of the built-in grammar, English to Chinese, that several claims train alike."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from recollect.core.record import record
from recollect.data.synthetic.grammar import Aligned, aligned_grammar
from recollect.models.translation import Translator
from recollect.story.fitting import fit
from recollect.story.sentences import Sentence, as_ids, numbers_of

COUNT, TRAINED, ROWS, WIDTH = 3000, 2800, 32, 48
BEGIN, END = 0, "。"
LONGEST = 30  # words of a translation


@dataclass(frozen=True)
class Taught:
    """A trained translator, its vocabularies, and sentences that it was not trained on."""

    model: Translator
    source: dict[str, int]
    target: dict[str, int]
    held_out: list[Aligned]

    @torch.no_grad()
    def translate(self, sentences: Sequence[Sentence]) -> list[list[str]]:
        """Return the greedy translations, without the full stop."""
        if not sentences:
            return []
        ids, valid = as_ids(sentences, self.source)
        memory = self.model.remember(ids, valid)
        words = ["", *self.target]
        last, said = torch.full((len(ids), 1), BEGIN), []
        for _ in range(LONGEST):
            logits, memory = self.model(last, memory)
            last = logits.argmax(2)
            said.append(last[:, 0])
        rows = [[words[i] for i in row] for row in torch.stack(said, 1).tolist()]
        return [row[: row.index(END)] if END in row else row for row in rows]

    @torch.no_grad()
    def weights(self, sentences: Sequence[Aligned]) -> Tensor:
        """Return the attention (B, T, S) while the reference translations are read, a mean over the heads."""
        ids, valid = as_ids([one.source for one in sentences], self.source)
        target, _ = as_ids([one.target for one in sentences], self.target)
        with record(self.model.decoder) as seen:
            self.model(_given(target), self.model.remember(ids, valid))
        (name,) = (name for name in seen if name.endswith("cross.weights"))
        return seen[name].mean(1)


def taught(seed: int, updates: int) -> Taught:
    """Return a Transformer of one block on each side, trained on sentences of the grammar."""
    made = list(aligned_grammar(count=COUNT, seed=seed))
    source = numbers_of(one.source for one in made)
    target = numbers_of((one.target for one in made), first=BEGIN + 1)
    ids, valid = as_ids([one.source for one in made[:TRAINED]], source)
    wanted, known = as_ids([one.target for one in made[:TRAINED]], target)
    torch.manual_seed(seed)
    model = Translator("transformer", len(source), len(target) + 1, width=WIDTH, layers=1, heads=4, norm="pre")

    def loss() -> Tensor:
        rows = torch.randint(TRAINED, (ROWS,))
        logits, _ = model(_given(wanted[rows]), model.remember(ids[rows], valid[rows]))
        return F.cross_entropy(logits[known[rows]], wanted[rows][known[rows]])

    fit(model, loss, updates, rate=0.01)
    return Taught(model.eval(), source, target, made[TRAINED:])


def _given(target: Tensor) -> Tensor:
    """Return what is read before each word of the target (B, T)."""
    return F.pad(target[:, :-1], (1, 0), value=BEGIN)
