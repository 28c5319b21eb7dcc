"""E13: Every state must be stored for training only; to use the model, one is enough.

中文：只有训练时才需保存每一步的状态；使用时只需一个。
Seed: 003_d30a3ba1164faeec.txt:140, 000_56d5b8bda4e4cf77.txt:139
Budget: seconds
Says: Every h_t must be stored.
说法：每个 h_t 都要保存。
Expected: tensors saved for the backward pass double with the length; the memory in use does not grow
预期：为反向传播保存的张量随长度加倍；使用时的记忆不增长
Rule: holds if the memory grows by 0 bytes and the saved tensors grow, else does not hold
Exact: holds
"""

from __future__ import annotations

import torch

from recollect.layers.recurrent.rnn import RNN
from recollect.story.claim import Budget, Control, Result
from recollect.story.judging import identity
from recollect.story.saved_tensors import saved_bytes
from recollect.views.bilingual import Bilingual


def run(budget: Budget) -> Result:
    layer = RNN(8, 16)
    used = [layer(torch.randn(1, steps, 8))[1].nbytes for steps in (100, 200)]
    saved = [saved_bytes(layer, torch.randn(1, steps, 8, requires_grad=True)) for steps in (100, 200)]
    found = Bilingual(
        f"For 100 and 200 steps training saves {saved[0]:,} and {saved[1]:,} bytes; in use {used[0]} and {used[1]}.",
        f"100 步与 200 步：训练时保存 {saved[0]:,} 与 {saved[1]:,} 字节；使用时 {used[0]} 与 {used[1]} 字节。",
    )
    wrong = Control(Bilingual("growth of what training saves", "训练时保存量的增长"), float(saved[1] - saved[0]))
    return identity({"growth of the memory in use": float(used[1] - used[0])}, 0.0, wrong, found)
