"""E42: The list of keys and values holds all context up to the window.

中文：键值列表保存的是窗口以内的全部上下文。
Seed: 000_56d5b8bda4e4cf77.txt:197
Budget: seconds
Says: The list is uncompressed and sees all of the past.
说法：没有压缩，能看到过去的全部上下文。
Expected: with a window of 8, eight steps are kept after any number; without one, all
预期：窗口为 8 时，无论读多少步都保存 8 步；没有窗口时全部保存
Rule: holds if the kept steps are exactly 8 and all, else does not hold
Exact: holds
"""

from __future__ import annotations

import torch

from recollect.core.types import AnyLayer
from recollect.layers.attention.self_attention import SelfAttention
from recollect.story.claim import Budget, Control, Result
from recollect.story.judging import identity
from recollect.views.bilingual import Bilingual

WINDOW, STEPS = 8, 50


@torch.no_grad()
def run(budget: Budget) -> Result:
    kept = {window: _kept(SelfAttention(8, 2, window=window)) for window in (WINDOW, None)}
    errors = {
        Bilingual("window: kept - 8", "窗口：保存 - 8"): float(abs(kept[WINDOW] - WINDOW)),
        Bilingual("none: kept - all", "无窗口：保存 - 全部"): float(abs(kept[None] - STEPS)),
    }
    wrong = Control(Bilingual("if a window kept all", "假如窗口保存全部"), float(STEPS - WINDOW))
    return identity(errors, 0.0, wrong)


def _kept(layer: AnyLayer) -> int:
    return layer(torch.randn(1, STEPS, 8))[1].keys.shape[1]
