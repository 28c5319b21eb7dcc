"""Diagrams of a recurrent model over time: unrolled, back-propagation, truncation, latent autoregression.

One convention in all: the state h_t has read x_t, steps are counted from 1, and what stands above h_t is about x_{t+1}.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from recollect.inspection.diagram import SHOWN, UNITS, begun, expected, facts_of, is_backward, sub, target
from recollect.inspection.trace import Trace
from recollect.inspection.trace_pictures import layer_with
from recollect.inspection.words import Say
from recollect.training.truncation import Truncation
from recollect.views.picture import Picture
from recollect.views.plots import visible
from recollect.views.scene import Scene

LEFT, STEP = 160, 130  # the place of the first state, and from one to the next


def unrolled(traces: Sequence[Trace], say: Say, *, layer: str | None = None, first: int = 0) -> Picture:
    """Return a recurrent model unrolled over some tokens: its states, what it expects next, and what was to come."""
    trace = traces[0]
    name = layer_with(trace, "hidden", layer)
    steps = _shown(trace, first)
    kind = facts_of(trace, name).get("kind", "RNN")
    before = "h_{t+1}" if is_backward(trace, name) else "h_{t−1}"
    note = say(
        f"{name}: h_t depends on x_t and {before}; strips are the live state",
        f"{name}：h_t 由 x_t 与 {before} 决定；色条是真实的状态",
    )
    title = say(f"{kind} unrolled: the same weights at every step", f"{kind} 按时间展开：每一步使用同一组权重")
    scene = begun(title, LEFT + 40 + STEP * len(steps), 420, note)
    targets = [target(trace, t) for t in steps]
    for i, t in enumerate(steps):
        _step(scene, trace, name, t, LEFT + STEP * i)
        x = LEFT + STEP * i
        scene.arrow((x, 218), (x, 166), colour="green")
        scene.words(x, 150, expected(trace, t), size=14)
        if targets[i] is not None:
            scene.words(x, 104, f"“{targets[i]}”", size=14, bold=True)
    _links(scene, trace, name, steps)
    scene.words(LEFT + 8, 310, "W_{xh}", size=12, colour="blue", anchor="start", formula=True)
    scene.words(LEFT + 8, 194, "W_{hy}", size=12, colour="green", anchor="start", formula=True)
    rows = [(150, say("guess", "预测")), (352, say("input", "输入"))]
    if any(one is not None for one in targets):
        rows.append((104, say("target", "目标")))
    for y, words in rows:
        scene.words(24, y, words, size=13, colour="soft", anchor="start")
    return Picture(title, scene)


def _shown(trace: Trace, first: int) -> range:
    if not 0 <= first < len(trace.tokens):
        raise ValueError(f"first: got {first}, expected 0 to {len(trace.tokens) - 1}, the number of a token")
    return range(first, min(first + SHOWN, len(trace.tokens)))


def _step(scene: Scene, trace: Trace, name: str, t: int, x: float) -> None:
    """Draw one step: its state and its token."""
    number = sub(t + 1 + trace.skipped)
    scene.box(x - 42, 218, 84, 66, fill="raised", line="accent")
    scene.words(x, 234, f"h{number}", size=14, bold=True)
    scene.strip(x - 34, 250, 68, 22, trace[f"{name}.hidden"][t, :UNITS].tolist(), most=1.0)
    scene.arrow((x, 331), (x, 286), colour="blue")
    scene.circle(x, 352, 21, visible(trace.tokens[t]), fill="paper", size=14)
    scene.words(x, 388, f"x{number}", size=12, colour="soft")


def _links(scene: Scene, trace: Trace, name: str, steps: range, cuts: Sequence[int] = ()) -> None:
    """Draw how a state enters the next one, also from before the first step and to the one after the last."""
    is_back, last = is_backward(trace, name), len(trace.tokens) - 1
    for t in range(steps.start - 1, steps.stop):
        x = LEFT + STEP * (t - steps.start)
        begin, end = (x + 42, 251), (x + STEP - 43, 251)
        is_outer = t in (steps.start - 1, steps.stop - 1)
        if (t == last and not is_back) or (t == -1 and is_back):
            continue  # no step follows
        if t == steps.start - 1:
            begin = (x + 44, 251)
        if t == steps.stop - 1:
            end = (x + 78, 251)
        scene.arrow(*((end, begin) if is_back else (begin, end)), colour="accent", dashed=is_outer)
        if not is_outer and t not in cuts:
            scene.words(x + STEP / 2, 238, "W_{hh}", size=12, colour="accent", formula=True)
    if steps.start == 0 and not trace.skipped and not is_back:
        scene.words(LEFT - 66, 236, "h₀ = 0", size=12, colour="accent")


def back_propagation(
    traces: Sequence[Trace], say: Say, *, layer: str | None = None, truncation: int | None = None, first: int = 0
) -> Picture:
    """Return how the loss of each step sends its gradient back through the states.

    `truncation`: the gradient is cut after so many steps. The number at a token is the gradient that reaches it from
    the last prediction that is shown: 0 behind a cut.
    """
    trace = traces[0]
    name = layer_with(trace, "hidden", layer)
    if is_backward(trace, name):
        raise ValueError(f"layer: got {name}, which reads from the end, expected a layer that reads forward")
    if truncation is not None and truncation < 1:
        raise ValueError(f"truncation: got {truncation}, expected at least 1 step, or None for no cut")
    steps = _shown(trace, first)
    cuts = [t for t in steps if _is_cut(trace, t, truncation)]
    title = _title_of(trace, truncation, say)
    latest = sub(steps[-1] + 1 + trace.skipped)
    note = say(f"orange: the gradient; numbers: ‖∂ ln p{latest} / ∂ x‖", f"橙色：梯度；数字：‖∂ ln p{latest} / ∂ x‖")
    scene = begun(title, LEFT + 40 + STEP * len(steps), 440, note)
    reached = _reached(trace, steps, cuts)
    for i, t in enumerate(steps):
        x = LEFT + STEP * i
        _step(scene, trace, name, t, x)
        scene.circle(x, 126, 24, f"L{sub(t + 1 + trace.skipped)}", fill="paper", line="green", size=15)
        loss = trace["loss"][t + 1] if "loss" in trace and t + 1 < len(trace.tokens) else np.nan
        scene.words(x, 88, f"{loss:.2f}" if np.isfinite(loss) else "", size=13, colour="green")
        scene.arrow((x - 10, 218), (x - 10, 151), colour="green")
        scene.arrow((x + 10, 151), (x + 10, 216), colour="orange", width=2)
        scene.words(x, 412, "" if reached is None else _short(reached[i]), size=13, colour="orange", bold=True)
        if t < len(trace.tokens) - 1:
            _back(scene, x, is_cut=t in cuts, is_last=t == steps[-1], say=say)
    _links(scene, trace, name, steps, cuts)
    for y, words in ((126, say("loss", "损失")), (352, say("input", "输入")), (412, say("gradient", "梯度"))):
        scene.words(24, y, words, size=13, colour="soft", anchor="start")
    return Picture(title, scene)


def _title_of(trace: Trace, truncation: int | None, say: Say) -> str:
    if truncation is None or truncation >= trace.skipped + len(trace.tokens):
        return say("Back-propagation through time, to the first step", "随时间反向传播，一直到第一步")
    return say(
        f"Back-propagation through time, cut every {truncation} steps", f"随时间反向传播，每 {truncation} 步截断"
    )


def _is_cut(trace: Trace, t: int, truncation: int | None) -> bool:
    """Return whether no gradient passes between token t and the one after it."""
    return truncation is not None and t + 1 < len(trace.tokens) and (t + 1 + trace.skipped) % truncation == 0


def _reached(trace: Trace, steps: range, cuts: list[int]) -> list[float] | None:
    """Return the gradient of the last step's prediction at each step, 0 behind a cut; None where there is none."""
    if "reach" not in trace or steps[-1] not in trace["outcome.at"]:
        return None
    row = trace["reach"][trace["outcome.at"].tolist().index(steps[-1])]
    begin = max((t + 1 for t in cuts if t < steps[-1]), default=0)
    return [float(row[t]) if t >= begin else 0.0 for t in steps]


def _short(value: float) -> str:
    return "0" if value == 0 else f"{value:.2g}"


def _back(scene: Scene, x: float, *, is_cut: bool, is_last: bool, say: Say) -> None:
    """Draw the gradient's way from the next state to this one, or the cut between them."""
    if is_cut:
        scene.line((x + STEP / 2, 204), (x + STEP / 2, 302), colour="orange", width=2.4, dashed=True)
        scene.words(x + STEP / 2, 316, say("cut", "截断"), size=12, colour="orange", bold=True)
    else:
        begin = x + (78 if is_last else STEP - 43)
        scene.arrow((begin, 272), (x + 44, 272), colour="orange", width=2, dashed=is_last)


def truncations(traces: Sequence[Trace], say: Say, *, length: int = 4, seed: int = 0) -> Picture:
    """Return how a text is divided by random, regular and no truncation; random lengths are drawn as in training."""
    trace = traces[0]
    tokens = [visible(one) for one in trace.tokens[:16]]
    title = say("Where the gradient is cut: three strategies", "梯度在何处截断：三种策略")
    note = say(f"mean length of the random segments: {length}", f"随机截断的平均长度：{length}")
    scene = begun(title, 150 + 40 * len(tokens), 310, note)
    draw = np.random.default_rng(seed)
    rows = (
        (say("random", "随机截断"), Truncation("random", length, every=1)),
        (say("regular", "固定截断"), Truncation("regular", length)),
        (say("full", "完整反传"), Truncation("full")),
    )
    for i, token in enumerate(tokens):
        scene.words(150 + 40 * i, 94, token, size=15)
    for row, (name, kind) in enumerate(rows):
        y = 120 + 56 * row
        scene.words(24, y + 18, name, size=14, anchor="start", bold=True)
        begin = 0
        while begin < len(tokens):
            end = min(begin + kind.length(draw), len(tokens))
            x0, x1 = 132 + 40 * begin, 126 + 40 * end
            scene.box(x0, y, x1 - x0, 36, fill="raised", line="accent")
            scene.arrow((x1 - 8, y + 18), (x0 + 8, y + 18), colour="orange", width=2)
            begin = end
    said = say(
        "arrows: back-propagation; h is carried on, the gradient is not", "箭头：反向传播；状态继续传递，梯度不再传递"
    )
    scene.words(24, 294, said, size=12, colour="soft", anchor="start")
    return Picture(title, scene)


def latent_autoregression(traces: Sequence[Trace], say: Say, *, layer: str | None = None) -> Picture:
    """Return the latent autoregressive view: a state sums up the past, and predicts what comes."""
    trace = traces[0]
    name = layer_with(trace, "hidden", layer)
    if is_backward(trace, name) or "next.texts" not in trace:
        got = trace.model.get("name", "these arrays")
        raise ValueError(f"latent-autoregression: got {name} of {got}, expected a recurrent model of what comes next")
    count = min(5, len(trace.tokens))
    title = say("Latent autoregression: a state in place of the whole past", "隐变量自回归：用一个状态代替全部过去")
    note = say(
        "h_t = g(h_{t−1}, x_t),   x̂_{t+1} ~ P(x_{t+1} | h_t)", "h_t = g(h_{t−1}, x_t)，  x̂_{t+1} ~ P(x_{t+1} | h_t)"
    )
    scene = begun(title, 60 + 160 * count, 380, note)
    for t in range(count):
        x, number = 100 + 160 * t, t + 1 + trace.skipped
        scene.circle(x, 310, 26, visible(trace.tokens[t]), fill="paper", size=16)
        scene.words(x, 354, f"x{sub(number)}", size=13, colour="soft")
        scene.circle(x, 200, 36, fill="raised", line="accent")
        scene.words(x, 190, f"h{sub(number)}", size=16)
        scene.strip(x - 26, 206, 52, 12, trace[f"{name}.hidden"][t, :UNITS].tolist(), most=1.0)
        scene.arrow((x, 283), (x, 238), colour="blue")
        if t:
            scene.arrow((x - 124, 200), (x - 38, 200), colour="accent")
        scene.arrow((x, 164), (x, 126), colour="green")
        scene.words(x, 108, f"x̂{sub(number + 1)} = {expected(trace, t)}", size=13)
    return Picture(title, scene)
