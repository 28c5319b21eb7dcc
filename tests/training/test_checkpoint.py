"""Checkpoints: whole or not there at all, whenever the process dies; damage is noticed and the one before is used."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from recollect.core.serialize import FileError
from recollect.models.language import LanguageConfig, LanguageModel
from recollect.training.checkpoint import Progress, load_checkpoint, newest_checkpoint, save_checkpoint
from recollect.training.optimizer import Optimizer
from tiers import slow_after


def learner(seed: int = 0, optimiser: str = "adamw"):
    """A small model that has made one step, so that its optimiser has something to remember."""
    torch.manual_seed(seed)
    model = LanguageModel(LanguageConfig("gru", 7, width=4, layers=1))
    moves = Optimizer(optimiser=optimiser).build(model)
    logits, memory = model(torch.randint(7, (2, 5)))
    logits.square().sum().backward()
    moves.step()
    return model, moves, memory.detach()


def save(folder, step, keep=2, **learnt):
    model, moves, memory = learner(**learnt)
    progress = Progress(step=step, tokens=10 * step, seconds=1.5, best=2.0, best_step=1)
    return save_checkpoint(folder, model, moves, memory, progress, {"place": step}, keep=keep)


@pytest.mark.parametrize("optimiser", ["adamw", "sgd"])
def test_everything_comes_back(tmp_path, optimiser):
    path = save(tmp_path, 3, optimiser=optimiser)
    random_state = torch.get_rng_state()
    model, moves, memory = learner(seed=0, optimiser=optimiser)
    other, other_moves, _ = learner(seed=5, optimiser=optimiser)
    progress, data, carried = load_checkpoint(path, other, other_moves)
    assert (progress.step, progress.tokens, progress.best_step, data) == (3, 30, 1, {"place": 3})
    assert carried.equals(memory)
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), other.parameters(), strict=True))
    assert torch.equal(torch.get_rng_state(), random_state)
    ours, theirs = (m.state_dict()["state"] for m in (moves, other_moves))
    assert ours.keys() == theirs.keys()
    for i, kept in ours.items():
        tensors = {name: torch.as_tensor(value) for name, value in kept.items() if value is not None}
        assert all(torch.equal(value, torch.as_tensor(theirs[i][name])) for name, value in tensors.items())


def test_the_last_and_the_best_are_kept(tmp_path):
    for step in (1, 2, 3, 4):
        save(tmp_path, step)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["step-00000001", "step-00000003", "step-00000004"]
    assert newest_checkpoint(tmp_path) == (tmp_path / "step-00000004", [])


@pytest.mark.parametrize("name", ["model", "optimizer", "memory", "random"])
@pytest.mark.parametrize("damage", ["truncate", "flip", "remove"])
def test_a_damaged_one_is_noticed_and_the_one_before_is_used(tmp_path, name, damage):
    before, newest = save(tmp_path, 1), save(tmp_path, 2)
    file = newest / f"{name}.safetensors"
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    if damage == "remove":
        file.unlink()
    else:
        file.write_bytes(data if damage == "flip" else data[:-1])
    path, notices = newest_checkpoint(tmp_path)
    assert path == before
    assert str(newest) in notices[0]
    assert "the one before is used" in notices[0]


def test_a_damaged_state_is_noticed(tmp_path):
    before, newest = save(tmp_path, 1), save(tmp_path, 2)
    state = newest / "state.json"
    state.write_text(state.read_text()[:-5])
    assert newest_checkpoint(tmp_path)[0] == before
    state.write_text("{}")
    assert newest_checkpoint(tmp_path)[0] == before


def test_another_version_and_an_empty_folder_are_refused(tmp_path):
    path = save(tmp_path, 1)
    state = json.loads((path / "state.json").read_text())
    (path / "state.json").write_text(json.dumps(state | {"version": 99}))
    with pytest.raises(FileError, match=r"no intact checkpoint; train again .*version 99"):
        newest_checkpoint(tmp_path)
    with pytest.raises(FileError, match="no intact checkpoint"):
        newest_checkpoint(tmp_path / "nothing")


DIE = """
import builtins, os, sys, pathlib
sys.path.insert(0, {tests!r})
sys.path.insert(1, str(pathlib.Path(sys.path[0]).parent))
from test_checkpoint import save
from recollect.training.checkpoint import newest_checkpoint, load_checkpoint
from test_checkpoint import learner
import shutil, torch
torch.set_num_threads(1)  # a child has none of its parent's, and would wait for them
folder = pathlib.Path({folder!r})
save(folder, 1)

def deadly(function, left):
    def call(*args, **kwargs):
        left[0] -= 1
        if left[0] < 0:
            os._exit(9)
        return function(*args, **kwargs)
    return call

def arm(count):
    left = [count]
    os.replace, os.fsync = deadly(os.replace, left), deadly(os.fsync, left)
    os.mkdir, os.rmdir, os.unlink = deadly(os.mkdir, left), deadly(os.rmdir, left), deadly(os.unlink, left)
    plain = pathlib.Path.open
    def opened(self, mode="r", *args, **kwargs):
        file = plain(self, mode, *args, **kwargs)
        if "w" in mode:
            class Dying:
                def __enter__(self): return self
                def __exit__(self, *error): file.close()
                def __getattr__(self, name): return getattr(file, name)
                write, flush = staticmethod(deadly(file.write, left)), staticmethod(deadly(file.flush, left))
            return Dying()
        return file
    pathlib.Path.open = opened

found = []
for count in range(200):
    child = os.fork()
    if child == 0:
        arm(count)
        save(folder, {step})
        os._exit(0)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    path, notices = newest_checkpoint(folder)
    model, moves, _ = learner()
    load_checkpoint(path, model, moves)
    found.append((code, path.name, len(notices)))
    if code == 0:
        break
    if path.name.endswith("2"):
        shutil.rmtree(path)
print(found)
"""


@pytest.mark.parametrize("step", slow_after(1, [1, 2]), ids=["over the only one", "beside it"])
def test_dying_at_any_write_flush_or_rename_leaves_a_whole_checkpoint(step, tmp_path):
    script = DIE.format(tests=str(Path(__file__).parent), folder=str(tmp_path / "run"), step=step)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    found = eval(done.stdout)  # our own list of tuples
    assert found[-1] == (0, f"step-0000000{step}", 0)
    assert len(found) > 20, "fewer places to die than a save has"
    assert {code for code, _, _ in found[:-1]} == {9}
    assert {name for _, name, _ in found[:-1]} >= {"step-00000001"}
