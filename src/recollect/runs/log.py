"""The log of a training: every metric, and at each evaluation a sample of the model."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Protocol, cast

from torch import nn

from recollect.core.types import JsonObject
from recollect.runs.progress import is_evaluation
from recollect.runs.run import Run


class ScalarWriter(Protocol):
    """TensorBoard's SummaryWriter, as far as it is used."""

    def add_scalar(self, tag: str, scalar_value: float, global_step: int) -> None:
        """Write a value of a step."""

    def flush(self) -> None:
        """Flush to the disk."""

    def close(self) -> None:
        """Close the files."""


class RunLog:
    """Writes a run's metrics and samples, and passes them on to the reporter."""

    def __init__(
        self,
        run: Run,
        sample: Callable[[nn.Module], tuple[str, str]],
        report: Callable[[JsonObject], None],
        scalars: ScalarWriter | None = None,
    ) -> None:
        self.run = run
        self.sample = sample
        self.report = report
        self.scalars = scalars
        self.is_heard = True  # False: whoever reads the reports has gone, as `| head` does

    def add(self, row: JsonObject, model: nn.Module, **seen: object) -> None:
        """Write a row of metrics; the values in `seen` are reported and not written."""
        self.run.log(row)
        if is_evaluation(row):
            prompt, text = self.sample(model)
            self.run.log({"step": row["step"], "prompt": prompt, "text": text}, "samples")
            seen["sample"] = prompt + text
        if self.scalars is not None:
            for name in sorted(row.keys() - {"step"}):
                self.scalars.add_scalar(name, row[name], row["step"])
            if is_evaluation(row):
                self.scalars.flush()
        try:
            if self.is_heard:
                self.report(row | seen)
        except BrokenPipeError:
            self.is_heard = False

    def close(self) -> None:
        """Close the writer of scalars."""
        if self.scalars is not None:
            self.scalars.close()


def figure_of(row: JsonObject) -> str | None:
    """Return the name of a row's validation score; None: the row is of an update."""
    return next((name for name in row if name.startswith("valid_")), None)


def check_tensorboard() -> None:
    """Raise a ValueError where the package is missing."""
    if find_spec("tensorboard") is None:
        raise ValueError(
            "tensorboard: got true, but the package is not installed; try: pip install 'recollect[tensorboard]'"
        )


def open_tensorboard(folder: Path, step: int) -> ScalarWriter:
    """Return a writer of scalars; those written after this step before the run was stopped are dropped."""
    from torch.utils.tensorboard import SummaryWriter

    return cast(ScalarWriter, SummaryWriter(str(folder / "tensorboard"), purge_step=step + 1))
