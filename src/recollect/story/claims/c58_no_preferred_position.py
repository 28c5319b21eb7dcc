"""C58: Self-attention treats every token alike, with no preference for a position.

中文：自注意力平等地看待每个 token，没有位置偏好。
Seed: 000_56d5b8bda4e4cf77.txt:199
Budget: seconds
Expected: without mask and positions a token's weight is the same at every place, to 1e-12; in a trained causal language model the nearest steps have more than their share
预期：没有掩码与位置编码时，一个 token 在任何位置上的权重都相同，误差 1e-12；训练过的因果语言模型中，近处的步得到的权重超过均分
Rule: holds if … (no mask, no positions) where the weight is the same to 1e-12 and the interval of the trained model's share of the nearest eighth, over an equal share, is above 1.2; holds if the latter is within 0.8 to 1.2; does not hold if the weight changes or the interval is below 0.8; else not shown
"""

from __future__ import annotations

import statistics

import torch
import torch.nn.functional as F
from torch import Tensor

from recollect.core.record import record
from recollect.layers.attention.self_attention import SelfAttention
from recollect.models.language import LanguageModel
from recollect.story.claim import Budget, Chart, Check, Control, Curve, Result, Verdict
from recollect.story.fitting import fit
from recollect.story.judging import interval, looks_ahead
from recollect.story.texts import characters
from recollect.views.bilingual import Bilingual

STEPS, NEAREST, WIDTH, HELD_OUT = 32, 4, 32, 8_000


def run(budget: Budget) -> Result:
    text, symbols = characters(60_000)
    error = _needle_error()
    pairs = [_profiles(text, symbols, seed, 5 if budget.is_small else 120) for seed in range(budget.seeds)]
    before, after = (torch.stack(rows).mean(0) for rows in zip(*pairs, strict=True))  # (STEPS,) each
    shares = [_share(trained) for _, trained in pairs]
    low, high = interval(shares)
    mean = statistics.fmean(shares)
    first = float(after[-1]) * STEPS
    found = Bilingual(
        f"Without mask and positions a token's weight changes by {error:.0e} over all places. In a trained causal model the last step gives its nearest {NEAREST} of "
        f"{STEPS} steps {mean:.2f} times an equal share ({_share(before):.2f} before training), the first step {first:.2f} times.",
        f"没有掩码与位置编码时，一个 token 的权重在所有位置之间相差 {error:.0e}。训练过的因果模型中，最后一步给最近 {NEAREST} 步（共 {STEPS} 步）的权重是均分的 "
        f"{mean:.2f} 倍（训练前 {_share(before):.2f} 倍），给第一步的是 {first:.2f} 倍。",
    )
    chart = Chart(
        Bilingual("Weight of the last step, times an equal share", "最后一步的权重，与均分之比"),
        Bilingual("steps back", "回看的步数"),
        Bilingual("times an equal share", "均分的倍数"),
        [
            Curve(name, [(float(back), float(value) * STEPS) for back, value in enumerate(profile)])
            for name, profile in (("trained", after), ("untrained", before))
        ],
    )
    model = _model(symbols)
    is_causal = not looks_ahead(lambda ids: model(ids)[0], text[None, :STEPS], STEPS - 4)
    return Result(
        verdict_of(error, low, high),
        found,
        mean,
        (low, high),
        Control(Bilingual("untrained", "未训练"), _share(before)),
        Check(Bilingual("the language model does not look ahead", "语言模型不偷看后文"), is_causal),
        condition=Bilingual("there is neither a mask nor a position", "既没有掩码，也没有位置编码"),
        chart=chart,
    )


def verdict_of(error: float, low: float, high: float) -> Verdict:
    """Return the verdict of the needle's error and of the interval of the nearest steps' weight over an equal share."""
    if error > 1e-12:
        return "does not hold"
    if low > 1.2:
        return "holds if"
    if high < 0.8:
        return "does not hold"
    return "holds" if low > 0.8 and high < 1.2 else "not shown"


def _share(profile: Tensor) -> float:
    """Return the weight of the nearest steps over an equal share of them."""
    return float(profile[:NEAREST].sum()) * STEPS / NEAREST


@torch.no_grad()
def _needle_error() -> float:
    """Return how much the weight of one token changes with its place, in a layer without mask and positions."""
    torch.manual_seed(0)
    layer = SelfAttention(WIDTH, 2, causal=False, dtype=torch.float64)
    others = torch.randn(1, STEPS - 2, WIDTH, dtype=torch.float64)
    needle, query = torch.randn(2, 1, 1, WIDTH, dtype=torch.float64)
    weights = []
    for place in range(STEPS - 1):
        with record(layer) as inner:
            layer(torch.cat([others[:, :place], needle, others[:, place:], query], 1))
        weights.append(inner["weights"][0, :, -1, place])
    found = torch.stack(weights)  # (places, heads)
    return float((found.amax(0) - found.amin(0)).max())


def _model(symbols: int) -> LanguageModel:
    return LanguageModel("transformer", symbols, width=WIDTH, layers=2, heads=2)


def _profiles(text: Tensor, symbols: int, seed: int, updates: int) -> tuple[Tensor, Tensor]:
    """Return the last step's weights by steps back (STEPS,), before and after training, on text that was held out."""
    torch.manual_seed(seed)
    model = _model(symbols)
    before = _profile(model, text[-HELD_OUT:])
    fit(model, lambda: _loss(model, _windows(text[:-HELD_OUT], 32)), updates)
    return before, _profile(model, text[-HELD_OUT:])


def _loss(model: LanguageModel, windows: Tensor) -> Tensor:
    logits, _ = model(windows[:, :-1])
    return F.cross_entropy(logits.flatten(0, 1), windows[:, 1:].flatten())


def _windows(text: Tensor, rows: int) -> Tensor:
    begins = torch.randint(len(text) - STEPS - 1, (rows, 1))
    return text[begins + torch.arange(STEPS + 1)]


@torch.no_grad()
def _profile(model: LanguageModel, text: Tensor) -> Tensor:
    with record(model) as inner:
        model(_windows(text, 64)[:, :STEPS])
    layers = [value[:, :, -1] for name, value in inner.items() if name.endswith("weights")]  # (B, N, S) each
    return torch.stack(layers).mean((0, 1, 2)).flip(0)
