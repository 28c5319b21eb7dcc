"""Models that several processes hold together train as those that each holds whole, and so do their checkpoints."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist
from torch import nn

from forked import forked
from learners import carried, learner, losses, plan, weights
from recollect.core.serialize import FileError
from recollect.core.settings import SettingError
from recollect.core.task import Measure, Scores
from recollect.models.language import LanguageConfig, LanguageModel
from recollect.runs.config import RunConfig
from recollect.runs.together import check_shared
from recollect.training.checkpoint import load_result, read_state
from recollect.training.loop import evaluate, restore, save
from recollect.training.shard_files import read_shards, saved_in
from recollect.training.sharding import blocks_of, shard
from recollect.training.state import TrainingState
from recollect.training.workers import ALONE, Alone
from tiers import slow_after

LONG = 200


def trained(state: TrainingState, updates: int, **options: Any) -> list[list[float]]:
    found = losses(state, plan(updates, **options), updates)
    return [found, weights(state), carried(state)]


def compare(found: list[list[list[float]]], expected: list[list[float]], tolerance: float) -> None:
    for place, (each, after, memory) in enumerate(found):
        np.testing.assert_allclose(each, expected[0], rtol=tolerance)
        np.testing.assert_allclose(after, expected[1], rtol=0, atol=tolerance)
        if place == 0:  # it knows the memory of all rows
            np.testing.assert_allclose(memory, expected[2], rtol=0, atol=tolerance)


@pytest.mark.parametrize(
    ("name", "size", "options"),
    slow_after(
        3,
        [
            ("lstm", 2, {}),
            ("transformer", 2, {"accumulate": 2}),
            ("linear-attention", 2, {}),
            ("bahdanau", 4, {}),
            ("window", 2, {}),
        ],
    ),
)
def test_a_sharded_model_trains_as_one_process_does(tmp_path, name, size, options):
    expected = trained(learner(name), 8, **options)
    found = forked(tmp_path, size, lambda workers: trained(learner(name, workers, is_sharded=True), 8, **options))
    compare(found, expected, 1e-11)


@pytest.mark.slow
@pytest.mark.parametrize("is_sharded", [False, True])
@pytest.mark.parametrize("size", [2, 4])
@pytest.mark.parametrize("name", ["lstm", "transformer"])
def test_200_updates_are_those_of_one_process(tmp_path, name, size, is_sharded):
    expected = trained(learner(name), LONG)
    found = forked(tmp_path, size, lambda workers: trained(learner(name, workers, is_sharded=is_sharded), LONG))
    compare(found, expected, 1e-8)


def test_each_process_keeps_its_part_of_weights_and_optimizer(tmp_path):
    def kept(workers: Alone) -> list[int]:
        state = learner("transformer", workers, is_sharded=True)
        losses(state, plan(), updates=2)
        moments = (value for values in state.optimizer.state.values() for value in values.values() if value.dim())
        return [sum(t.to_local().numel() for t in held) for held in (state.model.parameters(), moments)]

    count = sum(p.numel() for p in learner("transformer").model.parameters())
    found = forked(tmp_path, 3, kept)
    assert [sum(parts) for parts in zip(*found, strict=True)] == [count, 2 * count]
    assert max(part for part, _ in found) < 0.5 * count  # axes are not divisible by three: not quite a third


def test_of_several_batches_only_the_last_is_synchronised(tmp_path):
    def sent(workers: Alone) -> int:
        state = learner("transformer", workers, is_sharded=True)
        count = 0
        name = "reduce_scatter_single" if hasattr(dist, "reduce_scatter_single") else "reduce_scatter_tensor"
        real = getattr(dist, name)  # that FSDP calls, by the version of torch

        def counting(*given: Any, **options: Any) -> Any:
            nonlocal count
            count += 1
            return real(*given, **options)

        setattr(dist, name, counting)
        losses(state, plan(accumulate=3), updates=4)
        return count

    parts = len(blocks_of(learner("transformer").model)) + 1  # and the embedding with the head
    assert forked(tmp_path, 2, sent) == [4 * parts] * 2


def test_what_is_gathered_one_at_a_time():
    assert len(blocks_of(learner("transformer").model)) == 2
    assert len(blocks_of(learner("linear-attention").model)) == 2
    assert blocks_of(learner("lstm").model) == []


class Scalar(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.offset = nn.Parameter(torch.tensor(1.0))


def test_models_that_cannot_be_divided_are_refused():
    with pytest.raises(SettingError, match="shard: got true, but offset of Scalar is a single number"):
        shard(Scalar(), 2)
    with pytest.raises(SettingError, match="shard: got true, but memories of this LanguageModel begin from its weight"):
        shard(learner("ttt-linear").model, 2)


# ---- checkpoints -----------------------------------------------------------------------------------------


def begun(folder: Path, name: str, workers: Alone = ALONE, *, is_sharded: bool) -> TrainingState:
    """Return a training after five updates, of which a checkpoint was written."""
    state = learner(name, workers, is_sharded=is_sharded)
    losses(state, plan(), updates=5)
    save(state, folder / "checkpoints", keep=2)
    return state


def continued(folder: Path, name: str, workers: Alone = ALONE, *, is_sharded: bool) -> list[list[float]]:
    state = learner(name, workers, is_sharded=is_sharded)
    assert restore(state, folder / "checkpoints") == []
    assert state.progress.step == 5
    return trained(state, 5)


@pytest.mark.parametrize(
    ("name", "before", "after"),
    slow_after(
        2,
        [
            ("lstm", 4, 2),
            ("transformer", 2, 1),
            ("transformer", 4, 2),
            ("transformer", 1, 4),
            ("lstm", 4, 1),
            ("lstm", 1, 2),
        ],
    ),
)
def test_a_checkpoint_resumes_in_any_number_of_processes(tmp_path, name, before, after):
    """Sharded in several processes, whole in one; neither needs what wrote the other."""

    def write(workers: Alone) -> int:
        return begun(tmp_path, name, workers, is_sharded=True).progress.step

    if before == 1:
        begun(tmp_path, name, is_sharded=False)
    else:
        (tmp_path / "before").mkdir()
        assert forked(tmp_path / "before", before, write) == [5] * before
    expected = continued_alone(tmp_path, name)
    if after == 1:
        found = [continued(tmp_path, name, is_sharded=False)]
    else:
        found = forked(tmp_path, after, lambda workers: continued(tmp_path, name, workers, is_sharded=True))
    compare(found, expected, 1e-11)


def continued_alone(folder: Path, name: str) -> list[list[float]]:
    """Return the same ten updates without a checkpoint between them."""
    state = learner(name)
    losses(state, plan(), updates=5)
    fresh = learner(name)
    save(state, folder / "alone", keep=2)
    restore(fresh, folder / "alone")
    return trained(fresh, 5)


def test_a_sharded_checkpoint_is_safetensors_checked_and_read_whole(tmp_path):
    def write(workers: Alone) -> list[float]:
        return weights(begun(tmp_path, "transformer", workers, is_sharded=True))

    found = forked(tmp_path, 3, write)
    (path,) = (tmp_path / "checkpoints").iterdir()
    files = sorted(str(file.relative_to(path)) for file in path.rglob("*") if file.is_file())
    shards = [f"shards/{rank:05d}.safetensors" for rank in range(3)]
    assert files == sorted(["random.safetensors", *shards, "state.json"])
    state = learner("transformer")
    load_result(path, state.model)
    assert weights(state) == found[0]
    assert {t.dtype for name, t in saved_in(path / "shards").items() if name.startswith("body")} == {torch.float64}
    (path / shards[1]).write_bytes((path / shards[1]).read_bytes()[:-1] + b"x")
    with pytest.raises(FileError, match="damaged, a checksum does not match"):
        read_state(path)


def test_pieces_of_another_model_are_refused(tmp_path):
    forked(tmp_path, 2, lambda workers: begun(tmp_path, "lstm", workers, is_sharded=True).progress.step)
    other = LanguageModel(LanguageConfig("lstm", 9, width=12, layers=2)).double()
    with pytest.raises(FileError, match="does not fit this model: of another shape"):
        read_shards(tmp_path / "checkpoints" / "step-00000005" / "shards", other.state_dict())


def test_all_processes_measure_a_sharded_model_at_once(tmp_path):
    ids = torch.arange(12).view(2, 6) % 9

    def measured(model: Any) -> Scores:
        with torch.no_grad():
            value = float(model.eval()(ids)[0].square().mean())
        model.train()
        return Scores({"loss": Measure("loss", "mean square of the logits")}, {"all": {"loss": value}})

    def work(workers: Alone) -> list[Any]:
        state = learner("transformer", workers, is_sharded=True)
        rows = [evaluate(state, measured), losses(state, plan(), updates=2), evaluate(state, measured)]
        return [*rows, state.progress.best_step]

    alone = learner("transformer")
    expected = [evaluate(alone, measured), losses(alone, plan(), updates=2), evaluate(alone, measured)]
    for first, between, last, best in forked(tmp_path, 2, work):
        assert first == pytest.approx(expected[0], rel=1e-12)
        assert between == pytest.approx(expected[1], rel=1e-12)
        assert last == pytest.approx(expected[2], rel=1e-10)
        assert best == alone.progress.best_step


# ---- what is refused -------------------------------------------------------------------------------------


@pytest.mark.parametrize(("changes", "named"), [({"average": 0.9}, "average: got 0.9"), ({"compile": True}, "compile")])
def test_settings_that_need_the_whole_model_are_refused(changes, named):
    config = partial(RunConfig.make, "recall", "lstm", shard=True)
    check_shared(config(), 2)
    with pytest.raises(SettingError, match=f"^{named}.* with shard=true"):
        check_shared(config(**changes), 2)
    assert json.dumps(config().as_json()["training"]["shard"]) == "true"
