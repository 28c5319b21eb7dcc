"""Diagrams of attention with the values of a trace: task model, queries and keys, memories, tastes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from recollect.inspection.diagram import UNITS, begun, facts_of, sub
from recollect.inspection.trace import Trace
from recollect.inspection.trace_pictures import colours_of, layer_with
from recollect.inspection.words import Say, heaviest
from recollect.views.palette import COLOURS, colour_of
from recollect.views.picture import Picture
from recollect.views.plots import visible
from recollect.views.scene import Scene, mixed

MOST = 8


@dataclass(frozen=True)
class Attended:
    """What one step attends to: at most eight steps, those with the largest weights, in the order of the text."""

    names: list[str]
    places: list[int]
    weights: list[float]
    scores: list[float] | None  # None: the layer has none
    count: int  # of all steps that it may attend to


def _row(trace: Trace, layer: str, head: int, token: int) -> Attended:
    facts = facts_of(trace, layer)
    names = trace.source if facts.get("attends_to") == "source" or layer.startswith("encoder.") else trace.tokens
    weights = trace[f"{layer}.weights"][head, token]
    scores = trace[f"{layer}.scores"][head, token] if f"{layer}.scores" in trace else None
    allowed = weights != 0 if scores is None else np.isfinite(scores)
    kept = np.sort(np.argsort(-np.abs(weights), kind="stable")[:MOST])
    kept = kept[allowed[kept]]
    return Attended(
        [visible(names[i]) for i in kept],
        kept.tolist(),
        weights[kept].tolist(),
        None if scores is None else scores[kept].tolist(),
        int(allowed.sum()),
    )


def task_model(
    traces: Sequence[Trace], say: Say, *, layer: str | None = None, head: int = 0, token: int = -1
) -> Picture:
    """Return the task model and its attention module: F, K, V, q, e, a, c, with a live row of e and a."""
    trace = traces[0]
    name = layer_with(trace, "weights", layer)
    row = _row(trace, name, head, token)
    title = say("Task model and attention module", "任务模型与注意力模块")
    note = say(f"e and a: {name}, head {head}", f"e 与 a：{name}，第 {head} 头")
    if said := heaviest(len(row.names), row.count, say):
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
    scores = row.scores or []
    top = max([abs(s) for s in scores] or [1.0]) or 1.0
    for i, score in enumerate(scores):
        tall = 34 * abs(score) / top
        scene.cell(398 + 26 * i, 250 - tall if score >= 0 else 250, 14, tall, COLOURS["blue"], f"e: {score:.3g}")
    for i, (text, weight) in enumerate(zip(row.names, row.weights, strict=True)):
        scene.words(405 + 26 * i, 302, text, size=12)
        scene.cell(398 + 26 * i, 288 - 30 * weight, 14, 30 * weight, COLOURS["orange"], f"a: {weight:.3g}")
    scene.words(384, 240, "e" if scores else "", size=12, colour="blue", anchor="end")
    scene.words(384, 280, "a", size=12, colour="orange", anchor="end")
    return Picture(title, scene)


def queries_keys_values(
    traces: Sequence[Trace], say: Say, *, layer: str | None = None, head: int = 0, token: int = -1
) -> Picture:
    """Return one step of attention: its query meets every key, and the values are mixed by the weights."""
    trace = traces[0]
    name = layer_with(trace, "weights", layer)
    if facts_of(trace, name).get("kind") == "BasicSelfAttention":
        raise ValueError(f"queries-keys-values: got {name}, which has no queries, keys or values; try self-attention")
    t = token % len(trace.tokens)
    text = visible(trace.tokens[t])
    title = say(f"“{text}” attends: query, keys, values", f"“{text}”的注意力：查询、键、值")
    scene, row = _begun(trace, name, head, t, title, formula_of(trace, name), say)
    _query(scene, "q_t", text, len(row.names))
    for i, (named, weight) in enumerate(zip(row.names, row.weights, strict=True)):
        x = 160 + 100 * i
        scene.words(x, 474, named, size=15)
        scene.box(x - 40, 392, 36, 36, "k", fill="#d7e6f2", line="blue", size=14)
        scene.box(x + 4, 392, 36, 36, "v", fill="#d9ece4", line="green", size=14)
        scene.arrow((x, 460), (x, 432), colour="soft")
        scene.arrow((x - 22, 392), (x - 22, 258), colour="blue", width=1.2)
        _met(scene, row, i, x)
        scene.line((x + 22, 392), (x + 34, 181), colour="green", width=1 + 3 * weight, opacity=_opacity(weight))
    _mixed(scene, row, "c_t", colour="green")
    return Picture(title, scene)


def self_attention(traces: Sequence[Trace], say: Say, *, layer: str | None = None, token: int = -1) -> Picture:
    """Return one step of self-attention without parameters: a vector meets all vectors, and the same are mixed."""
    trace = traces[0]
    name = layer_with(trace, "weights", layer)
    facts = facts_of(trace, name)
    if facts.get("kind") != "BasicSelfAttention":
        got = facts.get("kind", "arrays without facts of their layer")
        raise ValueError(
            f"self-attention: got {got}, expected BasicSelfAttention, which has no parameters; try queries-keys-values"
        )
    t = token % len(trace.tokens)
    text = visible(trace.tokens[t])
    title = say(f"“{text}” attends: self-attention without parameters", f"“{text}”的注意力：没有参数的自注意力")
    scene, row = _begun(trace, name, 0, t, title, formula_of(trace, name), say)
    _query(scene, "x_t", text, len(row.names))
    vectors = trace.get("values")
    most = 1.0 if vectors is None else float(np.abs(vectors).max()) or 1.0
    for i, (named, weight, place) in enumerate(zip(row.names, row.weights, row.places, strict=True)):
        x = 160 + 100 * i
        scene.words(x, 474, named, size=15)
        scene.box(x - 40, 392, 80, 46, fill="raised", line="accent")
        scene.words(x, 405, f"x{sub(place + 1 + trace.skipped)}", size=14)
        if vectors is not None:
            scene.strip(x - 34, 418, 68, 14, vectors[place, :UNITS].tolist(), most=most)
        scene.arrow((x, 460), (x, 441), colour="soft")
        scene.arrow((x - 22, 392), (x - 22, 258), colour="accent", width=1.2)
        _met(scene, row, i, x)
        scene.line((x + 34, 392), (x + 34, 198), colour="accent", width=1 + 3 * weight, opacity=_opacity(weight))
    _mixed(scene, row, "y_t", colour="accent")
    return Picture(title, scene)


def formula_of(trace: Trace, layer: str) -> str:
    """Return the equations of a layer's attention: with the scale, the positions and the score that it has."""
    facts = facts_of(trace, layer)
    scale = " / √H" if facts.get("scaled") else ""
    mixed = "c_t = Σ_s a_{ts} v_s"
    if facts.get("kind") == "BasicSelfAttention":
        return f"w'_{{ts}} = x_t · x_s{scale.replace('H', 'D')},   w_t = softmax(w'_t),   y_t = Σ_s w_{{ts}} x_s"
    if facts.get("kind") == "LinearAttention":
        decay = "γᵗ⁻ˢ " if facts.get("decay") else ""
        return f"a_{{ts}} ∝ {decay}φ(q_t) · φ(k_s),   {mixed}"
    if facts.get("kind") not in ("SelfAttention", "CrossAttention"):
        return f"e_{{ts}} = score(q_t, k_s),   a_t = align(e_t),   {mixed}"
    product = "R_t q_t · R_s k_s" if facts.get("positions") == "rotary" else "q_t · k_s"
    bias = " − m |t − s|" if facts.get("positions") == "alibi" else ""
    return f"e_{{ts}} = {product}{scale}{bias},   a_t = softmax(e_t),   {mixed}"


def _begun(trace: Trace, name: str, head: int, t: int, title: str, formula: str, say: Say) -> tuple[Scene, Attended]:
    row = _row(trace, name, head, t)
    scene = begun(title, 190 + 100 * len(row.names), 520, formula)
    if said := heaviest(len(row.names), row.count, say):
        scene.words(40, 506, said, size=13, colour="soft", anchor="start")
    return scene, row


def _query(scene: Scene, letter: str, token: str, count: int) -> None:
    """Draw what meets every key, and its line to all of them."""
    scene.line((86, 238), (121, 238), colour="violet", width=2)
    scene.line((121, 238), (138 + 100 * (count - 1), 238), colour="violet", width=1, dashed=True)
    scene.circle(60, 238, 26, letter, fill="#e3dff5", line="violet", size=15, formula=True)
    scene.words(60, 282, token, size=14, bold=True)


def _met(scene: Scene, row: Attended, i: int, x: float) -> None:
    """Draw a dot product with its score, and the weight above it."""
    scene.circle(x - 22, 238, 17, "·", fill="paper", line="violet", size=20)
    if row.scores is not None:
        score = f"{round(row.scores[i], 2) + 0.0:.2f}".replace("-", "−")  # no minus before a zero
        scene.words(x + 2, 250, score, size=12, colour="blue", anchor="start")
    weight = row.weights[i]
    is_most = bool(weight == max(row.weights))
    scene.box(x - 36, 166, 72, 30, f"{weight:.2f}", fill="paper", line="orange", bold=is_most)
    scene.arrow((x - 22, 221), (x - 12, 198), colour="orange")


def _mixed(scene: Scene, row: Attended, letter: str, *, colour: str) -> None:
    """Draw the weighted vectors on their way to the sum."""
    centre = 110 + 50 * len(row.names)
    for i, weight in enumerate(row.weights):
        x = 160 + 100 * i
        end = (centre + (x - centre) * 0.1, 122)
        scene.arrow((x, 166), end, colour=colour, width=1 + 5 * abs(weight), opacity=_opacity(weight))
    scene.circle(centre, 98, 24, letter, fill="#f6e3d7", line="orange", size=15, formula=True)


def _opacity(weight: float) -> float:
    return round(0.2 + 0.8 * min(abs(weight), 1.0), 3)


def three_memories(traces: Sequence[Trace], say: Say) -> Picture:
    """Return three memories side by side: a vector, the weights of a model, a list; of the traces given, in order."""
    if len(traces) != 3:
        raise ValueError(f"traces: got {len(traces)}, expected three: a recurrent model, TTT and attention")
    recurrent, ttt, attention = traces
    title = say("Three memories that read the same text", "读同一段文字的三种记忆")
    scene = begun(title, 900, 440)
    texts = "".join(visible(t) for t in recurrent.tokens[:26])
    scene.words(24, 56, texts, size=14, colour="soft", anchor="start")
    names = (
        say("RNN: one vector", "RNN：一个向量"),
        say("TTT: weights that learn", "TTT：边读边学的权重"),
        say("attention: a list", "注意力：一个列表"),
    )
    colours = colours_of(traces)
    for i, (trace, name, colour) in enumerate(zip(traces, names, colours, strict=True)):
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
        scene.cell(
            356 + width * t,
            296 - tall,
            width * 0.8,
            tall,
            colour_of(colours[1]),
            f"{visible(ttt.tokens[t])}: {value:.3g}",
        )
    scene.words(453, 142, "‖W_t − W_0‖", size=14, formula=True)
    steps = len(attention.tokens)
    weights = attention[f"{layer_with(attention, 'weights')}.weights"].mean(0)
    size = min(176 / steps, 14)
    for t in range(steps):
        for s in range(t + 1):
            shade = min(0.12 + 2.5 * float(weights[t, s]), 1)
            hint = f"{weights[t, s]:.3g}"
            scene.cell(676 + size * s, 128 + size * t, size * 0.9, size * 0.9, mixed(colours[2], shade), hint)
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
