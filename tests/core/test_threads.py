"""Threads follow the load: as many as there are free cores, never more than were set, and what a user set stays."""

from __future__ import annotations

import os
import subprocess
import sys
from itertools import count

import pytest
import torch

from command_line import run
from recollect.core import threads
from recollect.core.threads import Usage, fitting_threads, is_given, pace

TICKS = os.sysconf("SC_CLK_TCK")


class Machine:
    """Four cores, a clock and a load that a test sets; torch's threads are real."""

    def __init__(self, folder, monkeypatch):
        self.stat, self.clock, self.own, self.total = folder / "stat", 100.0, 7.0, 500.0
        self.notices: list[str] = []
        for name in threads.GIVEN:
            monkeypatch.delenv(name, raising=False)
        files = {"STAT": self.stat, "QUOTA": folder / "cpu.max", "SIBLINGS": folder / "smt", "TOPOLOGY": folder / "cpu"}
        for name, path in files.items():
            monkeypatch.setattr(threads, name, path)
        monkeypatch.setattr(threads, "usable_cores", lambda: {0, 1, 2, 3})
        monkeypatch.setattr(threads, "perf_counter", lambda: self.clock)
        monkeypatch.setattr(threads, "process_time", lambda: self.own)
        monkeypatch.setattr(threads, "_since", None)
        self.goes_on(0.0, 0.0)

    def goes_on(self, seconds: float, others: float) -> None:
        """Let time pass while this process keeps as many cores busy as it has threads, and others so many."""
        mine = torch.get_num_threads() * seconds
        self.clock += seconds
        self.own += mine
        self.total += mine + others * seconds
        ticks = round(self.total * TICKS)
        idle = "9000 50"  # idle, and waiting for the disk
        lines = [f"cpu {ticks} 0 0 {idle} 0 0 0 0 0", f"cpu0 {ticks} 0 0 {idle} 0 0 0 0 0", "cpu1 0 0 0 9 9 0 0 0 0 0"]
        self.stat.write_text("\n".join([*lines, "cpu7 88 0 0 0 0 0 0 0 0 0", "intr 1 2 3"]), encoding="utf-8")


@pytest.fixture
def machine(tmp_path, monkeypatch):
    before = torch.get_num_threads()
    torch.set_num_threads(4)
    yield Machine(tmp_path, monkeypatch)
    torch.set_num_threads(before)


def test_threads_follow_the_load_and_come_back(machine):
    with fitting_threads(machine.notices.append):
        assert torch.get_num_threads() == 4
        for others, expected in [(0.0, 4), (0.3, 4), (1.0, 3), (3.0, 1), (9.0, 1), (0.0, 1), (0.0, 1), (0.0, 4)]:
            machine.goes_on(0.6, others)
            pace()
            assert torch.get_num_threads() == expected, others
        machine.goes_on(0.6, 2.0)
        pace()
        assert torch.get_num_threads() == 2
    assert torch.get_num_threads() == 4
    (said,) = machine.notices
    assert said.startswith("threads: 3 instead of 4, because other programs keep 1.0 of 4 cores busy; OMP_NUM_THREADS")


def test_the_load_is_looked_at_twice_a_second_and_not_at_every_step(machine, monkeypatch):
    looks = count()
    read = threads.read_usage
    monkeypatch.setattr(threads, "read_usage", lambda: (next(looks), read())[1])
    with fitting_threads(machine.notices.append):
        for _ in range(1000):
            machine.goes_on(0.002, 0.0)
            pace()
    assert next(looks) in (4, 5)  # at the start, and four times in two seconds


def test_a_command_knows_the_load_from_its_start(machine):
    threads.note_start()
    machine.goes_on(1.0, 3.0)
    with fitting_threads(machine.notices.append):
        assert torch.get_num_threads() == 1
    assert torch.get_num_threads() == 4


def test_a_containers_share_counts(machine):
    threads.QUOTA.write_text("200000 100000\n", encoding="utf-8")
    with fitting_threads(machine.notices.append):
        machine.goes_on(0.6, 0.0)
        pace()
        assert torch.get_num_threads() == 2
    assert "2 instead of 4, because this container may use 2 cores" in machine.notices[0]
    threads.QUOTA.write_text("max 100000\n", encoding="utf-8")
    assert threads.container_cores() == float("inf")


@pytest.mark.parametrize("chosen", ["OMP_NUM_THREADS", "MKL_NUM_THREADS", "set_num_threads", "no /proc/stat"])
def test_what_a_user_set_stays(machine, monkeypatch, chosen):
    expected = 4
    if chosen == "set_num_threads":
        torch.set_num_threads(expected := 3)
    elif chosen == "no /proc/stat":
        machine.stat.unlink()
    else:
        monkeypatch.setenv(chosen, "4")
    with fitting_threads(machine.notices.append):
        for _ in range(3):
            if machine.stat.exists():
                machine.goes_on(0.6, 4.0)
            pace()
        assert torch.get_num_threads() == expected
    assert torch.get_num_threads() == expected
    assert not machine.notices


def test_half_the_logical_cores_are_torchs_own_where_two_share_one(machine):
    assert is_given(2)
    threads.SIBLINGS.write_text("1\n", encoding="utf-8")
    assert not is_given(2)
    assert not is_given(4)
    assert is_given(3)


def test_cores_that_share_a_physical_one_or_a_quota_count_once(machine):
    assert threads.separate_cores() == [0, 1, 2, 3]
    for core, siblings in enumerate(["0,2", "1,3", "0,2", "1,3"]):
        folder = threads.TOPOLOGY / f"cpu{core}" / "topology"
        folder.mkdir(parents=True)
        (folder / "thread_siblings_list").write_text(f"{siblings}\n", encoding="utf-8")
    assert threads.separate_cores() == [0, 1]
    threads.QUOTA.write_text("150000 100000\n", encoding="utf-8")
    assert threads.separate_cores() == [0]


def test_a_context_inside_another_changes_nothing(machine):
    with fitting_threads(machine.notices.append):
        machine.goes_on(0.6, 3.0)
        pace()
        with fitting_threads(machine.notices.append):
            assert torch.get_num_threads() == 1
        assert torch.get_num_threads() == 1
        machine.goes_on(0.6, 3.0)
        pace()  # still followed
    assert torch.get_num_threads() == 4
    assert len(machine.notices) == 1


def test_the_share_of_others_is_never_negative():
    assert threads.busy_cores(Usage(0.0, 10.0, 0.0), Usage(1.0, 10.9, 1.0)) == 0.0


def test_an_import_changes_nothing():
    script = (
        "import os, torch\nbefore = torch.get_num_threads(), dict(os.environ)\n"
        "import recollect as rc\nrc.train, rc.LSTM, rc.generate\nimport recollect.cli.main\n"
        "assert (torch.get_num_threads(), dict(os.environ)) == before"
    )
    subprocess.run([sys.executable, "-c", script], check=True)


BUSY = [sys.executable, "-c", "while True: pass"]


@pytest.mark.slow
@pytest.mark.skipif(len(threads.usable_cores()) < 2, reason="needs two cores")
def test_beside_busy_programs_a_command_says_that_it_computes_with_fewer_threads(tmp_path):
    free = {name: value for name, value in os.environ.items() if name not in threads.GIVEN}
    words = ["train", "recall:count=200", "-m", "gru", "--budget", "2steps", "--set", "width=16", "--out"]
    busy = [subprocess.Popen(BUSY) for _ in threads.usable_cores()]
    try:
        said = run(*words, str(tmp_path / "free"), env=free).stderr
        fixed = run(*words, str(tmp_path / "fixed"), env=free | {"OMP_NUM_THREADS": "2"}).stderr
        again = run("evaluate", str(tmp_path / "free"), env=free).stderr
        spoken = run("generate", str(tmp_path / "free"), "a", "--tokens", "5", env=free).stderr
    finally:
        for process in busy:
            process.kill()
            process.wait()
    for text in (said, again, spoken):
        assert text.count("threads: ") == text.count("threads: 1 instead of") == 1
    assert "threads: " not in fixed
