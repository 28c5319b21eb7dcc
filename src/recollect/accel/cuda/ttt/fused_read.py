"""TTT on a GPU: whether our kernels read a layer, and the reading."""

from __future__ import annotations

from functools import lru_cache
from importlib.util import find_spec

import torch
from torch import Tensor

from recollect.accel.cuda.ttt import linear
from recollect.core.validate import compute_dtype
from recollect.layers.ttt.fast_weights import FastWeights
from recollect.layers.ttt.layer import TTT, TTTLinear

WIDTHS = (32, 64)  # of a head; at 128 registers spill, and float32 needs more shared memory than there is
STEPS = 16  # fewer are left to the layer: the smallest tile would be blank for the most part
REASONS: dict[str, str] = {}  # by layer: why it was left to torch


def read_layer(
    layer: TTT, x: Tensor, memory: FastWeights | None, valid: Tensor | None
) -> tuple[Tensor, FastWeights] | None:
    """Read with the fused kernels; None where they do not apply, with the reason in `REASONS`."""
    if type(layer) is not TTTLinear or layer.mini_batch is None or x.shape[1] < STEPS or len(x) == 0:
        return None
    why = refusal(layer, x)
    if why:
        REASONS[f"{layer.heads} heads of {layer.head_width}"] = why
        return None
    memory = layer.initial_memory(len(x), like=x) if memory is None else memory
    views = layer._views(x, memory.length, valid)
    dtype = compute_dtype(x)
    k, v, q, rate = (t.transpose(1, 2).to(dtype) for t in views)  # (B, T, N, H)
    size = layer.mini_batch
    is_aligned = memory.at_border and valid is None and x.shape[1] % size == 0
    count = torch.full_like(memory.length, x.shape[1]) if valid is None else valid.sum(1)
    share = layer._share_at(torch.arange(size, device=x.device)) if layer.average else x.new_ones(size)
    gamma, beta = (None, None) if layer.norm is None else layer.norm[:, :, 0]
    answers, weight, left = linear.read(
        linear.Shape(size, x.shape[1], layer.residual, not is_aligned, not memory.at_border, "ieee"),
        k, v, q, rate[..., 0], memory.weights[0], memory.gathered[0], share,
        torch.as_tensor(layer._border_share(size), dtype=torch.float32, device=x.device), gamma, beta,
        (memory.length % size).int(), count.int(),
    )  # fmt: skip
    after = FastWeights(weights=(weight,), gathered=(left,), length=memory.length + count, at_border=is_aligned)
    answers = answers if valid is None else answers.masked_fill(~valid[..., None, None], 0)
    return layer._output(x, answers.transpose(1, 2)), after


def refusal(layer: TTTLinear, x: Tensor) -> str:
    """Return why the kernels do not read this layer; an empty string where they do."""
    dtype = compute_dtype(x)
    if not has_triton():
        return "triton is not installed"
    if layer.inner_bias:
        return "the inner model has biases"
    if layer.head_width not in WIDTHS:
        return f"heads of {layer.head_width}, expected one of {', '.join(map(str, WIDTHS))}"
    if (layer.mini_batch or 0) > linear.CHUNK:
        return f"a mini-batch of {layer.mini_batch} steps, expected at most {linear.CHUNK}"
    return (
        "" if dtype in (torch.bfloat16, torch.float16) else f"{dtype}: got no reduced precision, expected bf16 or fp16"
    )


@lru_cache
def has_triton() -> bool:
    """Return whether Triton, which the kernels are written in, is installed."""
    return find_spec("triton") is not None
