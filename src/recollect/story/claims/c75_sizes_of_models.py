"""C75: An RNN is small and a Transformer large: its parallelism costs parameters, and an RNN's grow in proportion to its units.

中文：RNN 小而 Transformer 大：并行的代价是参数；RNN 的参数与单元数成正比。
Seed: 004_87792308dac9c34b.txt:81, 004_87792308dac9c34b.txt:83
Budget: seconds
Expected: per layer of width d: RNN 2d², GRU 6d², LSTM 8d², block 12d², self-attention alone 4d², sinusoidal positions 0; doubling d gives 4 times as many
预期：宽度为 d 的每一层：RNN 2d²，GRU 6d²，LSTM 8d²，Transformer 块 12d²，仅自注意力 4d²，正弦位置编码 0；d 加倍，参数变为 4 倍
Rule: holds if the RNN's number doubles with the width and attention has more than every recurrent layer; does not hold if it grows 4 times and attention has fewer than an LSTM
Exact: does not hold
"""

from __future__ import annotations

from recollect.core.types import AnyLayer
from recollect.layers.attention.self_attention import SelfAttention
from recollect.layers.block import Block
from recollect.layers.positions import Positions
from recollect.layers.recurrent.gru import GRU
from recollect.layers.recurrent.lstm import LSTM
from recollect.layers.recurrent.rnn import RNN
from recollect.story.claim import Budget, Check, Control, Result, Verdict
from recollect.views.bilingual import Bilingual


def run(budget: Budget) -> Result:
    parts = {name: _weights(name, 128) / 128**2 for name in ("rnn", "gru", "lstm", "attention", "block", "positions")}
    growth = _weights("rnn", 256) / _weights("rnn", 128)
    found = Bilingual(
        "Weights in d² per layer: "
        + ", ".join(f"{name} {count:g}" for name, count in parts.items())
        + f"; twice the width makes {growth:g} times as many.",
        "每层权重（以 d² 计）："
        + "，".join(f"{name} {count:g}" for name, count in parts.items())
        + f"；宽度加倍，参数变为 {growth:g} 倍。",
    )
    is_refuted = growth == 4 and parts["attention"] < parts["lstm"] and parts["positions"] == 0
    is_so = growth == 2 and parts["attention"] > parts["lstm"]
    verdict: Verdict = "holds" if is_so else "does not hold" if is_refuted else "not shown"
    check = Check(Bilingual("a count: no data", "计数：不涉及数据"), True)
    return Result(
        verdict,
        found,
        growth,
        (growth, growth),
        Control(Bilingual("if in proportion", "若成正比"), 2.0),
        check,
        rows=[{"layer": name, "weights": count} for name, count in parts.items()],
    )


def _weights(name: str, width: int) -> int:
    """Return the number of entries in a layer's matrices."""
    layers: dict[str, AnyLayer] = {
        "rnn": RNN(width, width),
        "gru": GRU(width, width),
        "lstm": LSTM(width, width),
        "attention": SelfAttention(width, 4),
        "block": Block(SelfAttention(width, 4)),
        "positions": Positions(width),
    }
    return sum(p.numel() for p in layers[name].parameters() if p.dim() == 2)
