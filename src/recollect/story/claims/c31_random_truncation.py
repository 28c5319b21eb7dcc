"""C31: Random truncation backfires: regular truncation is enough.

中文：随机截断弄巧成拙，固定步长截断就够了。
Seed: 002_c6efc9a4698e0e4d.txt:164, 002_c6efc9a4698e0e4d.txt:166
Budget: seconds
Expected: influence balancing: regular truncation at 5 to 50 moves away from the start loss of 8 in every run, reweighted random truncation converges in the median at some mean length
预期：影响平衡实验：截断 5 至 50 步时，每次训练都偏离初始损失 8；加权的随机截断在某个平均长度下，中位数能够收敛
Rule: holds if regular truncation at 10 converges in the median; does not hold if it does not and reweighted truncation does at some length; else not shown
"""

from __future__ import annotations

from recollect.story.claim import Budget, Check, Control, Result, Verdict
from recollect.story.results import measured, not_measured
from recollect.views.bilingual import Bilingual

NAME, START = "truncation", 8.0


def run(budget: Budget) -> Result:
    saved = measured(NAME)
    if saved is None:
        return not_measured(NAME)
    rows = [row for row in saved["rows"] if row["experiment"] == "influence balancing"]
    medians = {(row["kind"], row["steps"]): float(row["median"]) for row in rows}
    losses = {(row["kind"], row["steps"]): row["losses"] for row in rows}
    regular = medians["regular", 10]
    best = min(value for (kind, steps), value in medians.items() if kind == "reweighted" and steps != "full")
    limit = saved["settings"]["balancing"]["converged_below"]
    verdict: Verdict = "holds" if regular < limit else "does not hold" if best < limit else "not shown"
    found = Bilingual(
        f"Influence balancing, start loss {START:g}: regular truncation at 10 ends at {regular:,.3g}, reweighted random truncation at best at {best:.2g} (benchmarks/results/{NAME}.json).",
        f"影响平衡实验，初始损失 {START:g}：固定截断（10 步）终点 {regular:,.3g}，加权随机截断最好为 {best:.2g}（benchmarks/results/{NAME}.json）。",
    )
    spread = losses["regular", 10]
    longest = max(steps for kind, steps in medians if kind == "regular")
    check = Check(
        Bilingual(
            f"the task can be learned: truncation at {longest:,} steps, which cuts next to nothing, converges",
            f"任务可以学会：{longest:,} 步截断几乎什么也没截掉，能够收敛",
        ),
        medians["regular", longest] < limit,
    )
    return Result(
        verdict,
        found,
        regular,
        (min(spread), max(spread)),
        Control(Bilingual("loss at the start", "初始损失"), START),
        check,
    )
