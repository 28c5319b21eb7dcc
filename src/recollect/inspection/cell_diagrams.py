"""Diagrams of recurrent models with the values of a trace: unrolled, cells, latent autoregression, truncation."""

from __future__ import annotations

from collections.abc import Sequence

from recollect.inspection.trace import Array, Trace
from recollect.inspection.trace_pictures import layer_with
from recollect.inspection.words import Say
from recollect.views.picture import Picture
from recollect.views.plots import visible
from recollect.views.scene import Scene

SHOWN = 6  # steps of an unrolled model
UNITS = 8  # of a state, in a strip


def begun(title: str, width: float, height: float, note: str = "") -> Scene:
    """Return a scene with a title, and a quieter line below it."""
    scene = Scene(width, height, title)
    scene.words(24, 28, title, size=17, anchor="start", bold=True)
    if note:
        scene.words(24, 52, note, size=13, colour="soft", anchor="start", formula=True)
    return scene


def unrolled(
    traces: Sequence[Trace], say: Say, *, layer: str | None = None, truncation: int | None = None, first: int = 0
) -> Picture:
    """Return a recurrent model unrolled over some tokens, with its states and what it expects next.

    `truncation`: gradients are cut after so many steps; the cuts and the backward pass are drawn.
    """
    trace = traces[0]
    name = layer_with(trace, "hidden", layer)
    steps = range(first, min(first + SHOWN, len(trace.tokens)))
    kind = next((one["kind"] for one in trace.layers if one["name"] == name), "RNN")
    title = say(f"{kind} unrolled: the same weights at every step", f"{kind} 按时间展开：每一步使用同一组权重")
    if truncation is not None:
        title = say(
            f"Back-propagation through time, cut every {truncation} steps", f"随时间反向传播，每 {truncation} 步截断"
        )
    note = say(
        "h_t depends on x_t and h_{t−1}; strips are the live state", "h_t 由 x_t 与 h_{t−1} 决定；色条是真实的状态"
    )
    scene = begun(title, max(150 + 130 * len(steps), 480), 400, note)
    hidden = trace[f"{name}.hidden"]
    for place, t in enumerate(steps):
        x = 110 + 130 * place
        scene.box(x - 42, 188, 84, 66, fill="raised", line="accent")
        scene.words(x, 204, f"h{_sub(t)}", size=14, bold=True, formula=True)
        scene.strip(x - 34, 220, 68, 22, hidden[t, :UNITS].tolist(), most=1.0)
        scene.circle(x, 322, 21, visible(trace.tokens[t]), fill="paper", size=14)
        scene.words(x, 358, f"x{_sub(t)}", size=12, colour="soft", formula=True)
        scene.arrow((x, 301), (x, 256), colour="blue")
        scene.arrow((x, 188), (x, 142), colour="green")
        scene.words(x, 124, _expected(trace, t), size=14)
        if place == 0:
            scene.arrow((18, 221), (x - 43, 221), colour="accent", dashed=True)
            scene.words(x + 8, 280, "W_{xh}", size=12, colour="blue", anchor="start", formula=True)
            scene.words(x + 8, 164, "W_{hy}", size=12, colour="green", anchor="start", formula=True)
        is_cut = truncation is not None and (t + 1) % truncation == 0
        scene.arrow((x + 42, 221), (x + 87, 221), colour="accent")
        if not is_cut:
            scene.words(x + 65, 208, "W_{hh}", size=12, colour="accent", formula=True)
        if truncation is not None:
            if is_cut:
                scene.line((x + 65, 176), (x + 65, 272), colour="orange", width=2.4, dashed=True)
                scene.words(x + 65, 286, say("cut", "截断"), size=12, colour="orange", bold=True)
            else:
                scene.arrow((x + 86, 240), (x + 44, 240), colour="orange", width=2)
    if truncation is not None:
        scene.words(
            24,
            384,
            say("orange: the way of the gradient", "橙色：梯度的传播方向"),
            size=12,
            colour="orange",
            anchor="start",
        )
    else:
        scene.words(
            24,
            384,
            say("above: the likeliest next token", "上方：最可能的下一个词元"),
            size=12,
            colour="soft",
            anchor="start",
        )
    return Picture(title, scene)


def _sub(number: int) -> str:
    return str(number).translate(str.maketrans("0123456789", "₀₁₂₃₄₅₆₇₈₉"))


def _expected(trace: Trace, t: int) -> str:
    if "next.texts" not in trace:
        return "y"
    return f"{visible(str(trace['next.texts'][t, 0]))}  {trace['next.probabilities'][t, 0]:.2f}"


def truncations(traces: Sequence[Trace], say: Say, *, length: int = 4) -> Picture:
    """Return how a text is divided by random, regular and no truncation of the gradient."""
    trace = traces[0]
    tokens = [visible(one) for one in trace.tokens[:16]]
    title = say("Where the gradient is cut: three strategies", "梯度在何处截断：三种策略")
    scene = begun(title, 150 + 40 * len(tokens), 290)
    regular = [length] * (len(tokens) // length + 1)
    uneven = [length // 2, length + 2, 1, length + 1, length - 1, length, length]
    rows = (
        (say("random", "随机截断"), uneven),
        (say("regular", "固定截断"), regular),
        (say("full", "完整反传"), [len(tokens)]),
    )
    for i, token in enumerate(tokens):
        scene.words(150 + 40 * i, 82, token, size=15)
    for row, (name, sizes) in enumerate(rows):
        y = 108 + 56 * row
        scene.words(24, y + 18, name, size=14, anchor="start", bold=True)
        begin = 0
        for size in sizes:
            end = min(begin + size, len(tokens))
            if begin < end:
                x0, x1 = 132 + 40 * begin, 126 + 40 * end
                scene.box(x0, y, x1 - x0, 36, fill="raised", line="accent")
                scene.arrow((x1 - 8, y + 18), (x0 + 8, y + 18), colour="orange", width=2)
            begin = end
    scene.words(
        24,
        276,
        say(
            "arrows: back-propagation; h is carried on, the gradient is not",
            "箭头：反向传播；状态继续传递，梯度不再传递",
        ),
        size=12,
        colour="soft",
        anchor="start",
    )
    return Picture(title, scene)


def _gate(scene: Scene, x: float, y: float, sign: str, name: str, value: float | None, colour: str) -> None:
    """Draw a gate's box, its name above, and how open it is below."""
    scene.box(x - 27, y - 17, 54, 34, sign, fill="paper", line=colour, size=15)
    scene.words(x - 32, y - 8, name, size=14, colour=colour, anchor="end", italic=True, formula=True)
    if value is not None:
        scene.words(x, y + 28, f"{value:.2f}", size=12, colour=colour)


def lstm_cell(traces: Sequence[Trace], say: Say, *, layer: str | None = None, token: int = -1) -> Picture:
    """Return an LSTM cell at one token: its gates, and the cell before and after."""
    trace = traces[0]
    name = layer_with(trace, "forget_gate", layer)
    t = token % len(trace.tokens)

    def get(value: str) -> Array:
        return trace[f"{name}.{value}"]

    title = say(f"LSTM cell at “{visible(trace.tokens[t])}”", f"LSTM 单元，词元“{visible(trace.tokens[t])}”")
    note = say("numbers: mean of each gate's units", "数字：各门单元的平均值")
    scene = begun(title, 860, 470, note)
    scene.box(150, 84, 580, 300, fill="raised", line="grid", radius=18)
    scene.arrow((40, 130), (826, 130), colour="accent", width=2.6)  # the cell's line
    scene.words(58, 112, "c_{t−1}", size=14, formula=True)
    scene.words(800, 112, "c_t", size=14, formula=True)
    scene.line((40, 346), (640, 346), colour="blue", width=2)  # h and x
    scene.words(58, 328, "h_{t−1}", size=14, formula=True)
    scene.circle(170, 430, 19, visible(trace.tokens[t]), fill="paper")
    scene.words(202, 430, "x_t", size=14, colour="soft", anchor="start", formula=True)
    scene.arrow((170, 411), (170, 348), colour="blue", width=2)
    gates = (
        (220, "σ", "f_t", "forget_gate", "orange"),
        (345, "σ", "i_t", "input_gate", "green"),
        (465, "tanh", "c̃_t", "candidate", "green"),
        (600, "σ", "o_t", "output_gate", "violet"),
    )
    for x, sign, letter, value, colour in gates:
        scene.arrow((x, 346), (x, 321), colour="blue")
        _gate(scene, x, 278, sign, letter, None if value == "candidate" else float(get(value)[t].mean()), colour)
    scene.arrow((220, 260), (220, 146), colour="orange", width=2)
    scene.circle(220, 130, 15, "×", fill="paper", line="orange", size=18)
    scene.arrow((345, 260), (345, 222), (392, 222), colour="green", width=2)
    scene.arrow((465, 260), (465, 222), (423, 222), colour="green", width=2)
    scene.circle(408, 222, 15, "×", fill="paper", line="green", size=18)
    scene.arrow((408, 207), (408, 146), colour="green", width=2)
    scene.circle(408, 130, 15, "+", fill="paper", line="green", size=18)
    scene.arrow((675, 130), (675, 176), colour="accent", width=2)
    scene.box(645, 178, 60, 30, "tanh", fill="paper", line="accent", size=13)
    scene.arrow((675, 208), (675, 262), colour="accent", width=2)
    scene.circle(675, 278, 15, "×", fill="paper", line="violet", size=18)
    scene.arrow((627, 278), (660, 278), colour="violet", width=2)
    scene.arrow((675, 293), (675, 346), (826, 346), colour="blue", width=2)
    scene.words(800, 328, "h_t", size=14, formula=True)
    before = get("cell")[t - 1] if t else get("cell")[t] * 0
    most = float(abs(get("cell")).max()) or 1.0
    scene.strip(30, 146, 90, 18, before[:UNITS].tolist(), most=most)
    scene.strip(752, 146, 90, 18, get("cell")[t][:UNITS].tolist(), most=most)
    scene.strip(752, 362, 90, 18, get("hidden")[t][:UNITS].tolist(), most=1.0)
    scene.words(
        330, 424, "c_t = f_t ⊙ c_{t−1} + i_t ⊙ c̃_t        h_t = o_t ⊙ tanh c_t", size=15, anchor="start", formula=True
    )
    return Picture(title, scene)


def gru_cell(traces: Sequence[Trace], say: Say, *, layer: str | None = None, token: int = -1) -> Picture:
    """Return a GRU cell at one token: how much is kept and how much is new."""
    trace = traces[0]
    name = layer_with(trace, "update_gate", layer)
    t = token % len(trace.tokens)

    def get(value: str) -> Array:
        return trace[f"{name}.{value}"]

    title = say(f"GRU cell at “{visible(trace.tokens[t])}”", f"GRU 单元，词元“{visible(trace.tokens[t])}”")
    scene = begun(title, 860, 450, say("numbers: mean of each gate's units", "数字：各门单元的平均值"))
    scene.box(150, 84, 580, 288, fill="raised", line="grid", radius=18)
    scene.arrow((40, 130), (826, 130), colour="accent", width=2.6)
    scene.words(58, 112, "h_{t−1}", size=14, formula=True)
    scene.words(800, 112, "h_t", size=14, formula=True)
    scene.line((170, 391), (170, 340), (560, 340), colour="blue", width=2)
    scene.circle(170, 410, 19, visible(trace.tokens[t]), fill="paper")
    scene.words(202, 410, "x_t", size=14, colour="soft", anchor="start", formula=True)
    update = float(get("update_gate")[t].mean())
    for x in (260, 410, 560):
        scene.arrow((x, 340), (x, 317), colour="blue")
    _gate(scene, 260, 274, "σ", "r_t", float(get("reset_gate")[t].mean()), "orange")
    _gate(scene, 410, 274, "σ", "z_t", update, "violet")
    _gate(scene, 560, 274, "tanh", "h̃_t", None, "green")
    scene.arrow((190, 130), (190, 206), (245, 206), colour="accent", width=1.6)
    scene.circle(260, 206, 15, "×", fill="paper", line="orange", size=18)
    scene.arrow((260, 256), (260, 223), colour="orange", width=2)
    scene.arrow((275, 206), (520, 206), (540, 256), colour="orange", width=1.8)
    scene.arrow((410, 256), (410, 147), colour="violet", width=2)
    scene.circle(410, 130, 15, "×", fill="paper", line="violet", size=18)
    scene.words(432, 158, "z", size=14, colour="violet", italic=True)
    scene.arrow((575, 256), (575, 207), colour="green", width=2)
    scene.circle(575, 191, 15, "×", fill="paper", line="violet", size=18)
    scene.arrow((437, 264), (561, 197), colour="violet", width=1.6)
    scene.words(478, 258, "1−z", size=14, colour="violet", italic=True)
    scene.arrow((575, 176), (575, 147), colour="green", width=2)
    scene.circle(575, 130, 15, "+", fill="paper", line="green", size=18)
    before = get("hidden")[t - 1] if t else get("hidden")[t] * 0
    scene.strip(30, 146, 90, 18, before[:UNITS].tolist(), most=1.0)
    scene.strip(752, 146, 90, 18, get("hidden")[t][:UNITS].tolist(), most=1.0)
    kept = say(f"{update:.0%} of the state is kept", f"保留旧状态的 {update:.0%}")
    scene.words(
        330, 410, f"h_t = z_t ⊙ h_{{t−1}} + (1 − z_t) ⊙ h̃_t        {kept}", size=15, anchor="start", formula=True
    )
    return Picture(title, scene)


def latent_autoregression(traces: Sequence[Trace], say: Say, *, layer: str | None = None) -> Picture:
    """Return the latent autoregressive view: a state sums up the past, and predicts what comes."""
    trace = traces[0]
    name = layer_with(trace, "hidden", layer)
    count = min(4, len(trace.tokens) - 1)
    title = say("Latent autoregression: a state in place of the whole past", "隐变量自回归：用一个状态代替全部过去")
    note = say("h_t = g(h_{t−1}, x_{t−1}),   x̂_t ~ P(x_t | h_t)", "h_t = g(h_{t−1}, x_{t−1})，  x̂_t ~ P(x_t | h_t)")
    scene = begun(title, 200 + 170 * count, 380, note)
    for t in range(count):
        x = 120 + 170 * t
        scene.circle(x, 300, 26, visible(trace.tokens[t]), fill="paper", size=16)
        scene.words(x, 344, f"x{_sub(t)}", size=13, colour="soft", formula=True)
        scene.circle(x + 85, 200, 34, f"h{_sub(t + 1)}", fill="raised", line="accent", size=16)
        scene.strip(x + 55, 238, 60, 14, trace[f"{name}.hidden"][t, :UNITS].tolist(), most=1.0)
        scene.arrow((x + 19, 281), (x + 61, 227), colour="blue")
        if t:
            scene.arrow((x - 51, 200), (x + 51, 200), colour="accent")
        scene.arrow((x + 85, 166), (x + 85, 128), colour="green")
        scene.words(x + 85, 110, f"x̂{_sub(t + 1)} = {_expected(trace, t)}", size=13)
    return Picture(title, scene)


def arrangements(traces: Sequence[Trace], say: Say) -> Picture:
    """Return the five arrangements of inputs and outputs; that of the traced model is marked."""
    kind = str(traces[0].model.get("kind", "")) if traces else ""
    panels = (
        (say("one to one", "一对一"), 1, 1, [0], [0], say("a picture's class", "图像分类"), ()),
        (say("one to many", "一对多"), 1, 3, [0], [0, 1, 2], say("picture to caption", "看图说话"), ("caption",)),
        (
            say("many to one", "多对一"),
            3,
            3,
            [0, 1, 2],
            [2],
            say("text to label", "文本分类"),
            ("classify", "forecast"),
        ),
        (
            say("many to many, after", "多对多（先读后写）"),
            5,
            5,
            [0, 1, 2],
            [2, 3, 4],
            say("translation", "翻译"),
            ("translate",),
        ),
        (
            say("many to many, in step", "多对多（同步）"),
            3,
            3,
            [0, 1, 2],
            [0, 1, 2],
            say("tags, next words", "标注、逐词预测"),
            ("tag", "language", "masked", "fill"),
        ),
    )
    title = say("Five arrangements of inputs, states and outputs", "输入、状态与输出的五种组合")
    scene = begun(title, 920, 340)
    x = 30.0
    for name, low, count, inputs, outputs, use, kinds in panels:
        width = 44 * max(low, count) + 26
        is_own = kind in kinds
        centre = x + width / 2
        if is_own:
            scene.box(x - 8, 62, width + 16, 262, fill="raised", line="accent", radius=14)
        for i in range(count):
            at = x + 35 + 44 * i
            scene.box(at - 14, 166, 28, 36, fill="paper", line="accent", radius=5)
            if i:
                scene.arrow((at - 30, 184), (at - 14, 184), colour="accent")
            if i in inputs:
                scene.box(at - 14, 240, 28, 32, fill="#d7e6f2", line="blue", radius=5)
                scene.arrow((at, 240), (at, 203), colour="blue")
            if i in outputs:
                scene.box(at - 14, 96, 28, 32, fill="#d9ece4", line="green", radius=5)
                scene.arrow((at, 166), (at, 129), colour="green")
        scene.words(centre, 80, name, size=12.5, bold=True)
        scene.words(centre, 300, use, size=12, colour="soft")
        x += max(width, 8 * len(name)) + 22
    scene.width = x + 16
    return Picture(title, scene)
