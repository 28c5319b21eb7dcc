"""Diagrams of an LSTM's and a GRU's cell with the values of a trace at one token."""

from __future__ import annotations

from collections.abc import Sequence

from recollect.inspection.diagram import UNITS, begun, facts_of, is_backward, state_before
from recollect.inspection.trace import Array, Trace
from recollect.inspection.trace_pictures import layer_with
from recollect.inspection.words import Say
from recollect.views.picture import Picture
from recollect.views.plots import visible
from recollect.views.scene import Scene


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
    note = say("numbers: mean of each gate's units", "数字：各门在所有隐藏单元上的平均")
    past = "t+1" if is_backward(trace, name) else "t−1"
    scene = begun(title, 860, 470, note)
    scene.box(150, 84, 580, 300, fill="raised", line="grid", radius=18)
    scene.arrow((40, 130), (826, 130), colour="accent", width=2.6)  # the cell's line
    scene.words(58, 112, f"c_{{{past}}}", size=14, formula=True)
    scene.words(800, 112, "c_t", size=14, formula=True)
    scene.line((40, 346), (640, 346), colour="blue", width=2)  # h and x
    scene.words(58, 328, f"h_{{{past}}}", size=14, formula=True)
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
    most = float(abs(get("cell")).max()) or 1.0
    _strip_before(scene, 146, state_before(trace, name, "cell", t), most)
    _strip_before(scene, 362, state_before(trace, name, "hidden", t), 1.0)
    scene.strip(752, 146, 90, 18, get("cell")[t][:UNITS].tolist(), most=most)
    scene.strip(752, 362, 90, 18, get("hidden")[t][:UNITS].tolist(), most=1.0)
    words = f"c_t = f_t ⊙ c_{{{past}}} + i_t ⊙ c̃_t        h_t = o_t ⊙ tanh c_t"
    scene.words(330, 424, words, size=15, anchor="start", formula=True)
    return Picture(title, scene)


def _strip_before(scene: Scene, y: float, state: Array | None, most: float) -> None:
    if state is not None:
        scene.strip(30, y, 90, 18, state[:UNITS].tolist(), most=most)


def gru_cell(traces: Sequence[Trace], say: Say, *, layer: str | None = None, token: int = -1) -> Picture:
    """Return a GRU cell at one token: how much is kept and how much is new, its reset before or after the product."""
    trace = traces[0]
    name = layer_with(trace, "update_gate", layer)
    t = token % len(trace.tokens)
    is_after = facts_of(trace, name).get("reset", "after") == "after"
    past = "t+1" if is_backward(trace, name) else "t−1"
    update = float(trace[f"{name}.update_gate"][t].mean())
    title = say(f"GRU cell at “{visible(trace.tokens[t])}”", f"GRU 单元，词元“{visible(trace.tokens[t])}”")
    note = say("numbers: mean of each gate's units; ", "数字：各门在所有隐藏单元上的平均；")
    note += (
        say("reset after W_{hh}", "先乘 W_{hh} 再重置") if is_after else say("reset before W_{hh}", "先重置再乘 W_{hh}")
    )
    scene = begun(title, 860, 484, note)
    scene.box(150, 84, 580, 290, fill="raised", line="grid", radius=18)
    _gru_lines(scene, visible(trace.tokens[t]), past)
    _gate(scene, 240, 274, "σ", "z_t", update, "violet")
    _gate(scene, 430, 274, "σ", "r_t", float(trace[f"{name}.reset_gate"][t].mean()), "orange")
    _gate(scene, 610, 274, "tanh", "", None, "green")
    scene.words(644, 274, "h̃_t", size=14, colour="green", anchor="start", italic=True, formula=True)
    _gru_reset(scene, is_after=is_after)
    _gru_mixture(scene)
    _strip_before(scene, 146, state_before(trace, name, "hidden", t), 1.0)
    scene.strip(752, 146, 90, 18, trace[f"{name}.hidden"][t][:UNITS].tolist(), most=1.0)
    product = f"r_t ⊙ (W_{{hh}} h_{{{past}}})" if is_after else f"W_{{hh}} (r_t ⊙ h_{{{past}}})"
    kept = say(f"{update:.0%} of the state is kept", f"保留旧状态的 {update:.0%}")
    lines = (f"h̃_t = tanh(W_{{xh}} x_t + {product} + b)", f"h_t = z_t ⊙ h_{{{past}}} + (1 − z_t) ⊙ h̃_t        {kept}")
    for i, words in enumerate(lines):
        scene.words(290, 424 + 32 * i, words, size=15, anchor="start", formula=True)
    return Picture(title, scene)


def _gru_lines(scene: Scene, token: str, past: str) -> None:
    """Draw the state's line, and how state and token come to both gates and the candidate."""
    scene.arrow((40, 130), (826, 130), colour="accent", width=2.6)
    scene.words(58, 112, f"h_{{{past}}}", size=14, formula=True)
    scene.words(800, 112, "h_t", size=14, formula=True)
    scene.line((180, 130), (180, 332), (440, 332), colour="accent", width=1.8)
    scene.circle(200, 430, 19, token, fill="paper")
    scene.words(232, 430, "x_t", size=14, colour="soft", anchor="start", formula=True)
    scene.line((200, 411), (200, 352), (610, 352), colour="blue", width=1.8)
    for x in (240, 430):
        scene.arrow((x + 10, 332), (x + 10, 309), colour="accent")
        scene.arrow((x - 10, 352), (x - 10, 309), colour="blue")
        scene.circle(x + 10, 332, 2.5, fill="accent", line="accent")
        scene.circle(x - 10, 352, 2.5, fill="blue", line="blue")
    scene.arrow((610, 352), (610, 292), colour="blue")
    scene.circle(180, 130, 2.5, fill="accent", line="accent")


def _gru_reset(scene: Scene, *, is_after: bool) -> None:
    """Draw the state's way to the candidate: through W_hh, then times r, or the other way round."""
    scene.circle(320, 332, 2.5, fill="accent", line="accent")
    colour = "accent" if is_after else "orange"
    begin = 338 if is_after else 474  # of the box
    ends = (336, 413, 590) if is_after else (413, 472, 590)
    scene.arrow((320, 332), (320, 214), (ends[0], 214), colour="accent", width=1.8)
    scene.box(begin, 197, 52, 34, "W_{hh}", fill="paper", line="accent", size=13, formula=True)
    scene.circle(430, 214, 15, "×", fill="paper", line="orange", size=18)
    scene.arrow((430, 256), (430, 231), colour="orange", width=2)
    scene.arrow((390 if is_after else 445, 214), (ends[1], 214), colour=colour, width=1.8)
    last = 445 if is_after else 526
    scene.arrow((last, 214), (590, 214), (598, 256), colour="orange", width=1.8)


def _gru_mixture(scene: Scene) -> None:
    """Draw z times the old state plus 1 − z times the candidate."""
    scene.arrow((240, 256), (240, 147), colour="violet", width=2)
    scene.circle(240, 130, 15, "×", fill="paper", line="violet", size=18)
    scene.words(256, 158, "z", size=14, colour="violet", italic=True)
    scene.circle(240, 178, 2.5, fill="violet", line="violet")
    scene.arrow((240, 178), (603, 178), colour="violet", width=1.6)
    scene.words(500, 166, "1−z", size=14, colour="violet", italic=True)
    scene.arrow((620, 256), (620, 195), colour="green", width=2)
    scene.circle(620, 178, 15, "×", fill="paper", line="violet", size=18)
    scene.arrow((620, 163), (620, 147), colour="green", width=2)
    scene.circle(620, 130, 15, "+", fill="paper", line="green", size=18)
