"""C34: LSTM and GRU learn longer dependencies than a plain RNN.

中文：LSTM 与 GRU 能学到比普通 RNN 更长的依赖。
Seed: 003_d30a3ba1164faeec.txt:144, 003_d30a3ba1164faeec.txt:163, 004_87792308dac9c34b.txt:21
Budget: minutes
Expected: with as many parameters and updates, LSTM and GRU recall a cue over 100 steps where a plain RNN is near chance; without shorter gaps in training all may fail
预期：参数量与更新次数相同时，LSTM 与 GRU 能隔 100 步回忆提示，普通 RNN 接近随机；若训练中没有较短的间隔，则可能都学不会
Rule: with the smaller of the advantages of LSTM and GRU over the RNN in accuracy at a gap of 100: holds if its interval is above 0 with gaps of 1 to 100 in training and with gaps of 100 only; holds if … (shorter gaps occur in training) if it is above 0 with the former, and below 0.02 with the latter; does not hold if that is below 0, or within 0.02 of it where a cell is right in more than half; else not shown
"""

from __future__ import annotations

import statistics
from collections.abc import Callable

from recollect.core.types import AnyLayer
from recollect.layers.recurrent.gru import GRU
from recollect.layers.recurrent.lstm import LSTM
from recollect.layers.recurrent.rnn import RNN
from recollect.story.claim import Budget, Chart, Check, Control, Curve, Result, Verdict
from recollect.story.fitting import size_of
from recollect.story.gaps import CHANCE, WIDTH, accuracies, reader, trained
from recollect.story.judging import interval
from recollect.views.bilingual import Bilingual

GAPS = (20, 50, 100)
LONG, SAME = GAPS[-1], 0.02
LEARNED = 0.5  # of the answers right: below it nothing is refuted
CELLS: dict[str, Callable[[], AnyLayer]] = {
    "rnn": lambda: RNN(WIDTH, 56),
    "gru": lambda: GRU(WIDTH, 30),
    "lstm": lambda: LSTM(WIDTH, 25),
}


def run(budget: Budget) -> Result:
    updates, gaps = (2, GAPS[-1:]) if budget.is_small else (700, GAPS)
    seeds = range(budget.seeds)
    found = {
        (name, gap): [accuracies(trained(make, 1, gap, seed, updates), gap) for seed in seeds]
        for name, make in CELLS.items()
        for gap in gaps
    }
    fixed = {
        (name, LONG): [accuracies(trained(make, LONG, LONG, seed, updates), LONG) for seed in seeds]
        for name, make in CELLS.items()
    }
    gains, gains_fixed = _gains(found), _gains(fixed)
    low, high = interval(gains)
    alone_low, alone_high = interval(gains_fixed)
    mean, mean_fixed = (
        {key: statistics.fmean(right for right, _ in one) for key, one in part.items()} for part in (found, fixed)
    )
    figures, alone = (", ".join(f"{name} {one[name, LONG]:.0%}" for name in CELLS) for one in (mean, mean_fixed))
    sizes = [size_of(reader(make())) for make in CELLS.values()]
    others = statistics.fmean(other for part in (found, fixed) for one in part.values() for _, other in one)
    judged = ((low, high), (alone_low, alone_high), max(mean[name, LONG] for name in CELLS))
    return Result(
        verdict_of(*judged),
        Bilingual(
            f"Cues recalled over {LONG} steps with {min(sizes):,} to {max(sizes):,} parameters and {updates} updates: {figures} with gaps of 1 to {LONG} in training, {alone} with gaps of {LONG} only. The smaller advantage over the RNN: {statistics.fmean(gains):.2f} [{low:.2f}, {high:.2f}] and {statistics.fmean(gains_fixed):.2f} [{alone_low:.2f}, {alone_high:.2f}].",
            f"参数量 {min(sizes):,} 至 {max(sizes):,}、{updates} 次更新，隔 {LONG} 步的正确率：训练间隔为 1 至 {LONG} 时 {figures}，只有 {LONG} 时 {alone}。对 RNN 的较小优势：{statistics.fmean(gains):.2f} [{low:.2f}, {high:.2f}] 与 {statistics.fmean(gains_fixed):.2f} [{alone_low:.2f}, {alone_high:.2f}]。",
        ),
        statistics.fmean(gains),
        (low, high),
        Control(Bilingual("accuracy by chance", "随机正确率"), CHANCE),
        Check(
            Bilingual("the cues of other sequences are at chance", "换成别的序列的提示时处于随机水平"),
            abs(others - CHANCE) < 0.03,
        ),
        Bilingual("shorter gaps occur in training as well", "训练中也有较短的间隔"),
        Chart(
            Bilingual("Cues recalled", "回忆出的提示"),
            Bilingual("gap", "间隔"),
            Bilingual("share", "比例"),
            [Curve(name, [(float(gap), mean[name, gap]) for gap in gaps]) for name in CELLS],
            log_x=True,
        ),
        [{"layer": name, "gap": gap, "accuracies": [right for right, _ in one]} for (name, gap), one in found.items()],
        judged,
    )


def verdict_of(mixed: tuple[float, float], fixed: tuple[float, float], learned: float) -> Verdict:
    """Return the verdict of the smaller advantage, with gaps of 1 to 100 and of 100 only, and of the best accuracy."""
    if mixed[0] > 0:
        return "holds" if fixed[0] > 0 else "holds if" if fixed[1] < SAME else "not shown"
    is_same = -SAME < mixed[0] <= mixed[1] < SAME and learned > LEARNED
    return "does not hold" if mixed[1] < 0 or is_same else "not shown"


def _gains(found: dict[tuple[str, int], list[tuple[float, float]]]) -> list[float]:
    """Return by seed the smaller of the advantages of LSTM and GRU at the longest gap."""
    plain, gru, lstm = ([right for right, _ in found[name, LONG]] for name in ("rnn", "gru", "lstm"))
    return [min(one, other) - base for base, one, other in zip(plain, gru, lstm, strict=True)]
