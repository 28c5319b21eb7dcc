"""Several processes train one run, as a user types it: torchrun, gloo, on this machine."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import time
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

import recollect as rc
from command_line import run
from recollect.core.settings import SettingError
from recollect.runs.config import RunConfig
from recollect.runs.together import check_shared
from recollect.training.checkpoint import newest_checkpoint
from recollect.training.shard_files import read_shards, saved_in
from torchrun import ranks_of, started, torchrun

TEXT = "".join(np.random.default_rng(0).choice(list("abcdefgh \n"), 3000))
TYPED = ["-m", "lstm", "--batch", "8", "--steps", "16", "--width", "12", "--evaluate-every", "20"]


@pytest.fixture(scope="module")
def text(tmp_path_factory) -> Path:
    os.environ.setdefault("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
    path = tmp_path_factory.mktemp("text") / "text.txt"
    path.write_text(TEXT, encoding="utf-8")
    return path


def state_of(folder: Path) -> dict[str, np.ndarray]:
    """Return the weights, the optimizer's tensors and the carried memory of a run's newest checkpoint."""
    last, notices = newest_checkpoint(folder / "checkpoints")
    assert not notices
    files = [path for path in sorted(last.glob("*.safetensors")) if path.stem != "random"]
    found = {f"{path.stem} {name}": t.numpy() for path in files for name, t in load_file(path).items()}
    shards = last / "shards"
    if shards.is_dir():
        whole = {name: torch.zeros_like(t, device="cpu") for name, t in saved_in(shards).items()}
        read_shards(shards, whole)
        kinds = {name: "optimizer" if name[0].isdigit() else "model" for name in whole}
        found |= {f"{kinds[name]} {name}": t.numpy() for name, t in whole.items()}
    return found


def losses(folder: Path) -> list[float]:
    return [row["valid_loss"] for row in rc.load(folder).metrics() if "valid_loss" in row]


def rows_of(folder: Path) -> list[dict]:
    """Return the rows that a run has logged so far; it may be writing."""
    try:
        lines = (folder / "metrics.jsonl").read_text(encoding="utf-8").split("\n")[:-1]
    except OSError:
        return []
    return [json.loads(line) for line in lines]


# ---- the same training, whatever the number of processes -----------------------------------------------

SCRIPT = """
import json, sys
import torch
import recollect as rc

torch.set_default_dtype(torch.float64)
for name, case in json.loads(sys.argv[2]).items():
    rc.train(sys.argv[1], out=f"{sys.argv[3]}/{name}", budget="200steps", evaluate_every=100, **case)
"""
SHAPE = {"batch_size": 8, "steps": 16, "width": 16, "layers": 2}
CASES = {
    "lstm": {"model": "lstm", **SHAPE},
    "gru": {"model": "gru", **SHAPE, "accumulate": 2, "average": 0.9},
    "transformer": {"model": "transformer", **SHAPE},
    "lstm, sharded": {"model": "lstm", **SHAPE, "shard": True},
    "transformer, sharded": {"model": "transformer", **SHAPE, "shard": True},
}


@pytest.fixture(scope="module")
def trained(text, tmp_path_factory) -> dict[int, Path]:
    """Train the cases in one process, in two and in four."""
    folder = tmp_path_factory.mktemp("trained")
    script = folder / "script.py"
    script.write_text(SCRIPT, encoding="utf-8")
    for size in (1, 2, 4):
        words = str(script), str(text), json.dumps(CASES), str(folder / str(size))
        torchrun(size, *words)
    return {size: folder / str(size) for size in (1, 2, 4)}


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("size", [2, 4])
def test_200_updates_are_those_of_one_process(trained, size, name):
    alone, together = (state_of(trained[n] / name) for n in (1, size))
    assert alone.keys() == together.keys()
    assert any(key.startswith("memory") for key in alone) == (not name.startswith("transformer"))
    for key, expected in alone.items():
        np.testing.assert_allclose(together[key], expected, rtol=0, atol=1e-8, err_msg=key)
    assert {t.dtype for key, t in alone.items() if key.startswith("model")} == {np.dtype(np.float64)}
    np.testing.assert_allclose(losses(trained[size] / name), losses(trained[1] / name), rtol=1e-9)


# ---- stopping, killing, resuming -----------------------------------------------------------------------


@pytest.mark.slow
def test_a_rank_that_is_killed_at_any_moment_costs_nothing(text, tmp_path):
    """Five kills -9, of ranks and at updates that are drawn, the third while the processes start."""
    typed = ["-m", "recollect", "train", str(text), *TYPED, "--evaluate-every", "5", "--budget", "300steps"]
    torchrun(2, *typed, "--out", str(tmp_path / "calm"))
    draw = np.random.default_rng(0)
    moments = np.sort(draw.choice(np.arange(1, 200), 5, replace=False)).tolist()
    with started(2, *typed, "--out", str(tmp_path / "killed"), restarts=5) as agent:
        killed: set[int] = set()
        for number, moment in enumerate(moments):
            ranks = wait_for(agent, partial(fresh, agent, killed))
            if number != 2:
                wait_for(agent, partial(is_at, tmp_path / "killed", moment, time.time_ns()))
            time.sleep(draw.uniform(0, 0.1))
            killed |= set(ranks.values())
            os.kill(ranks[int(draw.integers(2))], signal.SIGKILL)
        _, errors = agent.communicate(timeout=240)
    assert agent.returncode == 0, errors
    calm, again = state_of(tmp_path / "calm"), state_of(tmp_path / "killed")
    assert calm.keys() == again.keys()
    assert all(np.array_equal(calm[key], again[key]) for key in calm)
    assert losses(tmp_path / "killed") == losses(tmp_path / "calm")
    assert [row["step"] for row in rows_of(tmp_path / "killed") if "rate" in row] == list(range(1, 301))


def wait_for(agent, find):
    """Return what `find` finds, as soon as it finds something; fail where torchrun has ended."""
    limit = time.monotonic() + 120
    while not (found := find()):
        assert agent.poll() is None, agent.stderr.read()
        assert time.monotonic() < limit, "torchrun did not come to this point"
        time.sleep(0.002)
    return found


def fresh(agent, killed: set[int]) -> dict[int, int] | None:
    """Return the processes of both ranks, once they are others than before."""
    ranks = ranks_of(agent)
    return ranks if len(ranks) == 2 and not killed & set(ranks.values()) else None


def is_at(folder: Path, update: int, since: int) -> bool:
    """Return whether the processes that were started `since` have logged an update, or one after it."""
    path = folder / "metrics.jsonl"
    if not path.exists() or path.stat().st_mtime_ns < since:
        return False
    return any(row["step"] >= update for row in rows_of(folder)[-1:])


@pytest.mark.slow
def test_a_rank_of_a_sharded_training_that_is_killed_costs_nothing(text, tmp_path):
    """Five kills -9; each process writes its own shards of a checkpoint, which is complete or is not there."""
    shape = ["-m", "transformer", "--batch", "8", "--steps", "16", "--width", "16", "--shard", "true"]
    typed = ["-m", "recollect", "train", str(text), *shape, "--evaluate-every", "4", "--budget", "60steps"]
    torchrun(2, *typed, "--out", str(tmp_path / "calm"))
    draw = np.random.default_rng(1)
    with started(2, *typed, "--out", str(tmp_path / "killed"), restarts=5) as agent:
        killed: set[int] = set()
        for moment in np.sort(draw.choice(np.arange(1, 40), 5, replace=False)).tolist():
            ranks = wait_for(agent, partial(fresh, agent, killed))
            wait_for(agent, partial(is_at, tmp_path / "killed", moment, time.time_ns()))
            time.sleep(draw.uniform(0, 0.1))
            killed |= set(ranks.values())
            os.kill(ranks[int(draw.integers(2))], signal.SIGKILL)
        _, errors = agent.communicate(timeout=240)
    assert agent.returncode == 0, errors
    calm, again = state_of(tmp_path / "calm"), state_of(tmp_path / "killed")
    assert calm.keys() == again.keys()
    assert all(np.array_equal(calm[key], again[key]) for key in calm)
    assert losses(tmp_path / "killed") == losses(tmp_path / "calm")
    run("generate", str(tmp_path / "killed"), "a", "--tokens", "5")  # the result is an ordinary one
    done = run("resume", str(tmp_path / "killed"), "--budget", "4steps")  # in one process
    assert "step     64" in done.stdout


@pytest.fixture(scope="module")
def resumed(text, tmp_path_factory) -> dict[tuple[int, int], Path]:
    """Train 30 updates in one process and in four, and 30 more in other numbers of processes."""
    folder = tmp_path_factory.mktemp("resumed")
    typed = ["train", str(text), *TYPED, "--schedule", "constant", "--warmup", "0", "--budget", "30steps"]
    run(*typed, "--out", str(folder / "1"))
    torchrun(4, "-m", "recollect", *typed, "--out", str(folder / "4"))
    made = {}
    for before, after in [(1, 1), (1, 4), (4, 1), (4, 2)]:
        out = made[before, after] = folder / f"{before}-{after}"
        shutil.copytree(folder / str(before), out)
        more = ["resume", str(out), "--budget", "30steps"]
        done = run(*more) if after == 1 else torchrun(after, "-m", "recollect", *more)
        assert done.stderr.count("Next: recollect generate") == 1
    return made


@pytest.mark.slow
@pytest.mark.parametrize(("before", "after"), [(1, 4), (4, 1), (4, 2)])
def test_a_checkpoint_resumes_on_another_number_of_processes(resumed, before, after):
    alone, again = resumed[1, 1], resumed[before, after]
    assert state_of(alone).keys() == state_of(again).keys()
    for key, expected in state_of(alone).items():
        np.testing.assert_allclose(state_of(again)[key], expected, rtol=0, atol=1e-5, err_msg=key)
    np.testing.assert_allclose(losses(again), losses(alone), rtol=1e-5)


@pytest.mark.slow
def test_ctrl_c_saves_in_all_and_names_the_command(text, tmp_path):
    typed = ["-m", "recollect", "train", str(text), *TYPED, "--budget", "1h", "--out", str(tmp_path / "run")]
    with started(2, *typed) as agent:
        wait_for(agent, lambda: len(rows_of(tmp_path / "run")) > 30)
        agent.send_signal(signal.SIGINT)
        _, errors = agent.communicate(timeout=60)
    assert errors.count("stopped, everything is saved. Resume with: recollect resume") == 1
    last, _ = newest_checkpoint(tmp_path / "run" / "checkpoints")
    assert int(last.name.removeprefix("step-")) == rows_of(tmp_path / "run")[-1]["step"]


# ---- what is printed, and what is refused --------------------------------------------------------------


@pytest.mark.slow
def test_one_process_writes_and_prints(text, tmp_path):
    typed = ["-m", "recollect", "train", str(text), *TYPED, "--budget", "40steps", "--out", str(tmp_path / "run")]
    done = torchrun(2, *typed)
    assert done.stdout.count("step     40") == 1
    assert done.stderr.count("recollect: lstm, tiny") == done.stderr.count("Next: recollect generate") == 1
    assert [row["step"] for row in rows_of(tmp_path / "run") if "rate" in row] == list(range(1, 41))
    run("evaluate", str(tmp_path / "run"))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("size", "changes", "told"),
    [
        (3, [], "--batch: got 8 rows for 3 processes, expected a multiple of 3; try: 6 or 9"),
        (2, ["-m", "markov"], "model: markov is fitted by counting, in one process; train it without torchrun"),
        (2, ["-m", "ttt-linear", "--shard", "true"], "shard: got true, but memories of this LanguageModel begin from"),
    ],
)
def test_what_cannot_be_shared_is_told_once(text, tmp_path, size, changes, told):
    out = tmp_path / "run"
    typed = ["-m", "recollect", "train", str(text), "--batch", "8", *changes, "--out", str(out)]
    errors = torchrun(size, *typed, code=1).stderr
    assert errors.count(f"recollect: {told}") == 1
    assert "exitcode  : 2 " in errors
    assert not (out / "config.json").exists()


def test_variables_without_an_address_are_refused_at_once(text, tmp_path):
    environment = {**os.environ, "WORLD_SIZE": "4", "RANK": "0"}
    done = run("train", str(text), "--out", str(tmp_path / "run"), code=2, env=environment)
    assert "WORLD_SIZE: got 4 without MASTER_ADDR" in done.stderr
    assert "torchrun --nproc-per-node 4 -m recollect train" in done.stderr
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
@pytest.mark.parametrize(("rank", "told"), [(0, "on which another program listens"), (1, "did not find the others at")])
def test_a_port_that_is_not_ours_loses_nothing(text, tmp_path, rank, told):
    """Another program listens there: the first process cannot, and the others get no answer."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        place = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(other.getsockname()[1]), "RECOLLECT_RENDEZVOUS": "2"}
        environment = {**os.environ, "WORLD_SIZE": "2", "RANK": str(rank), "LOCAL_RANK": str(rank), **place}
        done = run("train", str(text), *TYPED, "--out", str(tmp_path / "run"), code=2, env=environment)
    assert told in done.stderr
    assert not (tmp_path / "run").exists()


def config(data: str = "recall", **settings: object) -> RunConfig:
    return RunConfig.make(data, "lstm", **settings)


@pytest.mark.parametrize(
    ("size", "batch", "near"), [(3, 16, "15 or 18"), (32, 16, "32"), (5, 5, None), (1, 7, None), (4, 16, None)]
)
def test_the_rows_of_a_batch_are_divided_evenly(size, batch, near):
    if near is None:
        check_shared(config(batch_size=batch), size)
        return
    with pytest.raises(SettingError, match=f"got {batch} rows for {size} processes.*try: {near}$"):
        check_shared(config(batch_size=batch), size)


def test_standard_input_is_read_by_one_process_only():
    check_shared(config("-"), 1)
    with pytest.raises(SettingError, match="DATA: got -, expected a file or a built-in: each of the 2 processes"):
        check_shared(config("-"), 2)
