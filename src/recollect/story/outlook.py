"""Why a model that counts is ahead after a short training, and what more time would change, from measured losses.

The strongest trained family is trained again for a sixteenth and for a quarter of the time, each time with its whole
schedule of learning rates: within one training the rate falls towards the end, so that the curve of a single run tells
little about a longer one. Two gains follow, one for each time that the training became four times as long.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

FACTOR = 4  # between the lengths of two trainings
FARTHEST = 4  # times the longest training: nothing is said about longer ones


@dataclass(frozen=True)
class Outlook:
    """The losses of a family trained for growing times, beside one that counts."""

    counter: str
    counter_loss: float
    counter_seconds: float  # to count the text once
    order: int  # the symbols that the counter remembers
    rival: str  # the best trained family
    ends: tuple[tuple[float, float], ...]  # training seconds and test loss: a sixteenth, a quarter, all of the time
    passes: float  # over the text, in the longest training

    @property
    def gap(self) -> float:
        """The rival's loss above the counter's; negative where the rival is ahead."""
        return self.ends[-1][1] - self.counter_loss

    @property
    def gains(self) -> tuple[float, float]:
        """What each of the two extensions of the training gained."""
        first, second, last = (loss for _, loss in self.ends)
        return first - second, second - last

    @property
    def crossing(self) -> tuple[float, float] | None:
        """The seconds after which the rival would draw level: soonest, and latest (inf: never). None: no gain.

        Soonest if every further extension gained as much as the last one. Latest if gains kept shrinking by the
        ratio r of the two measured ones: after n extensions the gain is g (r + … + rⁿ), at most g r / (1 - r).
        """
        earlier, last = self.gains
        if last <= 0:
            return None
        longest = self.ends[-1][0]
        soonest = longest * FACTOR ** (self.gap / last)
        ratio = last / earlier if earlier > 0 else 1.0
        if ratio >= 1:
            return soonest, soonest
        left = 1 - self.gap * (1 - ratio) / (last * ratio)
        latest = longest * FACTOR ** (math.log(left) / math.log(ratio)) if left > 0 else math.inf
        return soonest, max(soonest, latest)

    def loss_after(self, seconds: float, *, is_shrinking: bool) -> float:
        """Return the rival's loss after a longer training, under one of the two assumptions of `crossing`."""
        earlier, last = self.gains
        extensions = math.log(seconds / self.ends[-1][0], FACTOR)
        ratio = last / earlier if earlier > 0 else 1.0
        if not is_shrinking or ratio >= 1:
            return self.ends[-1][1] - last * extensions
        return self.ends[-1][1] - last * ratio * (1 - ratio**extensions) / (1 - ratio)

    def sentences(self) -> tuple[str, str]:
        """Return the explanation, in English and in Chinese."""
        english, chinese = self._why()
        more_english, more_chinese = self._what_more_time_changes()
        return f"{english} {more_english}", f"{chinese}{more_chinese}"

    def _why(self) -> tuple[str, str]:
        """Return how the counter and the rival came to their losses."""
        longest = f"{self.ends[-1][0]:.3g}"
        if self.gap > 0:
            english = f"Why {self.counter} is ahead after {longest} seconds: counting"
            chinese = f"为什么 {longest} 秒后 {self.counter} 领先：计数"
        else:
            english = (
                f"{self.rival} is ahead of {self.counter} after {longest} seconds, by {-self.gap:.3f} nats. Counting"
            )
            chinese = f"{longest} 秒后 {self.rival} 已领先 {self.counter}，低 {-self.gap:.3f} 奈特。计数"
        english += (
            f" reads the text once and is finished after {self.counter_seconds:.2g} s, at {self.counter_loss:.3f}"
        )
        chinese += f"只需把文本读一遍，{self.counter_seconds:.2g} 秒就完成，损失 {self.counter_loss:.3f} 奈特；"
        english += f" nats; {self.rival} learns by many small corrections, and read the text {self.passes:.1f} times."
        chinese += f"{self.rival} 靠许多次小幅修正来学习，把文本读了 {self.passes:.1f} 遍。"
        is_falling = min(self.gains) > 0
        english += " Each longer training ended lower: " if is_falling else " Its trainings ended at "
        chinese += "训练每延长一次，损失都更低：" if is_falling else "各次训练结束时的损失："
        english += ", ".join(f"{loss:.3f} after {seconds:.3g} s" for seconds, loss in self.ends) + "."
        chinese += "，".join(f"{seconds:.3g} 秒 {loss:.3f}" for seconds, loss in self.ends) + "。"
        return english, chinese

    def _what_more_time_changes(self) -> tuple[str, str]:
        """Return what follows for longer trainings: level soon, far away, flattening out, or nothing gained."""
        never = (
            f"More time changes nothing for {self.counter}: all is counted, and it sees only {self.order} characters.",
            f"再多时间对 {self.counter} 也没有用：能统计的都统计完了，而它只看得见前 {self.order} 个字符。",
        )
        if self.gap <= 0:
            return never
        longest = self.ends[-1][0]
        crossing = self.crossing
        if crossing is None:
            return (
                f"The last extension gained nothing: more of the same training would not change the order. {never[0]}",
                f"最后一次延长没有带来收益，照样训练下去，名次不会变。{never[1]}",
            )
        soonest, latest = crossing
        if soonest > FARTHEST * longest:
            limit = _duration(FARTHEST * longest)
            return (
                f"At this pace it would not draw level within {limit[0]}; farther than that these measurements do"
                f" not reach. {never[0]}",
                f"照此下去，{limit[1]}之内追不上；更远的情形，这些测量无法判断。{never[1]}",
            )
        english = f"At this pace, {self.rival} would draw level after about {_duration(soonest)[0]}"
        chinese = f"照此下去，{self.rival} 约在 {_duration(soonest)[1]}时追平"
        if latest > FARTHEST * longest:
            english += "; if its gains keep shrinking as they did, later or never"
            chinese += "；若收益继续像测得的那样递减，则更晚，甚至追不上"
        elif _duration(latest) != _duration(soonest):
            english += f", or {_duration(latest)[0]} if its gains keep shrinking as they did"
            chinese += f"；若收益继续像测得的那样递减，则约在 {_duration(latest)[1]}时"
        return (
            f"{english}: an extrapolation, not a measurement, and later where the curve flattens. {never[0]}",
            f"{chinese}：这是外推，不是测量；曲线若变平，还要更晚。{never[1]}",
        )


def _duration(seconds: float) -> tuple[str, str]:
    """Return a duration in two significant digits, in English and in Chinese."""
    amount, english, chinese = (seconds, "s", "秒") if seconds < 120 else (seconds / 60, "minutes", "分钟")
    return f"{float(f'{amount:.2g}'):g} {english}", f"{float(f'{amount:.2g}'):g} {chinese}"
