"""One step on a GPU in as few launches as possible: all blocks of a Transformer in one, a recurrent layer in one.

During generation a layer reads one step of few rows. Its matmuls are then bound by reading the weights once, and
everything between them by launch latency. The kernels are in cuda/block_step.cu and cuda/recurrent_step.cu; the
readable forms are `Block.read` and the recurrences' `step`. Without gradients only.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import takewhile
from threading import Lock
from typing import Any

import torch
from torch import Tensor, nn

from recollect.accel.cuda.launcher import Kernel, Launcher, address, launcher_for, switch_off
from recollect.core.memory import Memory
from recollect.core.record import is_watched
from recollect.layers.attention.self_attention import KeysValues, SelfAttention
from recollect.layers.block import Block
from recollect.layers.pointwise import Linear
from recollect.layers.positions import ROTARY_BASE
from recollect.layers.recurrent.recurrence import Hidden, Recurrence

SCALARS = {torch.float32: 0, torch.bfloat16: 1, torch.float16: 2}
ACTIVATIONS = {"relu": 0, "gelu": 1, "gelu_tanh": 2}
SHARED = 96 << 10  # bytes of shared memory that every device from Volta on has
PLACES = 4096  # exchange buffers between thread blocks, for one size, at most: launches in flight share none
PLACE_BYTES = 32 << 20  # of all of them
AHEAD = 24 << 20  # bytes of the weights after the blocks that are prefetched into L2: half of an H200's
MOST_LAYERS = 28  # in a launch: as many as fit in 4 KB of arguments
WARPS = 8  # of a thread block, in a Transformer block's step


def is_single(x: Tensor) -> bool:
    """Return whether x (B, 1, D) is one step of few rows, without gradients."""
    is_small = x.dim() == 3 and x.shape[1] == 1 and 1 <= len(x) <= 4 and x.dtype in SCALARS
    is_plain = not torch.is_grad_enabled() and not torch.compiler.is_compiling()
    return is_small and is_plain and not torch.is_autocast_enabled(x.device.type)


# ---- Transformer blocks --------------------------------------------------------------------------


class _Layer(ctypes.Structure):
    """`Layer` of block_step.cu, field by field."""

    names = (
        *("norm", "norm_bias", "qkv", "qkv_bias", "out", "out_bias", "next_norm", "next_norm_bias"),
        *("up", "up_bias", "down", "down_bias", "keys", "values", "length", "length_after"),
    )
    _fields_ = (*((name, ctypes.c_void_p) for name in names), ("slots", ctypes.c_longlong))


class _BlockArguments(ctypes.Structure):
    """`Arguments` of block_step.cu, field by field."""

    names = "input", "output", "valid", "launches", "failed", "words", "next"
    _fields_ = (
        *((name, ctypes.c_void_p) for name in names),
        *(("next_bytes", ctypes.c_longlong), ("layers", ctypes.c_int), ("layer", _Layer * MOST_LAYERS)),
    )


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
        """Whether widths are multiples of eight, a head's threads divide a warp, and shared memory suffices."""
        threads = self.head // 8
        is_whole = all(size % 8 == 0 for size in (self.width, self.hidden, self.head))
        return is_whole and threads in (1, 2, 4, 8, 16, 32) and self.shared <= SHARED

    @property
    def splits(self) -> int:
        """Parts into which a head's keys are split, at most."""
        return max(1, self.blocks // (self.rows * self.heads))

    @property
    def pack(self) -> int:
        """Activations that fit in one word."""
        return 1 if self.scalar == SCALARS[torch.float32] else 2

    @property
    def parts(self) -> int:
        """Words in all partial contexts."""
        return self.rows * self.heads * self.splits * (self.head // self.pack + 2)

    @property
    def shared(self) -> int:
        """Bytes of shared memory, as block_step.cu lays them out."""
        width, hidden = (self.rows * -(-size // 256) * 256 for size in (self.width, self.hidden))
        attending = self.parts + self.warps * (self.head + 2) + 3 * self.head
        between = 2 * self.rows * self.warps
        most_rows = max(2 * -(-size // (2 * self.blocks)) for size in (self.qkv, self.hidden, 2 * self.width))
        numbers = self.rows * self.width + max(width + attending, hidden) + between
        return 4 * (numbers + 8 * self.rows * most_rows + MOST_LAYERS * self.rows)

    @property
    def kernel(self) -> Kernel:
        """Return the kernel; its blocks wait for each other."""
        constants = tuple((name.upper(), value) for name, value in asdict(self).items())
        constants += ("SPLITS", self.splits), ("MOST_LAYERS", MOST_LAYERS)
        return Kernel("block_step", constants, self.blocks, 32 * self.warps, self.shared, at_once=True)

    @property
    def qkv(self) -> int:
        """Width of queries, keys and values."""
        return (self.heads + 2 * self.kv_heads) * self.head

    @property
    def words(self) -> int:
        """Words that thread blocks exchange: `Words` of block_step.cu."""
        return self.rows * ((self.qkv + self.hidden) // self.pack + 2 * self.width) + self.parts


def read_block(
    block: Block[Memory], x: Tensor, memory: Memory | None, valid: Tensor | None
) -> tuple[Tensor, Memory] | None:
    """Read one step with a block alone; None where there is no kernel for it."""
    found = step_blocks([block], x, [memory], valid) if type(block) is Block else None
    return None if found is None else (found[0], found[1][0])


def read_blocks(
    layers: Sequence[Any], x: Tensor, memories: Sequence[Memory | None], valid: Tensor | None
) -> tuple[Tensor, list[Memory]] | None:
    """Read one step with all blocks at the beginning of some layers; None where there is no kernel for the first."""
    run = list(takewhile(lambda layer: type(layer) is Block, layers))
    after = (layer.linear for layer in layers[len(run) :][:2] if isinstance(layer, Linear))
    weight = next((linear.weight for linear in after if type(linear) is nn.Linear), None)
    return step_blocks(run, x, memories, valid, weight)


def step_blocks(
    blocks: Sequence[Block[Memory]],
    x: Tensor,
    memories: Sequence[Memory | None],
    valid: Tensor | None,
    weight_after: Tensor | None = None,
) -> tuple[Tensor, list[Memory]] | None:
    """Read one step x (B, 1, D) with the first of some pre-norm blocks of self-attention, as many as are alike.

    `weight_after` is read soon after: its beginning is prefetched into L2 meanwhile.
    Returns the last one's outputs and the memories of all that have read; None where there is no kernel for the first.
    """
    launcher = launcher_for(x)
    if launcher is None or not is_single(x):
        return None
    run = _alike(blocks, x, memories, launcher)
    place = _take_place(x.device, _sizes_of(run[0], x, launcher).words) if run else None
    if place is None:
        return None
    sizes = _sizes_of(run[0], x, launcher)
    after: list[Memory] = []
    for block, memory in zip(run, memories, strict=False):  # keys and values are written in place, the length is new
        assert isinstance(memory, KeysValues)  # as `_is_covered` has checked
        block.mixer._check_memory(memory, x)
        after.append(memory._with(length=torch.empty_like(memory.length)))
    mask = None if valid is None else valid.contiguous()
    y, x = torch.empty_like(x, memory_format=torch.contiguous_format), x.contiguous()
    tensors = x, y, mask, place[:1], _failed(x.device), place[2:], weight_after
    ahead = 0 if weight_after is None else min(AHEAD, weight_after.nbytes) // 16 * 16
    layers = (_layer_of(*each) for each in zip(run, memories, after, strict=False))
    arguments = _BlockArguments(*map(address, tensors), ahead, len(run), (_Layer * MOST_LAYERS)(*layers))
    launcher.launch(sizes.kernel, x.device, arguments)
    return y, after


def _alike(
    blocks: Sequence[Block[Memory]], x: Tensor, memories: Sequence[Memory | None], launcher: Launcher
) -> list[Any]:
    """Return the blocks from the first on that one launch can read a step with."""
    run: list[Any] = []
    for block, memory in zip(blocks[:MOST_LAYERS], memories, strict=False):
        if not _is_covered(block, memory):
            break
        sizes = _sizes_of(block, x, launcher)
        if not sizes.fits or (run and sizes != _sizes_of(run[0], x, launcher)):
            break
        run.append(block)
    return run


def _is_covered(block: Block[Memory], memory: Any) -> bool:
    """Return whether the kernel covers a block, and may write into its memory."""
    mixer, forward = block.mixer, block.feed_forward
    is_known = block.norm == "pre" and type(mixer) is SelfAttention and forward.activation in ACTIVATIONS
    if not is_known or not isinstance(mixer, SelfAttention) or not isinstance(memory, KeysValues):
        return False
    is_open = mixer.causal and mixer.window is None and mixer.alibi is None
    is_open = is_open and mixer.rotary_base == ROTARY_BASE  # the kernel's constant
    drops = block.training and max(block.dropout, mixer.dropout, forward.dropout) > 0
    is_reserved = memory.reserved and memory.in_place and memory.keys.is_contiguous() and memory.values.is_contiguous()
    return is_open and not drops and is_reserved and not is_watched(*block.modules())


def _sizes_of(block: Block[Memory], x: Tensor, launcher: Launcher) -> BlockSizes:
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
        blocks=min(launcher.blocks(x.device), block.width_out),
    )


def _layer_of(block: Block[Memory], memory: Any, after: Any) -> _Layer:
    mixer: Any = block.mixer
    norms: list[Any] = [block.mixer_norm, block.feed_forward_norm]
    first, second = ((n.norm.weight, getattr(n.norm, "bias", None)) for n in norms)
    products = mixer.qkv, mixer.out, block.feed_forward.up, block.feed_forward.down
    qkv, out, up, down = ((p.weight, p.bias) for p in products)
    kept = memory.keys, memory.values, memory.length, after.length
    return _Layer(*(address(t) for t in (*first, *qkv, *out, *second, *up, *down, *kept)), memory.slots)


# ---- a recurrence --------------------------------------------------------------------------------


class _RecurrentArguments(ctypes.Structure):
    """`Arguments` of recurrent_step.cu, field by field."""

    names = "from_x", "from_h", "bias_x", "bias_h", "x", "hidden", "cell", "valid", "hidden_after", "cell_after"
    _fields_ = tuple((name, ctypes.c_void_p) for name in names)


def step_recurrence(
    layer: Recurrence[Hidden], cell: str, x: Tensor, memory: Hidden | None, valid: Tensor | None
) -> tuple[Tensor, Hidden] | None:
    """Read one step x (B, 1, D) with one of `CELLS`, from zeros where there is no memory; None: there is no kernel."""
    launcher = launcher_for(x)
    if launcher is None or not is_single(x):
        return None
    kernel = _recurrent_kernel(layer, cell, x)
    if kernel is None:
        return None
    if memory is None:
        memory = layer.initial_memory(len(x), like=x)
    after = {name: torch.empty_like(t, memory_format=torch.contiguous_format) for name, t, _ in memory._parts()}
    before = {name: t.contiguous() for name, t, _ in memory._parts()}
    mask = None if valid is None else valid.contiguous()
    weights = layer.weight_ih, layer.weight_hh, layer.bias_ih, layer.bias_hh
    read = x.contiguous(), before["hidden"], before.get("cell"), mask
    tensors = *weights, *read, after["hidden"], after.get("cell")
    launcher.launch(kernel, x.device, _RecurrentArguments(*map(address, tensors)))
    return after["hidden"][:, None], type(memory)(**after)


def _recurrent_kernel(layer: Recurrence[Hidden], cell: str, x: Tensor) -> Kernel | None:
    """Return the kernel for a layer's sizes, if they are multiples of eight and shared memory suffices."""
    rows, width, hidden = len(x), x.shape[2], layer.hidden
    shared = 4 * rows * sum(-(-size // 256) * 256 for size in (width, hidden))
    if width % 8 or hidden % 8 or shared > SHARED:
        return None
    warps = min(max(hidden // 128, 1), 8)
    constants = {"SCALAR": SCALARS[x.dtype], "ROWS": rows, "WIDTH": width, "HIDDEN": hidden}
    constants |= {"CELL": CELLS.index(cell), "WARPS": warps}
    return Kernel("recurrent_step", tuple(constants.items()), -(-hidden // warps), 32 * warps, shared)


CELLS = ("rnn_tanh", "rnn_relu", "gru", "lstm")


# ---- buffers through which thread blocks exchange ------------------------------------------------

_places: dict[tuple[torch.device, int], Tensor] = {}  # (PLACES, 2 + words): launches so far, padding, the words
_failures: dict[torch.device, Tensor] = {}  # (1,) whether a launch's blocks gave up waiting for each other
_taken = 0
_LOCK = Lock()


def _take_place(device: torch.device, words: int) -> Tensor | None:
    """Return a buffer (2 + words,) for one launch, captured or not; None: there is none, and none can be made now."""
    global _taken
    with _LOCK:
        if (device, words) not in _places:
            if device.type == "cuda" and torch.cuda.is_current_stream_capturing():
                return None  # a captured fill would run again at every replay, and the memory is others' in between
            size = 2 + words + words % 2
            count = max(1, min(PLACES, PLACE_BYTES // (8 * size)))
            _places[device, words] = torch.zeros(count, size, dtype=torch.long, device=device)
        _taken += 1
        places = _places[device, words]
        return places[_taken % len(places)]


def _failed(device: torch.device) -> Tensor:
    with _LOCK:
        if device not in _failures:
            _failures[device] = torch.zeros(1, dtype=torch.long, device=device)
        return _failures[device]


def check_meetings(device: torch.device) -> None:
    """Raise where the blocks of a launch did not all arrive: its results are invalid."""
    failed = _failures.get(device)
    if failed is not None and bool(failed):
        why = "the blocks of a kernel did not meet"
        switch_off(device.type, why)
        raise RuntimeError(f"{why}; kernels are off from now on: start again")
