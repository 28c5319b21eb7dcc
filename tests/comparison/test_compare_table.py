"""The table of a comparison on a terminal: live while cells run, and the results."""

from __future__ import annotations

import io
import json
from dataclasses import replace

from rich.console import Console

from recollect.cli.compare_table import LiveCells
from recollect.comparison.outcome import Comparison, Row
from recollect.comparison.plan import Plan
from recollect.comparison.processes import CellProgress
from recollect.comparison.verdict import Judged

ROW = Row("gru", "gru", [1.5], 1.5, 0.0, (1.0, 2.0), {"parameters": 1234, "peak_bytes": 2048}, False, None, [])


def terminal(width=100, is_terminal=True) -> Console:
    return Console(file=io.StringIO(), force_terminal=is_terminal, width=width, color_system=None)


def logged(folder, name, *rows) -> None:
    run = folder / "runs" / name
    run.mkdir(parents=True)
    (run / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def test_running_cells_show_their_last_figures(tmp_path):
    first = {"step": 1, "tokens": 64, "seconds": 0.1}
    logged(tmp_path, "gru-seed0", first, {"step": 20, "tokens": 1280, "seconds": 2.5}, {"step": 20, "valid_nats": 1.25})
    shown = terminal()
    with LiveCells(shown) as live:
        live.look(CellProgress(tmp_path, {"gru-seed0": "running", "gru-seed1": "waiting"}))
        seen = shown.file.getvalue()
    assert "gru-seed0" in seen
    assert all(word in seen for word in ("running", "20", "2.5", "1.25"))
    assert "gru-seed1" in seen
    assert "waiting" in seen


def test_without_a_terminal_each_end_is_one_line(tmp_path):
    shown = terminal(is_terminal=False)
    with LiveCells(shown) as live:
        for states in ({"a": "running", "b": "waiting"}, {"a": "done", "b": "running"}, {"a": "done", "b": "killed"}):
            live.look(CellProgress(tmp_path, states))
    assert [line.split() for line in shown.file.getvalue().splitlines()] == [["a", "done"], ["b", "killed"]]


def test_quiet_shows_nothing(tmp_path):
    shown = terminal()
    with LiveCells(shown, is_quiet=True) as live:
        live.look(CellProgress(tmp_path, {"a": "done"}))
    assert shown.file.getvalue() == ""


def test_lost_models_do_not_take_the_columns_of_others(tmp_path):
    part = replace(ROW, name="lstm", problems=["lstm-seed1: killed by SIGKILL"], cells=2)
    lost = replace(ROW, name="rnn", values=[], problems=["rnn-seed0: diverged: " + "a long reason " * 20])
    rows = [ROW, part, lost]
    judged = Judged("gru", "gru", ("gru",), {}, None)
    found = Comparison(tmp_path, Plan("x", "language", ("gru",)), rows, [], judged, [], {"measure": "nats"}, "")
    shown = terminal()
    shown.print(LiveCells(shown).results(found))
    lines = shown.file.getvalue().splitlines()
    assert lines[0].split()[:3] == ["model", "nats", "parameters"]
    assert "1,234" in lines[1]
    assert "1.5 ± 0 (1 of 2)" in lines[2]
    assert lines[3].split() == ["rnn", "left", "out"]
