"""Diagrams of models with a source: encoder–decoder, the context at each step, soft alignment, a beam's tree."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from recollect.inspection.diagram import UNITS, begun, is_backward
from recollect.inspection.trace import Array, Trace
from recollect.inspection.words import Say, heaviest
from recollect.layers.attention.alignment import ALIGNMENTS
from recollect.views.picture import Picture
from recollect.views.plots import letters, visible
from recollect.views.scene import Scene

MOST = 9  # steps that are drawn of a side


def _with_source(trace: Trace) -> None:
    if not trace.source:
        name = trace.model.get("name", "these arrays")
        raise ValueError(f"model: got {name}, which has no source, expected a translator or a captioner")


def _states(trace: Trace, side: str, count: int) -> list[Array | None]:
    """Return a state for each step: the last layer's, or none where a side has no recurrent layer."""
    names = [name for name in trace if name.startswith(f"{side}layers.") and name.endswith(".hidden")]
    if not names:
        return [None] * count
    return list(trace[names[-1]][:count])


def _first_and_last(count: int) -> list[int]:
    """Return the steps of a side that are drawn: those at the start and the last, of which the context is made."""
    return list(range(count)) if count <= MOST else [*range(MOST - 1), count - 1]


def _chain(
    scene: Scene,
    x: float,
    y: float,
    steps: Sequence[int],
    tokens: Sequence[str],
    states: Sequence[Array | None],
    colour: str,
    letter: str,
    *,
    linked: bool = True,
) -> list[float]:
    """Draw a chain of some steps' states over their tokens, and return their places."""
    places = []
    for i, step in enumerate(steps):
        token, state = tokens[step], states[step]
        at = x + 84 * i
        places.append(at)
        scene.box(at - 31, y, 62, 52, fill="raised", line=colour)
        scene.words(at, y + 15, f"{letter}{step + 1}", size=13, bold=True)
        if state is not None:
            scene.strip(at - 25, y + 28, 50, 15, state[:UNITS].tolist(), most=1.0)
        scene.words(at, y + 92, visible(token), size=14)
        scene.arrow((at, y + 78), (at, y + 54), colour="blue")
        if i and linked and step > steps[i - 1] + 1:
            scene.words(at - 42, y + 31, "…", size=18, colour=colour)
        elif i and linked:
            scene.arrow((at - 53, y + 26), (at - 32, y + 26), colour=colour)
    return places


FITTING = {  # by where a decoder reads its source: the picture that is true of it
    "first state": "encoder-decoder",
    "every step": "context-at-each-step",
    "attention before the step": "soft-alignment",
    "attention after the step": "soft-alignment",
    "attention in every block": "transformer",
}


def _check_context(trace: Trace, name: str) -> None:
    """Raise a ValueError where the source enters the decoder in another way than a picture shows."""
    _with_source(trace)
    got = trace.model.get("family") or trace.model.get("name", "these arrays")
    context = _context(trace)
    if FITTING.get(context) == name:
        return
    if not context:
        raise ValueError(f"{name}: got {got}, of which it is not known how the source enters; expected a translator")
    how = {"first state": "only in its first state", "every step": "as one context at every step"}
    reads = how.get(context, f"by {context}")
    raise ValueError(f"{name}: got {got}, whose decoder reads the source {reads}; try {FITTING[context]}")


def _context(trace: Trace) -> str:
    """Return where a decoder reads its source, as `structure` names it; empty where that is not known."""
    return str(trace.model.get("structure", {}).get("context", ""))


def encoder_decoder(traces: Sequence[Trace], say: Say) -> Picture:
    """Return encoder and decoder with their live states: the source is the first state, and enters nowhere else."""
    _check_context(traces[0], "encoder-decoder")
    title = say("Encoder–decoder: the source as one context c", "编码器–解码器：源序列压缩成一个上下文 c")
    scene = begun(title, 560, 260, say("c is the first state of the decoder", "c 是解码器的初始状态"))
    middle, right = _two_chains(scene, traces[0], 130, say)
    scene.arrow((middle + 26, 156), (right[0] - 32, 156), colour="orange", width=2)
    return Picture(title, scene)


def context_at_each_step(traces: Sequence[Trace], say: Say) -> Picture:
    """Return encoder and decoder with their live states: one context enters the first state and every step."""
    _check_context(traces[0], "context-at-each-step")
    title = say("The context c enters every step of the decoder", "上下文 c 进入解码器的每一步")
    note = say("and the first state, and the output of each step", "以及初始状态和每一步的输出")
    scene = begun(title, 560, 350, note)
    middle, right = _two_chains(scene, traces[0], 220, say)
    scene.arrow((middle + 26, 246), (right[0] - 32, 246), colour="orange", width=2)
    for at in right:
        scene.arc((middle + 4, 221), (at - 18, 218), 50 + (at - middle) / 9, colour="orange", width=1.8, arrow=True)
    return Picture(title, scene)


def _two_chains(scene: Scene, trace: Trace, y: float, say: Say) -> tuple[float, list[float]]:
    """Draw the encoder's states, c and the decoder's states; return the places of c and of the decoder's."""
    source, target = _first_and_last(len(trace.source)), _first_and_last(len(trace.tokens))
    states = _states(trace, "encoder.", len(trace.source))
    texts = list(trace.source)
    if is_reversed := _reads_from_the_end(trace):
        texts, states = texts[::-1], states[::-1]
    left = _chain(scene, 70, y, source, texts, states, "accent", "h")
    middle = left[-1] + 105
    scene.arrow((left[-1] + 32, y + 26), (middle - 26, y + 26), colour="accent", width=2)
    scene.circle(middle, y + 26, 25, "c", fill="#f6e3d7", line="orange", size=20)
    right = _chain(scene, middle + 110, y, target, trace.tokens, _states(trace, "", len(trace.tokens)), "violet", "s")
    scene.width = max(scene.width, right[-1] + 70)
    for at, step in zip(right, target, strict=True):
        if step < len(trace.outcomes):
            scene.arrow((at, y), (at, y - 24), colour="green")
            scene.words(at, y - 40, visible(trace.outcomes[step]), size=14, bold=True)
    below = say("source, read from its end", "源，从末尾读起") if is_reversed else say("source", "源")
    scene.words(left[0] - 30, y + 118, below, size=13, colour="soft", anchor="start")
    read = say("target, read one step later", "目标，晚一步读入")
    scene.words(right[0] - 30, y + 118, read, size=13, colour="soft", anchor="start")
    scene.width = max(scene.width, right[0] + 180)
    return middle, right


def _reads_from_the_end(trace: Trace) -> bool:
    """Return whether every layer of the encoder reads its source backwards."""
    own = [one for one in trace.layers if one["name"].startswith("encoder.")]
    return bool(own) and all(is_backward(trace, one["name"]) for one in own)


def soft_alignment(traces: Sequence[Trace], say: Say, *, outcome: int = 0) -> Picture:
    """Return how one step of a decoder weighs the states of the source: c_t = Σ a_ts h_s."""
    trace = traces[0]
    _with_source(trace)
    if "alignment" not in trace:
        raise ValueError("soft-alignment: this model does not attend to its source; try bahdanau, luong or transformer")
    weights = trace["alignment"][outcome]
    kept = np.sort(np.argsort(-weights, kind="stable")[:MOST])
    text = visible(trace.outcomes[outcome])
    title = say(f"Soft alignment: what “{text}” looks at", f"软对齐：生成“{text}”时看向哪里")
    states = _states(trace, "encoder.", len(trace.source))
    scene = begun(title, max(84 * len(kept) + 130, 560), 440, _alignment_note(trace, say))
    places = _chain(scene, 80, 300, kept.tolist(), trace.source, states, "accent", "h", linked=False)
    if said := heaviest(len(kept), len(weights), say):
        scene.words(50, 424, said, size=13, colour="soft", anchor="start")
    centre = (places[0] + places[-1]) / 2
    scene.circle(centre, 176, 24, f"c{outcome + 1}", fill="#f6e3d7", line="orange", size=16)
    for at, weight in zip(places, weights[kept], strict=True):
        scene.arrow(
            (at, 300),
            (centre + (at - centre) * 0.06, 201),
            colour="orange",
            width=1 + 6 * float(weight),
            opacity=round(0.18 + 0.82 * float(weight), 3),
        )
        scene.words(at + (centre - at) * 0.25, 268, f"{weight:.2f}", size=13, bold=bool(weight == weights.max()))
    scene.arrow((centre + 25, 176), (centre + 92, 176), colour="orange", width=2)
    scene.box(centre + 94, 152, 66, 48, f"{_reader(trace)}{outcome + 1}", fill="raised", line="violet", size=16)
    scene.arrow((centre + 127, 152), (centre + 127, 118), colour="green", width=2)
    scene.words(centre + 127, 100, text, size=17, bold=True)
    return Picture(title, scene)


def _alignment_note(trace: Trace, say: Say) -> str:
    """Return the equations of an alignment, and whether its weights are a mean."""
    used = set(trace.model.get("structure", {}).get("attention", ()))
    others = {kind.__name__ for name, kind in ALIGNMENTS.items() if name != "soft"}
    align = "align" if used & others else "softmax"
    note = f"c_t = Σ_s a_{{ts}} h_s,   a_t = {align}(e_t)"
    if _context(trace) == "attention in every block":
        note += say("   (mean of heads and layers)", "（各头与各层的平均）")
    return note


def _reader(trace: Trace) -> str:
    """Return the letter of what a context enters: the state, or what is computed from state and context."""
    letters = {"attention after the step": "h̃", "attention in every block": "y"}
    return letters.get(_context(trace), "s")


def beam_tree(
    traces: Sequence[Trace], say: Say, *, hypotheses: Sequence[tuple[Sequence[str], Sequence[float]]] = ()
) -> Picture:
    """Return what a beam search found as a tree: each hypothesis is its texts and the log probability of each."""
    if not hypotheses:
        raise ValueError(
            "hypotheses: got none, expected texts and log probabilities, as rc.hypotheses(run, text) returns"
        )
    title = say("What beam search kept", "束搜索保留的路径")
    widest = max(len(texts) for texts, _ in hypotheses)
    column = max(70.0, 26 + 9.5 * max(letters(visible(t)) for texts, _ in hypotheses for t in texts))
    scene = begun(title, 90 + column * widest + 110, 90 + 44 * len(hypotheses) + 20)
    best = max(sum(logs) for _, logs in hypotheses)
    begin = (52.0, 80 + 22 * len(hypotheses))
    scene.circle(*begin, 9, fill="accent", line="paper")
    known: dict[tuple[str, ...], tuple[float, float]] = {(): begin}
    ordered = sorted(hypotheses, key=lambda one: tuple(one[0]))
    for row, (texts, logs) in enumerate(ordered):
        y = 90 + 44 * row + 10
        total = sum(logs)
        for depth, (text, log) in enumerate(zip(texts, logs, strict=True)):
            path = tuple(texts[: depth + 1])
            if path in known:
                continue
            x0, y0 = known[path[:-1]]
            x = 90 + column * depth + column / 2
            known[path] = (x, y)
            half = 6 + 4.4 * letters(visible(text))
            gap = 9.0 if depth == 0 else 6 + 4.4 * letters(visible(texts[depth - 1]))
            p = float(np.exp(log))
            is_best = total == best
            scene.line((x0 + gap, y0), (x - half, y), colour="accent" if is_best else "soft", width=1 + 3 * p)
            scene.words(x, y, visible(text), size=15, bold=is_best)
            scene.words(x, y + 15, f"{p:.2f}", size=10.5, colour="soft")
        x_end, _ = known[tuple(texts)]
        end = max(x_end + 40, 90 + column * widest)
        scene.words(
            end, y, f"ln p = {total:.2f}", size=13, colour="accent" if total == best else "soft", anchor="start"
        )
    return Picture(title, scene)
