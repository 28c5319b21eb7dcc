"""E19: Clipping shortens a gradient and keeps its direction; truncation cuts time, and changes the direction.

中文：裁剪缩短梯度但保持方向；截断切断时间，会改变方向。
Seed: 000_56d5b8bda4e4cf77.txt:34, 002_c6efc9a4698e0e4d.txt:136
Budget: seconds
Says: One word for both.
说法：两种技术用了同一个词。
Expected: 1 - cosine is 0 after clipping and above 1e-4 after truncation
预期：裁剪后 1 - 余弦为 0，截断后高于 1e-4
Rule: holds if both are so, else does not hold
Exact: holds
"""

from __future__ import annotations

import torch
from torch import Tensor

from recollect.layers.recurrent.recurrence import Hidden
from recollect.layers.recurrent.rnn import RNN
from recollect.story.claim import Budget, Control, Result
from recollect.story.judging import identity
from recollect.views.bilingual import Bilingual


def run(budget: Budget) -> Result:
    layer = RNN(3, 6, dtype=torch.float64)
    x = torch.randn(2, 20, 3, dtype=torch.float64)
    y = layer(x)[0][:, -1].square().sum()
    (full,) = torch.autograd.grad(y, layer.weight_hh)
    layer.weight_hh.grad = full.clone()
    torch.nn.utils.clip_grad_norm_([layer.weight_hh], float(full.norm()) / 10)
    memory = layer(x[:, :18])[1].detach()
    last = layer(x[:, 18:], Hidden(hidden=memory.hidden))[0][:, -1].square().sum()
    (cut,) = torch.autograd.grad(last, layer.weight_hh)
    turned = {"clipped": _turn(layer.weight_hh.grad, full), "truncated": _turn(cut, full)}
    wrong = Control(Bilingual("1 - cosine after truncation", "截断后的 1 - 余弦"), turned["truncated"])
    return identity({Bilingual("1 - cosine after clipping", "裁剪后的 1 - 余弦"): turned["clipped"]}, 1e-10, wrong)


def _turn(a: Tensor, b: Tensor) -> float:
    return 1 - float((a * b).sum() / (a.norm() * b.norm()))
