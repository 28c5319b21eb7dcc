"""Built-in data small enough to open in every test, by the task that they are for."""

from __future__ import annotations

GENERATED = {
    "masked": "recall:count=1500",
    "classify": "kindness:count=120",
    "tag": "verbs:count=120",
    "match": "answers:count=80",
    "recommend": "tastes:users=20,films=20,each=8",
    "forecast": "seasons",
    "fill": "seasons",
}
