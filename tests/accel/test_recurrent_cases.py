"""The benchmark of recurrent kernels: what it measures, how its rows are formatted, and that its stacks agree."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))
cases = importlib.import_module("recurrent_cases")
recurrent = importlib.import_module("recurrent")
Case = cases.Case


def row_of(case, which="forward", ratio=2.0, in_graphs=1.5, chosen=True):
    ours = [1.0, 1.0, 1.0]
    times = {"ours": ours, "torch.nn": [ratio] * 3, "ours in a graph": ours, "torch.nn in a graph": [in_graphs] * 3}
    facts = {"pass": which, "chosen": chosen, "plan": "plain", "errors": {"y": (0.001, 0.002)}}
    return case._asdict() | facts | cases.summarise(times, steps=1000)


def test_goals_and_grid_are_all_there_once():
    assert len(set(cases.ALL)) == len(cases.ALL)
    assert set(cases.ALL) == set(cases.GOALS) | set(cases.GRID)
    assert len(cases.GRID) == 4 * 8 * 4
    assert {(case.layers, case.directions) for case in cases.GOALS} == {(1, 1), (4, 1), (1, 2)}
    assert {case.dtype for case in cases.GRID if case.cell != "lstm"} == {"bfloat16"}
    assert {case.dtype for case in cases.GRID if case.cell == "lstm"} == {"bfloat16", "float32"}


def test_goals_are_measured_longer():
    for case in cases.ALL:
        effort = cases.effort_for(case)
        least = (1024, 30) if case in cases.GOALS else (256, 5)
        assert (effort.steps, effort.rounds) == least
    assert cases.effort_for(cases.GRID[0], rounds=2).rounds == 2


@pytest.mark.parametrize(
    ("arguments", "count", "is_trial"),
    [
        ([], len(cases.ALL), False),
        (["--quick"], len(cases.GOALS), False),
        (["--quick", "--rounds", "3"], len(cases.GOALS), True),
        (["--only", "lstm,bfloat16,64,512,4,1"], 1, True),
    ],
)
def test_arguments(arguments, count, is_trial):
    options = recurrent.parse(arguments)
    assert len(recurrent.cases(options)) == count
    assert recurrent.is_trial(options) is is_trial


def test_one_case_by_name():
    assert cases.parse("gru,float16,1,64") == Case("gru", "float16", 1, 64)
    assert cases.parse("lstm,bfloat16,64,512,1,2").directions == 2


def test_a_row_says_where_ours_is_slower():
    row = row_of(cases.GRID[0], ratio=2.0, in_graphs=0.9)
    assert row["us_per_step"] == {
        "ours": 1.0,
        "torch.nn": 2.0,
        "ours in a graph": 1.0,
        "torch.nn in a graph": 0.9,
    }
    assert (row["ratio"], row["slower"], row["slower_in_graphs"], row["rounds"]) == (2.0, False, True, 3)
    written = cases.line(row)
    assert written.endswith("y 0.0010 0.0020 | plain | slower in graphs")
    assert cases.line(row_of(cases.GOALS[-1])).split()[4] == "<>"
    assert cases.line(row_of(cases.GOALS[-2])).split()[4] == "x4"


def test_rows_take_the_places_of_earlier_ones():
    first, second = cases.GOALS[0], cases.GRID[-1]
    before = [row_of(second), row_of(first), row_of(first, "forward + backward")]
    merged = cases.merge(before, [row_of(first, ratio=7.0)])
    assert [(cases.case_of(row), row["pass"]) for row in merged] == [
        (first, "forward"),
        (first, "forward + backward"),
        (second, "forward"),
    ]
    assert merged[0]["ratio"] == 7.0


@pytest.mark.parametrize("case", [case for case in cases.GOALS if case.is_stack], ids=["layers", "directions"])
def test_stacks_have_the_same_weights(case):
    torch.manual_seed(0)
    ours = recurrent.build(case._replace(hidden=6), torch.device("cpu"))
    x = torch.randn(2, 5, 6, requires_grad=True)
    errors = recurrent.compare(ours, ours.to_torch(), x, torch.randn(2, 5, 6 * case.directions))
    assert set(errors) == {"y", "dx", "dw"}
    assert all(0 < error < 1e-6 for pair in errors.values() for error in pair)


def test_kernels_are_compiled_ahead_once_for_batches_that_share_them():
    chip = recurrent.plans.Chip()
    needed = {kernel for case in cases.ALL for kernel in recurrent.kernels_for(case, chip)}
    assert {file for file, _ in needed} == {"forward.cu", "backward.cu"}
    assert len(needed) < 2 * len(cases.ALL)


def test_without_a_gpu_it_says_so(capsys):
    if torch.cuda.is_available():
        pytest.skip("there is one")
    assert recurrent.main(["--quick"]) == 2
    assert "needs a CUDA GPU" in capsys.readouterr().out
