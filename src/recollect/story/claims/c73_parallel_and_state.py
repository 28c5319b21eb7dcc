"""C73: A Transformer works in parallel, not in sequence, and has no hidden state.

中文：Transformer 并行而非顺序处理，没有隐藏状态。
Seed: 004_87792308dac9c34b.txt:65
Budget: seconds
Expected: one pass over a known text equals T single steps; to generate, it goes step by step with a memory that grows
预期：对已知文本，一次前向等于逐步 T 次；生成时则须逐步进行，所需的记忆随之增长
Rule: holds if … (training) where one pass equals T steps to 1e-5 and the memory of the steps is not empty; else does not hold
Exact: holds if
"""

from __future__ import annotations

from dataclasses import replace

import torch

from recollect.core.layer import scan
from recollect.models.language import LanguageModel
from recollect.story.claim import Budget, Control, Result
from recollect.story.judging import identity, largest_error
from recollect.views.bilingual import Bilingual

STEPS = 32


@torch.no_grad()
def run(budget: Budget) -> Result:
    model = LanguageModel("transformer", 20, width=32, layers=2).eval()
    ids = torch.randint(20, (2, STEPS))
    whole, memory = model(ids)
    steps, _ = scan(model, ids, model.initial_memory(2))
    alone = torch.cat([model(ids[:, t : t + 1])[0] for t in range(STEPS)], 1)  # every step without a past
    wrong = Control(Bilingual("steps without the memory", "去掉记忆的逐步计算"), largest_error(alone, whole))
    result = identity({"one pass - T steps": largest_error(steps, whole)}, 1e-5, wrong)
    kept = memory.nbytes // 2
    found = Bilingual(
        f"One pass equals {STEPS} single steps to {result.effect:.0e}; the steps need a memory, {kept:,} bytes after {STEPS}"
        f" symbols, without which outputs differ by {wrong.value:.2f}.",
        f"一次前向与逐步 {STEPS} 次的误差为 {result.effect:.0e}；逐步计算需要记忆（读 {STEPS} 个符号后 {kept:,} 字节），"
        f"去掉它输出相差 {wrong.value:.2f}。",
    )
    condition = Bilingual(
        "the whole sequence is known, as in training; to generate, its list of keys and values is its state",
        "整个序列已知（训练时）；生成时键值列表就是它的状态",
    )
    is_so = result.verdict == "holds" and kept > 0
    return replace(result, found=found, verdict="holds if" if is_so else "does not hold", condition=condition)
