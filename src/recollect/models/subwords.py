"""Words as rows of subwords: a model that reads byte pairs or characters gives one vector for each word.

    x (B, T, K): the ids of a word's subwords plus one, 0 after the last

The subwords of all words are read one after the other; a word's vector is that of its first subword, as in BERT, or of
its last where the model reads from left to right and has seen the whole word only there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from recollect.core.validate import ContractError, check_padding, check_valid, fill_invalid


@dataclass(frozen=True)
class Subwords:
    """How words become one sequence of subwords: marks around it, and which subword stands for a word."""

    frame: Sequence[int] = ()  # the ids before and after all subwords, both or none
    is_last: bool = False  # a word's vector is that of its last subword

    def __post_init__(self) -> None:
        if len(self.frame) not in (0, 2):
            raise ContractError("frame", f"{len(self.frame)} ids", "two, before and after, or none")

    def enter(self, x: Tensor, valid: Tensor | None) -> Tensor:
        """Check the words, and return them with zeros at padding."""
        if x.dim() != 3 or x.is_floating_point():
            raise ContractError("x", f"shape {tuple(x.shape)}, {x.dtype}", "ids (B, T, subwords of a word)")
        if valid is not None:
            check_valid(valid, x)
            check_padding(valid)
        return fill_invalid(x, valid)

    def flatten(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return the subwords in order (B, P), which of them are real, and the place of each word's subword (B, T)."""
        is_subword = x > 0  # (B, T, K)
        before = len(self.frame) // 2
        order = is_subword.flatten(1).cumsum(1).view_as(x) - 1 + before  # the place of each subword
        counts = is_subword.sum((1, 2)) + len(self.frame)  # (B,)
        longest = int(counts.max()) if len(x) else 0
        ids = x.new_zeros(len(x), longest + 1)  # the last column is for what is no subword
        ids.scatter_(1, order.masked_fill(~is_subword, longest).flatten(1), (x - 1).clamp(min=0).flatten(1))
        if self.frame:
            ids[:, 0] = self.frame[0]
            ids[torch.arange(len(x), device=x.device), counts - 1] = self.frame[1]
        valid = torch.arange(longest, device=x.device) < counts[:, None]
        chosen = (is_subword.sum(2) - 1).clamp(min=0) if self.is_last else x.new_zeros(x.shape[:2])
        places = order.gather(2, chosen[..., None])[..., 0]
        return ids[:, :longest], valid, places.clamp(0, max(longest - 1, 0))
