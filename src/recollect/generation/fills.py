"""A table whose missing values are filled: the same rows again, as .csv and as JSON."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from recollect.core.task import Answer, Prediction
from recollect.core.threads import pace
from recollect.data.error import DataError
from recollect.data.series.series_data import SeriesFacts, facts_of
from recollect.data.series.series_table import SeriesTable, TimeSeries
from recollect.generation.series_cells import cell, number
from recollect.models.gap_filling import GapFiller


@dataclass(frozen=True)
class Filled(Prediction):
    """One series with every value, and the cells that were filled.

    >>> run = rc.train("seasons", task="fill", budget="2steps", out=__import__("tempfile").mkdtemp() + "/run", width=8)
    >>> run.predict("seasons")[0].cells  # nothing is missing there
    ()
    """

    cells: tuple[dict[str, Any], ...] = ()

    def as_json(self) -> dict[str, Any]:
        """Return the filled cells as plain data."""
        return {"series": self.source, "filled": list(self.cells)}


def fill_table(model: GapFiller, facts: SeriesFacts, table: SeriesTable, rows: int, context: int) -> Iterator[Filled]:
    """Yield each series of a table with its gaps filled; raise for a gap of more than `rows` rows."""
    gaps = [_gaps(np.any(np.isnan(one.values), axis=1)) for one in table.series]
    for one, found in zip(table.series, gaps, strict=True):
        _check_gaps(table, one, found, rows)
    scales = facts_of(table, facts)
    for place, (one, found) in enumerate(zip(table.series, gaps, strict=True)):
        pace()
        values = _filled(model, scales, one, found, context)
        yield _in_words(table, one, values, is_first=place == 0)


def _gaps(is_missing: NDArray[Any]) -> list[tuple[int, int]]:
    """Return the first row and the row after the last of each run of rows with a missing value."""
    changes = np.diff(np.concatenate([[0], is_missing.astype(np.int8), [0]]))
    return list(zip(np.flatnonzero(changes == 1).tolist(), np.flatnonzero(changes == -1).tolist(), strict=True))


def _check_gaps(table: SeriesTable, one: TimeSeries, gaps: list[tuple[int, int]], rows: int) -> None:
    for begin, end in gaps:
        if end - begin > rows:
            where = f"{table.source}: " + (f"series {one.name!r}: " if one.name else "")
            first, last = (table.frequency.text(int(one.stamps[row])) for row in (begin, end - 1))
            raise DataError(
                f"{where}values are missing in {end - begin} rows, {first} to {last}; the run was trained to fill up "
                f"to {rows}: train one with --set gap={end - begin}"
            )


@torch.no_grad()
def _filled(
    model: GapFiller, scales: SeriesFacts, one: TimeSeries, gaps: list[tuple[int, int]], context: int
) -> NDArray[np.float64]:
    """Return the values of a series, each gap filled from the rows around it."""
    mean, deviation = scales.scale(one.name)
    device = next(model.parameters()).device
    scaled = (one.values - mean) / deviation
    found = one.values.copy()
    for begin, end in gaps:
        first = max(begin - context, 0)
        last = end if model.config.sides == "before" else end + context
        window = torch.from_numpy(scaled[first:last].astype(np.float32)).to(device)[None]
        observed = ~window.isnan()
        estimate = model.estimate(window.masked_fill(~observed, 0.0), observed)[0].double().cpu().numpy()
        inside = estimate[begin - first : end - first] * deviation + mean
        found[begin:end] = np.where(np.isnan(one.values[begin:end]), inside, one.values[begin:end])
    return found


def _in_words(table: SeriesTable, one: TimeSeries, values: NDArray[np.float64], *, is_first: bool) -> Filled:
    is_filled = np.isnan(one.values)
    stamps = [table.frequency.text(int(stamp)) for stamp in one.stamps]
    name = [one.name] if one.name else []
    head = ",".join([*(["series"] if name else []), "time", *map(cell, table.channels)])
    spreads = np.nanstd(one.values, axis=0).tolist()
    lines = []
    for stamp, row, marks in zip(stamps, values.tolist(), is_filled.tolist(), strict=True):
        numbers = [number(v, s) if m else f"{v:.15g}" for v, m, s in zip(row, marks, spreads, strict=True)]
        lines.append(",".join([*map(cell, name), stamp, *numbers]))
    cells = tuple(
        {"time": stamps[row], "channel": table.channels[channel], "value": float(values[row, channel])}
        for row, channel in zip(*np.nonzero(is_filled), strict=True)
    )
    text = "\n".join([head, *lines] if is_first else lines)
    return Filled(one.name, [Answer(text, 0.0, 0.0)], cells)
