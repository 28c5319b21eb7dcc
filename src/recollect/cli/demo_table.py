"""The demo on a terminal: a live table while the models train, and the final tables."""

from __future__ import annotations

import shlex
import shutil
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from recollect.cli.demo import DemoOutcome, Finding
from recollect.runs.card import sparkline
from recollect.story.notes import DISTANCES, TRAINED

REFRESH = 0.2  # seconds


@dataclass
class FamilyProgress:
    """How far the training of a family is."""

    seconds: float = 0.0
    losses: list[float] = field(default_factory=list)
    is_finished: bool = False


class LiveTable:
    """Shows every family's held-out loss during training; without a terminal, one line for each when it is finished."""

    def __init__(self, console: Console, budget: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.console = console
        self.budget = budget
        self.clock = clock
        self.rows: dict[str, FamilyProgress] = {}
        self.shown = -REFRESH
        # Drawn between two updates only: a drawing thread would take time from training.
        self.live = Live(console=console, auto_refresh=False, transient=True) if console.is_terminal else None

    def __enter__(self) -> LiveTable:
        if self.live:
            self.live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.live:
            self.live.stop()

    def learning(self, family: str, seconds: float, losses: list[float]) -> None:
        """Record a family's progress, and show it if the last refresh was long enough ago."""
        self.rows[family] = FamilyProgress(seconds, losses)
        if self.live and self.clock() - self.shown >= REFRESH:
            self.shown = self.clock()
            self.live.update(self.table(), refresh=True)

    def finished(self, finding: Finding) -> None:
        """Record that a family is finished."""
        self.rows[finding.family].is_finished = True
        if self.live:
            self.live.update(self.table(), refresh=True)
        else:
            self.console.print(
                f"{finding.family:<17} test loss {finding.loss:.3f} nats, {finding.speed:,.0f} characters/s, "
                f"notes {100 * finding.notes.accuracy[max(TRAINED)]:.0f} %",
                highlight=False,
            )

    def table(self) -> Table:
        """Return the current table."""
        table = Table(box=None, header_style="bold")
        for column in ("family", "trained", "held-out loss", ""):
            table.add_column(column, justify="right" if column in ("trained", "held-out loss") else "left")
        for family, row in self.rows.items():
            trained = f"{row.seconds:.1f} of {self.budget:g} s" if family != "markov" else "counted"
            loss, bars = (f"{row.losses[-1]:.3f}", sparkline(row.losses)) if row.losses else ("", "")
            table.add_row(family, trained, loss, bars, style="" if row.is_finished else "cyan")
        return table


def final_tables(outcome: DemoOutcome) -> Group:
    """Return the figures of every family, why the first is ahead, and what each generates."""
    generated = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    generated.add_column(no_wrap=True)
    generated.add_column(overflow="fold")
    for finding in outcome.findings:
        generated.add_row(finding.family, Text(finding.said))
    why = Text("\n".join(outcome.outlook.sentences()))
    return Group(_figures(outcome), Text(), _notes(outcome), Text(), why, Text(), generated)


def next_steps(outcome: DemoOutcome) -> str:
    """Return where the page and the runs are, in lines that are not wrapped, to be copied."""
    folder = shlex.quote(str(outcome.demo.out))
    run = shlex.quote(str(outcome.demo.out / outcome.best.family))
    return (
        f"The page: {outcome.demo.out / 'report.html'}\n"
        f"Next: {program()} generate {run} {outcome.demo.prompt!r}\n"
        f"Look inside: {program()} inspect {folder} --open"
    )


def program() -> str:
    """Return how this command line is called: by its name, or by its path where the shell does not find the name.

    `make demo` runs it from .venv/bin, which is on no one's path.
    """
    path = Path(sys.argv[0])
    is_found = path.name != "recollect" or len(path.parts) == 1 or shutil.which("recollect") is not None
    return "recollect" if is_found else shlex.quote(sys.argv[0])


def _figures(outcome: DemoOutcome) -> Table:
    demo = outcome.demo
    times = f"{demo.seconds:g} training seconds each, {outcome.seconds:.0f} s in total"
    title = f"{demo.data}, {times}; test loss per character"
    table = Table(title=title, title_justify="left", box=None, header_style="bold", padding=(0, 2, 0, 0))
    table.add_column("family", no_wrap=True)
    for column in ("nats", "bits", "parameters", "chars/s", "bytes: 1k", "16k read"):
        table.add_column(column, justify="right", no_wrap=True)
    for f in outcome.findings:
        counts = (f.parameters, f.speed, f.bytes[1024], f.bytes[16384])
        row = [f"{f.loss:.3f}", f"{f.bits:.3f}", *(f"{n:,.0f}" for n in counts)]
        table.add_row(f.family, *row, style="bold green" if f is outcome.best else "")
    table.add_row("(unigram)", f"{outcome.unigram:.3f}", f"{outcome.unigram_bits:.3f}", style="dim")
    return table


def _notes(outcome: DemoOutcome) -> Table:
    title = "Right answers in %, by letters between a note and the question (10: guessing)"
    table = Table(title=title, title_justify="left", box=None, header_style="bold", padding=(0, 2, 0, 0))
    table.add_column("family", no_wrap=True)
    for distance in DISTANCES:
        table.add_column(str(distance), justify="right", no_wrap=True)
    for f in outcome.findings:
        table.add_row(f.family, *(f"{100 * share:.0f}" for share in f.notes.accuracy.values()))
    return table
