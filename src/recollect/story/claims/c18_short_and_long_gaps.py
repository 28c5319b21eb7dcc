"""C18: An RNN learns to recall over a short gap ("the clouds are in the sky"), but not over a long one ("I grew up in Italy … I speak").

中文：间隔短时 RNN 能学会利用前文（“云在天上”），间隔长时则学不会（“我在意大利长大……我说”）。
Seed: 000_56d5b8bda4e4cf77.txt:40, 000_56d5b8bda4e4cf77.txt:42, 003_d30a3ba1164faeec.txt:144, 004_87792308dac9c34b.txt:19
Budget: minutes
Expected: with about as many parameters and as many updates, the longest gap that is recalled (95 % right) is 20 to 50 for a plain RNN; a GRU and attention recall over 100
预期：参数量与更新次数相近时，能回忆（正确率 95 %）的最长间隔：普通 RNN 为 20 至 50；GRU 与注意力能隔 100 步回忆
Rule: of the longest gaps: does not hold if a plain RNN recalls over 100 in every seed, or over 5 not in every seed; holds if the interval of its longest is below 100 and no GRU reaches 100; holds if … (the cell is a plain one) if the GRU does in every seed; else not shown
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence

from recollect.core.compose import Stack
from recollect.core.types import AnyLayer
from recollect.layers.attention.self_attention import SelfAttention
from recollect.layers.pointwise import Linear
from recollect.layers.recurrent.gru import GRU
from recollect.layers.recurrent.rnn import RNN
from recollect.story.claim import Budget, Chart, Check, Control, Curve, Result, Verdict
from recollect.story.gaps import CHANCE, WIDTH, accuracies, trained
from recollect.story.judging import interval
from recollect.views.bilingual import Bilingual

GAPS = (5, 10, 20, 50, 100)
SHORT, LONG, HELD = GAPS[0], GAPS[-1], 0.95
ENOUGH = 0.02  # nats: the training ends early
TRIED = {"rnn": GAPS, "gru": (LONG,), "attention": (LONG,)}
CELLS: dict[str, Callable[[], AnyLayer]] = {  # 4.1 to 4.8 thousand parameters each
    "rnn": lambda: RNN(WIDTH, 56),
    "gru": lambda: GRU(WIDTH, 30),
    "attention": lambda: Stack(Linear(WIDTH, 30), SelfAttention(30, 2)),
}
Climb = dict[int, tuple[float, float]]  # by gap: accuracy, and that with other cues


def run(budget: Budget) -> Result:
    updates = 2 if budget.is_small else 1200
    climbs = {
        name: [_climb(make, TRIED[name], seed, updates) for seed in range(budget.seeds)] for name, make in CELLS.items()
    }
    longest = {name: [_longest(climb) for climb in found] for name, found in climbs.items()}
    low, high = interval([float(gap) for gap in longest["rnn"]])
    figures = "; ".join(f"{name} {', '.join(map(str, gaps))}" for name, gaps in longest.items())
    others = statistics.fmean(other for found in climbs.values() for climb in found for _, other in climb.values())
    first = {name: found[0] for name, found in climbs.items()}
    return Result(
        verdict_of(longest["rnn"], longest["gru"]),
        Bilingual(
            f"The longest gap that is recalled after at most {updates} updates with gaps up to it, by seed: {figures} (of the others {LONG} alone was tried).",
            f"以不超过该长度的间隔训练至多 {updates} 次更新后，能回忆的最长间隔（按种子）：{figures}（后两者只试了 {LONG}）。",
        ),
        statistics.fmean(longest["rnn"]),
        (low, high),
        Control(Bilingual("accuracy by chance", "随机正确率"), CHANCE),
        Check(
            Bilingual("the cues of other sequences are at chance", "换成别的序列的提示时处于随机水平"),
            abs(others - CHANCE) < 0.03,
        ),
        Bilingual("the cell is a plain one", "单元为普通 RNN 单元"),
        Chart(
            Bilingual(
                "Cues recalled (the first seed, up to the first gap that fails)",
                "回忆出的提示（首个种子，至首个失败的间隔）",
            ),
            Bilingual("gap", "间隔"),
            Bilingual("share", "比例"),
            [Curve(name, [(float(gap), right) for gap, (right, _) in climb.items()]) for name, climb in first.items()],
            log_x=True,
        ),
        [
            {"layer": name, "seed": seed, "accuracies": {gap: right for gap, (right, _) in climb.items()}}
            for name, found in climbs.items()
            for seed, climb in enumerate(found)
        ],
    )


def verdict_of(plain: Sequence[int], gated: Sequence[int]) -> Verdict:
    """Return the verdict of the longest gaps by seed, of a plain RNN and of a GRU; 0 is none."""
    if min(plain) >= LONG or min(plain) < SHORT:
        return "does not hold"
    if interval([float(gap) for gap in plain])[1] >= LONG:
        return "not shown"
    if max(gated) < LONG:
        return "holds"
    return "holds if" if min(gated) >= LONG else "not shown"


def _climb(make: Callable[[], AnyLayer], gaps: Sequence[int], seed: int, updates: int) -> Climb:
    """Train for longer and longer gaps, each time from the start, up to the first that is not recalled."""
    found: Climb = {}
    for gap in gaps:
        found[gap] = accuracies(trained(make, 1, gap, seed, updates, enough=ENOUGH), gap)
        if found[gap][0] < HELD:
            break
    return found


def _longest(climb: Climb) -> int:
    """Return the longest gap that is recalled, 0 for none."""
    return max((gap for gap, (right, _) in climb.items() if right >= HELD), default=0)
