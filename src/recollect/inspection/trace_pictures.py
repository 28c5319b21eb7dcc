"""Charts of traces: attention, alignment, gates, states, reach, spectra, memory, positions, next tokens."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from recollect.core.types import JsonObject
from recollect.inspection.trace import Array, Trace
from recollect.inspection.words import Say
from recollect.views.palette import colours_for
from recollect.views.picture import Picture
from recollect.views.plots import PlotCurve, bars, disc, heat, letters, lines, stacked, visible
from recollect.views.scene import Scene

GATE_NAMES = {
    "input_gate": ("input gate i", "输入门 i"),
    "forget_gate": ("forget gate f", "遗忘门 f"),
    "output_gate": ("output gate o", "输出门 o"),
    "reset_gate": ("reset gate r", "重置门 r"),
    "update_gate": ("update gate z", "更新门 z"),
}
BLOCK_NAMES = {  # of W_hh
    "hidden": "隐藏状态",
    "input": "输入门",
    "forget": "遗忘门",
    "candidate": "候选",
    "output": "输出门",
    "update": "更新门",
    "reset": "重置门",
}


def layer_with(trace: Trace, value: str, layer: str | None = None) -> str:
    """Return the layer asked for, else the first one that has a value; raise where there is none."""
    has = [one["name"] for one in trace.layers] or sorted({name.rpartition(".")[0] for name in trace})
    has = [name for name in has if f"{name}.{value}" in trace]
    if layer is not None and layer in has:
        return layer
    if layer is not None or not has:
        got = layer or str(trace.model.get("name", "these arrays"))
        raise ValueError(f"{value}: got {got}, expected a layer that has it: {', '.join(has) or 'this model has none'}")
    return has[0]


def colours_of(traces: Sequence[Trace]) -> list[str]:
    """Return a colour for each trace: that of its model's family on the page."""
    return colours_for([str(one.model.get("family", "")) for one in traces])


def attention(traces: Sequence[Trace], say: Say, *, layer: str | None = None, head: int | None = None) -> Picture:
    """Return the attention weights of one head, or the mean of a layer's heads."""
    trace = traces[0]
    name = layer_with(trace, "weights", layer)
    weights, columns, which = _weights(trace, name, head, say)
    rows = trace.source if name.startswith("encoder.") else trace.tokens
    title = say(f"Attention weights: {name}, {which}", f"注意力权重：{name}，{which}")
    return heat(
        title,
        weights,
        rows,
        columns,
        row_title=say("token that attends", "发出注意的词元"),
        column_title=say("attends to", "注意到的词元"),
        is_signed=bool((weights < 0).any()),
    )


def _weights(trace: Trace, name: str, head: int | None, say: Say) -> tuple[Array, tuple[str, ...], str]:
    weights = trace[f"{name}.weights"]
    if head is not None and not 0 <= head < len(weights):
        raise ValueError(f"head: got {head} of {name}, expected 0 to {len(weights) - 1}")
    which = say(f"mean of {len(weights)} heads", f"{len(weights)} 个头的平均")
    if head is not None or len(weights) == 1:
        which = say(f"head {head or 0}", f"第 {head or 0} 头")
    chosen = weights.mean(0) if head is None else weights[head]
    facts: JsonObject = next((one for one in trace.layers if one["name"] == name), {})
    of_source = facts.get("attends_to") == "source" or name.startswith("encoder.")
    return chosen, trace.source if of_source else trace.tokens, which


def arcs(traces: Sequence[Trace], say: Say, *, layer: str | None = None, head: int | None = None) -> Picture:
    """Return the attention weights as arcs over the tokens: the stronger the weight, the darker its arc."""
    trace = traces[0]
    name = layer_with(trace, "weights", layer)
    weights, columns, which = _weights(trace, name, head, say)
    if columns != trace.tokens:
        raise ValueError(f"arcs: got {name}, which attends to a source, expected self-attention; try alignment")
    tokens = [visible(one) for one in trace.tokens]
    places, x = [], 40.0
    for token in tokens:
        width = 12 + 8.6 * letters(token)
        places.append(x + width / 2)
        x += width + 6
    title = say(f"Attention as arcs: {name}, {which}", f"注意力弧线图：{name}，{which}")
    tall = min(60 + (x - 40) / 4, 340)
    scene = Scene(max(x + 30, 60 + 8.8 * letters(title)), 60 + tall + 60, title)
    scene.words(24, 26, title, size=16, anchor="start", bold=True)
    base = 60 + tall
    for t in range(len(tokens)):
        for s in range(len(tokens)):
            weight = float(abs(weights[t, s]))
            if s != t and weight > 0.03:
                lift = min(abs(places[t] - places[s]) / 2.6, tall - 20) / 1.1 + 8
                start, end = (places[t], base - 14), (places[s], base - 14)
                scene.arc(start, end, lift, width=1 + 2.5 * weight, opacity=round(0.15 + 0.85 * weight, 3))
    for place, token, own in zip(places, tokens, np.abs(np.diagonal(weights)), strict=True):
        scene.words(place, base, token, size=15)
        scene.circle(place, base + 18, 2 + 5 * float(own), fill="accent", line="paper")
    scene.words(
        24,
        base + 44,
        say("the dot below a token: its weight on itself", "词元下方的圆点：对自身的权重"),
        size=12,
        colour="soft",
        anchor="start",
    )
    return Picture(title, scene)


def alignment(traces: Sequence[Trace], say: Say) -> Picture:
    """Return the weights from each symbol of a target to those of the source."""
    trace = traces[0]
    if "alignment" not in trace:
        raise ValueError("alignment: this model does not attend to a source; try bahdanau, luong or transformer")
    title = say("Soft alignment of target and source", "目标与源的软对齐")
    return heat(
        title,
        trace["alignment"],
        trace.outcomes,
        trace.source,
        row_title=say("target", "目标"),
        column_title=say("source", "源"),
        most=1.0,
    )


def gates(traces: Sequence[Trace], say: Say, *, layer: str | None = None) -> Picture:
    """Return how open each gate of a layer is over time: the mean of its units."""
    trace = traces[0]
    has = next((gate for gate in ("forget_gate", "update_gate") if _has(trace, gate)), "forget_gate")
    name = layer_with(trace, has, layer)
    steps = list(range(len(trace.tokens)))
    curves = [
        PlotCurve(say(*words), steps, trace[f"{name}.{gate}"].mean(1).tolist())
        for gate, words in GATE_NAMES.items()
        if f"{name}.{gate}" in trace
    ]
    step = max(1, len(steps) // 40)
    ticks = [(float(t), visible(trace.tokens[t])) for t in steps[::step]]
    title = say(f"Gates over time: {name}, mean of the units", f"门控随时间的变化：{name}，各单元的平均")
    return lines(title, curves, x_title=say("token", "词元"), y_title=say("open", "开启程度"), ticks=ticks)


def _has(trace: Trace, value: str) -> bool:
    return any(name.endswith(f".{value}") for name in trace)


def states(traces: Sequence[Trace], say: Say, *, layer: str | None = None, value: str | None = None) -> Picture:
    """Return a layer's state as a strip for every unit, over time."""
    trace = traces[0]
    chosen = value or ("cell" if _has(trace, "cell") else "hidden")
    name = layer_with(trace, chosen, layer)
    array = trace[f"{name}.{chosen}"]
    kept = np.sort(np.argsort(-array.std(0), kind="stable")[:48])  # those that vary most
    words = {"hidden": ("hidden state h", "隐藏状态 h"), "cell": ("cell state c", "单元状态 c")}
    what = say(*words.get(chosen, GATE_NAMES.get(chosen, (chosen, chosen))))
    title = say(f"State strips: {name}, {what}", f"状态条：{name}，{what}")
    return heat(
        title,
        array[:, kept].T,
        [str(i) for i in kept],
        trace.tokens,
        row_title=say("unit", "单元"),
        is_signed=True,
        tall=9.0,
    )


def reach(traces: Sequence[Trace], say: Say) -> Picture:
    """Return how far gradients reach, of several models on one logarithmic axis."""
    curves = []
    for trace, colour in zip(traces, colours_of(traces), strict=True):
        values = trace["reach.curve"]
        name = str(trace.model.get("name", ""))
        curves.append(PlotCurve(name, list(range(len(values))), values.tolist(), colour=colour))
    title = say("How far a prediction's gradient reaches back", "预测的梯度能传多远")
    x_title, y_title = (
        say("distance in tokens", "距离（词元）"),
        say("‖∂ ln pₜ / ∂ xₜ₋d‖, mean", "‖∂ ln pₜ / ∂ xₜ₋d‖ 均值"),
    )
    return lines(title, curves, x_title=x_title, y_title=y_title, is_log=True)


def reach_map(traces: Sequence[Trace], say: Say) -> Picture:
    """Return the reach of every prediction to every input, its logarithm."""
    trace = traces[0]
    with np.errstate(divide="ignore"):
        shown = np.log10(trace["reach"])
    finite = shown[np.isfinite(shown)]
    low = max(float(finite.min()), float(finite.max()) - 6) if finite.size else 0.0
    share = np.where(np.isfinite(shown), np.maximum(shown - low, 0), np.nan)
    title = say("Which input each prediction depends on", "每个预测依赖哪个输入")
    rows, columns = say("prediction", "预测"), say("input; the darker, the stronger", "输入；颜色越深，影响越大")
    return heat(title, share, trace.outcomes, trace.inputs, row_title=rows, column_title=columns)


def influence(traces: Sequence[Trace], say: Say, *, outcome: int = -1) -> Picture:
    """Return what one prediction owes to each input: how much lower it is without it."""
    trace = traces[0]
    found = np.nan_to_num(trace["left_out"][outcome])
    title = say(f"What decided “{trace.outcomes[outcome]}”", f"什么决定了“{trace.outcomes[outcome]}”")
    x_title = say("how much lower ln p is without it", "去掉它之后 ln p 降低多少")
    return bars(title, trace.inputs, found.tolist(), x_title=x_title)


def spectrum(traces: Sequence[Trace], say: Say, *, layer: str | None = None) -> Picture:
    """Return the eigenvalues of W_hh over the unit disc: those inside fade, those outside grow."""
    trace = traces[0]
    name = layer_with(trace, "spectrum", layer)
    facts: JsonObject = next((one for one in trace.layers if one["name"] == name), {})
    blocks = facts.get("gates") or [str(g) for g in range(len(trace[f"{name}.spectrum"]))]
    groups = [
        (f"{say(block, BLOCK_NAMES.get(block, block))}: ρ = {rho:.2f}, σ = {sigma:.2f}", points)
        for block, points, rho, sigma in zip(
            blocks, trace[f"{name}.spectrum"], trace[f"{name}.radius"], trace[f"{name}.largest"], strict=True
        )
    ]
    title = say(f"Eigenvalues of W_hh: {name}", f"W_hh 的特征值：{name}")
    inside = say("inside the circle: fades", "单位圆内：消失")
    outside = say("outside: grows", "单位圆外：发散")
    return disc(title, groups, inside=inside, outside=outside)


def memory(traces: Sequence[Trace], say: Say) -> Picture:
    """Return the bytes of memories as tokens are read."""
    curves = [
        PlotCurve(
            str(one.model.get("name", "")),
            list(range(1, len(one.tokens) + 1)),
            one["memory.bytes"].astype(float).tolist(),
            colour=colour,
        )
        for one, colour in zip(traces, colours_of(traces), strict=True)
    ]
    title = say("What is remembered, in bytes", "记住了多少字节")
    return lines(title, curves, x_title=say("tokens read", "已读词元"), y_title=say("bytes", "字节"))


def positions(traces: Sequence[Trace], say: Say) -> Picture:
    """Return the vectors that are added for the positions."""
    trace = traces[0]
    if "positions" not in trace:
        raise ValueError("positions: this model adds no vectors for positions; try a Transformer with max_length")
    array = trace["positions"]
    title = say("Position vectors", "位置编码")
    places = [str(t + trace.skipped) for t in range(len(array))]
    kept = array[:, :64].T
    row_title, column_title = say("feature", "特征"), say("position", "位置")
    return heat(
        title,
        kept,
        [str(i) for i in range(len(kept))],
        places,
        row_title=row_title,
        column_title=column_title,
        is_signed=True,
        tall=9.0,
    )


def following(traces: Sequence[Trace], say: Say, *, token: int = -1) -> Picture:
    """Return the probabilities of the likeliest next tokens after one token."""
    trace = traces[0]
    title = say(f"What may follow “{visible(trace.tokens[token])}”", f"“{visible(trace.tokens[token])}”之后可能是什么")
    texts = [str(one) for one in trace["next.texts"][token]]
    return bars(title, texts, trace["next.probabilities"][token].tolist(), x_title=say("probability", "概率"))


def learning(traces: Sequence[Trace], say: Say, *, layer: str | None = None) -> Picture:
    """Return the inner loss of test-time training before and after each step, and how far its weights have moved."""
    trace = traces[0]
    name = layer_with(trace, "inner_loss", layer)
    steps = list(range(len(trace.tokens)))
    pair = [
        PlotCurve(say("before the step", "学习前"), steps, trace[f"{name}.inner_loss"].mean(1).tolist()),
        PlotCurve(say("after the step", "学习后"), steps, trace[f"{name}.inner_loss_after"].mean(1).tolist()),
    ]
    moved = [PlotCurve("‖Wₜ − W₀‖", steps, trace[f"{name}.movement"].mean(1).tolist())]
    x_title = say("token", "词元")
    title = say("Test-time training: what the inner model learns", "测试时训练：内部模型学到什么")
    above = lines(title, pair, x_title=x_title, y_title=say("inner loss", "内部损失"), height=330)
    below = lines(
        say("How far its weights move", "权重移动了多远"), moved, x_title=x_title, y_title="‖Wₜ − W₀‖", height=330
    )
    return stacked(title, [above, below])


def overview(trace: Trace, say: Say) -> Picture:
    """Return the picture that shows most of one trace, for a notebook."""
    for name, draw in (("alignment", alignment), ("weights", attention), ("hidden", states)):
        if name in trace or _has(trace, name):
            return draw([trace], say)
    if "left_out" in trace:
        return influence([trace], say)
    return following([trace], say) if "next.texts" in trace else memory([trace], say)
