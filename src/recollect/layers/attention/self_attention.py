"""Self-attention: the memory is the list of all steps read, and every step attends to all of it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from typing_extensions import Unpack

from recollect.core.growing import Growing, newest
from recollect.core.layer import SequenceLayer
from recollect.core.memory import Memory, Nothing, grows
from recollect.core.record import note
from recollect.core.types import TensorOptions
from recollect.layers.positions import ROTARY_BASE, alibi_slopes, positions_from, rotate


@dataclass(frozen=True, eq=False, kw_only=True)
class KeysValues(Growing):
    """Every step's key and value, or those of a window.

    >>> _, memory = rc.SelfAttention(8, 2, window=4)(torch.zeros(1, 10, 8))
    >>> memory.length.tolist(), tuple(memory.keys.shape)  # ten steps read, four kept
    ([10], (1, 4, 2, 4))
    """

    keys: Tensor = grows(1)  # (B, S, N, H)
    values: Tensor = grows(1)  # (B, S, N, H)


@dataclass(frozen=True, eq=False, kw_only=True)
class Inputs(Growing):
    """Every step's input, which is both key and value."""

    inputs: Tensor = grows(1)  # (B, S, D)


@dataclass(frozen=True)
class View:
    """What the new steps attend to."""

    keys: Tensor  # (B, S, N, H)
    values: Tensor  # (B, S, N, H)
    allowed: Tensor | None  # (B or 1, T, S) bool; None: everything
    bias: Tensor | None = None  # (B or 1, N, T, S), added to the scores


def look(module: nn.Module, q: Tensor, view: View, scale: float, dropout: float = 0.0) -> Tensor:
    """Attend, in the readable form.

    e = q kᵀ · scale + bias;  a = softmax(e) over what is allowed;  c = a v.  q, c are (B, T, N, H). A step that is
    allowed nothing gets c = 0.
    """
    groups = q.shape[2] // view.keys.shape[2]
    keys, values = (t if groups == 1 else t.repeat_interleave(groups, dim=2) for t in (view.keys, view.values))
    scores = torch.einsum("btnh,bsnh->bnts", q, keys) * scale  # (B, N, T, S)
    if view.bias is not None:
        scores = scores + view.bias
    if view.allowed is None:
        weights = scores.softmax(dim=-1)
    else:
        # A row of -inf only has NaN gradients: it is unmasked for the softmax, and its weights are zeroed.
        allowed = view.allowed[:, None]
        is_empty = ~allowed.any(-1, keepdim=True)
        weights = scores.masked_fill(~(allowed | is_empty), -torch.inf).softmax(dim=-1).masked_fill(is_empty, 0)
    context = torch.einsum("bnts,bsnh->btnh", F.dropout(weights, dropout, module.training), values)
    note(module, 2, scores=scores, weights=weights)
    note(module, context=context)
    return context


def look_fast(module: nn.Module, q: Tensor, view: View, scale: float, dropout: float, is_causal: bool) -> Tensor:
    """Attend with torch's fused kernel."""
    if q.numel() == 0 or view.keys.numel() == 0:
        return look(module, q, view, scale, dropout)
    mask = None if view.allowed is None else view.allowed[:, None]
    if view.bias is not None:
        mask = view.bias if mask is None else view.bias.masked_fill(~mask, -torch.inf)
    q, k, v = (t.transpose(1, 2) for t in (q, view.keys, view.values))  # (B, N, T or S, H)
    rate = dropout if module.training else 0.0
    context = F.scaled_dot_product_attention(
        q, k, v, mask, rate, is_causal=is_causal, scale=scale, enable_gqa=q.shape[1] != k.shape[1]
    )
    return context.transpose(1, 2)


class Attention(SequenceLayer[Memory]):
    """The base of self-attentions: the mask, and how the list grows.

    `causal`: each step attends to itself and to earlier steps; otherwise to the whole sequence (which must then be read
    in one call, and nothing is remembered). `window`: only to the nearest so many steps, itself included.
    """

    def __init__(self, width: int, heads: int, causal: bool, window: int | None, scale: float) -> None:
        super().__init__()
        if window is not None and window < 1:
            raise ValueError(f"window: got {window}, expected at least 1 step, the step itself")
        self.width = self.width_out = width
        self.heads = heads
        self.causal = causal
        self.window = window
        self.scale = scale
        self.alibi: tuple[float, ...] | None = None
        self.dropout = 0.0
        if not causal:
            self.growth = "none"
        else:
            self.growth = "linear" if window is None else "saturates"

    def project(self, x: Tensor, length: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the queries (B, T, N, H) and the lists to remember, from x and the number of earlier steps (B,)."""
        raise NotImplementedError

    def keys_values(self, lists: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
        """Return keys and values (B, S, N, H) from the lists."""
        raise NotImplementedError

    def finish(self, context: Tensor) -> Tensor:
        """Return the outputs (B, T, D) from the contexts (B, T, N, H)."""
        raise NotImplementedError

    @property
    def streams(self) -> bool:
        """Whether a sequence may be read in chunks: only where no step attends to later ones."""
        return self.causal

    def read(self, x: Tensor, memory: Memory, valid: Tensor | None) -> tuple[Tensor, Memory]:
        """Attend with an explicit mask."""
        q, keys, values, offsets, after = self._remember(x, memory, valid)
        view = View(keys, values, self._allowed(offsets, x.shape[1], valid), self._bias(offsets, q))
        return self.finish(look(self, q, view, self.scale, self.dropout)), after

    def fast(self, x: Tensor, memory: Memory, valid: Tensor | None) -> tuple[Tensor, Memory]:
        """Attend with the fused kernel, without a mask where none is needed."""
        q, keys, values, offsets, after = self._remember(x, memory, valid)
        is_causal = self._fits_causal_mask(memory, q, keys)
        if self.causal and x.shape[1] == 1 and valid is None and getattr(memory, "even", False):
            allowed = None  # one new step of rows of equal length attends to everything that is kept
            if self.window is not None:
                keys, values, offsets = (newest(t, self.window) for t in (keys, values, offsets))
        else:
            allowed = None if is_causal else self._allowed(offsets, x.shape[1], valid)
        view = View(keys, values, allowed, self._bias(offsets, q))
        return self.finish(look_fast(self, q, view, self.scale, self.dropout, is_causal)), after

    def _remember(
        self, x: Tensor, memory: Memory, valid: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor, Tensor, Memory]:
        """Return queries, keys, values, each key's offset from the first new step (B or 1, S), and the memory after."""
        if isinstance(memory, Growing):
            q, lists = self.project(x, memory.length)
            lists, offsets, after = memory.extend(lists, valid)
            return q, *self.keys_values(lists), offsets, after
        q, lists = self.project(x, x.new_zeros(len(x), dtype=torch.long))
        return q, *self.keys_values(lists), torch.arange(x.shape[1], device=x.device)[None], memory

    def _allowed(self, offsets: Tensor, steps: int, valid: Tensor | None) -> Tensor | None:
        """Return which keys each step may attend to: (B or 1, T, S)."""
        ahead = torch.arange(steps, device=offsets.device)[:, None] - offsets[:, None]  # how far back the key lies
        if self.causal:
            return ahead >= 0 if self.window is None else (ahead >= 0) & (ahead < self.window)
        near = None if self.window is None else ahead.abs() < self.window
        if valid is None:
            return near
        seen = (valid | ~valid.any(1, keepdim=True))[:, None]  # (B, 1, S); kernels need at least one key
        return seen.expand(-1, steps, -1) if near is None else near & seen

    def _bias(self, offsets: Tensor, q: Tensor) -> Tensor | None:
        if self.alibi is None:
            return None
        ahead = torch.arange(q.shape[1], device=q.device)[:, None] - offsets[:, None]  # (B or 1, T, S)
        slopes = torch.tensor(self.alibi, device=q.device, dtype=q.dtype)
        return -slopes[:, None, None] * ahead.abs()[:, None].to(q.dtype)

    def _fits_causal_mask(self, memory: Memory, q: Tensor, keys: Tensor) -> bool:
        """Return whether the new steps are the only keys: then the kernel's causal mask is right, also with padding."""
        if not self.causal or self.alibi is not None or getattr(memory, "reserved", False) or q.shape[1] == 1:
            return False
        if self.window is not None and self.window < q.shape[1]:
            return False
        # Not returned directly: with symbolic shapes the comparison is symbolic too, and kernels need a bool.
        return True if keys.shape[1] == q.shape[1] else False  # noqa: SIM210


class BasicSelfAttention(Attention):
    """Self-attention without parameters.

    w'_ij = x_iᵀ x_j;  w_ij = softmax_j w'_ij;  y_i = Σ_j w_ij x_j

    `scaled` divides w' by √D. Causal by default, as all self-attention here.

    >>> y, memory = rc.BasicSelfAttention(2)(torch.tensor([[[1.0, 0.0], [1.0, 0.0]]]))
    >>> y.tolist(), memory.length.tolist()
    ([[[1.0, 0.0], [1.0, 0.0]]], [2])
    """

    def __init__(self, width: int, *, causal: bool = True, window: int | None = None, scaled: bool = False) -> None:
        super().__init__(width, 1, causal, window, 1 / math.sqrt(width) if scaled else 1.0)

    def initial_memory(self, batch_size: int, like: Tensor | None = None) -> Memory:
        """Return an empty list."""
        if not self.causal:
            return Nothing()
        options = self._like(like)
        length = torch.zeros(batch_size, dtype=torch.long, device=options["device"])
        inputs = torch.zeros(batch_size, 0, self.width_out, **options)
        return Inputs(inputs=inputs, length=length, limit=self.window, even=True)

    def project(self, x: Tensor, length: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        """Return x as the queries and as what is remembered."""
        return x[:, :, None], {"inputs": x}

    def keys_values(self, lists: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
        """Return the remembered inputs as keys and values."""
        return lists["inputs"][:, :, None], lists["inputs"][:, :, None]

    def finish(self, context: Tensor) -> Tensor:
        """Return y = c."""
        return context.flatten(2)


class SelfAttention(Attention):
    """Multi-head scaled dot-product self-attention (Vaswani et al. 2017, eq. 1).

    q = W_q x, k = W_k x, v = W_v x;  e_ts = q_t · k_s / √H;  a = softmax(e);  c_t = Σ_s a_ts v_s;  y = W_o c

    In each of `heads` heads of H = width / heads. `kv_heads` shares keys and values between groups of heads (Ainslie
    et al. 2023). `positions`: "rotary" rotates queries and keys, with angles to the base `rotary_base`, "alibi" adds
    −slope · distance to the scores, None relies on the causal mask or on a `Positions` layer below. `scaled=False`
    omits 1/√H, to show its effect. W_q, W_k, W_v are stacked in `qkv`.

    >>> layer = rc.SelfAttention(8, 2, positions="rotary")
    >>> y, memory = layer(torch.randn(1, 5, 8))
    >>> y, memory = layer(torch.randn(1, 1, 8), memory)  # the sixth step sees the five before it
    >>> memory.length.tolist()
    [6]
    """

    kernel = "self-attention"

    def __init__(
        self,
        width: int,
        heads: int,
        *,
        causal: bool = True,
        window: int | None = None,
        kv_heads: int | None = None,
        positions: Literal["rotary", "alibi"] | None = None,
        rotary_base: float = ROTARY_BASE,
        scaled: bool = True,
        bias: bool = True,
        dropout: float = 0.0,
        **factory: Unpack[TensorOptions],
    ) -> None:
        if width % heads:
            raise ValueError(f"heads: got {heads}, expected a divisor of the width {width}")
        kv_heads = kv_heads or heads
        if heads % kv_heads:
            raise ValueError(f"kv_heads: got {kv_heads}, expected a divisor of heads, {heads}")
        if positions not in (None, "rotary", "alibi"):
            raise ValueError(f"positions: got {positions!r}, expected 'rotary', 'alibi' or None")
        self.head_width = width // heads
        if positions == "rotary" and self.head_width % 2:
            raise ValueError(f"heads: got a head width of {self.head_width}, expected an even one for rotary positions")
        super().__init__(width, heads, causal, window, 1 / math.sqrt(self.head_width) if scaled else 1.0)
        self.kv_heads = kv_heads
        self.positions = positions
        self.rotary_base = rotary_base
        self.dropout = dropout
        self.alibi = tuple(alibi_slopes(heads)) if positions == "alibi" else None
        self.qkv = nn.Linear(width, (heads + 2 * kv_heads) * self.head_width, bias=bias, **factory)
        self.out = nn.Linear(width, width, bias=bias, **factory)

    def initial_memory(self, batch_size: int, like: Tensor | None = None) -> Memory:
        """Return empty lists."""
        if not self.causal:
            return Nothing()
        options = self._like(like)
        length = torch.zeros(batch_size, dtype=torch.long, device=options["device"])
        keys, values = (torch.zeros(batch_size, 0, self.kv_heads, self.head_width, **options) for _ in range(2))
        return KeysValues(keys=keys, values=values, length=length, limit=self.window, even=True)

    def project(self, x: Tensor, length: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        """Return q = W_q x, and k = W_k x, v = W_v x by name; q and k are rotated where positions are rotary."""
        parts = self.qkv(x).unflatten(2, (-1, self.head_width))  # (B, T, heads + 2 kv_heads, H)
        q, k, v = parts.split([self.heads, self.kv_heads, self.kv_heads], dim=2)
        if self.positions == "rotary":
            places = positions_from(length, x.shape[1])
            q, k = (rotate(t, places, self.rotary_base) for t in (q, k))
        return q, {"keys": k, "values": v}

    def keys_values(self, lists: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
        """Return keys and values as they are remembered."""
        return lists["keys"], lists["values"]

    def finish(self, context: Tensor) -> Tensor:
        """Return y = W_o c."""
        return self.out(context.flatten(2))
