"""What a run writes down while it learns: every figure, and at each evaluation a line of what the model says."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from recollect.runs.run import Run
from recollect.tasks.task import Say


class Journal:
    """Keeps a run's metrics and samples, and tells them on to who reports them."""

    def __init__(self, run: Run, say: Say, report: Callable[[dict[str, Any]], None], scalars: Any = None) -> None:
        self.run, self.say, self.report, self.scalars = run, say, report, scalars

    def note(self, row: dict[str, Any], model: Any, **seen: Any) -> None:
        """Write down a row of training; what else is `seen` is only reported."""
        self.run.log(row)
        if "valid_loss" in row:
            prompt, text = self.say(model)
            self.run.log_sample({"step": row["step"], "prompt": prompt, "text": text})
            seen["sample"] = prompt + text
        self._plot(row)
        self.report(row | seen)

    def _plot(self, row: dict[str, Any]) -> None:
        if self.scalars is None:
            return
        for name in sorted(row.keys() - {"step"}):
            self.scalars.add_scalar(name, row[name], row["step"])
        if "valid_loss" in row:
            self.scalars.flush()

    def close(self) -> None:
        """Let go of what is open."""
        if self.scalars is not None:
            self.scalars.close()


def check_tensorboard() -> None:
    """Refuse to plot where the package is missing."""
    if find_spec("tensorboard") is None:
        raise ValueError(
            "tensorboard: got true, but the package is not installed; try: pip install 'recollect[tensorboard]'"
        )


def open_tensorboard(folder: Path, step: int) -> Any:
    """Begin to write scalars; those that an earlier life of the run wrote after this step are dropped."""
    from torch.utils.tensorboard import SummaryWriter

    return SummaryWriter(str(folder / "tensorboard"), purge_step=step + 1)
