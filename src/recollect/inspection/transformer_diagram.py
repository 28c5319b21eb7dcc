"""The parts of a traced Transformer, from its tokens to its output: what the model has, and nothing else."""

from __future__ import annotations

from collections.abc import Sequence

from recollect.core.types import JsonObject
from recollect.inspection.diagram import begun, expected
from recollect.inspection.trace import Trace
from recollect.inspection.words import Say
from recollect.views.picture import Picture
from recollect.views.plots import moved, visible
from recollect.views.scene import Scene

BROAD, GAP = 216, 16  # of a box; between two of them
NORMS = {"LayerNorm": ("layer norm", "层归一化"), "RMSNorm": ("RMS norm", "RMS 归一化")}


def transformer(traces: Sequence[Trace], say: Say) -> Picture:
    """Return a Transformer's embedding, positions, norms, attention, feed-forward networks and output, by side."""
    trace = traces[0]
    structure = trace.model.get("structure", {})
    sides = [side for side in ("encoder", "decoder") if side in structure]
    if not sides:
        got = trace.model.get("name", "these arrays")
        raise ValueError(f"transformer: got {got}, which has no blocks with self-attention; expected a Transformer")
    title = say("The Transformer of this run", "本次运行的 Transformer")
    count = f"{trace.model.get('parameters', 0):,}"
    note = say(
        f"{trace.model.get('family', '')}: {count} parameters", f"{trace.model.get('family', '')}：{count} 个参数"
    )
    drawn = Scene(0, 0)
    columns = [_Column(drawn, 190 + 370 * i) for i in range(len(sides))]
    for column, side in zip(columns, sides, strict=True):
        _draw(column, structure[side], _layers(trace, side), trace, say, side)
    decoder = columns[-1]
    if decoder.crossing is not None:
        _across(drawn, columns[0] if len(columns) == 2 else None, decoder, say)
    height = 96 - min(column.top for column in columns)
    scene = begun(title, 370 * len(sides) + 20, height + 66, note)
    scene.marks += [moved(mark, 0, height) for mark in drawn.marks]
    return Picture(title, scene)


def _layers(trace: Trace, side: str) -> list[JsonObject]:
    """Return the facts of the self-attention of a side: its name begins with the encoder's, where there is one."""
    is_encoder = side == "encoder"
    own = [one for one in trace.layers if one["kind"] in ("SelfAttention", "BasicSelfAttention")]
    return [one for one in own if one["name"].startswith("encoder.") == is_encoder]


class _Column:
    """One side, drawn upwards from 0: `top` is where the next part begins."""

    def __init__(self, scene: Scene, x: float) -> None:
        self.scene, self.x, self.top = scene, x, -16.0
        self.crossing: float | None = None  # the height of the attention to the source

    def box(self, words: str, colour: str, tall: float = 32) -> None:
        """Add a box above, with an arrow to it."""
        self.scene.arrow((self.x, self.top), (self.x, self.top - GAP), colour="soft")
        self.top -= GAP + tall
        self.scene.box(self.x - BROAD / 2, self.top, BROAD, tall, words, fill="paper", line=colour, size=13)

    def plus(self, words: str = "") -> float:
        """Add a sum above, and return its height; `words` name what is added from the left."""
        self.scene.arrow((self.x, self.top), (self.x, self.top - GAP), colour="soft")
        y = self.top - GAP - 10
        self.scene.circle(self.x, y, 10, "+", fill="paper", size=15)
        if words:
            self.scene.box(self.x - BROAD / 2 - 30, y - 15, 92, 30, words, fill="paper", line="violet", size=12)
            self.scene.arrow((self.x - BROAD / 2 + 62, y), (self.x - 12, y), colour="violet")
        self.top = y - 10
        return y


def _draw(column: _Column, parts: JsonObject, layers: list[JsonObject], trace: Trace, say: Say, side: str) -> None:
    """Draw one side from its tokens upwards."""
    tokens = trace.source if side == "encoder" and trace.source else trace.tokens
    read = " ".join(visible(t) for t in tokens[:8]) + (" …" if len(tokens) > 8 else "")
    column.scene.words(column.x, 0, read, size=14)
    is_causal = bool(layers) and bool(layers[0].get("causal"))
    name = say("decoder", "解码器") if is_causal else say("encoder", "编码器")
    column.scene.words(column.x, 28, name, size=15, bold=True)
    if parts["embedding"] is not None:
        column.box(_embedding(parts, say), "violet")
    if parts["positions"] is not None:
        kinds = {
            "sinusoidal": say("sinusoidal\npositions", "正弦\n位置编码"),
            "learned": say("learned\npositions", "可学习\n位置编码"),
        }
        column.plus(kinds[parts["positions"]])
    if parts["first_norm"]:
        column.box(say(*NORMS[parts["first_norm"]]), "grey", 26)
    if parts["widened"]:
        column.box(say("linear map to the blocks' width", "线性映射到各层宽度"), "violet", 26)
    _block(column, parts, layers[0] if layers else {}, say)
    if parts["last_norm"]:
        column.box(say(*NORMS[parts["last_norm"]]), "grey", 26)
    if side == "decoder":
        _output(column, parts, trace, say)


def _embedding(parts: JsonObject, say: Say) -> str:
    if parts["embedding"] == "Linear":
        return say("linear map of the values", "数值的线性映射")
    words = say("embedding", "词嵌入")
    words += " × √D" if parts["embedding"] == "ScaledEmbedding" else ""
    return words + (say(" + segment", " + 段嵌入") if parts["segments"] else "")


def _block(column: _Column, parts: JsonObject, facts: JsonObject, say: Say) -> None:
    """Draw one block in a frame, with how many there are."""
    scene, at = column.scene, len(column.scene.marks)
    bottom = column.top - 10
    column.top -= 14
    norm = say(*NORMS[parts["norm_kind"]])
    _part(column, _attention(facts, say), "sky", norm, parts["norm"], 32 + 17 * _attention(facts, say).count("\n"))
    if parts["cross"]:
        entry = column.top
        _part(column, say("attention to the source", "对源的注意力"), "orange", norm, parts["norm"])
        column.crossing = entry - 2 * GAP - (26 + 16 if parts["norm"] == "pre" else 0)
    _part(
        column,
        say(f"feed-forward, {parts['activation']}", f"前馈网络，{parts['activation']}"),
        "blue",
        norm,
        parts["norm"],
    )
    column.top -= 10 if parts["norm"] == "pre" else 32  # below a last norm there is no place for the count
    frame = Scene(0, 0)
    frame.box(column.x - 152, column.top, 304, bottom - column.top, fill="raised", line="grid", radius=16)
    scene.marks[at:at] = frame.marks
    times = f"× {parts['blocks']}" + (say(", shared", "，共享权重") if parts["shared"] else "")
    scene.words(column.x - 140, column.top + 18, times, size=14, bold=True, anchor="start")


def _part(column: _Column, words: str, colour: str, norm: str, kind: str, tall: float = 32) -> None:
    """Draw a sublayer with its residual connection, its norm before (pre) or behind the sum (post)."""
    entry = column.top - 4
    if kind == "pre":
        column.box(norm, "grey", 26)
    column.box(words, colour, tall)
    y = column.plus()
    side = column.x + BROAD / 2 + 22
    column.scene.line((column.x, entry), (side, entry), (side, y), colour="soft", width=1.2, dashed=True)
    column.scene.arrow((side, y), (column.x + 12, y), colour="soft", width=1.2, dashed=True)
    if kind == "post":
        column.box(norm, "grey", 26)


def _attention(facts: JsonObject, say: Say) -> str:
    """Return the lines of a self-attention's box: whether it is causal, its heads, its positions, its window."""
    masked = say("causal ", "因果") if facts.get("causal") else ""
    heads = facts.get("heads", 1)
    lines = [say(f"{masked}self-attention, {heads} heads", f"{masked}自注意力，{heads} 个头")]
    positions = {
        "rotary": say("rotary positions in q and k", "q 与 k 带旋转位置"),
        "alibi": say("ALiBi: − m · distance", "ALiBi：− m · 距离"),
    }
    if facts.get("positions") in positions:
        lines.append(positions[str(facts["positions"])])
    if facts.get("window"):
        lines.append(say(f"window of {facts['window']}", f"窗口 {facts['window']}"))
    if facts.get("scaled") is False:
        lines.append(say("without 1/√H", "不除以 √H"))
    return "\n".join(lines)


def _output(column: _Column, parts: JsonObject, trace: Trace, say: Say) -> None:
    """Draw what is above the blocks, and the live answer."""
    if parts["pooling"]:
        column.box(say(f"pool of the steps: {parts['pooling']}", f"各步汇聚：{parts['pooling']}"), "pink", 26)
    if parts["transform"]:
        column.box(say("linear map, φ, norm", "线性映射、φ、归一化"), "green", 26)
    if parts["output"] is not None:
        column.box(say(f"linear map to {parts['output']:,} numbers", f"线性映射到 {parts['output']:,} 个数"), "green")
    if "next.texts" in trace:
        column.box("softmax", "green", 26)
        column.scene.arrow((column.x, column.top), (column.x, column.top - GAP), colour="green")
        column.scene.words(column.x, column.top - 30, expected(trace, len(trace.tokens) - 1), size=14, bold=True)
        column.top -= 40


def _across(scene: Scene, encoder: _Column | None, decoder: _Column, say: Say) -> None:
    """Draw the way of the source's keys and values to the decoder's blocks."""
    assert decoder.crossing is not None
    end = (decoder.x - BROAD / 2 - 2, decoder.crossing)
    if encoder is None:
        scene.arrow((end[0] - 66, end[1]), end, colour="orange", width=2)
        scene.words(end[0] - 66, end[1] - 14, say("K, V of the source", "源的 K, V"), size=12, anchor="start")
        return
    top, middle = encoder.top - 18, (encoder.x + decoder.x) / 2
    scene.arrow(
        (encoder.x, encoder.top), (encoder.x, top), (middle, top), (middle, end[1]), end, colour="orange", width=2
    )
    scene.words(middle - 24, top - 12, "K, V", size=14, italic=True)
