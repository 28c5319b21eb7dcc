"""The trainings that a live page shows: of its models, and of runs that are begun beside them while it is open."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from recollect.core.serialize import FileError
from recollect.core.types import JsonObject
from recollect.pretrained.checkpoint import is_checkpoint
from recollect.runs.run import Run
from recollect.serving.exhibit import Progress, silent
from recollect.serving.problems import PageError, both, gone
from recollect.serving.shown_model import ShownModel, series_of
from recollect.serving.training_log import training_of

MOST_NEW = 12  # runs that are shown beside the models, the last ones by name


class Trainings:
    """Reads the logs of run folders when it is asked; `notice` is told once of what cannot be read.

    folders: folders of runs, in which those that are not among the models are looked for.
    """

    def __init__(
        self, models: Sequence[ShownModel], folders: Sequence[str | Path] = (), notice: Progress = silent
    ) -> None:
        self.models = models
        self.folders = [Path(one) for one in folders if not (Path(one) / "config.json").is_file()]
        self.notice = notice
        self._told: set[str] = set()

    def read(self) -> JsonObject:
        """Return each run's curve and samples as its folder holds them now; `problem` where it cannot be read.

        Those of the models are under their ids. Others have a `name`, the number of their colour,
        `series`, and whether they count instead of being trained, `counted`.
        """
        found = {one.id: self._log_of(one.folder, one.run) for one in self.models}
        for path, family in self.begun().items():
            facts = {"name": path.name, "series": series_of(family, len(self.models)), "counted": family == "markov"}
            found[f"+{path.name}"] = {**self._log_of(path, Run(path)), **facts}
        return found

    def begun(self) -> dict[Path, str]:
        """Return the folders of language models' runs that are none of the page's models, with their families."""
        shown = {one.folder.resolve() for one in self.models}
        paths = [path.parent for folder in self.folders for path in folder.glob("*/config.json")]
        families = {path: self._family(path) for path in sorted(paths) if path.resolve() not in shown}
        return {path: family for path, family in [*families.items()][-MOST_NEW:] if family is not None}

    def _family(self, folder: Path) -> str | None:
        """Return the family of a run of a language model; None for anything else."""
        try:
            run = None if is_checkpoint(folder) else Run(folder).saved()["run"]
            return run["family"] if run is not None and run["task"] == "language" else None
        except (FileError, OSError) as error:
            self._tell(str(error))
            return None

    def _log_of(self, folder: Path, run: Run | None) -> JsonObject:
        if run is None:
            return training_of(None)
        try:
            if not (folder / "config.json").is_file():
                raise gone(folder)
            return training_of(run)
        except (PageError, FileError, OSError) as error:
            self._tell(str(error))
            return {"curve": [], "samples": [], "running": False, "problem": both(error)}

    def _tell(self, problem: str) -> None:
        if problem not in self._told:
            self._told.add(problem)
            self.notice(problem)
