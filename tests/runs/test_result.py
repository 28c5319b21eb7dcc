"""The result of a run that is trained further: which weights are used, and what is told."""

from __future__ import annotations

import pytest
import torch
from safetensors.torch import load_file

from recollect.core.threads import fitting_threads
from recollect.runs import run as run_module
from recollect.runs.config import RunConfig
from recollect.runs.run import Run
from recollect.runs.train import begin, resume


class Killed(Exception):
    """Ends a training as a signal would: nothing after it is written."""


@pytest.fixture
def run(tmp_path, tmp_path_factory, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.getbasetemp() / "cache"))
    settings = {"max_steps": 6, "batch_size": 4, "steps": 16, "evaluate_every": 6, "width": 8}
    begin(RunConfig.make("recall:count=200", "gru", **settings), Run(tmp_path / "run"), lambda row: None)
    return Run(tmp_path / "run")


def killed_after(run: Run, step: int) -> None:
    def report(row):
        if row["step"] > step:
            raise Killed

    with pytest.raises(Killed):
        resume(run, report, lambda text: None, budget="100steps")


def notices_of(folder) -> tuple[Run, list[str]]:
    found: list[str] = []
    opened = Run(folder)
    opened.notice = found.append
    return opened, found


def test_a_run_that_was_trained_further_and_killed_uses_its_best_checkpoint_and_says_so(run):
    killed_after(run, 12)
    opened, said = notices_of(run.folder)
    best = load_file(run.folder / "checkpoints/step-00000012/model.safetensors")
    old = load_file(run.folder / "model.safetensors")
    for name, weight in opened.model.state_dict().items():
        assert torch.equal(weight, best[name])
    assert any(not torch.equal(old[name], best[name]) for name in best)
    assert said == [
        f"{run.folder}: not finished, these are the weights of step-00000012. "
        f"Resume with: recollect resume {run.folder}"
    ]


def test_a_finished_run_and_one_whose_later_checkpoint_is_damaged_use_the_result(run):
    assert notices_of(run.folder)[0].model is not None
    killed_after(run, 12)
    (run.folder / "checkpoints/step-00000012/model.safetensors").write_bytes(b"cut")
    opened, said = notices_of(run.folder)
    result = load_file(run.folder / "model.safetensors")
    assert all(torch.equal(weight, result[name]) for name, weight in opened.model.state_dict().items())
    assert said == []
    (run.folder / "checkpoints/step-00000012").rename(run.folder / "checkpoints/moved")
    resume(Run(run.folder), lambda row: None, lambda text: None)
    opened, said = notices_of(run.folder)
    assert opened.model is not None
    assert said == []


def test_vectors_are_computed_on_as_many_threads_as_fit(run, monkeypatch):
    entered = []
    monkeypatch.setattr(run_module, "fitting_threads", lambda notice: entered.append(1) or fitting_threads(notice))
    assert len(run.embed(["ab"])) == 1
    assert entered == [1]
