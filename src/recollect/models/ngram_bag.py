"""A classifier that reads n-grams as a set: logistic regression on log-count ratios."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from recollect.core.memory import Memory, Nothing
from recollect.core.validate import fill_invalid
from recollect.models.context_free import ContextFree
from recollect.models.encoding import EncoderConfig

MULTIPLIER = 1_000_003  # of the hash: h ← (h · m + id) mod 2⁴⁰, below 2⁶³ on the way
MODULUS = 2**40


class BagOfNGrams(ContextFree):
    """Logistic regression on which n-grams occur, each weighted by its log-count ratio (Wang & Manning 2012).

    scores = b + Σ_{g in G(x)} W[g] ⊙ r[g];  r[g, c] = ln (p(g | c) / p(g | other labels)), one added to each count.

    G(x) is the set of all 1- to n-grams of x: how often one occurs does not matter, so that the whole sequence must be
    seen at once. `count` learns r before the first update, and W begins at zero. Single symbols have rows of their own;
    longer n-grams share `buckets` rows by a hash, as in Joulin et al. (2017). Theirs is an SVM with W between its
    solution and a constant; ours is the loss of every other classifier.

    >>> model = rc.BagOfNGrams(family="bag-of-ngrams", vocab_size=5, labels=2, ngrams=2, buckets=64)
    >>> model.count(torch.tensor([[1, 2], [2, 1]]), torch.tensor([0, 1]))
    >>> model.classify(torch.tensor([[1, 2, 3]])).tolist()
    [[0.0, 0.0]]
    """

    growth = "none"
    counts_first = True  # before the first update, by the task's `fit`
    ratios: Tensor
    counts: Tensor

    def __init__(self, config: EncoderConfig | None = None, **options: Any) -> None:
        super().__init__(config, **options)
        self.ngrams: int = getattr(self.config, "ngrams", 1)
        self.buckets: int = getattr(self.config, "buckets", 1) if self.ngrams > 1 else 0
        rows = self.vocab_size + self.buckets
        self.votes = nn.Embedding(rows, self.width_out)
        self.bias = nn.Parameter(torch.zeros(self.width_out))
        nn.init.zeros_(self.votes.weight)
        self.register_buffer("counts", torch.zeros(rows, self.width_out), persistent=False)  # the ratios are saved
        self.register_buffer("ratios", torch.ones(rows, self.width_out))

    @property
    def streams(self) -> bool:
        """False: whether an n-gram has occurred before is known of the whole sequence alone."""
        return False

    def count(self, x: Tensor, labels: Tensor, valid: Tensor | None = None) -> None:
        """Add the n-grams of labelled sequences to the counts, and compute the ratios anew."""
        grams, occurs = self.grams(x, valid)
        owners = labels[:, None].expand_as(grams)[occurs]
        self.counts.index_put_((grams[occurs], owners), self.counts.new_ones(len(owners)), accumulate=True)
        own = self.counts + 1
        others = self.counts.sum(1, keepdim=True) - self.counts + 1
        self.ratios = (own / own.sum(0)).log() - (others / others.sum(0)).log()

    def forget(self) -> None:
        """Reset the counts."""
        self.counts.zero_()
        self.ratios.fill_(1.0)

    def grams(self, x: Tensor, valid: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Return the rows of all n-grams (B, F), sorted, and which of them are real and the first of their kind."""
        ids = self.enter(x, valid)  # (B, T)
        real = torch.ones_like(ids, dtype=torch.bool) if valid is None else valid
        rows = [ids]
        whole = [real]
        hashed = ids + 1
        for n in range(2, min(self.ngrams, ids.shape[1]) + 1):
            hashed = (hashed[:, :-1] * MULTIPLIER + ids[:, n - 1 :] + 1) % MODULUS
            rows.append(self.vocab_size + hashed % self.buckets)
            whole.append(real[:, n - 1 :])  # padding is on the right: an n-gram is whole if its last symbol is real
        missing = self.vocab_size + self.buckets
        marked = torch.where(torch.cat(whole, 1), torch.cat(rows, 1), missing).sort(dim=1).values  # (B, F)
        occurs = marked < missing
        occurs[:, 1:] &= marked[:, 1:] != marked[:, :-1]
        return torch.where(occurs, marked, 0), occurs

    def initial_memory(self, batch_size: int, like: Tensor | None = None) -> Nothing:
        """Return the empty memory."""
        return Nothing()

    def read(self, x: Tensor, memory: Memory, valid: Tensor | None) -> tuple[Tensor, Memory]:
        """Return the scores of the whole sequence at every step."""
        scores = self.classify(x, valid)
        return fill_invalid(scores[:, None].expand(-1, x.shape[1], -1), valid), memory

    def classify(self, x: Tensor, valid: Tensor | None = None) -> Tensor:
        """Return the scores of each whole sequence (B, C)."""
        grams, occurs = self.grams(x, valid)
        votes = self.votes(grams) * self.ratios[grams]  # (B, F, C)
        return votes.masked_fill(~occurs[..., None], 0).sum(1) + self.bias
