"""Words as vectors that also know their spelling: a word unseen in training still has letters."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from recollect.core.validate import ContractError, check_padding, check_valid, fill_invalid
from recollect.layers.filters import Filters
from recollect.layers.pointwise import Pointwise


class SpelledEmbedding(Pointwise):
    """A word's vector beside a vector of its letters, by convolution and maximum (Ma & Hovy 2016, section 2.1).

    y = [E w;  max over letters of relu(filters of three letters)]

    x is (B, T, 1 + L): the word's id, then its letters' ids from 1 on, 0 after the last. `letters` is the number of
    letters that occur, `width_spelled` the share of the width that the letters have.

    >>> layer = rc.SpelledEmbedding(10, 8, letters=26, width_spelled=3)
    >>> layer(torch.tensor([[[7, 3, 1, 20, 0], [2, 4, 15, 7, 0]]]))[0].shape  # word 7: c a t, word 2: d o g
    torch.Size([1, 2, 8])
    """

    def __init__(
        self, vocab_size: int, width: int, *, letters: int, width_spelled: int, letter_width: int = 24
    ) -> None:
        super().__init__()
        if not 0 < width_spelled < width:
            raise ContractError("width_spelled", width_spelled, f"1 to {width - 1}: words have the rest of {width}")
        self.width, self.width_out, self.vocab_size, self.letters = None, width, vocab_size, letters
        self.table = nn.Embedding(vocab_size, width - width_spelled)
        self.letter_table = nn.Embedding(letters + 1, letter_width, padding_idx=0)
        self.filters = Filters(letter_width, width_spelled, sizes=(3,))

    def enter(self, x: Tensor, valid: Tensor | None) -> Tensor:
        """Check the inputs, and return x with zeros at padding."""
        if x.dim() != 3 or x.shape[2] < 2 or x.is_floating_point():
            raise ContractError(
                "x", f"shape {tuple(x.shape)}, {x.dtype}", "ids (B, T, 1 + letters): word, then letters"
            )
        if valid is not None:
            check_valid(valid, x)
            check_padding(valid)
        return fill_invalid(x, valid)

    def map(self, x: Tensor) -> Tensor:
        """Return the vectors (B, T, D)."""
        letters = x[..., 1:].flatten(0, 1)  # (B · T, L)
        spelled = self.filters.read(self.letter_table(letters), self.filters.initial_memory(0), None)[0]
        seen = spelled.masked_fill((letters == 0)[..., None], 0)  # relu: no value is below 0
        return torch.cat([self.table(x[..., 0]), seen.amax(1).unflatten(0, x.shape[:2])], dim=-1)
