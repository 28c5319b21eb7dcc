"""What the diagrams share: a titled scene, small numbers, and which step a layer read before another."""

from __future__ import annotations

from recollect.core.types import JsonObject
from recollect.inspection.trace import Array, Trace
from recollect.views.plots import letters, visible
from recollect.views.scene import Scene

SHOWN = 6  # steps of an unrolled model
UNITS = 8  # of a state, in a strip


def begun(title: str, width: float, height: float, note: str = "") -> Scene:
    """Return a scene with a title, and a quieter line below it; wide enough for both."""
    scene = Scene(max(width, 48 + 10.5 * letters(title), 48 + 7.6 * letters(note)), height, title)
    scene.words(24, 28, title, size=17, anchor="start", bold=True)
    if note:
        scene.words(24, 52, note, size=13, colour="soft", anchor="start", formula=True)
    return scene


def sub(number: int) -> str:
    """Return a number as a subscript."""
    return str(number).translate(str.maketrans("0123456789", "₀₁₂₃₄₅₆₇₈₉"))


def facts_of(trace: Trace, layer: str) -> JsonObject:
    """Return what is known of a layer; nothing of arrays that came without."""
    return next((one for one in trace.layers if one["name"] == layer), {})


def is_backward(trace: Trace, layer: str) -> bool:
    """Return whether a layer reads from the end."""
    return facts_of(trace, layer).get("direction") == "backward"


def state_before(trace: Trace, layer: str, value: str, t: int) -> Array | None:
    """Return a layer's state before it read token t: zeros before the first; None where that is not in the trace."""
    states = trace[f"{layer}.{value}"]
    past = t + 1 if is_backward(trace, layer) else t - 1
    if 0 <= past < len(states):
        return states[past]
    return None if trace.skipped and past < 0 else states[t] * 0


def expected(trace: Trace, t: int) -> str:
    """Return the likeliest token after token t and its probability, or y where tokens are not predicted."""
    if "next.texts" not in trace:
        return "y"
    return f"“{visible(str(trace['next.texts'][t, 0]))}” {trace['next.probabilities'][t, 0]:.2f}"


def target(trace: Trace, t: int) -> str | None:
    """Return the token that a model is trained to predict at token t; None: another task, or it is not known."""
    if trace.model.get("kind") not in ("language", "translate", "caption"):
        return None
    if t + 1 < len(trace.tokens):
        return visible(trace.tokens[t + 1])
    return visible(trace.outcomes[t]) if trace.source and t < len(trace.outcomes) else None
