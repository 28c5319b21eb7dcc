"""The figure of a result: its chart, or, where it has none, what was measured beside the baseline."""

from __future__ import annotations

import math
from collections.abc import Mapping

from markupsafe import Markup

from recollect.story.claim import Chart, Claim, Result
from recollect.views.axes import axis
from recollect.views.bilingual import Bilingual
from recollect.views.line_chart import Axis, Line, line_chart, series

NAMES: Mapping[str, str] = {  # of curves, in Chinese; those of layers and families are the same in both languages
    "all 0.9": "特征值均为 0.9",
    "at every step": "每步都给出",
    "at the start": "只在开头给出",
    "attention": "注意力",
    "attention, all words": "注意力，所有词",
    "attention, in use": "注意力，推理",
    "attention, the noun": "注意力，该名词",
    "attention, training": "注意力，训练",
    "backwards": "反向",
    "before": "只读过去",
    "both": "双向",
    "by content, none": "按内容，无位置",
    "by content, rotary": "按内容，旋转",
    "by content, sinusoidal": "按内容，正弦",
    "by place, gru": "按位置，gru",
    "by place, learned": "按位置，可学习",
    "by place, rotary": "按位置，旋转",
    "by place, sinusoidal": "按位置，正弦",
    "feed-forward": "前馈",
    "fitted once": "只拟合一次",
    "fixed vector": "固定向量",
    "fixed vector, all words": "固定向量，所有词",
    "fixed vector, the noun": "固定向量，该名词",
    "fixed vector, three times as wide": "固定向量，宽三倍",
    "forwards": "正向",
    "gradient": "梯度",
    "gru, vector": "gru，向量",
    "held out": "留出",
    "largest weight": "最大权重",
    "linear 32": "线性 32",
    "linear 4": "线性 4",
    "linear attention": "线性注意力",
    "linear, ρ = 0.5": "线性，ρ = 0.5",
    "linear, ρ = 0.9": "线性，ρ = 0.9",
    "linear, ρ = 1.1": "线性，ρ = 1.1",
    "linear, ρ = 1.5": "线性，ρ = 1.5",
    "lstm, forget bias 5": "lstm，遗忘偏置 5",
    "matrix, sum of outer products": "矩阵，外积之和",
    "mean of 200 random draws": "200 次随机的平均",
    "not shared, held out": "不共享，留出",
    "not shared, training": "不共享，训练",
    "one core": "单核",
    "one layer": "单层",
    "one random draw": "单次随机",
    "one vector": "单个向量",
    "one-pass descent": "单遍梯度下降",
    "refitted on the latest values": "用最近的值重新拟合",
    "regular": "固定截断",
    "relu clipped": "relu，裁剪",
    "relu not clipped": "relu，不裁剪",
    "rnn, full": "rnn，完整",
    "rnn, in use": "rnn，推理",
    "rnn, orthogonal, small inputs": "rnn，正交初始化、输入权重小",
    "rnn, radius 0.9": "rnn，谱半径 0.9",
    "rnn, radius 1.5": "rnn，谱半径 1.5",
    "rnn, truncated to 64": "rnn，截断 64 步",
    "scores and sums": "得分与加权和",
    "self-attention": "自注意力",
    "shared, held out": "共享，留出",
    "shared, training": "共享，训练",
    "soft attention": "软注意力",
    "softmax attention": "softmax 注意力",
    "tanh clipped": "tanh，裁剪",
    "tanh not clipped": "tanh，不裁剪",
    "trained": "训练后",
    "training": "训练",
    "two-layer network 4": "两层网络 4",
    "untrained": "训练前",
    "with the transpose": "使用转置",
    "without the word": "去掉该词",
    "τ = 100, held out": "τ = 100，留出",
    "τ = 100, training": "τ = 100，训练",
    "τ = 20, held out": "τ = 20，留出",
    "τ = 20, training": "τ = 20，训练",
    "τ = 5, held out": "τ = 5，留出",
    "τ = 5, training": "τ = 5，训练",
    "τ = full": "不截断",
}


def name_of(curve: str) -> Bilingual:
    """Return the name of a curve in both languages."""
    return Bilingual(curve, NAMES.get(curve, curve))


def figure_of(claim: Claim, result: Result) -> Markup | None:
    """Return the figure of a result; None of an exact identity that draws none."""
    if result.chart is not None:
        return draw(result.chart)
    low, high = result.interval
    has_figures = all(map(math.isfinite, (result.effect, result.baseline.value)))
    return None if claim.exact is not None or not has_figures else _beside_baseline(result, low, high)


def draw(chart: Chart) -> Markup:
    """Return a chart as a figure."""
    points = [point for curve in chart.curves for point in curve.points if all(map(math.isfinite, point))]
    x = axis(chart.x, [x for x, _ in points], chart.log_x)
    y = axis(chart.y, [y for _, y in points], chart.log_y)
    lines = [
        Line(name_of(curve.name), [p for p in curve.points if all(map(math.isfinite, p))], series(i))
        for i, curve in enumerate(chart.curves)
    ]
    return line_chart(chart.title, [line for line in lines if line.points], x, y)


def _beside_baseline(result: Result, low: float, high: float) -> Markup:
    """Return the deciding figure with its interval, and the baseline's below it."""
    measured = [(value, 1.0) for value in (low, result.effect, high) if math.isfinite(value)]
    baseline = [(result.baseline.value, 0.0)]
    names = Bilingual("measured", "实测"), Bilingual("baseline", "基线")
    x = axis(Bilingual("the deciding figure, 95 % interval", "关键数值，95% 区间"), [v for v, _ in measured + baseline])
    y = Axis(Bilingual("", ""), -0.5, 1.5, [(0.0, ""), (1.0, "")])
    title = Bilingual(
        f"What was measured; baseline: {result.baseline.name.en}", f"实测值；基线：{result.baseline.name.zh}"
    )
    return line_chart(title, [Line(names[0], measured, 1), Line(names[1], baseline, 2)], x, y)
