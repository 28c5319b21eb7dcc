"""Counters of the server, in the text format that Prometheus reads."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import TypeAlias

Labels: TypeAlias = tuple[tuple[str, str], ...]
SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
HELP = {
    "recollect_requests_total": "Answers, by route and status.",
    "recollect_tokens_total": "Symbols of prompts read, and generated.",
    "recollect_request_seconds": "Time of a request.",
    "recollect_first_token_seconds": "Time from a request to its first text.",
    "recollect_token_gap_seconds": "Time between two texts of one stream.",
}


class Histogram:
    """How many values were at most each bound, and their sum."""

    def __init__(self) -> None:
        self.counts = [0] * (len(SECONDS) + 1)
        self.sum = 0.0

    def add(self, value: float) -> None:
        """Count a value."""
        self.counts[bisect_left(SECONDS, value)] += 1
        self.sum += value


class Metrics:
    """All counters and histograms; used in the event loop's thread only."""

    def __init__(self) -> None:
        self.counters: dict[str, dict[Labels, float]] = defaultdict(lambda: defaultdict(float))
        self.histograms = {name: Histogram() for name in HELP if name.endswith("_seconds")}

    def count(self, name: str, amount: float = 1, **labels: str) -> None:
        """Add to a counter."""
        self.counters[f"recollect_{name}"][tuple(labels.items())] += amount

    def observe(self, name: str, seconds: float) -> None:
        """Add to a histogram."""
        self.histograms[f"recollect_{name}"].add(seconds)

    def text(self, gauges: Mapping[str, Mapping[Labels, float]]) -> str:
        """Return everything as text, with the gauges of this moment."""
        lines: list[str] = []
        for kind, families in (("counter", self.counters), ("gauge", gauges)):
            for name, values in families.items():
                lines += _head(name, kind)
                lines += [f"{name}{_labelled(labels)} {value:.10g}" for labels, value in values.items()]
        for name, one in self.histograms.items():
            lines += [*_head(name, "histogram"), *_buckets(name, one)]
        return "\n".join(lines) + "\n"


def _head(name: str, kind: str) -> list[str]:
    return [f"# HELP {name} {HELP.get(name, 'At this moment.')}", f"# TYPE {name} {kind}"]


def _buckets(name: str, one: Histogram) -> Iterable[str]:
    below = 0
    for bound, count in zip((*SECONDS, float("inf")), one.counts, strict=True):
        below += count
        yield f'{name}_bucket{{le="{"+Inf" if bound == float("inf") else bound}"}} {below}'
    yield f"{name}_sum {one.sum:.10g}"
    yield f"{name}_count {below}"


def _labelled(labels: Labels) -> str:
    quoted = (f'{name}="{_escaped(value)}"' for name, value in labels)
    return f"{{{','.join(quoted)}}}" if labels else ""


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
