"""The Markov chain: the next symbol depends on the last few, and the probabilities are counted, not trained."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from recollect.core.layer import SequenceLayer
from recollect.core.record import note
from recollect.core.validate import ContractError, check_ids, check_prefix, check_valid, fill_invalid
from recollect.layers.ngram.counts import Level, count_ngrams, empty_levels, merge_levels
from recollect.layers.ngram.recent import Recent
from recollect.layers.ngram.smoothing import SMOOTHINGS, smooth


class Markov(SequenceLayer[Recent]):
    """An n-gram model with n = order + 1 (Markov 1913; Shannon 1948).

    p(w | h) = share(h w) + back(h) · p(w | h')      h: the last `order` symbols; h': h without its first

    What `count` has seen is all it knows; `recollect.layers.ngram.smoothing` defines share and back.
    With "kneser-ney" it is the model of KenLM's lmplz --discount_fallback, with vocab_size taken as the number of
    symbols that can be predicted; on tiny texts the discounts can differ (see `smoothing.discounts`). A model that has
    counted nothing predicts all symbols with equal probability.

    Outputs are log-probabilities of the symbol after each id. A begin symbol, which has the id `vocab_size` and is
    never predicted, stands before each row. N-grams are found by level, among the sorted keys of
    `recollect.layers.ngram.counts`. The saved state is the counts alone, so they may be loaded under another smoothing.

    >>> model = rc.Markov(3, order=1, smoothing="maximum-likelihood")
    >>> model.count(torch.tensor([[0, 1, 0, 1, 0, 2]]))
    >>> logprobs, memory = model(torch.tensor([[0]]))
    >>> [round(p, 3) for p in logprobs[0, 0].exp().tolist()]
    [0.0, 0.667, 0.333]
    """

    def __init__(
        self,
        vocab_size: int,
        order: int,
        *,
        smoothing: Literal["kneser-ney", "witten-bell", "maximum-likelihood"] = "kneser-ney",
    ) -> None:
        super().__init__()
        if vocab_size < 1:
            raise ContractError("vocab_size", vocab_size, "at least 1")
        if order < 0:
            raise ContractError("order", order, "at least 0, the number of symbols to remember")
        if smoothing not in SMOOTHINGS:
            raise ContractError("smoothing", repr(smoothing), " or ".join(map(repr, SMOOTHINGS)))
        self.vocab_size, self.order, self.smoothing = vocab_size, order, smoothing
        self.width, self.width_out = None, vocab_size
        self.register_buffer("vocabulary", torch.tensor(vocab_size))  # keys mean nothing without it
        self._keep(empty_levels(vocab_size, order))

    def extra_repr(self) -> str:
        """Return the arguments, for `print`."""
        return f"{self.vocab_size}, {self.order}, smoothing={self.smoothing!r}"

    # ---- counting --------------------------------------------------------------------------------

    def count(self, ids: Tensor, valid: Tensor | None = None, *, end: int | None = None) -> None:
        """Count the n-grams of ids (B, T), each row a sequence of its own, and add them to those counted before.

        With `end` that id is counted after each row's last symbol. Every call merges the whole table: a few large
        calls are faster than many small ones.
        """
        symbols, real = self._frame(ids, valid, end)
        text = symbols[real].cpu().numpy()
        self._keep(merge_levels(self._levels(), count_ngrams(text, self.vocab_size, self.order)))

    def _frame(self, ids: Tensor, valid: Tensor | None, end: int | None) -> tuple[Tensor, Tensor]:
        """Return symbols (B, T + 1 or 2), the begin symbol before each row and `end` after it, and which are real."""
        self._check(ids, valid, end)
        real = torch.ones_like(ids, dtype=torch.bool) if valid is None else valid
        symbols = F.pad(ids.long().masked_fill(~real, -1), (1, 0), value=self.vocab_size)
        real = F.pad(real, (1, 0), value=True)
        if end is None:
            return symbols, real
        length = real.sum(1, keepdim=True)  # (B, 1), the begin symbol included
        return F.pad(symbols, (0, 1), value=-1).scatter(1, length, end), F.pad(real, (1, 0), value=True)

    def _check(self, ids: Tensor, valid: Tensor | None, end: int | None) -> None:
        if ids.dim() != 2:
            raise ContractError("ids", f"shape {tuple(ids.shape)}", "(B, T)")
        if ids.dtype not in (torch.int64, torch.int32):
            raise ContractError("ids", f"dtype {ids.dtype}", "torch.int64 or torch.int32")
        if valid is not None:
            check_valid(valid, ids)
            check_prefix(valid)
        check_ids(fill_invalid(ids, valid), self.vocab_size)
        if end is not None and not 0 <= end < self.vocab_size:
            raise ContractError("end", end, f"an id, 0 to {self.vocab_size - 1}")

    # ---- reading ---------------------------------------------------------------------------------

    def initial_memory(self, batch_size: int, like: Tensor | None = None) -> Recent:
        """Return the memory of the begin symbol, with -1, no symbol, before it."""
        device = self._like(like)["device"]
        last = torch.full((batch_size, self.order), -1, device=device)
        last[:, -1:] = self.vocab_size
        return Recent(last=last, length=torch.zeros(batch_size, dtype=torch.int64, device=device))

    def read(self, x: Tensor, memory: Recent, valid: Tensor | None) -> tuple[Tensor, Recent]:
        """Compute log p: the unigrams, corrected by one longer context after another."""
        joined, memory = memory.append(x.long(), valid)  # (B, order + T)
        node = torch.zeros_like(joined)
        known = torch.zeros_like(x)  # (B, T) length of the longest context that was counted
        p = self._unigrams().expand(x.numel(), -1)  # (B·T, V)
        for n in range(1, self.order + 1):
            # What rolls in at the left is not read: `order` symbols precede the first output.
            node = self._find(n, node.roll(1, 1), joined)
            context = node[:, self.order :]
            known = torch.where(context >= 0, n, known)
            p = self._correct(p, n, context.reshape(-1))
        note(self, known=known)
        return p.log().reshape(*x.shape, self.vocab_size), memory

    def score(self, ids: Tensor, valid: Tensor | None = None, *, end: int | None = None) -> Tensor:
        """Compute log p (B, T) of the given symbols, each row read from its beginning; zero where invalid.

        With `end` they are (B, T + 1), that id being scored after each row's last symbol. Equal to
        selecting from the output of `forward`, without an array of the size of the vocabulary.
        """
        symbols, real = self._frame(ids, valid, end)
        dtype, device = self._home()
        if ids.device != device:
            raise ContractError("ids", f"device {ids.device}", f"{device}, where this layer is")
        node = torch.zeros_like(symbols)
        p = torch.full(symbols.shape, 1 / self.vocab_size, dtype=dtype, device=device)
        for n in range(1, self.order + 2):
            # What rolls in at the left is not found: no n-gram has the begin symbol after another.
            context = node.roll(1, 1)
            node = self._find(n, context, symbols)
            p = self._buffer("share", n)[node] + self._buffer("back", n - 1)[context] * p
        return fill_invalid(p[:, 1:].log(), real[:, 1:])

    def _find(self, n: int, parent: Tensor, symbol: Tensor) -> Tensor:
        """Return ids of n-grams from the ids of their first n - 1 symbols and their last; -1 is unseen."""
        keys = self._buffer("keys", n)
        if not len(keys):
            return torch.full_like(parent, -1)
        wanted = parent * (self.vocab_size + 1) + symbol
        place = torch.searchsorted(keys, wanted).clamp(max=len(keys) - 1)
        is_seen = (keys[place] == wanted) & (parent >= 0) & (symbol >= 0)
        return torch.where(is_seen, place, -1)

    def _unigrams(self) -> Tensor:
        """Return p(w) of all symbols (V,)."""
        back, symbols = self._buffer("back", 0)[0], self._buffer("keys", 1)
        p = (back / self.vocab_size).repeat(self.vocab_size + 1)
        p[symbols] += self._buffer("share", 1)[:-1]
        return p[: self.vocab_size]

    def _correct(self, p: Tensor, n: int, context: Tensor) -> Tensor:
        """Return p(w | h) (R, V) from p(w | h') for contexts (R,) of n symbols: scaled, and more for h's children."""
        keys, base = self._buffer("keys", n + 1), self.vocab_size + 1
        # Children lie side by side among the keys; an unseen context, -1, gets an empty range before the first.
        first, behind = torch.searchsorted(keys, context * base), torch.searchsorted(keys, (context + 1) * base)
        many = behind - first  # (R,)
        row = torch.repeat_interleave(many)  # (C,) of all children
        child = torch.arange(len(row), device=row.device) + (first - many.cumsum(0) + many)[row]
        p = p * self._buffer("back", n)[context, None]
        p.view(-1).index_add_(0, row * self.vocab_size + keys[child] % base, self._buffer("share", n + 1)[child])
        return p

    # ---- keeping ---------------------------------------------------------------------------------

    def _keep(self, levels: list[Level]) -> None:
        device = self._home()[1]
        for n, level in enumerate(levels, start=1):
            for name in ("keys", "suffix", "counts"):
                self.register_buffer(f"{name}_{n}", torch.from_numpy(getattr(level, name)).to(device))
        self._weigh(levels)

    def _weigh(self, levels: list[Level]) -> None:
        dtype, device = self._home()
        weights = smooth(levels, self.smoothing)
        for n, (share, back) in enumerate(zip(weights.share, weights.back, strict=True)):
            # The id -1 finds one more entry at the end: unseen, share 0 and back 1.
            for name, values, unseen in ((f"share_{n + 1}", share, 0.0), (f"back_{n}", back, 1.0)):
                tensor = torch.from_numpy(np.append(values, unseen)).to(device, dtype)
                self.register_buffer(name, tensor, persistent=False)

    def _levels(self) -> list[Level]:
        names, base = ("keys", "suffix", "counts"), self.vocab_size + 1
        return [Level(base, *(self._buffer(name, n).cpu().numpy() for name in names)) for n in range(1, self.order + 2)]

    def _buffer(self, name: str, n: int) -> Tensor:
        return self.get_buffer(f"{name}_{n}")

    def _home(self) -> tuple[torch.dtype, torch.device]:
        share = self._buffers.get("share_1")
        return (torch.float64, torch.device("cpu")) if share is None else (share.dtype, share.device)

    def _load_from_state_dict(self, state_dict: Mapping[str, Any], prefix: str, *args: Any) -> None:
        """Load tables of any size: it depends on the data that was counted."""
        _, _, missing_keys, _, error_msgs = args
        names = [f"{name}_{n}" for n in range(1, self.order + 2) for name in ("keys", "suffix", "counts")]
        missing = [prefix + name for name in ["vocabulary", *names] if prefix + name not in state_dict]
        if missing:
            missing_keys.extend(missing)
            return
        if int(state_dict[f"{prefix}vocabulary"]) != self.vocab_size:
            got = int(state_dict[f"{prefix}vocabulary"])
            error_msgs.append(f"{prefix}vocabulary: got counts over {got} symbols, expected {self.vocab_size}")
            return
        for name in names:
            self._buffers[name] = torch.empty_like(state_dict[prefix + name], device=self._home()[1])
        super()._load_from_state_dict(state_dict, prefix, *args)
        self._weigh(self._levels())
