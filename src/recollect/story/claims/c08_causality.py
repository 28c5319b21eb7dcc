"""C8: Changing x_t leaves the values before t as they are; the reverse conditional may mean nothing.

中文：改变 x_t 不影响 t 时刻之前的值；反向的条件概率可能没有意义。
Seed: 002_c6efc9a4698e0e4d.txt:66
Budget: seconds
Expected: recurrent, causal attention and TTT layers keep outputs before t to the bit, bidirectional ones do not; text is predicted as well backwards
预期：循环层、因果注意力与 TTT 层在 t 之前的输出逐位不变，双向层则会变；文本反向预测同样好
Rule: holds if … where no causal layer looks ahead, both that must do, and perplexity backwards is within 5 % of forwards; holds where it is not; does not hold where a causal layer looks ahead
Exact: holds if
"""

from __future__ import annotations

import torch
from torch import Tensor

from recollect.core.compose import Bidirectional
from recollect.core.types import AnyLayer
from recollect.layers.attention.linear_attention import LinearAttention
from recollect.layers.attention.self_attention import SelfAttention
from recollect.layers.ngram.markov import Markov
from recollect.layers.recurrent.gru import GRU
from recollect.layers.recurrent.lstm import LSTM
from recollect.layers.recurrent.rnn import RNN
from recollect.layers.ttt.layer import TTTLinear
from recollect.story.claim import Budget, Check, Control, Result, Verdict
from recollect.story.judging import looks_ahead
from recollect.story.texts import characters
from recollect.views.bilingual import Bilingual

WIDTH, STEPS = 8, 40
ORDER = 3


def run(budget: Budget) -> Result:
    torch.manual_seed(0)
    causal: list[AnyLayer] = [layer(WIDTH, WIDTH) for layer in (RNN, GRU, LSTM)]
    causal += [SelfAttention(WIDTH, 2), LinearAttention(WIDTH, 2), TTTLinear(WIDTH, 2, mini_batch=16)]
    whole: list[AnyLayer] = [Bidirectional(GRU(WIDTH, 4), GRU(WIDTH, 4)), SelfAttention(WIDTH, 2, causal=False)]
    leaking = sum(_leaks(layer) for layer in causal)
    seen = sum(_leaks(layer) for layer in whole)
    forwards, backwards = _perplexity(is_reversed=False), _perplexity(is_reversed=True)
    ratio = backwards / forwards
    is_same = abs(ratio - 1) < 0.05
    verdict: Verdict = "does not hold" if leaking or seen < len(whole) else "holds if" if is_same else "holds"
    found = Bilingual(
        f"{leaking} of {len(causal)} causal layers and {seen} of {len(whole)} others change before t; a model of order {ORDER} "
        f"has perplexity {forwards:.2f} forwards and {backwards:.2f} backwards.",
        f"{len(causal)} 种因果层中有 {leaking} 种、其余 {len(whole)} 种中有 {seen} 种在 t 之前的输出改变；{ORDER} 阶模型正向困惑度 "
        f"{forwards:.2f}，反向 {backwards:.2f}。",
    )
    condition = Bilingual(
        "it speaks of reading forwards: reversed models of text are as good", "指正向读取；文本的反向模型同样好"
    )
    leak = Check(Bilingual("layers that read both sides are detected", "读取两侧的层能被检出"), seen == len(whole))
    baseline = Control(Bilingual("layers that read both sides and change", "读取两侧且改变的层"), float(seen))
    return Result(verdict, found, ratio, (ratio, ratio), baseline, leak, condition if verdict == "holds if" else None)


def _leaks(layer: AnyLayer) -> bool:
    x = torch.randn(2, STEPS, WIDTH)
    return looks_ahead(lambda given: layer(given)[0], x, STEPS - 9)


def _perplexity(*, is_reversed: bool) -> float:
    ids, symbols = characters(100_000)
    cut = len(ids) * 9 // 10
    parts: list[Tensor] = [part.flip(0) if is_reversed else part for part in (ids[:cut], ids[cut:])]
    model = Markov(symbols, ORDER)
    model.count(parts[0][None])
    return float((-model.score(parts[1][None]).mean()).exp())
