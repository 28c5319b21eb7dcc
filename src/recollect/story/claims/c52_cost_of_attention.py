"""C52: Attention lowers the amount of computation.

中文：注意力降低了计算量。
Seed: 003_d30a3ba1164faeec.txt:217
Budget: seconds
Expected: counted operations of a decoder with soft attention exceed those without it at every length; among them 4 · d · m · n, exactly
预期：带软注意力的解码器，其运算量在任何长度上都高于不带注意力的，其中恰有 4 · d · m · n 项
Rule: does not hold if operations with attention are more at every length, and those in m · n are 4 · d · m · n; holds if they are fewer at every length; else not shown
Exact: does not hold
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch.utils.flop_counter import FlopCounterMode

from recollect.core.record import readable
from recollect.models.translation import Translator
from recollect.story.claim import Budget, Chart, Control, Curve, Result, Verdict
from recollect.story.judging import DETERMINISTIC
from recollect.views.bilingual import Bilingual

SYMBOLS, WIDTH = 20, 32
LENGTHS = (8, 16, 32, 64)


@torch.no_grad()
def run(budget: Budget) -> Result:
    without = {n: _operations("sutskever", n, n) for n in LENGTHS}
    soft = {n: _operations("luong", n, n) for n in LENGTHS}
    local = {n: _operations("luong", n, n, alignment="local-monotonic", window=2) for n in LENGTHS}
    error = max(abs(_in_both_lengths(n) - 4 * WIDTH) for n in LENGTHS)
    ratios = {n: soft[n] / without[n] for n in LENGTHS}
    least, most = min(ratios.values()), max(ratios.values())
    found = Bilingual(
        f"Operations of a whole translation, m = n = {LENGTHS[0]} to {LENGTHS[-1]}: {least:.2f} to {most:.2f} times as many with soft attention; "
        f"4 · d · m · n of them are scores and sums (error {error:g}). A window is masked after scoring and saves nothing here "
        f"({local[LENGTHS[-1]] / soft[LENGTHS[-1]]:.2f}).",
        f"翻译一整句的运算量，m = n = {LENGTHS[0]} 到 {LENGTHS[-1]}：带软注意力时为 {least:.2f} 到 {most:.2f} 倍，其中打分与求和占 4 · d · m · n"
        f"（误差 {error:g}）。局部窗口是在打分之后遮盖的，这里并不省运算（{local[LENGTHS[-1]] / soft[LENGTHS[-1]]:.2f}）。",
    )
    chart = Chart(
        Bilingual("Operations of one translation", "一次翻译的运算量"),
        Bilingual("words on each side", "每侧词数"),
        Bilingual("operations", "运算量"),
        [Curve("soft attention", _points(soft)), Curve("one vector", _points(without))],
        log_x=True,
        log_y=True,
    )
    return Result(
        verdict_of(ratios, error),
        found,
        least,
        (least, most),
        Control(Bilingual("the same decoder without attention", "不带注意力的同一解码器"), 1.0),
        DETERMINISTIC,
        chart=chart,
        rows=[{"length": n, "without": without[n], "soft": soft[n], "local": local[n]} for n in LENGTHS],
    )


def verdict_of(ratios: Mapping[int, float], error: float) -> Verdict:
    """Return the verdict of operations with attention over those without, and the error of the part in m · n."""
    if min(ratios.values()) > 1 and error == 0:
        return "does not hold"
    return "holds" if max(ratios.values()) < 1 else "not shown"


def _operations(family: str, read: int, written: int, **options: object) -> int:
    """Return the counted operations of reading a source and scoring a target."""
    model = Translator(family, SYMBOLS, SYMBOLS, width=WIDTH, **_shape(family), **options)
    source, given = (torch.randint(SYMBOLS, (1, length)) for length in (read, written))
    with FlopCounterMode(display=False) as counter, readable():
        model(given, model.remember(source))
    return counter.get_total_flops()


def _shape(family: str) -> dict[str, object]:
    return {"cell": "gru", "input_feeding": False} if family == "luong" else {"cell": "gru"}


def _in_both_lengths(n: int) -> float:
    """Return c of f(m, t) = a m + b t + c m t + d, the operations of both lengths: by a mixed difference."""
    counted = {(m, t): _operations("luong", m, t) for m in (2, n) for t in (2, n)}
    return (counted[n, n] - counted[n, 2] - counted[2, n] + counted[2, 2]) / (n - 2) ** 2


def _points(counted: Mapping[int, int]) -> list[tuple[float, float]]:
    return [(float(n), float(count)) for n, count in counted.items()]
