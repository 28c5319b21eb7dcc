"""One step on a GPU in as few launches as can be: a Transformer block in one, a recurrent layer in one.

While generation goes on a layer reads one step of few rows. Its products are then bound by reading the weights once,
and everything between them by the way from one launch to the next. The kernels are in cuda/block_step.cu and
cuda/recurrent_step.cu; the readable forms are `Block.read` and the recurrences' `step`. Without gradients only.
"""

from __future__ import annotations

import ctypes
from dataclasses import asdict, dataclass
from threading import Lock
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from recollect.kernels.starting import Kernel, Launcher, address, launcher_for, switch_off
from recollect.memory import Memory

if TYPE_CHECKING:
    from recollect.layers.block import Block
    from recollect.layers.recurrence import Hidden, Recurrence

SCALARS = {torch.float32: 0, torch.bfloat16: 1, torch.float16: 2}
ACTIVATIONS = {"relu": 0, "gelu": 1, "gelu_tanh": 2}
SHARED = 96 << 10  # bytes of shared memory that every device from Volta on has
MEETINGS = 4096  # places to meet: launches in flight at a time share none
WARPS = 16  # of a block of threads, in a Transformer block's step


def _is_single(x: Tensor) -> bool:
    """Whether x (B, 1, D) is one step of few rows that nobody wants a gradient of."""
    is_small = x.dim() == 3 and x.shape[1] == 1 and 1 <= len(x) <= 4 and x.dtype in SCALARS
    is_plain = not torch.is_grad_enabled() and not torch.compiler.is_compiling()
    return is_small and is_plain and not torch.is_autocast_enabled(x.device.type)


# ---- a Transformer block -------------------------------------------------------------------------


class _Layer(ctypes.Structure):
    """`Layer` of block_step.cu."""

    names = (
        *("norm", "norm_bias", "qkv", "qkv_bias", "out", "out_bias", "next_norm", "next_norm_bias"),
        *("up", "up_bias", "down", "down_bias", "keys", "values", "length", "length_after"),
    )
    _fields_ = (*((name, ctypes.c_void_p) for name in names), ("slots", ctypes.c_longlong))


class _BlockArguments(ctypes.Structure):
    """`Arguments` of block_step.cu."""

    names = "input", "output", "valid", "meeting", "scratch"
    _fields_ = (("layer", _Layer), *((name, ctypes.c_void_p) for name in names), ("splits", ctypes.c_int))


@dataclass(frozen=True)
class BlockSizes:
    """The constants of block_step.cu."""

    scalar: int
    rows: int
    width: int
    hidden: int
    heads: int
    kv_heads: int
    head: int
    activation: int
    rms: int
    rotary: int
    scale: str
    eps: str
    warps: int
    blocks: int

    @property
    def fits(self) -> bool:
        """Whether vectors are whole groups of eight, a head's lanes a part of a warp, and shared memory suffices."""
        lanes = self.head // 8
        is_whole = all(size % 8 == 0 for size in (self.width, self.hidden, self.head))
        return is_whole and lanes in (1, 2, 4, 8, 16, 32) and self.shared <= SHARED

    @property
    def shared(self) -> int:
        """Bytes of shared memory."""
        vector = self.rows * -(-max(self.width, self.hidden) // 256) * 256
        room = max(self.warps * (self.head + 2), 2 * self.blocks, 2 * self.rows * self.heads)
        return 4 * (vector + room + self.warps * max(self.rows, 2) + 1)

    @property
    def kernel(self) -> Kernel:
        """Give the kernel; its blocks wait for each other."""
        constants = tuple((name.upper(), value) for name, value in asdict(self).items())
        return Kernel("block_step", constants, self.blocks, 32 * self.warps, self.shared, at_once=True)

    @property
    def splits(self) -> int:
        """Parts of a head's list, at most."""
        return max(1, self.blocks // (self.rows * self.heads))

    @property
    def scratch(self) -> int:
        """Numbers that all blocks share."""
        qkv = (self.heads + 2 * self.kv_heads) * self.head
        parts = self.heads * self.splits * (self.head + 2)
        return self.rows * (self.width + qkv + self.hidden + parts)


def step_block(block: Block[Any], x: Tensor, memory: Memory, valid: Tensor | None) -> tuple[Tensor, Memory] | None:
    """Read one step x (B, 1, D) with a pre-norm block of self-attention; None where there is no kernel for it."""
    launcher = launcher_for(x)
    if launcher is None or not _is_single(x) or not _is_covered(block, memory):
        return None
    sizes = _sizes_of(block, x, launcher)
    if not sizes.fits:
        return None
    mixer: Any = block.mixer
    mixer._check_memory(memory, x)
    after = memory._with(length=torch.empty_like(memory.length))  # type: ignore[attr-defined]
    y, scratch = torch.empty_like(x), torch.empty(sizes.scratch, dtype=torch.float32, device=x.device)
    mask = None if valid is None else valid.contiguous()
    tensors = x.contiguous(), y, mask, _meeting(x.device), scratch
    layer = _layer_of(block, memory, after.length)
    launcher.launch(sizes.kernel, x.device, _BlockArguments(layer, *map(address, tensors), sizes.splits))
    return y, after


def _is_covered(block: Block[Any], memory: Any) -> bool:
    """Whether a block is one that the kernel knows, and its memory one that it may write into."""
    from recollect.layers.attention import KeysValues, SelfAttention

    mixer, forward = block.mixer, block.feed_forward
    is_known = block.norm == "pre" and type(mixer) is SelfAttention and forward.activation in ACTIVATIONS
    if not is_known or not isinstance(mixer, SelfAttention) or not isinstance(memory, KeysValues):
        return False
    is_open = mixer.causal and mixer.window is None and mixer.alibi is None
    drops = block.training and max(block.dropout, mixer.dropout, forward.dropout) > 0
    has_room = memory.reserved and memory.in_place and memory.keys.is_contiguous() and memory.values.is_contiguous()
    has_hooks = any(m._forward_hooks or m._forward_pre_hooks for m in block.modules())
    return is_open and not drops and has_room and not has_hooks


def _sizes_of(block: Block[Any], x: Tensor, launcher: Launcher) -> BlockSizes:
    mixer: Any = block.mixer
    norm: Any = block.mixer_norm
    return BlockSizes(
        scalar=SCALARS[x.dtype],
        rows=len(x),
        width=block.width_out,
        hidden=block.feed_forward.hidden,
        heads=mixer.heads,
        kv_heads=mixer.kv_heads,
        head=mixer.head_width,
        activation=ACTIVATIONS[block.feed_forward.activation],
        rms=int(isinstance(norm.norm, torch.nn.RMSNorm)),
        rotary=int(mixer.positions == "rotary"),
        scale=f"{mixer.scale!r}f",
        eps=f"{norm.norm.eps!r}f",
        warps=WARPS,
        blocks=launcher.blocks(x.device),
    )


def _layer_of(block: Block[Any], memory: Any, length_after: Tensor) -> _Layer:
    mixer: Any = block.mixer
    norms: list[Any] = [block.mixer_norm, block.feed_forward_norm]
    first, second = ((n.norm.weight, getattr(n.norm, "bias", None)) for n in norms)
    products = mixer.qkv, mixer.out, block.feed_forward.up, block.feed_forward.down
    qkv, out, up, down = ((p.weight, p.bias) for p in products)
    kept = memory.keys, memory.values, memory.length, length_after
    return _Layer(*(address(t) for t in (*first, *qkv, *out, *second, *up, *down, *kept)), memory.slots)


# ---- a recurrence --------------------------------------------------------------------------------


class _RecurrentArguments(ctypes.Structure):
    """`Arguments` of recurrent_step.cu."""

    names = "from_x", "from_h", "bias_x", "bias_h", "x", "hidden", "cell", "valid", "hidden_after", "cell_after"
    _fields_ = tuple((name, ctypes.c_void_p) for name in names)


def step_recurrence(
    layer: Recurrence[Any], cell: str, x: Tensor, memory: Hidden, valid: Tensor | None
) -> tuple[Tensor, Hidden] | None:
    """Read one step x (B, 1, D) with one of `CELLS`; None where there is no kernel."""
    launcher = launcher_for(x)
    if launcher is None or not _is_single(x):
        return None
    kernel = _recurrent_kernel(layer, cell, x)
    if kernel is None:
        return None
    after = {name: torch.empty_like(t, memory_format=torch.contiguous_format) for name, t, _ in memory._parts()}
    before = {name: t.contiguous() for name, t, _ in memory._parts()}
    mask = None if valid is None else valid.contiguous()
    weights = layer.weight_ih, layer.weight_hh, layer.bias_ih, layer.bias_hh
    read = x.contiguous(), before["hidden"], before.get("cell"), mask
    tensors = *weights, *read, after["hidden"], after.get("cell")
    launcher.launch(kernel, x.device, _RecurrentArguments(*map(address, tensors)))
    return after["hidden"][:, None], type(memory)(**after)


def _recurrent_kernel(layer: Recurrence[Any], cell: str, x: Tensor) -> Kernel | None:
    """Give the kernel for a layer's sizes, if they are whole groups of eight and shared memory suffices."""
    rows, width, hidden = len(x), x.shape[2], layer.hidden
    shared = 4 * rows * sum(-(-size // 256) * 256 for size in (width, hidden))
    if width % 8 or hidden % 8 or shared > SHARED:
        return None
    warps = min(max(hidden // 128, 1), 8)
    constants = {"SCALAR": SCALARS[x.dtype], "ROWS": rows, "WIDTH": width, "HIDDEN": hidden}
    constants |= {"CELL": CELLS.index(cell), "WARPS": warps}
    return Kernel("recurrent_step", tuple(constants.items()), -(-hidden // warps), 32 * warps, shared)


CELLS = ("rnn_tanh", "rnn_relu", "gru", "lstm")


# ---- places to meet ------------------------------------------------------------------------------

_meetings: dict[torch.device, Tensor] = {}  # (MEETINGS, 2): blocks that have arrived, in all; whether some did not
_taken = 0
_LOCK = Lock()


def _meeting(device: torch.device) -> Tensor:
    """Give a place where the blocks of one launch meet."""
    global _taken
    with _LOCK:
        if device not in _meetings:
            _meetings[device] = torch.zeros(MEETINGS, 2, dtype=torch.long, device=device)
        _taken += 1
        return _meetings[device][_taken % MEETINGS]


def check_meetings(device: torch.device) -> None:
    """Raise where the blocks of a launch did not all come; what it gave is then worth nothing."""
    places = _meetings.get(device)
    if places is not None and bool(places[:, 1].any()):
        why = "the blocks of a kernel did not meet"
        switch_off(device.type, why)
        raise RuntimeError(f"{why}; kernels are off from now on: start again")
