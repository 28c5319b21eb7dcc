"""Attentive pooling: learned queries reduce a sequence, or a document of sentences, to a few vectors."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from typing_extensions import Unpack

from recollect.core.record import note
from recollect.core.types import AnyLayer, TensorOptions
from recollect.core.validate import ContractError
from recollect.layers.attention.attend import Attend
from recollect.layers.attention.score import Dot, Score


class TanhDot(Dot):
    """e(q, k) = qᵀ tanh(W k + b): the score of self-attentive pooling (Yang et al. 2016, section 2.2).

    tanh(W k + b) is remembered.

    >>> score = rc.TanhDot(6, 4)
    >>> score(torch.randn(2, 3, 6), score.keys(torch.randn(2, 5, 4))).shape
    torch.Size([2, 3, 5])
    """

    def __init__(
        self, query_width: int, key_width: int, *, bias: bool = True, **factory: Unpack[TensorOptions]
    ) -> None:
        super().__init__(query_width, query_width)
        self.key_width = key_width
        self.width = query_width
        self.key = nn.Linear(key_width, query_width, bias=bias, **factory)

    def keys(self, source: Tensor) -> Tensor:
        """Return tanh(W k + b)."""
        return torch.tanh(self.key(source))


class SelfAttentive(nn.Module):
    """Pool a sequence into `rows` vectors, each with a learned query (Lin et al. 2017, section 2.1).

    c_r = Σ_s a_rs v_s,  a_r = softmax_s score(q_r, k_s)

    The default score is `TanhDot`: its queries are the rows of the paper's W_s2, its keys tanh(W_s1 k); the paper has
    no b.

    >>> pool = rc.SelfAttentive(8, rows=3)
    >>> pool(torch.randn(2, 5, 8)).shape
    torch.Size([2, 3, 8])
    """

    def __init__(
        self,
        width: int,
        rows: int = 1,
        *,
        hidden: int | None = None,
        score: Score | None = None,
        **factory: Unpack[TensorOptions],
    ) -> None:
        super().__init__()
        if score is None:
            score = TanhDot(hidden or width, width, **factory)
        self.attend = Attend(score)
        self.width = width
        self.rows = rows
        self.width_out = self.attend.width_out
        queries = torch.empty(rows, score.query_width, **factory)
        self.queries = nn.Parameter(nn.init.normal_(queries, std=score.query_width**-0.5))

    def forward(self, features: Tensor, valid: Tensor | None = None) -> Tensor:
        """Pool (B, S, D) into (B, rows, D)."""
        source = self.attend.remember(features, valid)
        return self.attend(self.queries.expand(len(features), -1, -1), source)


class Hierarchical(nn.Module):
    """Words to sentences to a document, with attention at both levels (Yang et al. 2016).

    s_p = pool of the words of sentence p;  d = pool of the sentences

    `word_reader` and `sentence_reader` are layers that read the words of a sentence, and the sentences, before they are
    pooled (the paper's bidirectional GRUs). A sentence without words counts as padding: it may only come last.

    >>> pool = rc.Hierarchical(rc.SelfAttentive(8), rc.SelfAttentive(8))
    >>> pool(torch.randn(2, 3, 5, 8)).shape  # documents of three sentences of five words
    torch.Size([2, 8])
    """

    def __init__(
        self,
        words: SelfAttentive,
        sentences: SelfAttentive,
        *,
        word_reader: AnyLayer | None = None,
        sentence_reader: AnyLayer | None = None,
    ) -> None:
        super().__init__()
        if words.rows != 1 or sentences.rows != 1:
            raise ValueError(f"rows: got {words.rows} and {sentences.rows}, expected 1: one vector for each level")
        self.words, self.sentences = words, sentences
        self.word_reader, self.sentence_reader = word_reader, sentence_reader
        self.width_out = sentences.width_out

    def forward(self, x: Tensor, valid: Tensor | None = None) -> Tensor:
        """Pool words (B, P, W, D), of which valid (B, P, W) are real, into documents (B, D)."""
        if x.dim() != 4:
            raise ContractError("x", f"shape {tuple(x.shape)}", "(B, sentences, words, D)")
        if valid is None:
            valid = torch.ones(x.shape[:3], dtype=torch.bool, device=x.device)
        vectors = _pool(self.words, self.word_reader, x.flatten(0, 1), valid.flatten(0, 1))
        return _pool(self.sentences, self.sentence_reader, vectors.unflatten(0, x.shape[:2]), valid.any(2))


def _pool(level: SelfAttentive, reader: AnyLayer | None, x: Tensor, valid: Tensor) -> Tensor:
    if reader is not None:
        x = reader(x, valid=valid)[0]
    return level(x, valid).squeeze(1)


class Capsules(nn.Module):
    """One capsule for each class, with its own attention over the features (Wang et al. 2018, "RNN-Capsule").

    v_i = Σ_s a_is h_s,  a_i = softmax_s(w_i · h_s);  p_i = σ(u_i · v_i + b_i);  r_i = p_i v_i

    The predicted class is that of the highest p; training brings the r of the right class near the mean feature.

    >>> capsules = rc.Capsules(8, classes=3)
    >>> capsules(torch.randn(2, 5, 8))[0].shape  # a probability for each class
    torch.Size([2, 3])
    """

    def __init__(self, width: int, classes: int, **factory: Unpack[TensorOptions]) -> None:
        super().__init__()
        self.pool = SelfAttentive(width, classes, score=Dot(width, width), **factory)
        self.active = nn.Parameter(nn.init.normal_(torch.empty(classes, width, **factory), std=width**-0.5))
        self.bias = nn.Parameter(torch.zeros(classes, **factory))

    def forward(self, features: Tensor, valid: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Return each class's probability (B, C) and its reconstruction of the features (B, C, D)."""
        seen = self.pool(features, valid)  # (B, C, D)
        probability = torch.sigmoid((seen * self.active).sum(2) + self.bias)
        note(self, None, probability=probability)
        return probability, probability[:, :, None] * seen
