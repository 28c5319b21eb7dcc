"""Processes that share a training: each has its own rows, and all are told the same."""

from __future__ import annotations

import socket
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import permutations

import numpy as np
import pytest
import torch
from torch.distributed import HashStore
from torch.utils._pytree import register_dataclass

from forked import forked
from recollect.core.launch import Launch, launched
from recollect.core.settings import SettingError
from recollect.data.text.batches import Streams
from recollect.layers.attention.self_attention import SelfAttention
from recollect.layers.recurrent.recurrence import Hidden
from recollect.training.rendezvous import name_of_start
from recollect.training.workers import ALONE, Group, join

TEXT = np.arange(400) % 11


def test_every_row_belongs_to_one_process_at_all_times(tmp_path):
    def places(workers: Group) -> list[list[int]]:
        return [workers.own(batch)[0].x[:, 0].tolist() for batch, _ in zip(Streams(TEXT, 6, 5), range(9), strict=False)]

    found = forked(tmp_path, 3, places)
    for batch, *shares in zip(Streams(TEXT, 6, 5), *found, strict=False):
        assert [len(share) for share in shares] == [2, 2, 2]
        assert [*shares[0], *shares[1], *shares[2]] == batch.x[:, 0].tolist()


def test_a_batch_with_fewer_rows_leaves_a_process_idle():
    shares = [Group(Launch(rank, 4)).own(torch.arange(3)) for rank in range(4)]
    assert sorted(row for rows, _ in shares for row in rows.tolist()) == [0, 1, 2]
    assert [is_idle for _, is_idle in shares] == [len(rows) == 0 for rows, _ in shares]
    assert sum(is_idle for _, is_idle in shares) == 1


@dataclass(frozen=True)
class Uneven:
    x: torch.Tensor
    y: torch.Tensor


register_dataclass(Uneven)


def test_a_batch_that_cannot_be_divided_is_refused():
    with pytest.raises(SettingError, match="axis 0 must be the batch"):
        Group(Launch(0, 2)).own(Uneven(torch.zeros(4, 3), torch.zeros(3)))


def test_what_one_process_knows_all_are_told(tmp_path):
    def talk(workers: Group) -> list[object]:
        rank = workers.launch.rank
        return [
            workers.told(lambda: {"loss": 1 / 3, "best": None, "of": rank}),
            workers.first(0.1 + rank),
            workers.any(rank == 1),
            workers.any(False),
            workers.mean(float(rank)),
        ]

    expected = [{"loss": 1 / 3, "best": None, "of": 0}, 0.1, True, False, 0.5]
    assert forked(tmp_path, 2, talk) == [expected, expected]


def test_one_process_of_a_machine_works_before_the_others(tmp_path):
    def work(workers: Group) -> bool:
        def look() -> bool:
            was_there = (tmp_path / "done").exists()
            (tmp_path / "done").touch()
            return was_there

        return workers.in_turn(look)

    assert forked(tmp_path, 3, work) == [False, True, True]


def test_a_memory_is_joined_from_the_rows_of_all_and_divided_again(tmp_path):
    layer = SelfAttention(4, 2, window=8).double()
    lengths = torch.tensor([3, 1, 7, 2])
    x = torch.randn(4, 7, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    valid = torch.arange(7) < lengths[:, None]
    whole = layer(x, valid=valid)[1]

    def join_and_divide(workers: Group) -> list[bool]:
        own = workers.own_memory(whole)
        rows = slice(2 * workers.launch.rank, 2 * workers.launch.rank + 2)
        short = layer(x[rows, : int(lengths[rows].max())], valid=valid[rows, : int(lengths[rows].max())])[1]
        joined = workers.joined(short)
        return [own.equals(short), whole.equals(joined) if joined is not None else workers.launch.rank == 1]

    assert forked(tmp_path, 2, join_and_divide) == [[True, True]] * 2


def test_gradients_are_averaged_where_some_have_none(tmp_path):
    def average(workers: Group) -> list[object]:
        rank = workers.launch.rank
        here, there, nowhere = (torch.nn.Parameter(torch.zeros(2)) for _ in range(3))
        here.grad = torch.tensor([1.0, 3.0 + rank])
        there.grad = torch.tensor([4.0, 8.0]) if rank else None
        workers.average_gradients([here, there, nowhere], weight=1.0 if rank else 3.0)
        return [here.grad.tolist(), there.grad.tolist(), nowhere.grad]

    assert forked(tmp_path, 2, average) == [[[2.0, 6.5], [2.0, 4.0], None]] * 2


def test_random_numbers_depend_on_step_and_process_alone():
    def drawn(rank: int, step: int, seed: int = 5) -> float:
        Group(Launch(rank, 2), seed).reseed(step)
        return float(torch.rand(()))

    numbers = [drawn(rank, step, seed) for rank in (0, 1) for step in (0, 1, 2) for seed in (5, 6)]
    assert len(set(numbers)) == 12
    assert drawn(1, 2) == drawn(1, 2)


def test_a_single_process_keeps_everything():
    memory, batch = Hidden(hidden=torch.ones(2, 3)), torch.arange(3)
    assert ALONE.own(batch) == (batch, False)
    assert ALONE.own_memory(memory) is memory is ALONE.joined(memory)
    assert (ALONE.told(lambda: {"a": 1}), ALONE.first(2.0), ALONE.any(True), ALONE.mean(0.5)) == (
        {"a": 1},
        2.0,
        True,
        0.5,
    )


# ---- how torchrun started it ------------------------------------------------------------------------

STARTED = {"WORLD_SIZE": "4", "RANK": "3", "LOCAL_RANK": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500"}


@pytest.fixture
def environment(monkeypatch):
    for name in (*STARTED, "TORCHELASTIC_RESTART_COUNT", "TORCHELASTIC_USE_AGENT_STORE"):
        monkeypatch.delenv(name, raising=False)
    return monkeypatch


def test_the_variables_of_torchrun_are_read(environment):
    assert launched() == Launch(0, 1, 0, 0)
    for name, value in {**STARTED, "TORCHELASTIC_RESTART_COUNT": "2"}.items():
        environment.setenv(name, value)
    assert launched() == Launch(rank=3, size=4, local_rank=1, restarts=2)


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"MASTER_ADDR": ""}, "WORLD_SIZE: got 4 without MASTER_ADDR"),
        ({"MASTER_PORT": ""}, "WORLD_SIZE: got 4 without MASTER_PORT"),
        ({"RANK": ""}, "WORLD_SIZE: got 4 without RANK"),
        ({"RANK": "4"}, "RANK: got 4, expected less than 4"),
        ({"RANK": "-1"}, "RANK: got '-1', expected a whole number of at least 0"),
        ({"WORLD_SIZE": "two"}, "WORLD_SIZE: got 'two', expected a whole number of at least 1"),
        ({"WORLD_SIZE": "0"}, "WORLD_SIZE: got '0', expected a whole number of at least 1"),
    ],
)
def test_variables_that_do_not_fit_are_refused_with_the_command(environment, changes, named):
    for name, value in (STARTED | changes).items():
        environment.setenv(name, value)
    with pytest.raises(SettingError) as refused:
        launched()
    assert str(refused.value).startswith(named)
    assert "torchrun --nproc-per-node" in str(refused.value)


def test_each_start_has_a_name_of_its_own_in_one_store():
    """What an earlier start left in the store is not mistaken for this one's, in whatever order the processes come."""
    store = HashStore()
    with ThreadPoolExecutor(3) as threads:
        names = []
        for order in permutations(range(3)):
            found = []
            for rank in order:
                found.append(threads.submit(name_of_start, store, rank, 3, 20.0))
                time.sleep(0.05)
            names.append({one.result() for one in found})
    assert [len(name) for name in names] == [1] * 6
    assert len(set.union(*names)) == 6


def test_a_port_in_use_is_named_with_another(environment):
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = str(other.getsockname()[1])
        for name, value in {**STARTED, "RANK": "0", "MASTER_PORT": port, "RECOLLECT_RENDEZVOUS": "5"}.items():
            environment.setenv(name, value)
        with pytest.raises(SettingError, match=f"^MASTER_PORT: got {port}, on which another program listens; expected"):
            join(torch.device("cpu"), seed=0)


@pytest.mark.parametrize("word", ["soon", "0", "-3", "inf"])
def test_seconds_to_wait_that_are_none_are_refused(environment, word):
    for name, value in {**STARTED, "RECOLLECT_RENDEZVOUS": word}.items():
        environment.setenv(name, value)
    with pytest.raises(
        SettingError, match=f"^RECOLLECT_RENDEZVOUS: got '{word}', expected a number of seconds above 0"
    ):
        join(torch.device("cpu"), seed=0)


def test_a_lost_rendezvous_is_named_with_what_to_type(environment):
    for name, value in {**STARTED, "MASTER_PORT": "9", "RECOLLECT_RENDEZVOUS": "0.3"}.items():  # port 9: nobody listens
        environment.setenv(name, value)
    with pytest.raises(SettingError, match=r"process 3 of 4 did not find the others at 127\.0\.0\.1:9 within 0\.3 s"):
        join(torch.device("cpu"), seed=0)
