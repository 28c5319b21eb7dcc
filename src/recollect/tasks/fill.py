"""Filling gaps: missing values of a series, from the rows on both sides of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from recollect.core.memory import Memory
from recollect.core.settings import CheckedSettings, setting
from recollect.core.task import Assets, Baseline, Batches, ItemScores, Loss, Scores, TaskDefaults
from recollect.core.types import JsonMapping
from recollect.data.error import DataError
from recollect.data.series.gaps import GapBatch, GapBatches, hide, middle_gap
from recollect.data.series.series_data import PartTooShort, SeriesData, SeriesFacts, load_series
from recollect.data.series.series_table import GAPS, SeriesTable
from recollect.evaluation.gap_metrics import GAP_MEASURES, filler_of, gap_items, gap_scores, naive_fills
from recollect.generation.fills import Filled, fill_table
from recollect.models.gap_filling import FILLERS, FillConfig, GapFiller
from recollect.models.language import BLOCKS
from recollect.tasks.series_task import SeriesTask

SIZES = {"tiny": (64, 1), "small": (128, 2), "base": (256, 3)}  # width and layers; blocks have one layer more
SHOWN = 6  # values in a line of a sample


@dataclass(frozen=True)
class FillOptions(CheckedSettings):
    """Settings of a run that fills gaps."""

    target: str | None = setting(None, help="the columns to fill, commas between; by default all numbers")
    gap: int = setting(4, least=1, help="rows of the longest gap that is learned and filled")
    context: int = setting(16, least=1, help="rows that are read on each side of a gap")
    time: str | None = setting(
        None, help="the column of time stamps, none to count rows; by default found by name or dates"
    )
    series: str | None = setting(None, help="the column that tells many series in one file apart")
    split: str = setting("0.7,0.1,0.2", help="train, valid and test by time: shares or numbers of rows")
    gaps: str = setting("mask", choices=GAPS, help="missing rows: fill them too, or refuse them")
    season: int | None = setting(None, least=1, help="steps of a season; by default that of the frequency")
    batch_size: int = setting(32, least=1, help="windows in a batch")


class FillTask(SeriesTask, TaskDefaults):
    """Estimate values that are missing inside a series."""

    name: ClassVar[str] = "fill"
    Options: ClassVar[type] = FillOptions
    Config: ClassVar[type] = FillConfig
    families: ClassVar[tuple[str, ...]] = FILLERS
    default_model: ClassVar[str] = "gru"
    noun: ClassVar[Mapping[str, str]] = {"en": "A filler of gaps in time series", "zh": "时间序列缺失值填补模型"}
    options: FillOptions

    def __init__(self, options: FillOptions | None = None) -> None:
        super().__init__(options or FillOptions())

    def windows_of(self, table: SeriesTable, facts: SeriesFacts | None) -> SeriesData:
        """Return windows of rows before, in and after a gap; the gap and what follows lie in the part."""
        options = self.options
        before = options.context
        after = options.gap + options.context
        try:
            return load_series(table, facts, lookback=before, horizon=after, split=options.split, season=options.season)
        except PartTooShort as error:
            needed = after + (before if error.part == "train" else 0)
            raise DataError(
                f"{table.source}: a gap of {options.gap} rows and {before} rows of context need {needed} rows of "
                f"values in the {error.part} part, which has {error.rows}; shorten them (--set context="
                f"{max(error.rows // 3, 1)}), change --set split, or give more data"
            ) from error

    @classmethod
    def settings(cls, family: str) -> tuple[str, ...]:
        """Return the names of the model settings that a family uses."""
        return ("sides", "width", "layers", "dropout", *(("heads",) if family in BLOCKS else ()))

    def config(self, family: str, size: str, dataset: SeriesData, settings: JsonMapping) -> FillConfig:
        """Return a family's config."""
        width, layers = SIZES[size]
        return FillConfig(
            family,
            dataset.rows.values.shape[1],
            season=dataset.facts.season,
            **{"width": width, "layers": layers + (family in BLOCKS)} | dict(settings),
        )

    def build(self, config: JsonMapping) -> GapFiller:
        """Return a model with new weights."""
        return GapFiller(FillConfig(**config))

    def batches(self, dataset: SeriesData, model: GapFiller, seed: int) -> Batches:
        """Return windows of the training part, each with a gap at a place that is drawn."""
        is_open = model.config.sides == "before"
        return GapBatches(dataset.train, self.options.gap, self.options.batch_size, seed, is_open=is_open)

    def loss(self, model: GapFiller, batch: GapBatch, memory: Memory | None) -> Loss:
        """Return the squared error of the hidden values, a mean for each window."""
        error = (model.estimate(batch.values, batch.observed) - batch.targets).masked_fill(~batch.hidden, 0.0)
        return Loss((error.square().sum((1, 2)) / batch.hidden.sum((1, 2)).clamp(min=1)).sum(), len(error))

    def measure(self, model: GapFiller, dataset: SeriesData, split: str, limit: int | None = None) -> Scores:
        """Return the errors over all windows of a part, a gap of the full length in the middle of each."""
        was_training = model.training
        part = getattr(dataset, split)
        is_open = model.config.sides == "before"
        found = gap_scores(filler_of(model.eval()), part, self.options.gap, is_open=is_open, limit=limit)
        model.train(was_training)
        return Scores(GAP_MEASURES, {"gaps": found})

    def evaluate(self, model: GapFiller, dataset: SeriesData, assets: Assets, steps: int | None = None) -> Scores:
        """Return the errors of the test part, and those of estimates that need no training."""
        own = self.measure(model, dataset, "test", steps).rows["gaps"]
        rows = {model.config.family: own}
        for name, fill in naive_fills(dataset.facts.season).items():
            rows[f"({name})"] = gap_scores(fill, dataset.test, self.options.gap, is_open=False, limit=steps)
        return Scores(GAP_MEASURES, rows, {"windows": min(len(dataset.test), steps or len(dataset.test))})

    def item_scores(self, model: GapFiller, dataset: SeriesData, split: str) -> ItemScores:
        """Return the error of `measure` by neighbouring windows, and by place in the gap."""
        was_training = model.training
        is_open = model.config.sides == "before"
        found = gap_items(filler_of(model.eval()), getattr(dataset, split), self.options.gap, is_open=is_open)
        model.train(was_training)
        return found

    def baselines(self, dataset: SeriesData) -> list[Baseline]:
        """Return the errors of estimates that need no training."""
        return [
            Baseline(name, gap_scores(fill, dataset.test, self.options.gap, is_open=False)["mse"])
            for name, fill in naive_fills(dataset.facts.season).items()
        ]

    def predict(self, model: GapFiller, assets: Assets, inputs: str) -> Iterator[Filled]:
        """Return each series of a table with its missing values filled."""
        return fill_table(model, assets["series"], self.table_of(inputs), self.options.gap, self.options.context)

    def sample(self, model: GapFiller, dataset: SeriesData) -> tuple[str, str]:
        """Return the source, and of the first window of the validation part the hidden values and the estimates."""
        windows = dataset.valid.gather(np.zeros(1, dtype=np.int64))
        batch = hide(windows, middle_gap(windows, self.options.gap), is_open=model.config.sides == "before")
        was_training = model.training
        found = filler_of(model.eval())(batch).detach()
        model.train(was_training)
        mean, deviation = dataset.facts.scale(dataset.table.series[int(batch.series[0])].name)
        first = self.options.context
        inside = slice(first, first + min(self.options.gap, SHOWN))
        lines = [
            " ".join(f"{v:.4g}" for v in (rows[0, inside, 0] * deviation[0] + mean[0]).tolist())
            for rows in (batch.targets, found)
        ]
        return dataset.table.source, ": " + " → ".join(lines)

    def bytes_held(self, dataset: SeriesData, model: GapFiller) -> dict[int, int]:
        """Return the bytes of a window's values and of which of them are known."""
        window = dataset.train.lookback + dataset.train.horizon
        return {window: 2 * 4 * window * len(dataset.table.channels)}
