"""A comparison on a terminal: a live table while the cells run, and the results."""

from __future__ import annotations

import time
from types import TracebackType

from rich.console import Console
from rich.live import Live
from rich.table import Table

from recollect.comparison.outcome import Comparison, in_words, micros_in_words
from recollect.comparison.processes import CellProgress
from recollect.runs.progress import bytes_in_words

REFRESH = 1.0  # seconds


class LiveCells:
    """Shows every cell's state and figure; without a terminal, one line for each when it has ended."""

    def __init__(self, console: Console, is_quiet: bool = False) -> None:
        self.console = console
        self.is_quiet = is_quiet
        self.shown = 0.0
        self.told: set[str] = set()
        is_live = console.is_terminal and not is_quiet
        self.live = Live(console=console, auto_refresh=False, transient=True) if is_live else None

    def __enter__(self) -> LiveCells:
        if self.live:
            self.live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.live:
            self.live.stop()

    def look(self, progress: CellProgress) -> None:
        """Show how far the cells are."""
        if self.is_quiet:
            return
        if self.live is None:
            for name, state in progress.states.items():
                if state not in ("waiting", "running") and name not in self.told:
                    self.told.add(name)
                    self.console.print(f"{name:<32} {state}", highlight=False)
            return
        if time.monotonic() - self.shown >= REFRESH:
            self.shown = time.monotonic()
            self.live.update(self._table(progress), refresh=True)

    def _table(self, progress: CellProgress) -> Table:
        table = Table(box=None, header_style="bold")
        for column in ("training", "state", "updates", "seconds", "validation"):
            table.add_column(column, justify="left" if column in ("training", "state") else "right")
        for name, state in progress.states.items():
            row = progress.last_row(name) if state in ("running", "done") else {}
            valid = next((f"{value:.4g}" for key, value in row.items() if key.startswith("valid_")), "")
            seconds = f"{row['seconds']:.1f}" if "seconds" in row else ""
            table.add_row(name, state, f"{row['step']:,}" if "step" in row else "", seconds, valid)
        return table

    def results(self, found: Comparison) -> Table:
        """Return the table of the results."""
        table = Table(box=None, header_style="bold")
        columns = (
            "model",
            str(found.measure.get("measure", "")),
            "parameters",
            "symbols/s",
            "peak",
            "memory",
            "µs/symbol",
        )
        for column in columns:
            table.add_column(column, justify="left" if column == "model" else "right", no_wrap=column != "memory")
        for row in found.rows:
            if not row.values:
                table.add_row(row.name, "left out", style="dim")  # a sentence below tells why
                continue
            figures = row.figures
            held = row.bytes_typical
            table.add_row(
                f"[bold]{row.name}[/bold]" if row.name == found.judged.winner else row.name,
                in_words(row) + (f" ({len(row.values)} of {row.cells})" if row.problems else ""),
                f"{figures['parameters']:,.0f}",
                f"{figures['speed']:,.0f}" if "speed" in figures else "",
                bytes_in_words(int(figures["peak_bytes"])),
                "" if held is None else bytes_in_words(int(held)),
                micros_in_words(row),
            )
        for one in found.baselines:
            table.add_row(f"({one.name})", f"{one.value:.4g}", style="dim")
        return table
