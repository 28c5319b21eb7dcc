"""C65: Attention weights are known only after the whole source has been read.

中文：只有源序列全部读完之后，注意力权重才能确定。
Seed: 003_d30a3ba1164faeec.txt:193
Budget: seconds
Expected: with softmax over the source the first weights change with its last symbol; with a monotonic window (Luong's local-m) they do not, to the bit
预期：对整个源序列做 softmax 时，第一步的权重随最后一个源符号变化；单调窗口（Luong 的 local-m）下逐位不变
Rule: holds if … (soft attention to the whole source) where soft weights change and those of the window do not; holds if both change; else does not hold
Exact: holds if
"""

from __future__ import annotations

import torch
from torch import Tensor

from recollect.core.record import record
from recollect.layers.attention.alignment import Alignment, LocalMonotonic, LocalPredictive, Soft
from recollect.layers.attention.attend import Attend
from recollect.layers.attention.score import General
from recollect.layers.recurrent.gru import GRU
from recollect.story.claim import Budget, Check, Control, Result, Verdict
from recollect.story.judging import largest_error
from recollect.views.bilingual import Bilingual

WIDTH, LENGTH, WINDOW = 8, 12, 2


@torch.no_grad()
def run(budget: Budget) -> Result:
    soft, local, predictive = (
        _change(align) for align in (Soft(), LocalMonotonic(WINDOW), LocalPredictive(WIDTH, WINDOW))
    )
    found = Bilingual(
        f"When the last of {LENGTH} source symbols changes, the first output's weights change by {soft:.2g} with softmax over the source, by {local:g} "
        f"in a monotonic window, by {predictive:.2g} in a predicted one, whose centre needs the source's length.",
        f"{LENGTH} 个源符号中的最后一个改变时，第一个输出的权重变化：对全部源做 softmax {soft:.2g}，单调窗口 {local:g}，"
        f"预测窗口 {predictive:.2g}（其中心取决于源的长度）。",
    )
    condition = Bilingual("attention is soft and over the whole source", "注意力是软的，且覆盖整个源序列")
    check = Check(
        Bilingual("the encoder reads forwards: earlier features stay as they are", "编码器单向读取：较早的特征不变"),
        _features_stay(),
    )
    return Result(
        verdict_of(soft, local),
        found,
        soft,
        (soft, soft),
        Control(Bilingual("a monotonic window", "单调窗口"), local),
        check,
        condition=condition,
    )


def verdict_of(soft: float, local: float) -> Verdict:
    """Return the verdict of the changes of the first weights, over the whole source and in a window."""
    if soft <= 0:
        return "does not hold"
    return "holds if" if local == 0 else "holds"


def _encoded() -> tuple[Tensor, Tensor]:
    """Return features (1, S, D) of a source, and of one with another last symbol and one more after it."""
    torch.manual_seed(0)
    encoder = GRU(WIDTH, WIDTH, dtype=torch.float64)
    x = torch.randn(1, LENGTH, WIDTH, dtype=torch.float64)
    other = torch.cat([x[:, :-1], x[:, -1:] + 1, x[:, :1]], 1)
    return encoder(x)[0], encoder(other)[0]


def _features_stay() -> bool:
    before, after = _encoded()
    return torch.equal(before[:, : LENGTH - 1], after[:, : LENGTH - 1])


def _change(alignment: Alignment) -> float:
    """Return the largest change of the first output's weights on the part of the source that is the same."""
    before, after = _encoded()
    attend = Attend(General(WIDTH, WIDTH), alignment).double()
    query = torch.randn(1, 1, WIDTH, dtype=torch.float64)
    weights = []
    for features in (before, after):
        with record(attend) as inner:
            attend(query, attend.remember(features), torch.zeros(1, dtype=torch.long))
        weights.append(inner["weights"][..., : LENGTH - 1])
    return largest_error(*weights)
