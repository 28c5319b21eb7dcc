"""Attention over several views of one source: two levels of it, or several representations of each step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn
from typing_extensions import Unpack

from recollect.core.record import note
from recollect.core.types import TensorOptions
from recollect.core.validate import ContractError, check_input, check_valid, fill_invalid
from recollect.layers.attention.attend import Attend, home_of
from recollect.layers.attention.cross_attention import Source


class TwoLevels(NamedTuple):
    """A source at two levels of detail, as `AttentionViaAttention` remembers it."""

    coarse: Source
    fine: Source


class AttentionViaAttention(nn.Module):
    """Attention to words helps attention to characters (after Zhao & Zhang 2018, "AVA").

    c_w = attend_w(q);  c_c = attend_c([q; c_w]);  y = [c_c; c_w]

    `coarse` attends to the words, `fine` to the characters with the query and the words' context. Where the score of
    `fine` does not read c_w, c_c is attention to the characters alone. The source is encoded by the caller.

    >>> attend = rc.AttentionViaAttention(rc.Attend(rc.Dot(4, 4)), rc.Attend(rc.General(8, 6)))
    >>> source = attend.remember(torch.randn(2, 3, 4), torch.randn(2, 9, 6))  # three words of nine characters
    >>> attend(torch.randn(2, 1, 4), source).shape
    torch.Size([2, 1, 10])
    """

    def __init__(self, coarse: Attend, fine: Attend) -> None:
        super().__init__()
        expected = coarse.query_width + coarse.width_out
        if fine.query_width != expected:
            raise ContractError(
                "fine", f"query_width {fine.query_width}", f"{expected}: the query and coarse's context"
            )
        self.coarse, self.fine = coarse, fine
        self.query_width = coarse.query_width
        self.width_out = fine.width_out + coarse.width_out

    def remember(
        self, words: Tensor, characters: Tensor, words_valid: Tensor | None = None, valid: Tensor | None = None
    ) -> TwoLevels:
        """Return the memory of words (B, W, D_w) and characters (B, S, D_c)."""
        return TwoLevels(self.coarse.remember(words, words_valid), self.fine.remember(characters, valid))

    def forward(self, q: Tensor, source: TwoLevels, place: Tensor | None = None) -> Tensor:
        """Return [c_c; c_w], (B, T, V_c + V_w)."""
        of_words = self.coarse(q, source.coarse, place)
        of_characters = self.fine(torch.cat([q, of_words], dim=2), source.fine, place)
        return torch.cat([of_characters, of_words], dim=2)


class MultiRepresentational(nn.Module):
    """Each step's several representations, weighted step by step (Kiela et al. 2018, "DME").

    r_i = P_i x_i + b_i;  e_i = aᵀ r_i + b;  y = Σ_i softmax_i(e) r_i,  for each step alone

    One representation equals its projection, and a = 0 is the mean of the projections.

    >>> mix = rc.MultiRepresentational((6, 3), 4)
    >>> mix([torch.randn(2, 5, 6), torch.randn(2, 5, 3)]).shape
    torch.Size([2, 5, 4])
    """

    def __init__(self, widths: Sequence[int], width: int, **factory: Unpack[TensorOptions]) -> None:
        super().__init__()
        if not widths:
            raise ValueError("widths: got none, expected one for each representation")
        self.widths = tuple(widths)
        self.width_out = width
        self.projections = nn.ModuleList(nn.Linear(one, width, **factory) for one in widths)
        self.score = nn.Linear(width, 1, **factory)

    def forward(self, representations: Sequence[Tensor], valid: Tensor | None = None) -> Tensor:
        """Mix representations (B, S, D_i) into (B, S, D); zeros where a step is not valid."""
        if len(representations) != len(self.widths):
            raise ContractError("representations", f"{len(representations)}", f"{len(self.widths)}")
        shown = []
        for x, width, project in zip(representations, self.widths, self.projections, strict=True):
            check_input(x, width, *home_of(self))
            if valid is not None:
                check_valid(valid, x)
                x = fill_invalid(x, valid)
            shown.append(project(x))
        projected = torch.stack(shown, 2)  # (B, S, R, D)
        weights = self.score(projected).softmax(2)  # (B, S, R, 1)
        note(self, weights=weights.squeeze(3))
        mixed = (weights * projected).sum(2)
        return mixed if valid is None else fill_invalid(mixed, valid)
