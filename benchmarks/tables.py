"""Helpers for tables of figures in two languages."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

Result = dict[str, Any]
Say = Callable[[str], str]

MACHINE = "{cpu}, {cores} cores, {memory_gib} GiB"
SOURCE = "{machine}; Python {python}, torch {torch}, recollect {recollect}; {date}; command: `{command}`"
# that read texts of others
NEED_DATA = (
    "markov",
    "pretrained",
    "characters",
    "ptb",
    "nanogpt",
    "captions",
    "defaults",
    "multi30k",
    "kernel-training",
    "kernel-losses",
    "ratings",
    "threads",
    "series-ett",
    "series-classics",
    "transfer-minilm",
)
CHOICE = re.compile(r" --(quick|(only|size|at-once|axis) .*?)(?= --|$)")  # of some rows among all
CHINESE = {
    MACHINE: "{cpu}，{cores} 核，{memory_gib} GiB",
    SOURCE: "{machine}；Python {python}，torch {torch}，recollect {recollect}；{date}；命令：`{command}`",
}


def table(head: list[str], rows: list[list[str]], texts: int) -> str:
    """Write a table whose first columns are text, flush left, and whose others are numbers, flush right."""
    rule = ["---" if i < texts else "---:" for i in range(len(head))]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in [head, rule, *rows])


def at_most(value: float) -> str:
    """Write a bound with two digits, rounded up: it must hold."""
    if value == 0:
        return "0"
    digit = 10.0 ** (math.floor(math.log10(value)) - 1)
    return f"{math.ceil(value / digit) * digit:.1e}"


def join(table: str, note: str, result: Result, say: Say) -> str:
    """Add the small line below a table: what was measured, where and how."""
    facts = result["machine"]
    machine = (f"{facts['gpu']}; " if "gpu" in facts else "") + say(MACHINE).format(**facts)
    command = CHOICE.sub(
        "", result["command"]
    )  # rows that were not run again are kept: the full result has all of them
    if result["name"] in NEED_DATA or result["name"].startswith("labels-"):
        command = f"RECOLLECT_DATA=FOLDER {command.removeprefix('RECOLLECT_DATA=FOLDER ')}"
    source = say(SOURCE).format(machine=machine, date=result["date"], command=command, **result["versions"])
    return f"{table}\n\n<sub>{note} {source}</sub>"
