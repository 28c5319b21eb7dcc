"""What a run writes down while it learns: every figure, and at each evaluation a line of what the model makes."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from recollect.runs.progress import is_evaluation
from recollect.runs.run import Run


class RunLog:
    """Keeps a run's metrics and samples, and passes them on to whoever reports them."""

    def __init__(
        self,
        run: Run,
        sample: Callable[[Any], tuple[str, str]],
        report: Callable[[dict[str, Any]], None],
        scalars: Any = None,
    ) -> None:
        self.run, self.sample, self.report, self.scalars = run, sample, report, scalars

    def add(self, row: dict[str, Any], model: Any, **seen: Any) -> None:
        """Write down a row of training; what else is `seen` is only reported."""
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
        self.report(row | seen)

    def close(self) -> None:
        """Close what is open."""
        if self.scalars is not None:
            self.scalars.close()


def figure_of(row: dict[str, Any]) -> str | None:
    """Return the name of a row's validation figure; None: it is of an update."""
    return next((name for name in row if name.startswith("valid_")), None)


def check_tensorboard() -> None:
    """Refuse to plot where the package is missing."""
    if find_spec("tensorboard") is None:
        raise ValueError(
            "tensorboard: got true, but the package is not installed; try: pip install 'recollect[tensorboard]'"
        )


def open_tensorboard(folder: Path, step: int) -> Any:
    """Open a writer of scalars; those that an earlier life of the run wrote after this step are dropped."""
    from torch.utils.tensorboard import SummaryWriter

    return SummaryWriter(str(folder / "tensorboard"), purge_step=step + 1)
