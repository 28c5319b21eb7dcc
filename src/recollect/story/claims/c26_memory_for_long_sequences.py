"""C26: An RNN needs a lot of memory for long sequences.

中文：RNN 处理长序列需要大量内存。
Seed: 000_56d5b8bda4e4cf77.txt:139
Budget: seconds
Expected: what full back-propagation stores grows in proportion to T; truncated to 64 steps it does not grow, nor does the state in use; an attention layer stores in proportion to T² (readable form) and keeps keys and values in proportion to T
预期：完整反向传播的存储量与 T 成正比；截断为 64 步则不增长，使用时的状态也不增长；注意力层（可读形式）存储量与 T² 成正比，键值缓存与 T 成正比
Rule: with exponents of bytes in T: does not hold if full back-propagation's is below 0.05; holds if that of the state in use is above 0.05; holds if … (training by full back-propagation) where full is within 0.05 of 1 and truncated and in use are below 0.05; else not shown
Exact: holds if
"""

from __future__ import annotations

import torch
from torch import Tensor

from recollect.core.types import AnyLayer
from recollect.layers.attention.self_attention import SelfAttention
from recollect.layers.recurrent.rnn import RNN
from recollect.story.claim import Budget, Chart, Control, Curve, Result, Verdict
from recollect.story.judging import DETERMINISTIC
from recollect.story.saved_tensors import growth_exponent, saved_bytes
from recollect.views.bilingual import Bilingual

WIDTH, TAU = 8, 64
LENGTHS = (256, 512, 1024)
FLAT = 0.05


def run(budget: Budget) -> Result:
    rnn, attention = RNN(WIDTH, WIDTH), SelfAttention(WIDTH, 1)
    stored = {
        "rnn, full": {n: float(_full(rnn, n)) for n in LENGTHS},
        f"rnn, truncated to {TAU}": {n: float(_truncated(rnn, n)) for n in LENGTHS},
        "rnn, in use": {n: float(rnn(_drawn(n))[1].nbytes) for n in LENGTHS},
        "attention, training": {n: float(_full(attention, n)) for n in LENGTHS},
        "attention, in use": {n: float(attention(_drawn(n))[1].nbytes) for n in LENGTHS},
    }
    growth = {name: growth_exponent(found) for name, found in stored.items()}
    full, truncated, used, squared, kept = growth.values()
    longest = LENGTHS[-1]
    found = Bilingual(
        f"Bytes grow with T to the power of {full:.2f} in full back-propagation ({stored['rnn, full'][longest]:,.0f} at {longest:,} steps of width {WIDTH}), {truncated:.2f} truncated to {TAU} steps, {used:.2f} in use ({stored['rnn, in use'][longest]:.0f}). Attention: {squared:.2f} in training, {kept:.2f} in use.",
        f"字节数随 T 增长的指数：完整反向传播 {full:.2f}（宽度 {WIDTH}、{longest:,} 步时 {stored['rnn, full'][longest]:,.0f} 字节），截断为 {TAU} 步 {truncated:.2f}，使用时 {used:.2f}（{stored['rnn, in use'][longest]:.0f} 字节）。注意力：训练 {squared:.2f}，使用时 {kept:.2f}。",
    )
    chart = Chart(
        Bilingual("Bytes by length", "字节数随长度的变化"),
        Bilingual("steps", "步数"),
        Bilingual("bytes", "字节"),
        [Curve(name, [(float(n), size) for n, size in found_bytes.items()]) for name, found_bytes in stored.items()],
        log_x=True,
        log_y=True,
    )
    return Result(
        verdict_of(full, truncated, used),
        found,
        full,
        (full, full),
        Control(Bilingual("exponent of the state in use", "使用时的指数"), used),
        DETERMINISTIC,
        Bilingual(
            "it is trained by full back-propagation; in use its memory is constant",
            "以完整反向传播训练；使用时内存不变",
        ),
        chart,
        [{"memory": name, "exponent": growth[name], "bytes": stored[name]} for name in stored],
    )


def verdict_of(full: float, truncated: float, used: float) -> Verdict:
    """Return the verdict of the exponents of bytes: of full and of truncated back-propagation, and in use."""
    if full < FLAT:
        return "does not hold"
    if used > FLAT:
        return "holds"
    return "holds if" if abs(full - 1) < FLAT and truncated < FLAT else "not shown"


def _drawn(steps: int) -> Tensor:
    return torch.randn(1, steps, WIDTH)


def _full(layer: AnyLayer, steps: int) -> int:
    return saved_bytes(layer, _drawn(steps).requires_grad_())


def _truncated(layer: RNN, steps: int) -> int:
    """Return the most that is stored at a time, with one backward pass for each chunk of τ steps."""
    memory, most = layer.initial_memory(1), 0
    for _ in range(steps // TAU):
        x = _drawn(TAU)
        most = max(most, saved_bytes(layer, x, memory))
        memory = layer(x, memory)[1].detach()
    return most
