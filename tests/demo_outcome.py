"""A demo's outcome with every part of the page in it, made without training."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from recollect.cli.demo import STEPS, Demo, DemoOutcome, Finding
from recollect.models.language import FAMILIES
from recollect.story.notes import DISTANCES, Grade, Inside
from recollect.story.outlook import Outlook

LINE = tuple("G3jrqqfpunhvgwzqyk#")


def finding(family: str = "lstm", loss: float = 2.0, said: str = "The end.") -> Finding:
    sizes = {steps: 100 * (steps if family == "transformer" else 1) for steps in STEPS}
    notes = Grade(family, 900, dict.fromkeys(DISTANCES, 0.1 if family in ("markov", "window") else 1.0))
    curve = ((0.0, 4.6), (15.0, loss))
    return Finding(family, loss, loss / 0.693, 250_000, 15.0, 40_000.0, sizes, said, curve, notes)


def outlook(*losses: float, counter_loss: float = 1.2) -> Outlook:
    ends = tuple(zip((0.9375, 3.75, 15.0), losses or (2.1, 1.6, 1.27), strict=True))
    return Outlook("markov", counter_loss, 0.14, 4, "gru", ends, passes=3.4)


def outcome(*findings: Finding, **changes: Any) -> DemoOutcome:
    attention = tuple(tuple(1.0 if column == row else 0.0 for column in range(len(LINE))) for row in range(len(LINE)))
    gates = tuple((0.8, 0.9, *(0.4 for _ in LINE[3:]), 0.8) for _ in range(2))
    names = ("body.layers.1.input_gate", "body.layers.1.forget_gate")
    made: dict[str, Any] = {
        "demo": Demo(Path("some place")),
        "characters": {"train": 9000, "valid": 500, "test": 500},
        "unigram": 3.2,
        "findings": findings or (finding(),),
        "attention": Inside("transformer", "body.layers.1.mixer.weights[0, 0]", LINE, attention, "3", "3"),
        "gates": tuple(Inside("lstm", name, LINE, (row,), "3", "3") for name, row in zip(names, gates, strict=True)),
        "outlook": outlook(),
        "seconds": 200.0,
        "machine": "a machine",
    }
    return DemoOutcome(**{**made, **changes})


def whole_line() -> DemoOutcome:
    """Return the outcome of all families, with losses that end close together."""
    said = "The " + "__unbroken__" * 6 + " <b>end</b>"
    return outcome(*(finding(family, 1.2 + 0.02 * i, said) for i, family in enumerate(FAMILIES)))
