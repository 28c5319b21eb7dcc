"""C78: Test-time training compresses the context into weights and is more expressive; attention keeps it uncompressed.

中文：TTT 把上下文压缩进权重，表达能力更强；注意力则不压缩。
Seed: 000_56d5b8bda4e4cf77.txt:195, 000_56d5b8bda4e4cf77.txt:196, 000_56d5b8bda4e4cf77.txt:197
Budget: seconds
Expected: batch descent from W = 0 at rate 1/2 is linear attention; Nadaraya–Watson with exp is softmax attention; dual = primal; on random keys one pass of fixed-rate descent recalls less than linear attention
预期：从 W = 0 出发、步长 1/2 的整批梯度下降就是线性注意力；取 exp 核的 Nadaraya–Watson 回归就是 softmax 注意力；对偶形式等于原形式；对随机的键，固定步长的单遍下降回忆得比线性注意力少
Rule: holds if … (tuned) where the identities hold to 1e-9 and plain one-pass descent recalls less than linear attention; holds where it recalls more; else does not hold
Exact: holds if
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from recollect.core.record import readable
from recollect.layers.attention.linear_attention import LinearAttention
from recollect.layers.attention.self_attention import SelfAttention
from recollect.layers.ttt.layer import TTTLinear
from recollect.story.claim import Budget, Chart, Control, Curve, Result
from recollect.story.judging import identity, largest_error
from recollect.views.bilingual import Bilingual

WIDTH = 16
PAIRS = (4, 8, 16, 32, 64)


@torch.no_grad()
def run(budget: Budget) -> Result:
    torch.manual_seed(0)
    errors = {"TTT, one mini-batch - linear attention": _linear_attention(), "kernel - softmax attention": _kernel()}
    errors |= {f"dual - primal, b={b}": _dual(b) for b in (1, 4, 16, 64)}
    recall = {n: _recalled(n) for n in PAIRS}
    names = ("softmax attention", "linear attention", "one-pass descent")
    curves = [Curve(name, [(float(n), recall[n][i]) for n in PAIRS]) for i, name in enumerate(names)]
    chart = Chart(
        Bilingual("Pairs recalled by a 16 × 16 state", "16×16 状态能回忆的键值对"),
        Bilingual("pairs", "键值对数"),
        Bilingual("share recalled", "回忆正确率"),
        curves,
        log_x=True,
    )
    attention, linear, descent = recall[16]
    result = identity(errors, 1e-9, Control(Bilingual("recall of 16 pairs by chance", "随机猜中 16 对"), 1 / 16))
    found = Bilingual(
        f"The identities hold to {result.effect:.0e}. Of 16 random pairs attention recalls {attention:.2f}, linear attention "
        f"{linear:.2f}, one pass of gradient descent at a fixed rate {descent:.2f}.",
        f"各恒等式误差不超过 {result.effect:.0e}。16 个随机键值对，注意力回忆 {attention:.2f}，线性注意力 {linear:.2f}，"
        f"固定步长的单遍梯度下降 {descent:.2f}。",
    )
    condition = Bilingual(
        "it is tuned: plain descent as a memory is not better than a sum of outer products",
        "经过调校：未调校的梯度下降作为记忆，并不优于外积之和",
    )
    if result.verdict == "holds" and descent <= linear:
        return replace(result, verdict="holds if", condition=condition, found=found, chart=chart)
    return replace(result, found=found, chart=chart)


def _plain(mini_batch: int | None, rate: float) -> TTTLinear:
    switches: dict[str, bool] = {"norm": False, "residual": False, "learned_start": False, "average": False}
    return TTTLinear(12, 3, mini_batch=mini_batch, rate=rate, dtype=torch.float64, **switches)


def _linear_attention() -> float:
    ttt = _plain(None, 0.5)
    linear = LinearAttention(12, 3, feature="identity", dtype=torch.float64)
    k, v, q = ttt.kvq.weight.chunk(3)
    linear.qkv.weight.copy_(torch.cat([q, k, v]))
    linear.out.weight.copy_(ttt.out.weight)
    x = torch.randn(2, 50, 12, dtype=torch.float64)
    return largest_error(ttt(x)[0], linear(x)[0])


def _kernel() -> float:
    layer = SelfAttention(6, 1, dtype=torch.float64)
    x = torch.randn(2, 9, 6, dtype=torch.float64)
    q, k, v = layer.qkv(x).chunk(3, dim=2)
    kernel = torch.exp(torch.einsum("bth,bsh->bts", q, k) / 6**0.5).tril()
    regression = (kernel @ v) / kernel.sum(-1, keepdim=True)  # ŷ(q) = Σ κ(q, k_s) v_s / Σ κ(q, k_s)
    return largest_error(layer(x)[0], layer.out(regression))


def _dual(mini_batch: int) -> float:
    layer = TTTLinear(12, 3, mini_batch=mini_batch, dtype=torch.float64)
    x = torch.randn(2, 100, 12, dtype=torch.float64)
    dual = layer(x)[0]
    with readable():
        return largest_error(dual, layer(x)[0])


def _recalled(pairs: int, trials: int = 60) -> tuple[float, float, float]:
    """Return the share of values found by attention, by Σ v kᵀ, and by one pass of descent on ‖W k - v‖²."""
    k = torch.nn.functional.normalize(torch.randn(trials, pairs, WIDTH, dtype=torch.float64), dim=-1)
    v = torch.nn.functional.normalize(torch.randn(trials, pairs, WIDTH, dtype=torch.float64), dim=-1)
    sharp = (20 * k @ k.mT).softmax(-1) @ v
    hebbian = k @ (k.mT @ v)
    weights = torch.zeros(trials, WIDTH, WIDTH, dtype=torch.float64)
    for t in range(pairs):
        key, value = k[:, t, :, None], v[:, t, None, :]
        weights = weights - key @ (key.mT @ weights - value)  # η = 1/2 of the gradient 2 k (kᵀ W - v)
    return _found(sharp, v), _found(hebbian, v), _found(k @ weights, v)


def _found(answers: Tensor, values: Tensor) -> float:
    nearest = (answers @ values.mT).argmax(-1)  # (trials, pairs)
    return float((nearest == torch.arange(values.shape[1])).double().mean())
