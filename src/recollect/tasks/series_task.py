"""What forecasting and filling gaps have in common: tables of series, their scales, and the card."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from recollect.core.settings import refuse_unused
from recollect.core.task import About, Assets
from recollect.data.series.series_data import SeriesData, SeriesFacts
from recollect.data.series.series_table import SeriesTable, read_series
from recollect.data.synthetic.series_generators import generate_series, is_generated_series

COLUMNS = ("target", "time", "series", "gaps")  # settings of tables


class SeriesTask:
    """Base of the tasks on time series; a task adds `windows_of`, which makes windows of a table."""

    shows_names: ClassVar[bool] = False  # a prediction is a table that names its series
    predicts_files: ClassVar[bool] = True
    noun: ClassVar[Mapping[str, str]]
    options: Any  # with target, time, series and gaps

    def open(self, source: str) -> SeriesData:
        """Read the series of a table, or generate a built-in one, and split them by time."""
        if is_generated_series(source):
            refuse_unused(self.options, COLUMNS, f"{source} is generated and has no columns to choose")
        return self.windows_of(self.table_of(source), None)

    def read(self, source: str, assets: Assets) -> SeriesData:
        """Read other series and split them as the run's were; a series that the run knows has the run's scale."""
        return self.windows_of(self.table_of(source), assets["series"])

    def table_of(self, source: str) -> SeriesTable:
        """Return the table of a file or of a built-in."""
        if is_generated_series(source):
            return generate_series(source)
        return read_series(source, **{name: getattr(self.options, name) for name in COLUMNS})

    def windows_of(self, table: SeriesTable, facts: SeriesFacts | None) -> SeriesData:
        """Return the windows of the three parts of a table, scaled by what is known of its series."""
        raise NotImplementedError

    def assets(self, dataset: SeriesData) -> Assets:
        """Return channels, frequency and scales."""
        return {"series": dataset.facts}

    def load_assets(self, folder: Path) -> Assets:
        """Read them back."""
        return {"series": SeriesFacts.load(folder / "series.json")}

    def about(self, dataset: SeriesData, model: Any) -> About:
        """Return the contents of the model card."""
        channels = len(dataset.table.channels)
        series = len(dataset.table.series)
        frequency = dataset.facts.frequency.name
        return About(
            noun=self.noun,
            symbols=frequency,
            vocabulary=channels,
            parts=(len(dataset.train), len(dataset.valid), len(dataset.test)),
            unit={"en": "windows", "zh": "个窗口"},
            memory=self.bytes_held(dataset, model),
            use="predict",
            data={
                "en": f"{series} series of {channels} channel{'s' if channels > 1 else ''}, a row every {frequency}",
                "zh": f"{series} 条序列，{channels} 个通道，频率 {frequency}",
            },
        )

    def bytes_held(self, dataset: SeriesData, model: Any) -> dict[int, int]:
        """Return the bytes that a model holds of one series, by the rows that it has read."""
        raise NotImplementedError
