"""The progress of a training: a live display on a terminal, plain lines elsewhere, or rows of JSON."""

from __future__ import annotations

import json
import sys
import time
from collections import deque
from collections.abc import Callable
from typing import TextIO

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from recollect.core.types import JsonObject as Row

WHILE = 5.0  # seconds of training over which the speed is measured
SMOOTH = 20  # updates over which the training loss is averaged
PAUSE = 0.25  # seconds between two refreshes of the display, at least


def is_evaluation(row: Row) -> bool:
    """Return whether a row is of an evaluation: it holds a validation score."""
    return any(name.startswith("valid_") for name in row)


class Figures:
    """The figures to display, from the rows of metrics so far."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.clock = clock
        self.step = 0
        self.share = 0.0
        self.seconds = 0.0
        self.sample = ""
        self.loss: float | None = None
        self.valid: float | None = None
        self.best: float | None = None
        self.memory: int | None = None
        self.unknown = 0.0  # share of the validation part's symbols that the loss leaves out
        self._updates = 0
        self._recent: deque[tuple[float, int]] = deque()  # seconds of training, symbols read
        self._begun: tuple[float, float] | None = None  # the clock and the share at the first row

    def take(self, row: Row) -> None:
        """Add one row, of an update or of an evaluation."""
        self.step = row["step"]
        self.share = row.get("share", self.share)
        self._begun = self._begun or (self.clock(), self.share)
        score = next((name for name in row if name.startswith("valid_")), None)
        if score is not None:
            self.valid = row[score]
            self.best = row.get("best", self.valid)
            self.memory = row.get("memory_bytes")
            self.unknown = row.get("valid_unknown", 0.0)
            self.sample = row.get("sample", "")
            return
        self._updates += 1
        before = row["train_loss"] if self.loss is None else self.loss
        self.loss = before + (row["train_loss"] - before) / min(self._updates, SMOOTH)
        self.seconds = row["seconds"]
        self._recent.append((self.seconds, row["tokens"]))
        while len(self._recent) > 2 and self._recent[1][0] < self.seconds - WHILE:
            self._recent.popleft()

    @property
    def speed(self) -> float | None:
        """Symbols per second over the last seconds of training."""
        if len(self._recent) < 2:
            return None
        (begun, before), (now, after) = self._recent[0], self._recent[-1]
        return (after - before) / max(now - begun, 1e-9)

    @property
    def left(self) -> float | None:
        """Seconds until the budget is spent, at the mean speed since the first row, evaluations included."""
        if self._begun is None or self.share <= self._begun[1]:
            return None
        return (self.clock() - self._begun[0]) * (1 - self.share) / (self.share - self._begun[1])

    def words(self) -> list[str]:
        """Return the known figures, each with its name."""
        words = [f"step {self.step:>6}"]
        words += [] if self.valid is None else [f"valid {self.valid:.4f}", f"best {self.best:.4f}"]
        words += [f"unknown {self.unknown:.2%}"] if self.unknown else []
        if self.loss is not None:
            words += [f"train {self.loss:.4f}", f"{self.seconds:.1f} s"]
        words += [] if self.speed is None else [f"{self.speed:,.0f} tokens/s"]
        words += [] if self.memory is None else [f"memory {bytes_in_words(self.memory)}"]
        return words + ([] if self.left is None else [f"{time_in_words(self.left)} left"])


class JsonRows:
    """Every row as a line of JSON."""

    def show(self, row: Row) -> None:
        """Print a row."""
        print(json.dumps(row, ensure_ascii=False), flush=True)

    def close(self) -> None:
        """Do nothing."""


class PlainLines:
    """Every evaluation as a line, and the model's sample on the next line."""

    def __init__(self) -> None:
        self.figures = Figures()

    def show(self, row: Row) -> None:
        """Add a row, and print an evaluation."""
        self.figures.take(row)
        if is_evaluation(row):
            print("  ".join(self.figures.words()), flush=True)
            if self.figures.sample:
                print(f"  │ {on_one_line(self.figures.sample)}", flush=True)

    def close(self) -> None:
        """Do nothing."""


class LiveDisplay:
    """A bar, the figures and the newest sample, refreshed at most four times a second; evaluations remain above it."""

    def __init__(self, stream: TextIO) -> None:
        self.figures = Figures()
        self._drawn = 0.0
        # No thread: it would take time from training, and the display changes with a row only.
        self._live = Live(console=Console(file=stream), auto_refresh=False)

    def show(self, row: Row) -> None:
        """Add a row, and draw it if the last refresh was long enough ago."""
        self.figures.take(row)
        if not self._live.is_started:
            self._live.start()  # with the first row, so that notices about the data are printed above
        if is_evaluation(row):
            self._live.console.print(Text("  ".join(self.figures.words()), style="dim"))
        if time.monotonic() - self._drawn >= PAUSE:
            self._draw()

    def close(self) -> None:
        """Draw the last state, and release the terminal."""
        if self._live.is_started:
            self._draw()
            self._live.stop()

    def _draw(self) -> None:
        self._live.update(draw(self.figures), refresh=True)
        self._drawn = time.monotonic()


def draw(figures: Figures) -> Group:
    """Return the bar of the budget's share, the figures, and the newest sample."""
    bar = Table.grid(padding=(0, 2))
    left = "" if figures.left is None else f"{time_in_words(figures.left)} left"
    bar.add_row(ProgressBar(total=1.0, completed=figures.share, width=40), f"{figures.share:4.0%}", left)
    words = [word for word in figures.words() if not word.endswith(" left")]
    sample = Text(on_one_line(figures.sample), style="italic", no_wrap=True, overflow="ellipsis")
    return Group(bar, Text("  ".join(words), no_wrap=True, overflow="ellipsis"), sample)


class EvaluationLine:
    """One line on a terminal's standard error that shows how far an evaluation is; elsewhere nothing."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._is_shown = stream.isatty()
        self._drawn = 0.0
        self._width = 0

    def show(self, what: str, done: int, total: int) -> None:
        """Draw the share that is done, at most four times a second."""
        if self._is_shown and time.monotonic() - self._drawn >= PAUSE:
            self._drawn = time.monotonic()
            text = f"{what}: {done / max(total, 1):.0%} of {total:,}"
            self._stream.write("\r" + text.ljust(self._width))
            self._stream.flush()
            self._width = len(text)

    def close(self) -> None:
        """Remove the line."""
        if self._width:
            self._stream.write("\r" + " " * self._width + "\r")
            self._stream.flush()


def reporter(as_json: bool) -> JsonRows | PlainLines | LiveDisplay:
    """Return the display of a training: JSON if `as_json`, live on a terminal, else plain lines."""
    if as_json:
        return JsonRows()
    return LiveDisplay(sys.stdout) if sys.stdout.isatty() else PlainLines()


# ---- formats -----------------------------------------------------------------------------------------


def printable(text: str, keep: str = "\n\t") -> str:
    """Replace control characters by a dot: a model may generate any."""
    return "".join(c if c.isprintable() or c in keep else "·" for c in text)


def on_one_line(text: str) -> str:
    """Replace line ends and tabs by visible signs."""
    return printable(text.replace("\n", "⏎").replace("\t", "→"), keep="")


def time_in_words(seconds: float) -> str:
    """Return 7.51 as 7.5 s, 75 as 1:15, and 3700 as 1:01:40."""
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def bytes_in_words(count: float) -> str:
    """Return 2048 as 2.0 KiB."""
    for unit in ("B", "KiB", "MiB"):
        if count < 1024:
            return f"{count:.0f} B" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} GiB"
