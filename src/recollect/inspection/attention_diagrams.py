"""Diagrams of attention with the values of a trace: task model, queries and keys, the family, the Transformer."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from recollect.core.types import JsonObject
from recollect.inspection.cell_diagrams import UNITS, begun
from recollect.inspection.trace import Trace
from recollect.inspection.trace_pictures import layer_with
from recollect.inspection.words import Say, heaviest
from recollect.layers.attention.score import SCORES
from recollect.views.picture import Picture
from recollect.views.plots import visible
from recollect.views.scene import Scene

MOST = 8


def _row(trace: Trace, layer: str, head: int, token: int) -> tuple[list[str], list[float], list[float], int]:
    """Return names, scores and weights of what one step attends to, and how much there is of it.

    At most eight are given, those with the largest weights, in the order of the text.
    """
    facts: JsonObject = next((one for one in trace.layers if one["name"] == layer), {})
    names = trace.source if facts.get("attends_to") == "source" else trace.tokens
    weights = trace[f"{layer}.weights"][head, token]
    scores = trace[f"{layer}.scores"][head, token] if f"{layer}.scores" in trace else np.log(np.maximum(weights, 1e-9))
    kept = np.sort(np.argsort(-weights, kind="stable")[:MOST])
    kept = kept[np.isfinite(scores[kept])]
    count = int(np.isfinite(scores).sum())
    return [visible(names[i]) for i in kept], scores[kept].tolist(), weights[kept].tolist(), count


def task_model(
    traces: Sequence[Trace], say: Say, *, layer: str | None = None, head: int = 0, token: int = -1
) -> Picture:
    """Return the task model and its attention module: F, K, V, q, e, a, c, with a live row of e and a."""
    trace = traces[0]
    name = layer_with(trace, "weights", layer)
    names, scores, weights, count = _row(trace, name, head, token)
    title = say("Task model and attention module", "任务模型与注意力模块")
    note = say(f"e and a: {name}, head {head}", f"e 与 a：{name}，第 {head} 头")
    if said := heaviest(len(names), count, say):
        note += say("; ", "；") + said
    scene = begun(title, 940, 470, note)
    scene.box(232, 78, 500, 366, fill="raised", line="grid", radius=18)
    scene.words(482, 98, say("attention module", "注意力模块"), size=13, colour="soft")
    scene.box(40, 330, 140, 54, say("feature model", "特征模型"), fill="paper", line="accent")
    scene.words(110, 424, say("input x", "输入 x"), size=14, colour="soft")
    scene.arrow((110, 410), (110, 386), colour="accent")
    scene.arrow((180, 357), (262, 357), colour="accent", width=2)
    scene.words(218, 342, "F", size=16, italic=True)
    scene.box(40, 150, 140, 54, say("query model", "查询模型"), fill="paper", line="violet")
    scene.arrow((110, 330), (110, 206), colour="soft", dashed=True)
    scene.arrow((180, 177), (290, 177), colour="violet", width=2)
    scene.words(218, 162, "q", size=16, italic=True)
    scene.box(264, 338, 74, 38, "W_K, W_V", fill="paper", line="accent", size=13, formula=True)
    scene.box(292, 156, 92, 42, "score(q, K)", fill="paper", line="blue", size=13)
    scene.arrow((301, 338), (338, 200), colour="blue", width=1.8)
    scene.words(304, 268, "K", size=16, italic=True)
    scene.box(496, 156, 92, 42, "align(e)", fill="paper", line="orange", size=13)
    scene.arrow((384, 177), (494, 177), colour="blue", width=2)
    scene.words(440, 162, "e", size=16, italic=True)
    scene.box(596, 332, 92, 50, "Σ a_s v_s", fill="paper", line="green", size=14, formula=True)
    scene.arrow((338, 357), (594, 357), colour="accent", width=2)
    scene.words(466, 342, "V", size=16, italic=True)
    scene.arrow((588, 177), (642, 177), (642, 330), colour="orange", width=2)
    scene.words(656, 250, "a", size=16, italic=True, anchor="start")
    scene.arrow((688, 357), (772, 357), colour="green", width=2)
    scene.words(752, 342, "c", size=16, italic=True)
    scene.box(774, 330, 130, 54, say("output model", "输出模型"), fill="paper", line="green")
    scene.arrow((839, 330), (839, 290), colour="green", width=2)
    scene.words(839, 272, say("answer ŷ", "输出 ŷ"), size=14)
    top = max([abs(s) for s in scores] or [1.0]) or 1.0
    for i, (text, score, weight) in enumerate(zip(names, scores, weights, strict=True)):
        x = 396 + 26 * i
        scene.words(x + 9, 302, text, size=12)
        tall = 34 * abs(score) / top
        scene.cell(x + 2, 250 - tall if score >= 0 else 250, 14, tall, "#0072b2", f"e: {score:.3g}")
        scene.cell(x + 2, 288 - 30 * weight, 14, 30 * weight, "#c24e00", f"a: {weight:.3g}")
    scene.words(384, 240, "e", size=12, colour="blue", anchor="end")
    scene.words(384, 280, "a", size=12, colour="orange", anchor="end")
    return Picture(title, scene)


def queries_keys_values(
    traces: Sequence[Trace], say: Say, *, layer: str | None = None, head: int = 0, token: int = -1
) -> Picture:
    """Return one step of self-attention: its query meets every key, and the values are mixed by the weights."""
    trace = traces[0]
    name = layer_with(trace, "weights", layer)
    t = token % len(trace.tokens)
    names, scores, weights, count = _row(trace, name, head, t)
    title = say(
        f"“{visible(trace.tokens[t])}” attends: query, keys, values",
        f"“{visible(trace.tokens[t])}”的注意力：查询、键、值",
    )
    scene = begun(
        title, 190 + 100 * len(names), 520, "e_{ts} = q_t · k_s / √H,   a_t = softmax(e_t),   c_t = Σ_s a_{ts} v_s"
    )
    if said := heaviest(len(names), count, say):
        scene.words(40, 506, said, size=13, colour="soft", anchor="start")
    centre = 110 + 50 * len(names)
    scene.circle(60, 238, 26, "q_t", fill="#e3dff5", line="violet", size=15, formula=True)
    scene.words(60, 282, visible(trace.tokens[t]), size=14, bold=True)
    for i, (text, score, weight) in enumerate(zip(names, scores, weights, strict=True)):
        x = 160 + 100 * i
        scene.words(x, 474, text, size=15)
        scene.box(x - 40, 392, 36, 36, "k", fill="#d7e6f2", line="blue", size=14)
        scene.box(x + 4, 392, 36, 36, "v", fill="#d9ece4", line="green", size=14)
        scene.arrow((x, 460), (x, 432), colour="soft")
        scene.arrow((x - 22, 392), (x - 22, 258), colour="blue", width=1.2)
        scene.circle(x - 22, 238, 17, "·", fill="paper", line="violet", size=20)
        scene.words(x + 2, 246, f"{score:.2f}", size=12, colour="blue", anchor="start")
        scene.box(x - 36, 166, 72, 30, f"{weight:.2f}", fill="paper", line="orange", bold=bool(weight == max(weights)))
        scene.arrow((x - 22, 221), (x - 12, 198), colour="orange")
        scene.line(
            (x + 22, 392), (x + 34, 181), colour="green", width=1 + 3 * weight, opacity=round(0.2 + 0.8 * weight, 3)
        )
        scene.arrow(
            (x, 166),
            (centre + (x - centre) * 0.1, 122),
            colour="green",
            width=1 + 5 * weight,
            opacity=round(0.2 + 0.8 * weight, 3),
        )
    scene.line((86, 238), (121, 238), colour="violet", width=2)
    scene.line((121, 238), (138 + 100 * (len(names) - 1), 238), colour="violet", width=1, dashed=True)
    scene.circle(centre, 98, 24, "c_t", fill="#f6e3d7", line="orange", size=15, formula=True)
    return Picture(title, scene)


def attention_family(traces: Sequence[Trace], say: Say) -> Picture:
    """Return the family of attentions by what varies: features, scores, alignments, queries."""
    columns = (
        (
            say("features", "特征"),
            (
                say("one source", "单一来源"),
                say("co-attention", "协同注意力"),
                say("rotatory", "旋转式"),
                say("hierarchical", "层次式"),
            ),
        ),
        (say("score", "打分函数"), tuple(SCORES)),
        (
            say("alignment", "对齐方式"),
            (
                say("soft", "软对齐"),
                say("hard", "硬对齐"),
                say("local, monotonic", "局部（单调）"),
                say("local, predictive", "局部（预测）"),
                say("reinforced", "强化"),
            ),
        ),
        (
            say("query", "查询"),
            (
                say("one head", "单头"),
                say("multi-head", "多头"),
                say("multi-hop", "多跳"),
                say("self-attentive", "自注意查询"),
                say("capsules", "胶囊"),
            ),
        ),
    )
    title = say("The attention family", "注意力家族")
    scene = begun(title, 860, 130 + 42 * max(len(names) for _, names in columns))
    scene.words(430, 70, "F → K, V      e = score(q, K)      a = align(e)      c = a V", size=15, colour="soft")
    for i, (head, names) in enumerate(columns):
        x = 28 + 206 * i
        colour = ("accent", "blue", "orange", "violet")[i]
        scene.words(x + 92, 104, head, size=15, bold=True, colour=colour)
        for j, name in enumerate(names):
            scene.box(x, 122 + 42 * j, 186, 32, name, fill="paper", line=colour, size=13)
    return Picture(title, scene)


def transformer(traces: Sequence[Trace], say: Say) -> Picture:
    """Return the blocks of a traced Transformer: how many, how wide, with how many heads, and of which sides."""
    trace = traces[0]
    own = [one for one in trace.layers if one["kind"] in ("SelfAttention", "CrossAttention")]
    if not own:
        got = trace.model.get("name", "these arrays")
        raise ValueError(f"transformer: got {got}, which has no self-attention; expected a Transformer")
    encoder = [one for one in own if one["name"].startswith("encoder.")]
    decoder = [one for one in own if not one["name"].startswith("encoder.") and one["kind"] == "SelfAttention"]
    crossing = [one for one in own if one["kind"] == "CrossAttention"]
    title = say("The Transformer of this run", "本次运行的 Transformer")
    words = say("parameters", "个参数")
    note = f"{trace.model.get('family', '')}: {trace.model.get('parameters', 0):,} {words}"
    scene = begun(title, 760 if encoder else 470, 560, note)
    sides = ([(say("encoder", "编码器"), encoder, 60)] if encoder else []) + [
        (
            say("decoder", "解码器") if encoder or decoder[0].get("causal") else say("encoder", "编码器"),
            decoder,
            440 if encoder else 90,
        )
    ]
    for name, layers, x in sides:
        is_decoder = bool(crossing) and layers is decoder
        _side(scene, x, name, layers, trace, say, has_cross=is_decoder)
    if encoder:
        scene.arrow((320, 170), (400, 170), (400, 272), (438, 272), colour="orange", width=2)
        scene.words(360, 154, "K, V", size=14, italic=True)
    return Picture(title, scene)


def _side(
    scene: Scene, x: float, name: str, layers: list[JsonObject], trace: Trace, say: Say, *, has_cross: bool
) -> None:
    top = 110
    scene.box(x, top, 260, 330, fill="raised", line="grid", radius=16)
    scene.words(x + 130, top - 18, f"{name}   × {len(layers)}", size=15, bold=True)
    heads = layers[0].get("heads")
    causal = layers[0].get("causal")
    masked = say("causal ", "因果") if causal else ""
    parts = [(say(f"{masked}self-attention\n{heads} heads", f"{masked}自注意力\n{heads} 个头"), "accent")]
    if has_cross:
        parts.append((say("attention to the source", "对源的注意力"), "orange"))
    parts.append((say("feed-forward network", "前馈网络"), "blue"))
    step = 300 / len(parts)
    for i, (words, colour) in enumerate(parts):
        y = top + 315 - step * (i + 0.5)
        scene.box(x + 34, y - 30, 192, 58, words, fill="paper", line=colour, size=14)
        scene.arrow((x + 130, y + 28 + (step - 58) * 0.9), (x + 130, y + 30), colour="soft")
        scene.words(x + 238, y - 36, "+", size=16, colour="soft")
        scene.line((x + 130, y + 44), (x + 246, y + 44), (x + 246, y - 36), colour="soft", width=1, dashed=True)
    tokens = trace.source if name in ("encoder", "编码器") and trace.source else trace.tokens
    below = " ".join(visible(t) for t in tokens[:8]) + (" …" if len(tokens) > 8 else "")
    added = say("embedding + positions", "词向量 + 位置编码")
    scene.box(x + 34, top + 352, 192, 38, added, fill="paper", line="violet", size=13)
    scene.arrow((x + 130, top + 352), (x + 130, top + 332), colour="violet")
    scene.words(x + 130, top + 412, below, size=14)


def three_memories(traces: Sequence[Trace], say: Say) -> Picture:
    """Return three memories side by side: a vector, the weights of a model, a list; of the traces given, in order."""
    if len(traces) != 3:
        raise ValueError(f"traces: got {len(traces)}, expected three: a recurrent model, TTT and attention")
    recurrent, ttt, attention = traces
    title = say("Three memories that read the same text", "读同一段文字的三种记忆")
    scene = begun(title, 900, 440)
    texts = "".join(visible(t) for t in recurrent.tokens[:26])
    scene.words(24, 56, texts, size=14, colour="soft", anchor="start")
    columns = (
        (recurrent, say("RNN: one vector", "RNN：一个向量"), "blue"),
        (ttt, say("TTT: weights that learn", "TTT：边读边学的权重"), "green"),
        (attention, say("attention: a list", "注意力：一个列表"), "orange"),
    )
    for i, (trace, name, colour) in enumerate(columns):
        x = 30 + 290 * i
        scene.box(x, 82, 266, 300, fill="raised", line=colour, radius=16)
        scene.words(x + 133, 106, name, size=15, bold=True, colour=colour)
        first, last = int(trace["memory.bytes"][0]), int(trace["memory.bytes"][-1])
        grows = say("constant", "不变") if first == last else say("grows with every token", "随每个词元增长")
        scene.words(x + 133, 340, f"{first:,} → {last:,} {say('bytes', '字节')}", size=15)
        scene.words(x + 133, 362, grows, size=13, colour="soft")
    hidden = recurrent[f"{layer_with(recurrent, 'hidden')}.hidden"]
    for row, t in enumerate(np.linspace(0, len(hidden) - 1, 4).astype(int)):
        scene.strip(100, 136 + 46 * row, 150, 24, hidden[t, : 2 * UNITS].tolist(), most=1.0)
        scene.words(84, 148 + 46 * row, visible(recurrent.tokens[t]), size=14, anchor="end")
    moved = ttt[f"{layer_with(ttt, 'movement')}.movement"].mean(1)
    top = float(moved.max()) or 1.0
    for t, value in enumerate(moved):
        width = 196 / len(moved)
        tall = 130 * float(value) / top
        scene.cell(356 + width * t, 296 - tall, width * 0.8, tall, "#008a64", f"{visible(ttt.tokens[t])}: {value:.3g}")
    scene.words(453, 142, "‖W_t − W_0‖", size=14, formula=True)
    steps = len(attention.tokens)
    weights = attention[f"{layer_with(attention, 'weights')}.weights"].mean(0)
    size = min(176 / steps, 14)
    for t in range(steps):
        for s in range(t + 1):
            shade = min(0.12 + 2.5 * float(weights[t, s]), 1)
            colour = "#" + "".join(f"{round(252 + (c - 252) * shade):02x}" for c in (194, 78, 0))
            scene.cell(676 + size * s, 128 + size * t, size * 0.9, size * 0.9, colour, f"{weights[t, s]:.3g}")
    return Picture(title, scene)


def tastes(traces: Sequence[Trace], say: Say, *, most: int = 8) -> Picture:
    """Return a rating as a dot product: the tastes of a user, the features of a film, and their product by factor."""
    trace = traces[0]
    if "user.tastes" not in trace:
        raise ValueError("tastes: got a trace without user.tastes, expected one of a recommender with factors")
    p, q = trace["user.tastes"], trace["item.features"]
    kept = np.sort(np.argsort(-np.abs(p * q), kind="stable")[:most])
    title = say("Taste meets film: a dot product", "口味与电影：一次点积")
    scene = begun(title, 200 + 84 * len(kept) + 60, 400, "r̂ = μ + b_u + b_i + p_u · q_i")
    names = trace.tokens[1:3] if trace.tokens[0] == "mean" else ("user", "item")
    rows = ((f"{names[0]}\npᵤ", p, 96), (f"{names[1]}\nqᵢ", q, 176), ("pᵤ ⊙ qᵢ", p * q, 276))
    for label, values, y in rows:
        scene.words(130, y + 22, label, size=14, anchor="end")
        top = float(np.abs(values[kept]).max()) or 1.0
        for i, k in enumerate(kept):
            x = 150 + 84 * i
            scene.strip(x, y, 74, 44, [float(values[k])], most=top)
            is_dark = abs(values[k]) / top > 0.6
            scene.words(x + 37, y + 22, f"{values[k]:+.2f}", size=14, colour="paper" if is_dark else "ink")
    for i, k in enumerate(kept):
        scene.words(187 + 84 * i, 158, "×", size=16, colour="soft")
        scene.words(187 + 84 * i, 248, "=", size=16, colour="soft")
        scene.words(187 + 84 * i, 82, say(f"taste {k + 1}", f"口味 {k + 1}"), size=12, colour="soft")
    total = float(trace["outcome.logprob"][0])
    rest = total - float((p * q).sum())
    words = say(
        f"rating {total:.2f} = {rest:.2f} from mean and biases {float((p * q).sum()):+.2f} from tastes",
        f"评分 {total:.2f} = 均值与偏置 {rest:.2f}，口味 {float((p * q).sum()):+.2f}",
    )
    scene.words(150, 356, words, size=15, anchor="start", bold=True)
    return Picture(title, scene)
