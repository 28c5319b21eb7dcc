"""C38: The GRU of torch is the GRU of the formula: the reset gate acts at the same place (not claimed; the formula invites it).

中文：torch 的 GRU 与公式中的 GRU 相同：重置门作用在同一位置（原文并未这样说，但公式容易让人这样以为）。
Seed: 003_d30a3ba1164faeec.txt:155
Budget: seconds
Expected: torch and cuDNN apply the reset gate after the matrix, the paper before it: with the same weights outputs differ
预期：torch 与 cuDNN 在矩阵相乘之后应用重置门，论文在相乘之前：同样的权重，输出不同
Rule: holds if the two forms agree to 1e-6; does not hold if they differ while ours equals torch's in one of them
Exact: does not hold
"""

from __future__ import annotations

import torch
from torch import nn

from recollect.layers.recurrent.gru import GRU
from recollect.story.claim import Budget, Check, Control, Result, Verdict
from recollect.story.judging import largest_error
from recollect.views.bilingual import Bilingual


@torch.no_grad()
def run(budget: Budget) -> Result:
    theirs = nn.GRU(4, 16, batch_first=True, dtype=torch.float64)
    for weight in theirs.parameters():
        weight.mul_(4)  # gates that are neither open nor shut
    weights = {name.removesuffix("_l0"): tensor for name, tensor in theirs.state_dict().items()}
    x = torch.randn(3, 12, 4, dtype=torch.float64)
    expected = theirs(x)[0]
    differences = {}
    for reset in ("after", "before"):
        ours = GRU(4, 16, reset="after" if reset == "after" else "before", dtype=torch.float64)
        ours.load_state_dict(weights)
        differences[reset] = largest_error(ours(x)[0], expected)
    after, before = differences["after"], differences["before"]
    found = Bilingual(
        f"With the same weights torch's outputs differ by {after:.0e} from the form with the gate after the matrix, by {before:.2f} from the paper's.",
        f"同样的权重下，torch 的输出与“矩阵之后重置”的形式相差 {after:.0e}，与论文形式相差 {before:.2f}。",
    )
    verdict: Verdict = "does not hold" if after < 1e-10 and before > 1e-3 else "holds" if before < 1e-6 else "not shown"
    check = Check(Bilingual("an identity: no data are held out", "恒等式：不涉及留出数据"), True)
    return Result(
        verdict,
        found,
        before,
        (before, before),
        Control(Bilingual("the form after the matrix", "矩阵之后重置"), after),
        check,
    )
