"""Models that label without context, to compare the others with: counts, and a bag of words."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from recollect.core.layer import SequenceLayer
from recollect.core.memory import Memory, Nothing
from recollect.core.validate import ContractError, check_padding, check_valid, fill_invalid
from recollect.layers.pools import RunningSum
from recollect.models.classification import ClassifierConfig
from recollect.models.encoding import EncoderConfig
from recollect.models.tagging import best_tags


class ContextFree(SequenceLayer[Memory]):
    """Base: word ids (B, T), or words with letters that are not read (B, T, 1 + L), to scores (B, T, C)."""

    carries = False

    def __init__(self, config: EncoderConfig | None = None, **options: Any) -> None:
        super().__init__()
        self.config = config = config or ClassifierConfig(**options)
        self.width = None
        self.width_out = config.labels
        self.vocab_size = config.vocab_size

    def enter(self, x: Tensor, valid: Tensor | None) -> Tensor:
        """Return the word ids, with zeros at padding."""
        if valid is not None:
            check_valid(valid, x)
            check_padding(valid)
        return fill_invalid(x if x.dim() == 2 else x[..., 0], valid)

    def features(
        self, x: Tensor, memory: Memory | None = None, *, valid: Tensor | None = None
    ) -> tuple[Tensor, Memory]:
        """Raise a ContractError: there are no features below the scores."""
        got = f"the family {self.config.family!r}, which reads no context"
        raise ContractError("features", got, "a family with trained layers")


class Majority(ContextFree):
    """The most frequent label; as a tagger the most frequent tag of each word, or of all for a word never counted.

    p(c | w) = (n(w, c) + n(c) / n) / (n(w) + 1): the counts of the word, and of all words as one occurrence more.
    It has no parameters: `count` is all that it learns.

    >>> model = rc.Majority(family="majority", vocab_size=5, labels=2)
    >>> model.count(torch.tensor([0, 1, 1]), words=torch.tensor([3, 4, 4]))
    >>> model.tags(torch.tensor([[3, 4]]))[0].tolist()
    [[0, 1]]
    """

    growth = "none"
    by_word: Tensor
    overall: Tensor

    def __init__(self, config: EncoderConfig | None = None, *, reads_words: bool = True, **options: Any) -> None:
        super().__init__(config, **options)
        self.reads_words = reads_words
        self.register_buffer("by_word", torch.zeros(self.vocab_size if reads_words else 0, self.width_out))
        self.register_buffer("overall", torch.zeros(self.width_out))

    def count(self, labels: Tensor, words: Tensor | None = None) -> None:
        """Add labels (N,), and the words that have them."""
        ones = torch.ones(len(labels))
        self.overall.index_put_((labels,), ones, accumulate=True)
        if words is not None:
            self.by_word.index_put_((words, labels), ones, accumulate=True)

    def initial_memory(self, batch_size: int, like: Tensor | None = None) -> Nothing:
        """Return the empty memory."""
        return Nothing()

    def read(self, x: Tensor, memory: Memory, valid: Tensor | None) -> tuple[Tensor, Memory]:
        """Return log p of every label at every step."""
        return self._logprob(x), memory

    def _logprob(self, x: Tensor) -> Tensor:
        total = self.overall.sum()
        shares = torch.where(total > 0, self.overall / total.clamp(min=1), 1 / self.width_out)
        if not self.reads_words:
            return shares.log().expand(*x.shape, -1)
        seen = self.by_word[x]  # (B, T, C)
        return ((seen + shares) / (seen.sum(-1, keepdim=True) + 1)).log()

    def classify(self, x: Tensor, valid: Tensor | None = None) -> Tensor:
        """Return log p of every label (B, C), the same for every sequence."""
        return self._logprob(x.new_zeros(len(x), 1))[:, 0]

    def tags(self, x: Tensor, valid: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Return the most frequent tag of each word (B, T), and the log probability of each row's (B,)."""
        return best_tags(self(x, valid=valid)[0], valid)


class BagOfWords(ContextFree):
    """Logistic regression on the words that occur: scores_t = b + Σ_{s≤t} W[x_s]; order does not matter.

    The weights begin at zero, so that words never seen in training add nothing.

    >>> model = rc.BagOfWords(family="bag-of-words", vocab_size=5, labels=2)
    >>> model.classify(torch.tensor([[1, 2, 3]])).tolist()
    [[0.0, 0.0]]
    """

    def __init__(self, config: EncoderConfig | None = None, **options: Any) -> None:
        super().__init__(config, **options)
        self.votes = nn.Embedding(self.vocab_size, self.width_out)
        self.bias = nn.Parameter(torch.zeros(self.width_out))
        nn.init.zeros_(self.votes.weight)
        self.word_dropout = self.config.word_dropout

    def initial_memory(self, batch_size: int, like: Tensor | None = None) -> RunningSum:
        """Return a sum of no words."""
        options = self._like(None)
        length = torch.zeros(batch_size, dtype=torch.long, device=options["device"])
        return RunningSum(total=torch.zeros(batch_size, self.width_out, **options), length=length)

    def read(self, x: Tensor, memory: Memory, valid: Tensor | None) -> tuple[Tensor, Memory]:
        """Return the scores of what has been read so far."""
        assert isinstance(memory, RunningSum)
        votes = self._votes(x, valid)
        count = torch.full_like(memory.length, x.shape[1]) if valid is None else valid.sum(1)
        after = RunningSum(total=memory.total + votes.sum(1), length=memory.length + count)
        return memory.total[:, None] + votes.cumsum(1) + self.bias, after

    def classify(self, x: Tensor, valid: Tensor | None = None) -> Tensor:
        """Return the scores of each whole sequence (B, C)."""
        return self._votes(self.enter(x, valid), valid).sum(1) + self.bias

    def _votes(self, x: Tensor, valid: Tensor | None) -> Tensor:
        votes = fill_invalid(self.votes(x), valid)  # (B, T, C)
        if self.training and self.word_dropout:
            is_hidden = torch.rand(x.shape, device=x.device) < self.word_dropout
            votes = votes.masked_fill(is_hidden[..., None], 0)
        return votes
